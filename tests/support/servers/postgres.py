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
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psutil
import psycopg2

from support.worlds.processes import HOST, free_ports, served

START_S = 60.0
USER = "test"
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
    """SQLAlchemy's address of an empty database."""
    with postgres_server(programs) as server, server.up():
        yield f"postgresql+psycopg2://{USER}@{HOST}:{server.port}/postgres"


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A data directory, and how to run a server on it: it may be started, stopped and killed again and again."""

    command: tuple[str, ...]
    port: int
    log: Path
    runs_as: int | None
    password: str

    @property
    def url(self) -> str:
        return f"postgres://{USER}:{self.password}@{HOST}:{self.port}/postgres"

    @contextmanager
    def up(self) -> Iterator[subprocess.Popen[bytes]]:
        with self.log.open("ab") as output:
            place = self.log.parent
            server = subprocess.Popen(self.command, stdout=output, stderr=output, cwd=place, user=self.runs_as)
        with served(server, self.log, self._ask, psycopg2.OperationalError, start_s=START_S, stop=signal.SIGINT):
            yield server

    def end(self, server: subprocess.Popen[bytes], how: signal.Signals) -> None:
        """Until the last of its processes is gone: before that no other can start here."""
        family = psutil.Process(server.pid).children(recursive=True)
        server.send_signal(how)
        server.wait(START_S)
        _, alive = psutil.wait_procs(family, START_S)
        assert not alive

    def _ask(self) -> None:
        place = {"host": HOST, "port": self.port, "dbname": "postgres"}
        psycopg2.connect(user=USER, password=self.password, **place).close()


@contextmanager
def postgres_server(programs: str, password: str = "", *, synced: bool = False) -> Iterator[PostgresServer]:
    """A data directory without its server. With a password the server asks for it; `synced`: its commits are on disk.
    It refuses to run as root, so then it runs as nobody, who may not enter every folder that root can: what he needs is
    copied to one that he can."""
    user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="postgres-", dir=_temporary(user)) as name:
        folder, port = Path(name), free_ports()
        if user:
            os.chown(folder, user.pw_uid, -1)
        if user and not _may_enter(user, Path(programs)):
            programs = str(_copy(Path(programs), folder / "programs"))
        data, secret = folder / "data", folder / "password"
        secret.write_text(password)
        initdb = [f"{programs}/initdb", "-D", data, "-U", USER, "-E", "UTF8", "--locale=C", "-N"]
        access = ["-A", "scram-sha-256", f"--pwfile={secret}"] if password else ["-A", "trust"]
        runs_as = user and user.pw_uid
        subprocess.run([*initdb, *access], check=True, stdout=subprocess.DEVNULL, cwd=folder, user=runs_as)
        options = ("-h", HOST, "-p", str(port), "-k", "", "-c", "max_connections=100", *(() if synced else ("-F",)))
        command = (f"{programs}/postgres", "-D", str(data), *options)
        yield PostgresServer(command, port, folder / "postgres.log", runs_as, password)


@contextmanager
def standby_of(primary: PostgresServer) -> Iterator[PostgresServer]:
    """A data directory of a second server that follows the first, which must be up: streaming replication. The first
    then waits for it with every commit; the second, should it take the place of the first, waits for nobody."""
    with tempfile.TemporaryDirectory(prefix="standby-", dir=primary.log.parent.parent) as name:
        folder, port = Path(name), free_ports()
        if primary.runs_as is not None:
            os.chown(folder, primary.runs_as, -1)
        data, programs = folder / "data", Path(primary.command[0]).parent
        copy = [f"{programs}/pg_basebackup", "-D", data, "-R", "-X", "stream", "-c", "fast"]
        place = ["-h", HOST, "-p", str(primary.port), "-U", USER]
        environment = os.environ | {"PGPASSWORD": primary.password}
        subprocess.run([*copy, *place], check=True, cwd=folder, user=primary.runs_as, env=environment)
        command = (primary.command[0], "-D", str(data), *primary.command[3:5], "-p", str(port), *primary.command[7:])
        yield PostgresServer(command, port, folder / "postgres.log", primary.runs_as, primary.password)


def wait_for_standbys(primary: PostgresServer) -> None:
    """From now on each commit of this server waits for its standby."""
    execute(primary, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")


def promote(standby: PostgresServer) -> None:
    execute(standby, "SELECT pg_promote()")


def execute(server: PostgresServer, *statements: str) -> None:
    connection = psycopg2.connect(user=USER, password=server.password, host=HOST, port=server.port, dbname="postgres")
    try:
        connection.autocommit = True
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
    finally:
        connection.close()


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
