"""What requests that take long have in common: how many there may be, and that the door may be stopped meanwhile."""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from starlette.types import Send

from lakestream.errors import Overloaded
from lakestream.metrics import RestMetrics

_STREAMS_MOST: Final = 2_000
_TAKEN_S: Final = 60.0
"""A client that takes nothing for so long is given up."""
T = TypeVar("T")


class ClientGone(Exception):
    """Nobody is there to be answered."""


class DoorLife:
    def __init__(self, metrics: RestMetrics) -> None:
        self._metrics = metrics
        self._streams = 0
        self._stopping = asyncio.Event()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        """Streams come to their end: what was taken in is answered, nothing more is taken."""
        self._stopping.set()

    def check(self) -> None:
        """Before a stream begins. Raises `Overloaded`."""
        if self._streams >= _STREAMS_MOST:
            raise Overloaded(f"{_STREAMS_MOST} streams are open: try again later")

    @contextmanager
    def stream(self) -> Iterator[None]:
        self._streams += 1
        self._metrics.streams.set(self._streams)
        try:
            yield
        finally:
            self._streams -= 1
            self._metrics.streams.set(self._streams)

    async def unless_stopped(self, work: Awaitable[T], timeout_s: float | None = None) -> T | None:
        """What the work gives; None if the door is stopped, or time is out, before. The work is cancelled then."""
        doing = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((doing, stopped), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            return doing.result() if doing.done() else None
        finally:
            stopped.cancel()
            if not doing.done():
                doing.cancel()
                await asyncio.wait((doing,))


async def send_to_client(send: Send, body: bytes, *, more: bool) -> None:
    """Raises `ClientGone` for one that does not take it."""
    try:
        async with asyncio.timeout(_TAKEN_S):
            await send({"type": "http.response.body", "body": body, "more_body": more})
    except (TimeoutError, OSError) as error:
        raise ClientGone from error
