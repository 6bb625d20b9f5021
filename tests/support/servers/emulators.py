"""Object stores of other makers on this machine: versitygw as S3, fake-gcs-server as Google's, Azurite as Azure's.

The programs come from LAKESTREAM_STORE_TOOLS, else from the repository's cache (`make store-tools`).
"""

import base64
import hashlib
import hmac
import http.client
import json
import os
import shutil
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError

from support.worlds.processes import HOST, free_ports, served

_CACHE = Path(__file__).parents[3] / ".cache" / "store-tools"
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
    """fake-gcs-server knows puts of Google's JSON API only, and the client makes those of the XML API: a proxy in front
    says the same in other words, condition included. All else goes through as it is."""
    port = free_ports()
    address = f"http://{HOST}:{port}"
    with ThreadingHTTPServer((HOST, 0), type("Translating", (_Translating,), {"port": port})) as proxy:
        front = f"http://{HOST}:{proxy.server_port}"
        command = [program, "-scheme", "http", "-host", HOST, "-port", str(port), "-backend", "memory"]
        command += ["-external-url", front, "-public-host", f"{HOST}:{proxy.server_port}", "-log-level", "error"]
        account: dict[str, object] = {"gcs_base_url": front, "disable_oauth": True}
        account |= dict.fromkeys(("client_email", "private_key", "private_key_id"), "")

        def make_bucket(name: str) -> None:
            body = json.dumps({"name": name}).encode()
            kind = {"content-type": "application/json"}
            request = urllib.request.Request(f"{address}/storage/v1/b?project=test", body, kind)
            with urllib.request.urlopen(request, timeout=30):
                pass

        with _running(command, folder / "gcs.log", f"{address}/storage/v1/b?project=test"):
            threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
            try:
                yield Emulator("gs", {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account)}, make_bucket)
            finally:
                proxy.shutdown()


class _Translating(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    port = 0

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        method, path = self.command, self.path
        if method == "PUT":
            bucket, _, name = path.lstrip("/").partition("/")
            generation = self.headers.get("x-goog-if-generation-match")
            condition = f"&ifGenerationMatch={generation}" if generation is not None else ""
            method = "POST"
            path = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name.replace('/', '%2F')}{condition}"
        headers = {name: value for name, value in self.headers.items() if name.lower() != "content-length"}
        connection = http.client.HTTPConnection(HOST, self.port, timeout=60)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length", "etag"):
                self.send_header(name, value)
        size = answer.getheader("content-length") if self.command == "HEAD" else None
        self.send_header("content-length", size or str(len(data)))
        self.send_header("etag", answer.getheader("etag") or '"made"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on

    def log_message(self, format: str, *args: object) -> None:
        return


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
