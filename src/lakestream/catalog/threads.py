"""The room's one thread boundary: the threads that blocking work runs on, and what those threads share."""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Final, Generic, TypeVar

T = TypeVar("T")
V = TypeVar("V")

_THREADS: Final = 4
_SIDE_BY_SIDE: Final = 8


class Threads:
    """A few threads of our own, so that slow tables never take those of others."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="catalog")

    async def run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def close(self) -> None:
        """Waits for what is running; what is queued is not begun."""
        self._executor.shutdown(wait=True, cancel_futures=True)


class SideBySide:
    """What `work` makes of each item, several at once, in the items' order, on threads that stay. `work` asks
    for no more of them. When it raises, nothing of it runs any more."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix=name)

    def run(self, work: Callable[[T], V], items: Sequence[T]) -> list[V]:
        if len(items) < 2:
            return list(map(work, items))
        begun = [self._executor.submit(work, item) for item in items]
        wait(begun)
        return [each.result() for each in begun]

    def close(self) -> None:
        self._executor.shutdown(wait=True)


class PerThread(Generic[V]):
    """A value of its own for each thread that asks, made when it first does; one after the other."""

    def __init__(self, make: Callable[[], V]) -> None:
        self.turn: Final = threading.Lock()
        """For whoever has to be alone with a value, too. Not while another value is made."""
        self._make = make
        self._values: dict[int, V] = {}

    def get(self) -> V:
        thread = threading.get_ident()
        if thread not in self._values:
            with self.turn:
                self._values[thread] = self._make()
        return self._values[thread]

    def all(self) -> list[V]:
        return list(self._values.values())


class Cache(Generic[V]):
    """Values under names that never change their meaning. Bounded by weight; the least recently used go first."""

    def __init__(self, max_weight: int, weigh: Callable[[V], int] = lambda _value: 1) -> None:
        self._max_weight = max_weight
        self._weigh = weigh
        self._weight = 0
        self._values: OrderedDict[str, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: str) -> V | None:
        with self._lock:
            if name not in self._values:
                return None
            self._values.move_to_end(name)
            return self._values[name]

    def put(self, name: str, value: V) -> None:
        """The newest value stays even if it alone is too heavy."""
        with self._lock:
            if name not in self._values:
                self._values[name] = value
                self._weight += self._weigh(value)
            while self._weight > self._max_weight and len(self._values) > 1:
                _, dropped = self._values.popitem(last=False)
                self._weight -= self._weigh(dropped)

    def discard(self, name: str) -> None:
        with self._lock:
            if name in self._values:
                self._weight -= self._weigh(self._values.pop(name))
