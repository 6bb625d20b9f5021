"""A remote store that is asked again, asked twice, or asked less.

What fails for a moment (no connection, no answer in time, 408, 429, 5xx) is sent again, after pauses that double, with
jitter, until a deadline. What will fail again the next time (no such object, no right, a request that cannot be) is
not. A read that is late is sent a second time, and the first answer counts; a write never is. A store that throttles
gets fewer requests at a time until it answers again.
"""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from lakestream.errors import StoreRefused, Throttled, Unavailable
from lakestream.metrics import ObjectMetrics
from lakestream.objects.steady.hedging import Hedging
from lakestream.objects.steady.throttle import Throttle
from lakestream.objects.store import Buffer, ObjectInfo, ObjectStore
from lakestream.runtime import Runtime

_log = logging.getLogger(__name__)

T = TypeVar("T")

_TELL_EVERY_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Patience:
    """A request is sent again until `deadline_ms` after the first attempt. `most_requests` may be under way at once,
    and second ones only while fewer than `hedge_below` are."""

    deadline_ms: int = 30_000
    first_pause_ms: int = 100
    longest_pause_ms: int = 5_000
    most_requests: int = 128
    hedge_below: int = 32


USUAL: Final = Patience()


class SteadyObjects:
    """Implements `ObjectStore` by one that makes a single attempt.

    A put that got no answer is sent again, so a `Conflict` may be about the caller's own object: names that are never
    reused make that harmless."""

    def __init__(
        self, store: ObjectStore, runtime: Runtime, metrics: ObjectMetrics, patience: Patience = USUAL
    ) -> None:
        self._store = store
        self._random = runtime.random
        self._metrics = metrics
        self._patience = patience
        self._throttle = Throttle(patience.most_requests, metrics.allowed.set)
        self._hedging = Hedging()
        self._told_s = -math.inf

    @property
    def url(self) -> str:
        return self._store.url

    async def put(self, key: str, parts: Sequence[Buffer], *, overwrite: bool = False) -> None:
        await self._persistently(lambda: self._in_turn(lambda: self._store.put(key, parts, overwrite=overwrite)))

    async def get(self, key: str) -> bytes:
        return await self._persistently(lambda: self._hedged(0, lambda: self._store.get(key)))

    async def get_range(self, key: str, start: int, length: int, *, once: bool = False) -> Buffer:
        return await self._persistently(
            lambda: self._hedged(length, lambda: self._store.get_range(key, start, length, once=once))
        )

    async def get_tail(self, key: str, length: int) -> bytes:
        return await self._persistently(lambda: self._hedged(length, lambda: self._store.get_tail(key, length)))

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        """Goes on behind the last key that was seen. It takes no turn: whoever lists makes other requests meanwhile."""
        attempts = _Attempts(self._patience)
        while True:
            try:
                async for info in self._store.list(prefix, after=after):
                    after = info.key
                    attempts = _Attempts(self._patience)
                    yield info
                return
            except Unavailable as error:
                await self._pause(attempts, error)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._persistently(lambda: self._in_turn(lambda: self._store.delete(keys)))

    async def _persistently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        attempts = _Attempts(self._patience)
        while True:
            try:
                return await attempt()
            except Unavailable as error:
                await self._pause(attempts, error)

    async def _pause(self, attempts: "_Attempts", error: Unavailable) -> None:
        """Raises the error if it is not worth another attempt."""
        if isinstance(error, Throttled):
            self._throttle.throttled(asyncio.get_running_loop().time())
        pause_s = attempts.next_pause_s() * self._random.uniform(0.5, 1.0)
        if isinstance(error, StoreRefused) or attempts.ends_before(pause_s):
            raise error
        self._metrics.retries.inc()
        self._tell(error)
        await asyncio.sleep(pause_s)

    def _tell(self, error: Unavailable) -> None:
        """One line for all that fails meanwhile."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._told_s > _TELL_EVERY_S:
            self._told_s = now_s
            _log.warning("%s; trying again", error)

    async def _in_turn(self, request: Callable[[], Awaitable[T]]) -> T:
        await self._throttle.turn()
        try:
            answer = await request()
        finally:
            self._throttle.done()
        self._throttle.answered()
        return answer

    async def _hedged(self, length: int, request: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The first answer of one request or two."""
        await self._throttle.turn()
        loop = asyncio.get_running_loop()
        started = loop.time()
        late_s = self._hedging.begin(length)
        first = self._begin(request)
        try:
            await asyncio.wait((first,), timeout=late_s)
            winner = first
            if not first.done() and self._may_repeat():
                winner = await _first_answer(first, self._begin(request))
                self._metrics.hedges.labels("first" if winner is first else "second").inc()
            answer = await winner
        except asyncio.CancelledError:
            first.cancel()
            raise
        self._hedging.took(length, loop.time() - started)
        self._throttle.answered()
        return answer

    def _may_repeat(self) -> bool:
        """Whether a second request may be sent now; it has its turn then."""
        crowded = self._throttle.under_way >= self._patience.hedge_below
        return not crowded and self._hedging.may_repeat() and self._throttle.take()

    def _begin(self, request: Callable[[], Coroutine[Any, Any, T]]) -> "asyncio.Task[T]":
        """A request whose turn has come."""
        task = asyncio.create_task(request())
        task.add_done_callback(lambda _: self._throttle.done())
        return task


async def _first_answer(first: "asyncio.Task[T]", second: "asyncio.Task[T]") -> "asyncio.Task[T]":
    """One that succeeded, as soon as there is one; else the first. The other is left to itself: what runs in a thread
    cannot be stopped, and holds its turn until it ends."""
    for each in (first, second):
        each.add_done_callback(_forget)
    try:
        waiting = {first, second}
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                if not each.cancelled() and each.exception() is None:
                    return each
        return first
    except asyncio.CancelledError:
        second.cancel()
        raise


def _forget(loser: "asyncio.Task[T]") -> None:
    """Its error was seen: nobody else asks for it."""
    if not loser.cancelled():
        loser.exception()


class _Attempts:
    """The attempts at one request, from the first on."""

    def __init__(self, patience: Patience) -> None:
        self._ends_s = asyncio.get_running_loop().time() + patience.deadline_ms / 1000
        self._pause_ms = patience.first_pause_ms
        self._longest_ms = patience.longest_pause_ms

    def next_pause_s(self) -> float:
        pause_ms, self._pause_ms = self._pause_ms, min(2 * self._pause_ms, self._longest_ms)
        return pause_ms / 1000

    def ends_before(self, pause_s: float) -> bool:
        return asyncio.get_running_loop().time() + pause_s > self._ends_s
