"""Reading ahead: who reads where another read ended is taken to read on, and what comes next is loaded meanwhile.

It is loaded into its owner's cache, which has the budget and lets concurrent loads of one thing be one. Here is only
held what was loaded for nobody yet: never more than a share of that budget. Where such a thing has left the cache
before its reader came memory is short, and for a while nothing is read ahead.
"""

import asyncio
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_ENDS_KEPT: Final = 4096
PAUSE_S: Final = 10.0
FORGOTTEN_S: Final = 30.0
"""A reader that has not come by then is gone."""


@dataclass(slots=True)
class _Ahead(Generic[T]):
    """`loaded` is None while it is on its way."""

    size_bytes: int
    began_s: float
    loaded: "weakref.ref[T] | None" = None

    @property
    def is_lost(self) -> bool:
        return self.loaded is not None and self.loaded() is None


class ReadAhead(Generic[T]):
    """For one event loop. What is loaded must take weak references, and live as long as its cache holds it."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._ends: OrderedDict[Hashable, None] = OrderedDict()
        self._ahead: dict[Hashable, _Ahead[T]] = {}
        self._tasks: set[asyncio.Future[None]] = set()
        self._paused_until_s = float("-inf")

    def follows(self, reader: Hashable, position: int) -> bool:
        """Whether a read of the same has ended there lately."""
        return (reader, position) in self._ends

    def ended(self, reader: Hashable, position: int) -> None:
        self._ends[reader, position] = None
        self._ends.move_to_end((reader, position))
        if len(self._ends) > _ENDS_KEPT:
            self._ends.popitem(last=False)

    @property
    def held_bytes(self) -> int:
        """Loaded, or being loaded, and not used yet."""
        now_s = asyncio.get_running_loop().time()
        for key, ahead in list(self._ahead.items()):
            if ahead.is_lost:
                self._paused_until_s = now_s + PAUSE_S
            if ahead.is_lost or now_s - ahead.began_s > FORGOTTEN_S:
                del self._ahead[key]
        return sum(ahead.size_bytes for ahead in self._ahead.values())

    def begin(self, key: Hashable, size_bytes: int, load: Callable[[], Awaitable[T | None]]) -> bool:
        """Loads it, about so large, unless that is under way or done, or there is no room."""
        now_s = asyncio.get_running_loop().time()
        if key in self._ahead or self.held_bytes + size_bytes > self._budget_bytes or now_s < self._paused_until_s:
            return False
        self._ahead[key] = _Ahead(size_bytes, now_s)
        task = asyncio.ensure_future(self._load(key, load))
        self._tasks.add(task)
        task.add_done_callback(partial(self._done, key))
        return True

    def came(self, key: Hashable, found: T) -> None:
        """A reader has it, from memory or because it was read again."""
        ahead = self._ahead.pop(key, None)
        if ahead is not None and ahead.loaded is not None and ahead.loaded() is not found:
            self._paused_until_s = asyncio.get_running_loop().time() + PAUSE_S

    async def _load(self, key: Hashable, load: Callable[[], Awaitable[T | None]]) -> None:
        found = await load()
        ahead = self._ahead.get(key)
        if ahead is not None and found is not None:
            ahead.loaded = weakref.ref(found)

    def _done(self, key: Hashable, task: "asyncio.Future[None]") -> None:
        self._tasks.discard(task)
        if task.cancelled() or task.exception() is not None:
            # Whoever comes reads it again, and is told what is wrong.
            self._ahead.pop(key, None)
