"""What people ask about a partition: how much it takes, and who writes to it."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from lakestream.metadata import codec
from lakestream.metadata.log.head import PRODUCERS, ProducerState, shard_of
from lakestream.metadata.log.partition import read_extents
from lakestream.metadata.store import Address, Store
from lakestream.metadata.topics.list import Topic
from lakestream.model import StreamPartition
from lakestream.stream.requests import KnownProducer
from lakestream.table.view import View

_CONCURRENT: Final = 32


async def partition_sizes(store: Store, view: View | None, topic: Topic, indexes: Sequence[int]) -> dict[int, int]:
    """Bytes of the tail and of the table's files. A file of several partitions counts for each of them in equal parts:
    how its bytes are spread over them its manifest does not say."""
    files: dict[int, int] = defaultdict(int)
    for file in () if view is None else view.files:
        first = 0 if file.partition_min is None else file.partition_min
        last = topic.partitions - 1 if file.partition_max is None else file.partition_max
        for index in range(first, last + 1):
            files[index] += file.size_bytes // (last - first + 1)
    limit = asyncio.Semaphore(_CONCURRENT)

    async def tail_bytes(index: int) -> int:
        async with limit:
            extents = await read_extents(store, StreamPartition(topic.topic_id, index))
        return sum(extent.length for extent in extents)

    tails = await asyncio.gather(*map(tail_bytes, indexes))
    return {index: files[index] + tail for index, tail in zip(indexes, tails, strict=True)}


async def known_producers(store: Store, partition: StreamPartition) -> list[KnownProducer]:
    """In order of their ids."""
    shard, found = shard_of(partition), []
    for row in await store.range(shard, *PRODUCERS):
        state = codec.decode(row.value, ProducerState, Address(shard, row.key))
        last = state.runs[-1] if state.runs else None
        found.append(
            KnownProducer(
                int(row.key.removeprefix(PRODUCERS[0]), 16),
                state.epoch,
                -1 if last is None else last.last_sequence,
                -1 if last is None else last.max_timestamp_ms,
                -1 if state.open is None else state.open.first_offset,
                state.coordinator_epoch,
            )
        )
    return found
