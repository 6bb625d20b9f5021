"""Records from memory: the bytes of extents, numbered and ready to be sent.

What this broker appends is kept as it came, and numbered when somebody first reads it. It stays when the frontier has
passed it, so that a consumer that is seconds or minutes behind need not read the table: whether its rows are still
what was appended is the reader's to ask (`View.intact_from`).
"""

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lakestream.errors import CorruptObject, CorruptRecords
from lakestream.metadata.log.head import Extent
from lakestream.model import StreamPartition
from lakestream.objects.store import Buffer, ObjectStore, RangeReader
from lakestream.objects.whole import WholeObjects
from lakestream.records import BatchInfo, crc32c, stamp, walk
from lakestream.records.layout import CONTROL_BIT, TRANSACTIONAL_BIT
from lakestream.wal import WalStores

_Key = tuple[StreamPartition, int]
_OF_TRANSACTIONS: Final = TRANSACTIONAL_BIT | CONTROL_BIT
_ENTRY_BYTES: Final = 512
_BATCH_BYTES: Final = 200
"""What an entry, and each batch in it, takes beside the records."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ExtentBytes:
    """An extent's bytes with their final offsets; `batches` tells where each begins."""

    data: memoryview
    batches: Sequence[BatchInfo]
    base_offset: int
    end_offset: int
    is_transactional: bool = False
    """Some of it is, or is a marker: what counts of it only markers tell."""

    def position_of(self, offset: int) -> int:
        """Where the batch that holds `offset` begins."""
        next_offset = self.base_offset
        for batch in self.batches:
            next_offset += batch.record_count
            if offset < next_offset:
                return batch.position
        return len(self.data)

    def offset_at(self, position: int) -> int:
        """The first offset of the batch that begins there; at the end of the bytes, the first after them."""
        if position == len(self.data):
            return self.end_offset
        return self.base_offset + sum(batch.record_count for batch in self.batches if batch.position < position)


@dataclass(frozen=True, slots=True)
class _Appended:
    """What a broker has appended, in the buffers in which it came. They are let go of together, more or less: nothing
    but a read changes the order in which they go, and a read takes a copy."""

    runs: Sequence[Buffer]
    extent: Extent


class ExtentCache:
    """Least recently used extents go first. Concurrent misses of one extent share one read."""

    def __init__(self, stores: WalStores, limit_bytes: int, bucket: RangeReader | None = None) -> None:
        """`bucket`: how the bucket is read, if not as it is."""
        self._bucket = bucket
        self._stores = stores
        self.limit_bytes = limit_bytes
        self._used_bytes = 0
        self.hits = self.misses = 0
        self._entries: OrderedDict[_Key, tuple[ExtentBytes | _Appended, int]] = OrderedDict()
        self._bases: dict[StreamPartition, list[int]] = {}
        """The base offsets of the entries, in order."""
        self._reads: dict[_Key, asyncio.Task[ExtentBytes]] = {}

    @property
    def used_bytes(self) -> int:
        return self._used_bytes

    def keep(self, partition: StreamPartition, extent: Extent, runs: Sequence[Buffer]) -> None:
        """Takes in what was just appended: `runs` joined are the extent's bytes, and must not change any more."""
        if (partition, extent.base_offset) not in self._entries:
            self._put(partition, extent.base_offset, _Appended(runs, extent), sum(map(len, runs)) + _ENTRY_BYTES)

    def holds(self, partition: StreamPartition, base_offset: int) -> bool:
        """Whether the extent is in memory, or on its way there."""
        return (partition, base_offset) in self._entries or (partition, base_offset) in self._reads

    def find(self, partition: StreamPartition, offset: int) -> ExtentBytes | None:
        """The extent that holds the offset, if it is in memory."""
        bases = self._bases.get(partition)
        place = bisect_right(bases, offset) - 1 if bases else -1
        if bases is None or place < 0:
            return None
        found = self._get((partition, bases[place]))
        return found if found is not None and offset < found.end_offset else None

    async def read(self, partition: StreamPartition, extent: Extent) -> ExtentBytes:
        """`ObjectMissing` if no store has the object any more, `Unavailable` if one that may have it is silent."""
        key = (partition, extent.base_offset)
        found = self._get(key)
        if found is not None:
            return found
        self.misses += 1
        task = self._reads.get(key)
        if task is None:
            task = asyncio.create_task(self._load(partition, extent))
            self._reads[key] = task
            task.add_done_callback(lambda _: self._reads.pop(key, None))
        return await asyncio.shield(task)

    def _get(self, key: _Key) -> ExtentBytes | None:
        held = self._entries.get(key)
        if held is None:
            return None
        self.hits += 1
        entry = held[0]
        if isinstance(entry, ExtentBytes):
            self._entries.move_to_end(key)
            return entry
        self._drop(key)
        partition, _ = key
        try:
            return self._add(partition, entry.extent, bytearray().join(entry.runs))
        except CorruptRecords:
            return None  # the object, which has a checksum, is read in its place

    def _add(self, partition: StreamPartition, extent: Extent, data: bytearray) -> ExtentBytes:
        """`data` is the extent's bytes as uploaded; it belongs to the cache from now on. `CorruptRecords` unless it is
        batches with just the extent's offsets."""
        if stamp(data, extent.base_offset) != extent.end_offset:
            raise CorruptRecords(f"its batches do not end at offset {extent.end_offset}")
        batches = walk(data)
        transactional = any(batch.attributes & _OF_TRANSACTIONS for batch in batches)
        numbered = ExtentBytes(
            memoryview(data).toreadonly(), batches, extent.base_offset, extent.end_offset, transactional
        )
        if (partition, extent.base_offset) not in self._entries:
            size_bytes = len(data) + _ENTRY_BYTES + len(batches) * _BATCH_BYTES
            self._put(partition, extent.base_offset, numbered, size_bytes)
        return numbered

    def _put(
        self, partition: StreamPartition, base_offset: int, entry: ExtentBytes | _Appended, size_bytes: int
    ) -> None:
        self._entries[partition, base_offset] = entry, size_bytes
        insort(self._bases.setdefault(partition, []), base_offset)
        self._used_bytes += size_bytes
        while self._used_bytes > self.limit_bytes:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: _Key) -> None:
        _, size_bytes = self._entries.pop(key)
        self._used_bytes -= size_bytes
        partition, base_offset = key
        bases = self._bases[partition]
        del bases[bisect_left(bases, base_offset)]
        if not bases:
            del self._bases[partition]

    async def _load(self, partition: StreamPartition, extent: Extent) -> ExtentBytes:
        try:
            data = bytearray(extent.inline or await self._read_object(extent))
            if crc32c(data) != extent.checksum:
                raise CorruptObject("they do not have the checksum they were written with")
            return self._add(partition, extent, data)
        except (CorruptObject, CorruptRecords) as error:
            raise CorruptObject(
                f"object {extent.object_key}: the {extent.length} bytes at {extent.position}, offsets "
                f"{extent.base_offset} to {extent.end_offset} of {partition.topic_id}-{partition.index}, are damaged: "
                f"{error}"
            ) from error

    async def _read_object(self, extent: Extent) -> Buffer:
        return await self._stores.read(
            extent.stores,
            extent.object_key,
            extent.position,
            extent.length,
            bucket=self._bucket,
            is_right=lambda data: len(extent.stores) == 1 or crc32c(data) == extent.checksum,
        )


def range_reader(objects: ObjectStore, limit_bytes: int) -> RangeReader:
    """For WAL objects in this store: whole ones, kept for a while, where every request takes its time and its price."""
    is_near = objects.url.startswith(("file://", "memory://"))
    return objects if is_near else WholeObjects(objects, limit_bytes)
