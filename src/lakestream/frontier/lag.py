"""How far the tables are behind their logs: read from heads, extents and the pipeline's status rows."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from lakestream.errors import CorruptObject
from lakestream.frontier.status import TopicStatus, read_status
from lakestream.metadata import codec
from lakestream.metadata.log.head import EXTENTS, Extent, Head, extent_key, shard_of
from lakestream.metadata.log.partition import decode_head, head_address
from lakestream.metadata.store import Address, Store
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.model import StreamPartition


@dataclass(frozen=True, slots=True)
class TopicLag:
    """`frontier` and `end` by partition. `oldest_ms`: the age of the oldest record that is not in the table, by its own
    timestamp; 0 if there is none. `committed_ms`: the time of the last commit by a pipeline, None if none is known.
    `error`: why the topic is quarantined, else empty."""

    topic: str
    topic_id: UUID
    frontier: tuple[int, ...]
    end: tuple[int, ...]
    oldest_ms: int
    committed_ms: int | None
    error: str
    failures: int
    retry_in_ms: int

    @property
    def records(self) -> int:
        return sum(self.end) - sum(self.frontier)


async def read_lag(store: Store, topics: Topics, now_ms: int) -> list[TopicLag]:
    """Of every topic, by name. A topic whose head is damaged is told of, with that as its error."""
    listed = await topics.list()
    status = await read_status(store)
    partitions = [partition for topic in listed for partition in topic.each_partition()]
    entries = iter(await store.get([head_address(partition) for partition in partitions]) if partitions else [])
    found = []
    for topic in listed:
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
        end=tuple(head.next_offset for head in heads),
        oldest_ms=oldest_ms,
        committed_ms=status.committed_ms or None,
        error=error,
        failures=status.failures,
        retry_in_ms=max(0, status.retry_ms - now_ms) if error else 0,
    )
