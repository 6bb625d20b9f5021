"""Tail reads from memory: the bytes of extents, numbered and ready to be sent."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from lakestream.errors import CorruptObject, CorruptRecords, ObjectMissing
from lakestream.metadata.log.head import Extent
from lakestream.model import StreamPartition
from lakestream.objects import ObjectStore
from lakestream.objects.store import Buffer
from lakestream.records import BatchInfo, crc32c, stamp, walk

_Key = tuple[StreamPartition, int]


@dataclass(frozen=True, slots=True)
class Served:
    """An extent's bytes with their final offsets; `batches` tells where each begins."""

    data: memoryview
    batches: Sequence[BatchInfo]
    base_offset: int

    def position_of(self, offset: int) -> int:
        """Where the batch that holds `offset` begins."""
        next_offset = self.base_offset
        for batch in self.batches:
            next_offset += batch.record_count
            if offset < next_offset:
                return batch.position
        return len(self.data)


class TailCache:
    """Least recently used extents go first. Concurrent misses of one extent share one read."""

    def __init__(self, stores: dict[str, ObjectStore], limit_bytes: int) -> None:
        self._stores = stores
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self._served: OrderedDict[_Key, Served] = OrderedDict()
        self._reads: dict[_Key, asyncio.Task[Served]] = {}

    def add(self, partition: StreamPartition, extent: Extent, data: bytearray) -> Served:
        """`data` is the extent's bytes as uploaded; it belongs to the cache from now on. `CorruptRecords` unless it is
        batches with just the extent's offsets."""
        if stamp(data, extent.base_offset) != extent.end_offset:
            raise CorruptRecords(f"its batches do not end at offset {extent.end_offset}")
        served = Served(memoryview(data).toreadonly(), walk(data), extent.base_offset)
        key = (partition, extent.base_offset)
        if key not in self._served:
            self._served[key] = served
            self._used_bytes += len(data)
            while self._used_bytes > self._limit_bytes and len(self._served) > 1:
                _, dropped = self._served.popitem(last=False)
                self._used_bytes -= len(dropped.data)
        return served

    async def read(self, partition: StreamPartition, extent: Extent) -> Served:
        """`ObjectMissing` if no store has the object any more."""
        key = (partition, extent.base_offset)
        served = self._served.get(key)
        if served is not None:
            self._served.move_to_end(key)
            return served
        task = self._reads.get(key)
        if task is None:
            task = asyncio.create_task(self._load(partition, extent))
            self._reads[key] = task
            task.add_done_callback(lambda _: self._reads.pop(key, None))
        return await asyncio.shield(task)

    async def _load(self, partition: StreamPartition, extent: Extent) -> Served:
        try:
            data = bytearray(extent.inline or await self._fetch(extent))
            if crc32c(data) != extent.checksum:
                raise CorruptObject("they do not have the checksum they were written with")
            served = self.add(partition, extent, data)
        except (CorruptObject, CorruptRecords) as error:
            raise CorruptObject(
                f"object {extent.object_key}: the {extent.length} bytes at {extent.position}, offsets "
                f"{extent.base_offset} to {extent.end_offset} of {partition.topic_id}-{partition.index}, are damaged: "
                f"{error}"
            ) from error
        return served

    async def _fetch(self, extent: Extent) -> Buffer:
        """Tries every copy before the object counts as missing."""
        missing = ObjectMissing(f"{extent.object_key} is on none of the stores {', '.join(extent.stores)}")
        for name in extent.stores:
            store = self._stores.get(name)
            if store is not None:
                try:
                    return await store.get_range(extent.object_key, extent.position, extent.length)
                except ObjectMissing as error:
                    missing = error
        raise missing
