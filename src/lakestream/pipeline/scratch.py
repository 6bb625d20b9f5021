"""A driver's directory for what Spark spills and logs, gone when the driver is, killed ones included.

Its owner holds a lock on it that ends with the process. A directory whose lock is free was left behind by a process
that was killed, and whoever makes the next one removes it.
"""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

_PREFIX: Final = "lakestream-spark-"
_UNFINISHED: Final = "lakestream-new-"
_LOCK: Final = "lock"


class Scratch:
    """Made with the object, removed by `remove`."""

    def __init__(self) -> None:
        _sweep(Path(tempfile.gettempdir()))
        made = Path(tempfile.mkdtemp(prefix=_UNFINISHED))
        self._lock = os.open(made / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        # Under its name only now: nobody may find it there with its lock still free.
        self.path: Final = made.rename(made.with_name(made.name.replace(_UNFINISHED, _PREFIX, 1)))

    def remove(self) -> None:
        """To be called once."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _sweep(directory: Path) -> None:
    """Removes what was left behind. What is somebody else's, or not to be read, stays."""
    for found in directory.glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(OSError):
            lock = os.open(found, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(found.parent, ignore_errors=True)
            finally:
                os.close(lock)
