"""How many requests may be under way to a store that throttles.

A refusal halves what is under way, answers let it grow again by one for each round of them: as TCP does, and for the
same reason. Callers wait by looking again, because event loops of several threads may share a store.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Final

LOOK_S: Final = 0.01
HALVE_EVERY_S: Final = 1.0
"""The refusals of one burst count once."""


class Throttle:
    """`changed` is told how many requests may be under way."""

    def __init__(self, most: int, changed: Callable[[float], None]) -> None:
        self._most = most
        self._allowed = float(most)
        self._under_way = 0
        self._halved_s = float("-inf")
        self._lock = threading.Lock()
        self._changed = changed
        changed(most)

    @property
    def allowed(self) -> int:
        return int(self._allowed)

    @property
    def under_way(self) -> int:
        return self._under_way

    async def turn(self) -> None:
        """Returns once one more request may be sent; it counts as under way until `done`."""
        while not self.take():  # noqa: ASYNC110  an event belongs to one loop
            await asyncio.sleep(LOOK_S)

    def take(self) -> bool:
        """Whether one more may be sent now."""
        with self._lock:
            if self._under_way >= int(self._allowed):
                return False
            self._under_way += 1
            return True

    def done(self) -> None:
        """Of a request whose turn had come, however it ended."""
        with self._lock:
            self._under_way -= 1

    def answered(self) -> None:
        if self._allowed < self._most:
            with self._lock:
                self._allowed = min(self._most, self._allowed + 1 / self._allowed)
            self._changed(self.allowed)

    def throttled(self, now_s: float) -> None:
        with self._lock:
            if now_s - self._halved_s < HALVE_EVERY_S:
                return
            self._halved_s = now_s
            self._allowed = max(1.0, min(self._allowed, self._under_way) / 2)
        self._changed(self.allowed)
