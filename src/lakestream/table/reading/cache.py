"""A cache with a budget in bytes whose entries are loaded once, however many ask for them at the same time."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


_IN_USE_S: Final = 2.0
SHORT_S: Final = 5.0


@dataclass(slots=True)
class _Held:
    value: Any
    size_bytes: int
    used_s: float


class SharedCache:
    """Least recently used entries go first; the newest stays even if it alone is too large, for it is about to be used
    again. For one event loop.

    `is_short`: lately an entry had to go that was in use a moment before, so readers take each other's memory away."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._entries: OrderedDict[Hashable, _Held] = OrderedDict()
        self._short_until_s = float("-inf")
        self._loading: dict[Hashable, asyncio.Future[Any]] = {}
        self.size_bytes = 0
        self.hits = self.misses = 0

    @property
    def is_short(self) -> bool:
        return asyncio.get_running_loop().time() < self._short_until_s

    def holds(self, key: Hashable) -> bool:
        """Whether the entry is there, or on its way."""
        return key in self._entries or key in self._loading

    def let_go_first(self, key: Hashable) -> None:
        """Nobody is likely to ask for it again: it goes before all others, once there is need."""
        held = self._entries.get(key)
        if held is not None:
            held.used_s = float("-inf")
            self._entries.move_to_end(key, last=False)

    async def get(self, key: Hashable, load: Callable[[], Awaitable[T]], size_bytes: Callable[[T], int]) -> T:
        """The entry, loaded if need be. Who is cancelled while waiting does not disturb the others."""
        found = self._entries.get(key)
        if found is not None:
            self.hits += 1
            value: T = self._use(key, found)
            return value
        self.misses += 1
        task = self._loading.get(key)
        if task is None:
            task = asyncio.ensure_future(self._load(key, load, size_bytes))
            self._loading[key] = task
            task.add_done_callback(lambda done: self._settle(key, done))
        loaded: T = await asyncio.shield(task)
        return loaded

    async def get_all(
        self,
        keys: Sequence[K],
        load: Callable[[Sequence[K]], Awaitable[Sequence[T | Exception]]],
        size_bytes: Callable[[T], int],
    ) -> list[T]:
        """The entries in the order of the keys. Those that are absent are loaded by one call, which gives each its
        value or its error: an error concerns whoever asks for that entry, and nobody else."""
        absent = [key for key in dict.fromkeys(keys) if not self.holds(key)]
        self.misses += len(absent)
        self.hits += len(keys) - len(absent)
        if absent:
            loop = asyncio.get_running_loop()
            started: dict[Hashable, asyncio.Future[T]] = {key: loop.create_future() for key in absent}
            self._loading.update(started)
            batch = asyncio.ensure_future(load(absent))
            batch.add_done_callback(lambda done: self._settle_all(started, done, size_bytes))
        found = [self._entries.get(key) or self._loading[key] for key in keys]
        for key, each in zip(keys, found, strict=True):
            if isinstance(each, _Held):
                self._use(key, each)
        return [each.value if isinstance(each, _Held) else await asyncio.shield(each) for each in found]

    async def _load(self, key: Hashable, load: Callable[[], Awaitable[T]], size_bytes: Callable[[T], int]) -> T:
        value = await load()
        self._keep(key, value, size_bytes(value))
        return value

    def _use(self, key: Hashable, held: _Held) -> Any:
        held.used_s = asyncio.get_running_loop().time()
        self._entries.move_to_end(key)
        return held.value

    def _keep(self, key: Hashable, value: object, size_bytes: int) -> None:
        now_s = asyncio.get_running_loop().time()
        self._entries[key] = _Held(value, size_bytes, now_s)
        self.size_bytes += size_bytes
        while self.size_bytes > self._budget_bytes and len(self._entries) > 1:
            _, evicted = self._entries.popitem(last=False)
            self.size_bytes -= evicted.size_bytes
            if now_s - evicted.used_s < _IN_USE_S:
                self._short_until_s = now_s + SHORT_S

    def _settle(self, key: Hashable, done: "asyncio.Future[Any]") -> None:
        del self._loading[key]
        if not done.cancelled():
            # Marks an error as seen: whoever waited has it, and nobody may be left to wait.
            done.exception()

    def _settle_all(
        self,
        started: "dict[Hashable, asyncio.Future[T]]",
        batch: "asyncio.Future[Sequence[T | Exception]]",
        size_bytes: Callable[[T], int],
    ) -> None:
        failed = None if batch.cancelled() else batch.exception()
        for number, (key, future) in enumerate(started.items()):
            if batch.cancelled():
                future.cancel()
            elif failed is not None:
                future.set_exception(failed)
            elif isinstance(outcome := batch.result()[number], Exception):
                future.set_exception(outcome)
            else:
                self._keep(key, outcome, size_bytes(outcome))
                future.set_result(outcome)
            self._settle(key, future)
