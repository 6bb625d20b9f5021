"""One share partition as a broker sees it: changes to its row, in order and together.

Any broker may change the row. Each writes what it made of the row that it knows, if that is still the row; whoever was
late makes it anew of the present one. Nobody hears of a change before it is stored, so what was acknowledged stays
acknowledged and who was given a record has it, whichever broker dies.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from lakestream.errors import Conflict, LakestreamError
from lakestream.metadata.shares import SharePartitionKey, ShareState, StoredShare, read_shares, write_of
from lakestream.metadata.store import Applied, Store

T = TypeVar("T")
Change = Callable[[ShareState], tuple[ShareState, T]]
"""Makes another state of one, and says something of it. May be called again with another."""

_RECORD_BYTES: Final = 1024
"""How large records are taken to be before any was seen."""


class _Waiting(Generic[T]):
    __slots__ = ("change", "done", "said")

    def __init__(self, change: Change[T]) -> None:
        self.change = change
        self.done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.said: T


class SharePartition:
    def __init__(self, store: Store, key: SharePartitionKey) -> None:
        self.key = key
        self.giving = asyncio.Lock()
        """Held by who reads records to give them to a member: two would read the same."""
        self.record_bytes = _RECORD_BYTES
        """How large its records have been, as they lie in the log."""
        self._store = store
        self._known: StoredShare | None = None
        self._waiting: list[_Waiting[object]] = []
        self._writer: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        return not self.giving.locked() and (self._writer is None or self._writer.done())

    async def look(self, *, fresh: bool = False) -> StoredShare:
        """As this broker knows it; `fresh`: as it is now."""
        if self._known is None or fresh:
            await refresh(self._store, [self])
        assert self._known is not None
        return self._known

    async def begin(self, start: int) -> StoredShare:
        """The row is made, if nobody has made it yet."""
        found = await self.look(fresh=True)
        if found.state is None:
            state = ShareState(start)
            [outcome] = await self._store.transact([write_of(self.key, found.version, state)])
            if isinstance(outcome, Applied):
                self.learn(StoredShare(state, outcome.version))
        return await self.look(fresh=self._known is found)

    async def change(self, change: Change[T]) -> T:
        """Returns what `change` said once that is stored. Raises `Unavailable` where it is not known whether it is;
        then nobody was told. Raises `Conflict` where there is no row."""
        waiting: _Waiting[T] = _Waiting(change)
        self._waiting.append(waiting)  # type: ignore[arg-type]
        if self._writer is None or self._writer.done():
            self._writer = asyncio.get_running_loop().create_task(self._write())
        return await waiting.done

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                await self._write_batch(batch)
            except Exception as error:
                # What this broker knows may be old: the next looks again.
                self._known = None
                for each in batch:
                    if not each.done.done():
                        each.done.set_exception(error)
                        each.done.exception()
                if not isinstance(error, LakestreamError):
                    raise

    async def _write_batch(self, batch: "list[_Waiting[object]]") -> None:
        known = await self.look()
        while True:
            if known.state is None:
                raise Conflict(f"group {self.key.group} has no records of {self.key.partition} yet: ask again")
            state = known.state
            for each in batch:
                state, each.said = each.change(state)
            if state == known.state:
                # Nothing to write, but what was said must be true of the row as it is now.
                seen, known = known.version, await self.look(fresh=True)
                if known.version == seen:
                    break
                continue
            [outcome] = await self._store.transact([write_of(self.key, known.version, state)])
            if isinstance(outcome, Applied):
                self.learn(StoredShare(state, outcome.version))
                break
            known = await self.look(fresh=True)
        for each in batch:
            if not each.done.done():
                each.done.set_result(each.said)

    def learn(self, found: StoredShare) -> None:
        """Versions only grow, but for a row that is gone."""
        if self._known is None or found.state is None or found.version >= self._known.version:
            self._known = found


async def refresh(store: Store, partitions: Sequence[SharePartition]) -> None:
    """Their rows as they are now."""
    found = await read_shares(store, [each.key for each in partitions])
    for partition, row in zip(partitions, found, strict=True):
        partition.learn(row)


class SharePartitions:
    """Those that were asked for lately. Any may be forgotten: the store knows."""

    def __init__(self, store: Store, most: int = 10_000) -> None:
        self._store = store
        self._most = most
        self._known: dict[SharePartitionKey, SharePartition] = {}

    def get(self, key: SharePartitionKey) -> SharePartition:
        """The least recently used go first."""
        found = self._known.pop(key, None) or SharePartition(self._store, key)
        self._known[key] = found
        if len(self._known) > self._most:
            for oldest in list(self._known):
                if len(self._known) <= self._most:
                    break
                if self._known[oldest].is_idle and oldest != key:
                    del self._known[oldest]
        return found
