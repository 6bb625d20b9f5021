"""Memory for answers: how much a fetch may read, and what clients have not taken from their sockets yet.

All answers of a server share one budget from the moment they are there until the client has read them. A connection
gets large answers once it has had full ones, up to a quarter of what is left, so that a few slow readers never take it
all. While it is spent fetches wait for it, and whoever reads nothing for `STUCK_S` is cut off.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from lakestream.kafka.wire.codec import Wire
from lakestream.kafka.wire.writing import Fields
from lakestream.objects import Buffer
from lakestream.stream import MemoryBudget

LITTLE_BYTES: Final = 256 * 1024
STUCK_S: Final = 5.0
_MOST_WAITED_FOR_BYTES: Final = 1024 * 1024
"""A client may have a fetch wait for so much at once, whatever it had before."""
_WAITING_BYTES: Final = 16 * 1024
"""What is set apart for a fetch that waits for new records: it holds nothing meanwhile, and thousands do."""
_BATCH_BYTES: Final = 1024 * 1024
"""A fetch reads one batch, however little it may."""
_GROWTH: Final = 4
_SHARE: Final = 4
_ROUNDING_S: Final = 0.002
_PATIENCE_S: Final = 15.0
"""Well within the time that clients wait for an answer."""


class Slot:
    """The place of one request in the order of answers."""

    __slots__ = ("abandoned", "answer", "api", "began_s", "correlation_id", "done", "size_bytes", "throttle_ms", "wire")

    def __init__(self, size_bytes: int, began_s: float) -> None:
        self.size_bytes = size_bytes
        self.began_s = began_s
        self.api = ""
        self.wire: Wire | None = None
        self.correlation_id = 0
        self.done = False
        self.abandoned = False
        self.answer: list[Buffer] | None = None
        self.throttle_ms = 0
        """For so long after the answer the client is not listened to: it is beyond its quota."""


class Answers:
    """Of one connection."""

    __slots__ = (
        "_buffered_bytes",
        "_held_bytes",
        "_moved_s",
        "_waiting_bytes",
        "budget",
        "expected_bytes",
        "is_behind",
        "muted_s",
    )

    def __init__(self, budget: MemoryBudget) -> None:
        self.budget = budget
        self.expected_bytes = LITTLE_BYTES
        self.is_behind = True
        """Its next fetch will most likely be filled at once, as its last one was."""
        self._held_bytes = self._waiting_bytes = self._buffered_bytes = 0
        self._moved_s = 0.0
        self.muted_s = 0.0
        """Until then no further request is looked at."""

    async def allow(self, max_bytes: int, min_bytes: int, *, waits: bool) -> "Reading":
        """For a fetch that asks for so much: what it may read, once there is room. `waits`: for records to come."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                while self.budget.exhausted:
                    await self.budget.wait()
        left_bytes = max(self.budget.limit_bytes - self.budget.used_bytes, 0)
        usual_bytes = max(LITTLE_BYTES, min(self.expected_bytes, left_bytes // _SHARE))
        allowed_bytes = min(max_bytes, max(usual_bytes, min(min_bytes, _MOST_WAITED_FOR_BYTES)))
        return Reading(self, allowed_bytes, _WAITING_BYTES if waits else max(allowed_bytes, _BATCH_BYTES))

    def is_muted(self, now_s: float) -> bool:
        """A timer that was set for the end may fire a rounding error before it."""
        return self.muted_s > now_s + _ROUNDING_S

    def throttled(self, reply: Fields | None, throttle_ms: int, now_s: float) -> Fields | None:
        """The reply says so, and the connection is muted for that time."""
        self.muted_s = max(self.muted_s, now_s + throttle_ms / 1000)
        return None if reply is None else {**reply, "throttle_time": throttle_ms}

    def add(self, answer: Sequence[Buffer]) -> int:
        """An answer is there. It waits for those before it, then for the socket. Its size is returned."""
        size_bytes = sum(map(len, answer))
        self._held_bytes += size_bytes
        self._waiting_bytes += size_bytes
        self.budget.reserve(size_bytes)
        return size_bytes

    def written(self, parts: Sequence[Buffer]) -> None:
        """The transport has them."""
        self._waiting_bytes -= sum(map(len, parts))

    def settle(self, buffered_bytes: int, now_s: float) -> None:
        """The transport still has so much."""
        if buffered_bytes < self._buffered_bytes or not self._buffered_bytes:
            self._moved_s = now_s
        self._buffered_bytes = buffered_bytes
        left_bytes = min(self._held_bytes, self._waiting_bytes + buffered_bytes)
        self.budget.release(self._held_bytes - left_bytes)
        self._held_bytes = left_bytes

    def end(self) -> None:
        """The connection is gone."""
        self.budget.release(self._held_bytes)
        self._held_bytes = self._waiting_bytes = 0

    def stuck_bytes(self, now_s: float) -> int:
        """What others wait for because the client reads nothing; 0: nobody waits, or it reads."""
        is_stuck = self.budget.exhausted and now_s - self._moved_s > STUCK_S
        return self._buffered_bytes if is_stuck else 0


class Reading:
    """One fetch, from the moment when it may read `max_bytes` until it has `read`."""

    __slots__ = ("_answers", "_reserved_bytes", "max_bytes")

    def __init__(self, answers: Answers, max_bytes: int, reserved_bytes: int) -> None:
        self._answers = answers
        self.max_bytes = max_bytes
        self._reserved_bytes = reserved_bytes
        answers.budget.reserve(reserved_bytes)

    def read(self, size_bytes: int) -> None:
        """It is over, with so much. From here on the answer itself counts."""
        answers = self._answers
        answers.budget.release(self._reserved_bytes)
        answers.is_behind = 4 * size_bytes >= 3 * self.max_bytes
        answers.expected_bytes = max(LITTLE_BYTES, _GROWTH * size_bytes)
