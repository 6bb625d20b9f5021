"""An S3 server for measurements: versitygw or MinIO if there is one (on PATH, or `LAKESTREAM_S3_GATEWAY`), else moto"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import obstore
from obstore.store import S3Store

from benchmarks.servers import HOST, free_port

START_S = 30.0
BUCKET = "lake"
_KEYS = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench-secret", "AWS_REGION": "us-east-1"}


@dataclass(frozen=True, slots=True)
class S3:
    """`environment` is what processes need to reach it. Its own CPU time is `pid`'s: the store's, not ours."""

    name: str
    url: str
    pid: int
    environment: Mapping[str, str]

    def read(self, address: str) -> bytes:
        """The object at that `s3://` address."""
        store = _client(self.environment["AWS_ENDPOINT"])
        return bytes(obstore.get(store, address.removeprefix(f"{self.url}/")).bytes())


@contextmanager
def s3() -> Iterator[S3]:
    """With an empty bucket."""
    gateway = os.environ.get("LAKESTREAM_S3_GATEWAY") or shutil.which("versitygw") or shutil.which("minio")
    name = Path(gateway).name if gateway else "moto"
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="s3-bench-") as folder:
        (Path(folder) / BUCKET).mkdir()
        keys = {"ROOT_ACCESS_KEY": _KEYS["AWS_ACCESS_KEY_ID"], "ROOT_SECRET_KEY": _KEYS["AWS_SECRET_ACCESS_KEY"]}
        keys |= {"MINIO_ROOT_USER": _KEYS["AWS_ACCESS_KEY_ID"], "MINIO_ROOT_PASSWORD": _KEYS["AWS_SECRET_ACCESS_KEY"]}
        command = _command(gateway, name, port, folder)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(command, env=os.environ | keys, **quiet) as process:  # type: ignore[call-overload]
            try:
                address = f"http://{HOST}:{port}"
                _wait(address, process)
                if name == "moto":
                    urllib.request.urlopen(
                        urllib.request.Request(f"{address}/{BUCKET}", method="PUT"), timeout=30
                    ).close()
                made = _KEYS | {"AWS_ENDPOINT": address, "AWS_ENDPOINT_URL": address, "AWS_ALLOW_HTTP": "true"}
                _check(address)
                yield S3(name, f"s3://{BUCKET}", process.pid, made)
            finally:
                process.terminate()


def _command(gateway: str | None, name: str, port: int, folder: str) -> list[str]:
    if gateway is None:
        return [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", HOST, "-p", str(port)]
    if name == "minio":
        return [gateway, "server", "--address", f"{HOST}:{port}", folder]
    return [gateway, "--port", f"{HOST}:{port}", "posix", folder]


def _wait(address: str, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            urllib.request.urlopen(address, timeout=1).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("the S3 server did not start") from None
            time.sleep(0.05)


def _check(address: str) -> None:
    """That it takes what it is given, before anything is measured on it."""
    store = _client(address)
    obstore.put(store, "probe", b"x")
    if bytes(obstore.get(store, "probe").bytes()) != b"x":
        raise SystemExit("the S3 server does not give back what it was given")
    obstore.delete(store, "probe")


def _client(address: str) -> S3Store:
    return S3Store(
        BUCKET,
        endpoint=address,
        access_key_id=_KEYS["AWS_ACCESS_KEY_ID"],
        secret_access_key=_KEYS["AWS_SECRET_ACCESS_KEY"],
        region=_KEYS["AWS_REGION"],
        client_options={"allow_http": True},
    )
