"""The rows of the metadata store that are saved into the bucket, kept up to date by what changed.

All are read once. Then a pass reads the logs of topics that brokers have touched, whatever is new, and a bounded number
of the others in turn; groups, and the few shards that belong to no topic, always. A log's producers are read when its
head has changed: whoever changes one rewrites the other. So a saved row may be older than a pass by as long as the
turn takes, a minute or so up to a thousand tables and ten thousand partitions; `recover` takes it for a hint.
"""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from lakestream.metadata.brokers import Brokers
from lakestream.metadata.feed import FEED, Feed
from lakestream.metadata.log.head import HEAD, PRODUCERS, shard_of
from lakestream.metadata.store import Address, Store
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.runtime import Runtime

_ALL: Final = ("", "\U0010ffff")
_LOGS: Final = ("log/", "log0")
_TABLES: Final = "table/"
_PASSING: Final = ("brokers", FEED, "pipeline", "worker/", "saved", "txn/", "open-txn/")
"""What begins the names of shards that tell only of processes, and of transactions: a state that is a minute old would
give epochs out that logs have passed. After a loss a transactional id begins with a new producer id."""
_GROUPS: Final = "group/"
_PENDING: Final = "p/"
"""Offsets of transactions that had not ended: after a loss nobody would ever end them."""
LEASE: Final = "lease"
_CONCURRENT: Final = 32
_HEADS_AT_ONCE: Final = 5_000
_HEADS_IN_TURN: Final = 10_000
_TABLES_IN_TURN: Final = 1_000
_PASSES_TOUCHED: Final = 3
"""A touched topic's table is committed, and its frontier moved, a little later: it is read this often."""


class Row(NamedTuple):
    shard: str
    key: str
    value: bytes


class _RoundRobin:
    """Some of many names at a time, all of them in turn."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._after = ""

    def next(self, names: Sequence[str]) -> Sequence[str]:
        """`names` are in order."""
        start = bisect_right(names, self._after)
        turn = names[start : start + self._count]
        self._after = turn[-1] if len(turn) == self._count else ""
        return turn


class SavedRows:
    """What one process knows of the rows. Its passes come one after the other."""

    def __init__(self, store: Store, runtime: Runtime) -> None:
        self._store = store
        self._topics = Topics(store, runtime)
        self._feed = Feed(store, Brokers(store).sessions)
        self._touched: deque[frozenset[UUID]] = deque(maxlen=_PASSES_TOUCHED)
        self._heads_turn = _RoundRobin(_HEADS_IN_TURN)
        self._tables_turn = _RoundRobin(_TABLES_IN_TURN)
        self._rows: dict[str, list[Row]] = {}
        """By shard."""
        self._listed: Sequence[Topic] = ()
        self._by_id: dict[UUID, Topic] = {}
        self._logs: list[str] = []
        """The shards of all logs, in order."""
        self._unread: dict[str, None] = {}
        """Those of them that must be looked at now."""
        self._has_changed = False

    async def refresh(self) -> bool:
        """Brings the rows up to date. Whether anything has changed since a call that was told so by `saved`."""
        changes = await self._feed.read()
        self._touched.append(changes.topics)
        touched = frozenset[UUID]().union(*self._touched)
        self._relist(await self._topics.list())
        if not changes.is_complete:
            self._unread |= dict.fromkeys(self._logs)
        await self._refresh_logs(touched)
        await self._refresh_others(touched)
        return self._has_changed

    def saved(self) -> None:
        self._has_changed = False

    def rows(self) -> list[Row]:
        """All, in order."""
        return [row for shard in sorted(self._rows) for row in self._rows[shard]]

    def _relist(self, listed: Sequence[Topic]) -> None:
        if listed is self._listed:
            return
        self._listed, self._by_id = listed, {topic.topic_id: topic for topic in listed}
        self._logs = sorted(shard for topic in listed for shard in _logs_of(topic))
        present = frozenset(self._logs)
        self._unread |= dict.fromkeys(shard for shard in self._logs if shard not in self._rows)
        # A log may outlive its place in the list, whose row may be damaged: the log itself says whether it is gone.
        self._unread |= dict.fromkeys(s for s in self._rows if s.startswith(_LOGS[0]) and s not in present)

    async def _refresh_logs(self, touched: frozenset[UUID]) -> None:
        self._unread |= dict.fromkeys(
            shard for topic_id in touched if topic_id in self._by_id for shard in _logs_of(self._by_id[topic_id])
        )
        self._unread |= dict.fromkeys(self._heads_turn.next(self._logs))
        wanted = list(self._unread)
        for at in range(0, len(wanted), _HEADS_AT_ONCE):
            await self._read_logs(wanted[at : at + _HEADS_AT_ONCE])
        self._unread.clear()

    async def _read_logs(self, shards: Sequence[str]) -> None:
        heads = await self._store.get([Address(shard, HEAD) for shard in shards])
        changed: dict[str, Row] = {}
        for shard, head in zip(shards, heads, strict=True):
            known = self._rows.get(shard)
            if head is None:
                self._drop([shard])
            elif not known or known[0].value != head.value:
                changed[shard] = Row(shard, HEAD, head.value)
        for shard, producers in await self._ranges(list(changed), PRODUCERS):
            self._rows[shard] = [changed[shard], *producers]
            self._has_changed = True

    async def _refresh_others(self, touched: frozenset[UUID]) -> None:
        found = [*await self._store.shards(_ALL[0], _LOGS[0]), *await self._store.shards(_LOGS[1], _ALL[1])]
        shards = [shard for shard in found if not shard.startswith(_PASSING)]
        present = frozenset(shards)
        self._drop(shard for shard in self._rows if not shard.startswith(_LOGS[0]) and shard not in present)
        tables = [shard for shard in shards if shard.startswith(_TABLES)]
        turn = frozenset(self._tables_turn.next(tables))
        names = {f"{_TABLES}{topic_id.hex}" for topic_id in touched}
        wanted = [
            shard
            for shard in shards
            if not shard.startswith(_TABLES) or shard in turn or shard in names or shard not in self._rows
        ]
        for shard, entries in await self._ranges(wanted, _ALL):
            rows = [row for row in entries if not _passes(row)]
            if self._rows.get(shard) != rows:
                self._rows[shard] = rows
                self._has_changed = True

    async def _ranges(self, shards: Sequence[str], keys: tuple[str, str]) -> list[tuple[str, list[Row]]]:
        found: list[tuple[str, list[Row]]] = []
        for at in range(0, len(shards), _CONCURRENT):
            some = shards[at : at + _CONCURRENT]
            entries = await asyncio.gather(*(self._store.range(shard, *keys) for shard in some))
            found += [
                (shard, [Row(shard, entry.key, entry.value) for entry in rows])
                for shard, rows in zip(some, entries, strict=True)
            ]
        return found

    def _drop(self, shards: Iterable[str]) -> None:
        for shard in list(shards):
            if self._rows.pop(shard, None) is not None:
                self._has_changed = True


def _passes(row: Row) -> bool:
    return row.key == LEASE or (row.shard.startswith(_GROUPS) and row.key.startswith(_PENDING))


def _logs_of(topic: Topic) -> list[str]:
    return [shard_of(partition) for partition in topic.each_partition()]
