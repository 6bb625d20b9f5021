"""What the rooms may know of the outside world.

Waiting goes through asyncio (a simulator brings its own event loop); the wall
clock, randomness and fresh ids come from a `Runtime`.
"""

import random
import time
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID


class Clock(Protocol):
    """Wall time for people and records. Never used as proof of order."""

    def now_ms(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Runtime:
    clock: Clock
    random: random.Random

    def new_id(self) -> UUID:
        """A fresh random UUID (version 4), never the zero id that Kafka reserves."""
        return UUID(int=self.random.getrandbits(128), version=4)


class _SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


def system() -> Runtime:
    """The real world: wall clock and operating system randomness."""
    return Runtime(clock=_SystemClock(), random=random.SystemRandom())
