"""The collector of cycles as a broker sets it once it is ready."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from lakestream.node.broker import settle_memory


@contextmanager
def settled() -> Iterator[None]:
    """Until what is inside ends."""
    usual = gc.get_threshold()
    settle_memory()
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()
