"""One `up`, or one command that needs everything to rest, on a data directory at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakestream.cli.console import fail
from lakestream.settings import Settings


@contextmanager
def lock_data(settings: Settings) -> Iterator[None]:
    """Ends the command if an `up` runs on the data directory. One that is not there needs no lock."""
    path = Path(settings.data_dir).resolve() / "lock"
    if not path.exists():
        yield
        return
    with path.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fail(f"lakestream runs on {path.parent}: stop it first")
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield
