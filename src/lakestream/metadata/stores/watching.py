"""Who waits for a change of which keys, for backends that learn of changes by reports: of their own writes at once, of
others' by a sign that something has changed.

A report is a hint. Whoever is woken has seen a version that differs, by a look at the store or by a report of a version
above the one seen. Belongs to one event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from lakestream.errors import LakestreamError, Unavailable
from lakestream.metadata.store import ABSENT, Address, Entry

Get = Callable[[Sequence[Address]], Awaitable[list[Entry | None]]]


class _Waiter:
    __slots__ = ("changed", "seen")

    def __init__(self, seen: Mapping[Address, int], changed: asyncio.Future[None]) -> None:
        self.seen = seen
        self.changed = changed

    def wake(self) -> None:
        if not self.changed.done():
            self.changed.set_result(None)


class Watchers:
    """`get` reads the store. `is_watched` is told when the first waiter comes and the last one goes."""

    def __init__(self, get: Get, is_watched: Callable[[bool], None]) -> None:
        self._get = get
        self._is_watched = is_watched
        self._loop = asyncio.get_running_loop()
        self._waiters: dict[str, dict[str, dict[_Waiter, None]]] = {}
        self._rechecks: set[asyncio.Task[None]] = set()
        self._closed = False

    def __bool__(self) -> bool:
        """Whether anybody waits. May be asked in any thread: whoever comes later looks at the store first."""
        return bool(self._waiters)

    def has_shard(self, shard: str) -> bool:
        """Whether anybody waits there. In any thread, as above."""
        return shard in self._waiters

    async def watch(self, seen: Mapping[Address, int], *, timeout_ms: int) -> bool:
        """As `Store.watch`."""
        waiter = _Waiter(dict(seen), self._loop.create_future())
        # Registered before the first look: a change is either seen by it or reported.
        self._register(waiter)
        try:
            await self._look([waiter])
            async with asyncio.timeout(timeout_ms / 1000):
                await waiter.changed
        except TimeoutError:
            return not waiter.changed.cancelled()  # set in the same moment
        finally:
            self._unregister(waiter)
        if self._closed:
            raise Unavailable("the metadata store was closed")
        return True

    def changed(self, shard: str, versions: Mapping[str, int], is_deleted: Callable[[str], bool]) -> None:
        """Keys of a shard that have these versions now, and those that were deleted. The report may be late."""
        doubtful: dict[_Waiter, None] = {}
        for key, waiters in self._waiters.get(shard, {}).items():
            version = versions.get(key)
            if version is not None:
                for waiter in waiters:
                    # Only a version above the one seen is news.
                    if version > waiter.seen[Address(shard, key)]:
                        waiter.wake()
            elif is_deleted(key):
                doubtful.update(waiters)
        if doubtful:
            self._recheck(list(doubtful))

    def shards_changed(self, shards: Iterable[str]) -> None:
        """Somebody else has written there."""
        waiters = (w for shard in shards for found in self._waiters.get(shard, {}).values() for w in found)
        doubtful = list(dict.fromkeys(waiters))
        if doubtful:
            self._recheck(doubtful)

    def something_changed(self) -> None:
        """Somebody else has written, nobody knows what."""
        if self._waiters:
            self._recheck(self._all())

    def close(self) -> None:
        self._closed = True
        for waiter in self._all():
            waiter.wake()

    def _recheck(self, waiters: list[_Waiter]) -> None:
        task = self._loop.create_task(self._look_again(waiters))
        self._rechecks.add(task)
        task.add_done_callback(self._rechecks.discard)

    async def _look_again(self, waiters: list[_Waiter]) -> None:
        try:
            await self._look(waiters)
        except LakestreamError:
            for waiter in waiters:  # they will meet the error themselves when they read
                waiter.wake()

    async def _look(self, waiters: Iterable[_Waiter]) -> None:
        """Wakes those for whom something differs."""
        addresses = list(dict.fromkeys(address for waiter in waiters for address in waiter.seen))
        entries = dict(zip(addresses, await self._get(addresses), strict=True))
        versions = {address: ABSENT if entry is None else entry.version for address, entry in entries.items()}
        for waiter in waiters:
            if any(versions[address] != version for address, version in waiter.seen.items()):
                waiter.wake()

    def _register(self, waiter: _Waiter) -> None:
        for shard, key in waiter.seen:
            self._waiters.setdefault(shard, {}).setdefault(key, {})[waiter] = None
        self._is_watched(bool(self._waiters))

    def _unregister(self, waiter: _Waiter) -> None:
        for shard, key in waiter.seen:
            keys = self._waiters[shard]
            del keys[key][waiter]
            if not keys[key]:
                del keys[key]
                if not keys:
                    del self._waiters[shard]
        self._is_watched(bool(self._waiters))

    def _all(self) -> list[_Waiter]:
        return list(dict.fromkeys(w for keys in self._waiters.values() for waiters in keys.values() for w in waiters))
