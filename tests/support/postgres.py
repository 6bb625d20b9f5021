"""A real PostgreSQL in a process of its own: what `pgserver` brings along, or the system's."""

import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import psycopg2

from support.processes import HOST, free_ports, served

START_S = 60.0
_SYSTEM = Path("/usr/lib/postgresql")


def postgres_programs() -> str | None:
    """The folder that has `initdb` and `postgres`."""
    bundle = find_spec("pgserver")
    bundled = [Path(place) / "pginstall" / "bin" for place in (bundle and bundle.submodule_search_locations) or ()]
    on_path = shutil.which("initdb")
    places = [*bundled, *([Path(on_path).resolve().parent] if on_path else []), *sorted(_SYSTEM.glob("*/bin"))]
    return next((str(place) for place in places if (place / "postgres").exists()), None)


@contextmanager
def postgres(programs: str) -> Iterator[str]:
    """SQLAlchemy's address of an empty database. The server refuses to run as root, so then it runs as nobody, who may
    not enter every folder that root can: what he needs is copied to one that he can."""
    user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="postgres-", dir=_temporary(user)) as name:
        folder, port = Path(name), free_ports()
        if user:
            os.chown(folder, user.pw_uid, -1)
        if user and not _may_enter(user, Path(programs)):
            programs = str(_copy(Path(programs), folder / "programs"))
        data, log = folder / "data", folder / "postgres.log"
        initdb = [f"{programs}/initdb", "-D", data, "-U", "test", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"]
        runs_as = user and user.pw_uid
        subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, cwd=folder, user=runs_as)
        options = ["-h", HOST, "-p", str(port), "-k", "", "-F", "-c", "max_connections=100"]
        with log.open("wb") as output:
            command = [f"{programs}/postgres", "-D", data, *options]
            server = subprocess.Popen(command, stdout=output, stderr=output, cwd=folder, user=runs_as)

        def ask() -> None:
            psycopg2.connect(host=HOST, port=port, user="test", dbname="postgres").close()

        with served(server, log, ask, psycopg2.OperationalError, start_s=START_S, stop=signal.SIGINT):
            yield f"postgresql+psycopg2://test@{HOST}:{port}/postgres"


def _temporary(user: pwd.struct_passwd | None) -> str | None:
    """A folder for temporary files that the user may enter, too."""
    places = [tempfile.gettempdir(), "/tmp", "/var/tmp"]
    return next((place for place in places if user and _may_enter(user, Path(place))), None)


def _may_enter(user: pwd.struct_passwd, folder: Path) -> bool:
    return all(_may_search(user, place.stat()) for place in (folder.resolve(), *folder.resolve().parents))


def _may_search(user: pwd.struct_passwd, found: os.stat_result) -> bool:
    if found.st_uid == user.pw_uid:
        return bool(found.st_mode & stat.S_IXUSR)
    return bool(found.st_mode & (stat.S_IXGRP if found.st_gid == user.pw_gid else stat.S_IXOTH))


def _copy(programs: Path, folder: Path) -> Path:
    """Programs find their libraries by the way from one to the other, which stays the same."""
    packages = programs.parents[2]
    for part in (programs.parent.relative_to(packages), Path("pgserver.libs")):
        if (packages / part).exists():
            shutil.copytree(packages / part, folder / part)
    return folder / programs.relative_to(packages)
