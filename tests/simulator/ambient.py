"""I10: the same seed gives the same run, so the code under test asks nobody but its `Runtime` for time or chance.

While a history runs, the doors through which time, chance and threads come in by themselves are watched.
"""

import os
import random
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

_DOORS: Final = (
    *((time, name) for name in ("time", "time_ns", "monotonic", "perf_counter", "sleep")),
    *((random, name) for name in ("random", "uniform", "randint", "randrange", "choice", "shuffle", "sample")),
    *((uuid, name) for name in ("uuid1", "uuid4")),
    (os, "urandom"),
    (threading.Thread, "start"),
)


_OURS: Final = ("lakestream.", "simulator.bugs.")


@contextmanager
def watched(fail: Callable[[str], Any]) -> Iterator[None]:
    """Calls `fail` when the code under test goes through one of the doors; other libraries may."""
    real = [(place, name, getattr(place, name)) for place, name in _DOORS]
    for place, name, door in real:
        setattr(place, name, _door(door, name, fail))
    try:
        yield
    finally:
        for place, name, door in real:
            setattr(place, name, door)


def _door(real: Callable[..., Any], name: str, fail: Callable[[str], Any]) -> Callable[..., Any]:
    def asked(*args: Any, **options: Any) -> Any:
        module = sys._getframe(1).f_globals.get("__name__", "")
        if module.startswith(_OURS):
            fail(f"I10: {module} calls {name}, which no seed decides")
        return real(*args, **options)

    return asked
