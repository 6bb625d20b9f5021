"""What the rooms may know of the outside world.

Waiting goes through asyncio (a simulator brings its own event loop); the wall
clock, randomness, fresh ids and threads come from a `Runtime`.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar
from uuid import UUID

T = TypeVar("T")

_THREADS: Final = ThreadPoolExecutor(2, thread_name_prefix="aside")
"""For work that would hold the event loop up. Few: each may hold the largest batch there is, decompressed."""


class Clock(Protocol):
    """Wall time for people and records. Never used as proof of order."""

    def now_ms(self) -> int: ...


async def _at_once(work: Callable[[], Any]) -> Any:
    return work()


@dataclass(frozen=True, slots=True)
class Runtime:
    """`run_off_loop` runs a function off the event loop; without threads, as in a simulation, at once."""

    clock: Clock
    random: random.Random
    run_off_loop: Callable[[Callable[[], Any]], Awaitable[Any]] = _at_once

    def new_id(self) -> UUID:
        """A fresh random UUID (version 4), never the zero id that Kafka reserves."""
        return UUID(int=self.random.getrandbits(128), version=4)

    async def off_loop(self, work: Callable[[], T]) -> T:
        """What the function returns or raises. It must not touch what the event loop uses meanwhile."""
        result: T = await self.run_off_loop(work)
        return result


class _SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


def system() -> Runtime:
    """The real world: wall clock, operating system randomness, and a few threads that all share."""
    return Runtime(_SystemClock(), random.SystemRandom(), _in_thread)


async def _in_thread(work: Callable[[], Any]) -> Any:
    return await asyncio.get_running_loop().run_in_executor(_THREADS, work)
