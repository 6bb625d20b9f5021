"""Object stores of other makers on this machine: versitygw as S3, fake-gcs-server as Google's, Azurite as Azure's.

The programs come from LAKESTREAM_STORE_TOOLS, else from the repository's cache (`make store-tools`).
"""

import base64
import hashlib
import hmac
import json
import os
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from urllib.error import HTTPError

from support.processes import HOST, free_ports, served

_CACHE = Path(__file__).parents[2] / ".cache" / "store-tools"
_START_S = 60.0
_AZURE_ACCOUNT = "devstoreaccount1"
_AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Known to everybody: Azurite has no other."""


@dataclass(frozen=True, slots=True)
class Emulator:
    """`environment` is what a process needs to use it; `make_bucket` makes one of that name."""

    scheme: str
    environment: Mapping[str, str]
    make_bucket: Callable[[str], None]


def tool(name: str) -> str | None:
    """The program of that name."""
    folder = Path(os.environ.get("LAKESTREAM_STORE_TOOLS", _CACHE))
    places = [folder / "bin" / name, folder / "node_modules" / ".bin" / name]
    return next((str(place) for place in places if place.exists()), None) or shutil.which(name)


@contextmanager
def versitygw(program: str, folder: Path) -> Iterator[Emulator]:
    port, data = free_ports(), folder / "s3"
    data.mkdir()
    keys = {"ROOT_ACCESS_KEY": "test", "ROOT_SECRET_KEY": "test-secret"}
    environment = {
        "AWS_ENDPOINT": f"http://{HOST}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test-secret",
        "AWS_REGION": "us-east-1",
    }
    command = [program, "--port", f"{HOST}:{port}", "posix", str(data)]
    with _running(command, folder / "versitygw.log", f"http://{HOST}:{port}", keys):
        yield Emulator("s3", environment, lambda name: (data / name).mkdir())


@contextmanager
def gcs(program: str, folder: Path) -> Iterator[Emulator]:
    port = free_ports()
    address = f"http://{HOST}:{port}"
    account = {
        "gcs_base_url": address,
        "disable_oauth": True,
        "client_email": "",
        "private_key": "",
        "private_key_id": "",
    }
    command = [program, "-scheme", "http", "-host", HOST, "-port", str(port), "-backend", "memory"]
    command += ["-external-url", address, "-public-host", f"{HOST}:{port}", "-log-level", "error"]

    def make_bucket(name: str) -> None:
        body = json.dumps({"name": name}).encode()
        kind = {"content-type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(f"{address}/storage/v1/b?project=test", body, kind), timeout=30)

    with _running(command, folder / "gcs.log", f"{address}/storage/v1/b?project=test"):
        yield Emulator("gs", {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account)}, make_bucket)


@contextmanager
def azure(program: str, folder: Path) -> Iterator[Emulator]:
    port = free_ports()
    address = f"http://{HOST}:{port}"
    environment = {
        "AZURE_STORAGE_USE_EMULATOR": "true",
        "AZURITE_BLOB_STORAGE_URL": address,
        "AZURE_STORAGE_ACCOUNT_NAME": _AZURE_ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": _AZURE_KEY,
    }
    command = [program, "--blobHost", HOST, "--blobPort", str(port), "--location", str(folder / "azure"), "--silent"]
    command += ["--skipApiVersionCheck", "--disableTelemetry"]
    with _running(command, folder / "azure.log", address):
        yield Emulator("az", environment, lambda name: _make_container(address, name))


def _make_container(address: str, name: str) -> None:
    date, version = formatdate(usegmt=True), "2021-08-06"
    path = f"/{_AZURE_ACCOUNT}/{name}"
    told = [f"x-ms-date:{date}", f"x-ms-version:{version}", f"/{_AZURE_ACCOUNT}{path}", "restype:container"]
    signed = "\n".join(["PUT", *[""] * 11, *told])
    signature = hmac.new(base64.b64decode(_AZURE_KEY), signed.encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": date,
        "x-ms-version": version,
        "content-length": "0",
        "authorization": f"SharedKey {_AZURE_ACCOUNT}:{base64.b64encode(signature).decode()}",
    }
    request = urllib.request.Request(f"{address}{path}?restype=container", method="PUT", headers=headers)
    with urllib.request.urlopen(request, timeout=30):
        pass


@contextmanager
def _running(
    command: list[str], log: Path, address: str, environment: Mapping[str, str] | None = None
) -> Iterator[None]:
    with log.open("ab") as output:
        env = os.environ | dict(environment or {})
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=env)
    with served(server, log, lambda: _ask(address), start_s=_START_S, stop=signal.SIGTERM):
        yield


def _ask(address: str) -> None:
    """Any answer will do."""
    try:
        with urllib.request.urlopen(address, timeout=5):
            pass
    except HTTPError as error:
        error.close()
