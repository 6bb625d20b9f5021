"""The servers that `lakestream cluster up` runs beside ours: PostgreSQL, and an S3 server, from what this machine has.

Both listen on the loopback, on any free port, and ask for a secret that is made at the first start. PostgreSQL refuses
to run as root: then it runs as `postgres` or `nobody`, who must be able to get at the data directory.
"""

import asyncio
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from lakestream.cli.local.children import Child
from lakestream.errors import RequestError

HOST: Final = "127.0.0.1"
BUCKET: Final = "lake"
_SYSTEM: Final = Path("/usr/lib/postgresql")
_REGION: Final = "us-east-1"
_KEY: Final = "lakestream"


@dataclass(frozen=True, slots=True)
class NeededServer:
    """`environment`: what our own processes need to use it. `about`: what it is, for people."""

    child: Child
    environment: Mapping[str, str]
    about: str


def read_secret(folder: Path) -> str:
    """Made once; nobody else on this machine may read it."""
    path = folder / "secret"
    if not path.exists():
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(16))
    return path.read_text()


def postgres(folder: Path, logs: Path, secret: str) -> NeededServer:
    """Makes the database at the first start. Raises `RequestError` if there is no PostgreSQL, or if it cannot."""
    user = _other_user()
    programs = _postgres_programs(user)
    data = folder / "postgres"
    if not (data / "PG_VERSION").exists():
        _init(programs, data, folder / "pwfile", secret, user)
    port = _free_port()
    command = [
        f"{programs}/postgres",
        "-D",
        str(data),
        "-h",
        HOST,
        "-p",
        str(port),
        "-k",
        "",
        "-c",
        "max_connections=200",
    ]
    child = Child(
        "PostgreSQL",
        (),
        logs / "postgres.log",
        program=command,
        probe=lambda: _listens(port),
        stop_signal=signal.SIGINT,
        user=user.pw_uid if user else None,
    )
    url = f"postgres://{_KEY}:{secret}@{HOST}:{port}/postgres"
    return NeededServer(
        child, {"LAKESTREAM_METADATA_URL": url}, f"PostgreSQL of {programs} on port {port}, data in {data}"
    )


def s3(folder: Path, logs: Path, secret: str) -> NeededServer:
    """versitygw if this machine has it, else moto's server. Raises `RequestError` if there is neither."""
    port = _free_port()
    environment = {
        "AWS_ENDPOINT": f"http://{HOST}:{port}",
        "AWS_ACCESS_KEY_ID": _KEY,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_REGION": _REGION,
        "LAKESTREAM_BUCKET_URL": f"s3://{BUCKET}",
    }
    gateway = _versitygw()
    if gateway is not None:
        (folder / "s3" / BUCKET).mkdir(parents=True, exist_ok=True)
        child = Child(
            "S3 server",
            (),
            logs / "s3.log",
            program=[gateway, "--port", f"{HOST}:{port}", "posix", str(folder / "s3")],
            probe=lambda: _listens(port),
            environment={"ROOT_ACCESS_KEY": _KEY, "ROOT_SECRET_KEY": secret},
        )
        return NeededServer(child, environment, f"versitygw on port {port}, data in {folder / 's3'}")
    if find_spec("moto") is None or find_spec("flask") is None:
        raise RequestError(
            "no S3 server is here: install versitygw (go install github.com/versity/versitygw/cmd/versitygw@latest), "
            "or moto's (pip install 'moto[server]')"
        )
    child = Child(
        "S3 server",
        (),
        logs / "s3.log",
        program=[sys.executable, "-W", "ignore", "-m", "moto.server", "-H", HOST, "-p", str(port)],
        probe=lambda: _has_bucket(port),
    )
    return NeededServer(
        child, environment, f"moto's server on port {port}: for a look only, it keeps objects in memory"
    )


def keeps_objects() -> bool:
    """Whether what the S3 server holds is there at the next start."""
    return _versitygw() is not None


def _versitygw() -> str | None:
    folder = os.environ.get("LAKESTREAM_STORE_TOOLS")
    return shutil.which("versitygw", path=f"{folder}/bin" if folder else None) or shutil.which("versitygw")


def _other_user() -> pwd.struct_passwd | None:
    """Whose PostgreSQL is, if we are root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]


def _postgres_programs(user: pwd.struct_passwd | None) -> Path:
    bundle = find_spec("pgserver")
    bundled = [Path(place) / "pginstall" / "bin" for place in (bundle and bundle.submodule_search_locations) or ()]
    on_path = shutil.which("initdb")
    places = [
        *sorted(_SYSTEM.glob("*/bin"), reverse=True),
        *([Path(on_path).resolve().parent] if on_path else []),
        *bundled,
    ]
    for place in places:
        if (place / "postgres").exists() and (user is None or _runs(place, user)):
            return place
    raise RequestError(
        "no PostgreSQL is here that can be run: install the Debian package postgresql, or pip install pgserver"
    )


def _runs(programs: Path, user: pwd.struct_passwd) -> bool:
    """Whether the user gets at it."""
    try:
        done = subprocess.run([programs / "postgres", "--version"], user=user.pw_uid, capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


def _init(programs: Path, data: Path, password: Path, secret: str, user: pwd.struct_passwd | None) -> None:
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(mode=0o700)
    password.write_text(secret)
    password.chmod(0o600)
    if user is not None:
        os.chown(data, user.pw_uid, user.pw_gid)
        os.chown(password, user.pw_uid, user.pw_gid)
    access = ("-U", _KEY, "-A", "scram-sha-256", f"--pwfile={password}")
    done = subprocess.run(
        [f"{programs}/initdb", "-D", str(data), "-E", "UTF8", "--locale=C", *access],
        capture_output=True,
        text=True,
        user=user.pw_uid if user else None,
        cwd="/",
        check=False,
    )
    password.unlink()
    if done.returncode != 0:
        shutil.rmtree(data, ignore_errors=True)
        told = (done.stderr or done.stdout).strip().splitlines()
        whose = f" (it runs as {user.pw_name}, who must be able to get at the data directory)" if user else ""
        raise RequestError(
            f"PostgreSQL cannot make its files in {data}{whose}: {told[-1] if told else 'no reason given'}"
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return False
    writer.close()
    return True


async def _has_bucket(port: int) -> bool:
    """Made if it is not there: moto takes it from anybody."""

    def make() -> bool:
        request = urllib.request.Request(f"http://{HOST}:{port}/{BUCKET}", method="PUT")
        try:
            with urllib.request.urlopen(request, timeout=5):
                return True
        except OSError:
            return False

    return await _listens(port) and await asyncio.to_thread(make)
