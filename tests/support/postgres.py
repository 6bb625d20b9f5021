"""A real PostgreSQL in a process of its own: what `pgserver` brings along, or the system's."""

import os
import pwd
import shutil
import signal
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
    """SQLAlchemy's address of an empty database. The server refuses to run as root, so then it runs as nobody."""
    user = "nobody" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="postgres-") as name:
        folder, port = Path(name), free_ports()
        if user:
            os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
        data, log = folder / "data", folder / "postgres.log"
        initdb = [f"{programs}/initdb", "-D", data, "-U", "test", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"]
        subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, cwd=folder, user=user)
        options = ["-h", HOST, "-p", str(port), "-k", "", "-F", "-c", "max_connections=100"]
        with log.open("wb") as output:
            command = [f"{programs}/postgres", "-D", data, *options]
            server = subprocess.Popen(command, stdout=output, stderr=output, cwd=folder, user=user)

        def ask() -> None:
            psycopg2.connect(host=HOST, port=port, user="test", dbname="postgres").close()

        with served(server, log, ask, psycopg2.OperationalError, start_s=START_S, stop=signal.SIGINT):
            yield f"postgresql+psycopg2://test@{HOST}:{port}/postgres"
