"""Ways in which parsing a file can end, for trials."""

import os
import time

from lakestream.errors import CorruptObject


def fine(path: str, data: bytes) -> None:
    assert path
    assert data


def refused(path: str, data: bytes) -> None:
    raise CorruptObject(f"{path} has {len(data)} bytes too many")


def surprised(path: str, data: bytes) -> None:
    raise KeyError(path)


_harmed: list[str] = []


def harmful(path: str, data: bytes) -> None:
    """Crashes over the second file that a process gets, which is not to blame."""
    if _harmed:
        os.abort()
    _harmed.append(path)


def crashed(path: str, data: bytes) -> None:
    os.abort()


def endless(path: str, data: bytes) -> None:
    while path:
        pass


def stopped(path: str, data: bytes) -> None:
    time.sleep(3600)


def greedy(path: str, data: bytes) -> None:
    assert bytearray(8 << 30)


def killed(path: str, data: bytes) -> None:
    os.kill(os.getpid(), 9)


def left(path: str, data: bytes) -> None:
    os._exit(3)
