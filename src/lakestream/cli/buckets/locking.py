"""One `up`, or one command that needs everything to rest, on a data directory at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakestream.cli.console import fail
from lakestream.settings import Settings


@contextmanager
def lock_data(settings: Settings, *, create: bool = False) -> Iterator[None]:
    """Ends the command if an `up`, or another such command, runs on the data directory. One in which nothing has run
    needs no lock, unless the command is to `create` what is in it."""
    path = Path(settings.data_dir).resolve() / "lock"
    if create:
        path.parent.mkdir(parents=True, exist_ok=True)
    elif not path.exists():
        yield
        return
    with path.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fail(f"lakestream runs on {path.parent}: stop it first, or wait for the command that is under way")
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield
