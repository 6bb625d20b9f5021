"""How far the tables are behind their logs: read from heads, extents and the pipeline's status rows."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from lakestream.errors import CorruptObject
from lakestream.frontier.moving.stable import stable_end
from lakestream.frontier.moving.watchlist import Watchlist
from lakestream.frontier.status import StatusReader, TopicStatus, read_status
from lakestream.metadata import codec
from lakestream.metadata.feed import Feed
from lakestream.metadata.log.head import EXTENTS, Extent, Head, extent_key, shard_of
from lakestream.metadata.log.partition import decode_head, head_address
from lakestream.metadata.store import Address, Store
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.model import StreamPartition

_HEADS_AT_ONCE: Final = 5_000
_FEW_PARTITIONS: Final = 2_000


@dataclass(frozen=True, slots=True)
class TopicLag:
    """`frontier` and `end` by partition, and `stable`: up to where nothing is of an open transaction. `oldest_ms`: the
    age of the oldest record that is not in the table, by its own timestamp; 0 if there is none. `committed_ms`: the
    time of the last commit by a pipeline, None if none is known. `error`: why the topic is quarantined, else empty."""

    topic: str
    topic_id: UUID
    frontier: tuple[int, ...]
    stable: tuple[int, ...]
    end: tuple[int, ...]
    oldest_ms: int
    committed_ms: int | None
    error: str
    failures: int
    retry_in_ms: int

    @property
    def records(self) -> int:
        """Offsets: those of aborted transactions count until the frontier has passed them."""
        return sum(self.end) - sum(self.frontier)

    @property
    def held(self) -> int:
        """How many of them wait for open transactions to end."""
        return sum(end - max(stable, at) for end, stable, at in zip(self.end, self.stable, self.frontier, strict=True))


async def read_lag(store: Store, topics: Topics, now_ms: int) -> list[TopicLag]:
    """Of every topic, by name, from every head. A topic whose head is damaged is told of, with that as its error."""
    return await _read(store, await topics.list(), await read_status(store), now_ms)


class LagReader:
    """The same for whoever asks again and again: heads are read of topics that may have changed since (`Watchlist`),
    and of all while there are few."""

    def __init__(self, store: Store, topics: Topics, feed: Feed, *, sweep_ms: int) -> None:
        self._store = store
        self._topics = topics
        self._status = StatusReader(store)
        self._watchlist = Watchlist(feed, sweep_ms=sweep_ms)
        self._listed: Sequence[Topic] = ()
        self._are_few = True
        self._known: dict[UUID, TopicLag] = {}
        self._lock = asyncio.Lock()

    async def read(self, now_ms: int) -> list[TopicLag]:
        """Of every topic, by name."""
        async with self._lock:
            self._relist(await self._topics.list())
            look = await self._watchlist.look(now_ms)
            status = await self._status.read()
            looked_at = self._listed if self._are_few else look.topics
            for lag in await _read(self._store, looked_at, status, now_ms):
                self._known[lag.topic_id] = lag
                if lag.records or lag.error:
                    self._watchlist.keep(lag.topic_id)
                else:
                    self._watchlist.found_caught_up(lag.topic_id, now_ms)
            return [self._lag_of(topic, status, now_ms) for topic in self._listed if topic.topic_id in self._known]

    def _relist(self, listed: Sequence[Topic]) -> None:
        if listed is self._listed:
            return
        self._listed = listed
        self._are_few = sum(topic.partitions for topic in listed) <= _FEW_PARTITIONS
        self._watchlist.relist(listed)
        present = {topic.topic_id for topic in listed}
        self._known = {topic_id: lag for topic_id, lag in self._known.items() if topic_id in present}

    def _lag_of(self, topic: Topic, status: Mapping[UUID, TopicStatus], now_ms: int) -> TopicLag:
        """With what the pipeline tells now, whenever the heads were read."""
        known, row = self._known[topic.topic_id], status.get(topic.topic_id)
        if row is None or (known.committed_ms == (row.committed_ms or None) and not (known.error or row.error)):
            return known
        error = known.error or row.error
        return replace(
            known,
            committed_ms=row.committed_ms or None,
            error=error,
            failures=row.failures,
            retry_in_ms=max(0, row.retry_ms - now_ms) if error else 0,
        )


async def _read(
    store: Store, topics: Sequence[Topic], status: Mapping[UUID, TopicStatus], now_ms: int
) -> list[TopicLag]:
    addresses = [head_address(partition) for topic in topics for partition in topic.each_partition()]
    chunks = [addresses[at : at + _HEADS_AT_ONCE] for at in range(0, len(addresses), _HEADS_AT_ONCE)]
    entries = iter([entry for chunk in chunks for entry in await store.get(chunk)])
    found = []
    for topic in topics:
        rows = [(partition, next(entries)) for partition in topic.each_partition()]
        row = status.get(topic.topic_id) or TopicStatus(topic.topic_id, "")
        try:
            heads = [decode_head(entry, partition) for partition, entry in rows]
            present = [each.head if each is not None else Head() for each in heads]
            oldest_ms = await _oldest_ms(store, topic, present)
        except CorruptObject as error:
            found.append(_lag(topic, (), row, str(error), 0, now_ms))
        else:
            age_ms = 0 if oldest_ms is None else max(0, now_ms - oldest_ms)
            found.append(_lag(topic, present, row, row.error, age_ms, now_ms))
    return found


async def _oldest_ms(store: Store, topic: Topic, heads: Iterable[Head]) -> int | None:
    """The newest timestamp of the first extent that waits: an extent is what came in one flush."""
    behind = [
        (StreamPartition(topic.topic_id, index), head.frontier)
        for index, head in enumerate(heads)
        if head.frontier < head.next_offset
    ]
    times = await asyncio.gather(*(_first_time_ms(store, *each) for each in behind))
    return min((ms for ms in times if ms >= 0), default=None)


async def _first_time_ms(store: Store, partition: StreamPartition, frontier: int) -> int:
    shard = shard_of(partition)
    first = await store.range(shard, extent_key(frontier + 1), EXTENTS[1], limit=1)
    return codec.decode(first[0].value, Extent, Address(shard, first[0].key)).max_timestamp_ms if first else -1


def _lag(topic: Topic, heads: Iterable[Head], status: TopicStatus, error: str, oldest_ms: int, now_ms: int) -> TopicLag:
    return TopicLag(
        topic=topic.name,
        topic_id=topic.topic_id,
        frontier=tuple(head.frontier for head in heads),
        stable=tuple(stable_end(head) for head in heads),
        end=tuple(head.next_offset for head in heads),
        oldest_ms=oldest_ms,
        committed_ms=status.committed_ms or None,
        error=error,
        failures=status.failures,
        retry_in_ms=max(0, status.retry_ms - now_ms) if error else 0,
    )
