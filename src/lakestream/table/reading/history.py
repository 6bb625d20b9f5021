"""What lies below the frontier, as record batches: read from the table's files, in offset order, to the byte."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final
from uuid import UUID

import numpy as np

from lakestream.errors import CorruptObject
from lakestream.model import DataFile
from lakestream.objects.store import ObjectStore
from lakestream.records import BatchCompression, Encoder, compressed
from lakestream.runtime.read_ahead import ReadAhead
from lakestream.table.parquet.files import ParquetFiles
from lakestream.table.port import CacheCounts, History
from lakestream.table.reading.cache import SharedCache
from lakestream.table.reading.deletes import Deleted, load_deletes
from lakestream.table.reading.files import FileIndex, index_of
from lakestream.table.reading.rows import DecodedGroup, RowPlaces, RowReader
from lakestream.table.reading.segments import Segment, SegmentReader
from lakestream.table.view import View

CACHE_BYTES: Final = 256 * 1024 * 1024
_KEPT_INDEXES: Final = 64
_AHEAD_SHARE: Final = 3
"""Of the cache, for what is read ahead: less than what readers are in."""
_LEFT_OUT_S: Final = 3.0
_LEFT_OUT_KEPT: Final = 10_000
_INLINE_BYTES: Final = 1024 * 1024
"""Encoding this much takes less than a thread costs."""


class HistoryReader:
    """Implements `HistorySource`. Decoded rows stay within the cache's budget, one row group larger than that excepted;
    while something is loaded, a few row groups come on top."""

    def __init__(self, store: ObjectStore, *, cache_bytes: int = CACHE_BYTES) -> None:
        self._files = ParquetFiles(store)
        self._cache = SharedCache(cache_bytes)
        self._rows = RowReader(self._files, self._cache)
        self._segments = SegmentReader(self._rows, cache_bytes // 4)
        self._ahead: ReadAhead[Encoder] = ReadAhead(cache_bytes // _AHEAD_SHARE)
        self._left_out: OrderedDict[tuple[UUID, int], float] = OrderedDict()
        """Partitions that readers have asked for in vain, and since when."""
        self._indexes: OrderedDict[int, tuple[Sequence[DataFile], FileIndex]] = OrderedDict()

    def cache_counts(self) -> CacheCounts:
        return CacheCounts(self._cache.hits, self._cache.misses, self._cache.size_bytes)

    async def read(
        self,
        view: View,
        *,
        partition: int,
        offset: int,
        end_offset: int,
        max_bytes: int,
        changed: bool = False,
        compression: BatchCompression | None = None,
        spare: bool = False,
    ) -> History:
        """The records of the partition from the first at or after `offset`, below end_offset: at least one if there is
        one, then as many as fit max_bytes uncompressed. What cannot be served is an error of its own offset: what is
        before it comes first. `changed`: also records that are not what their checksums say, as they are.
        `spare`: none at all, where they would have to be loaded while memory is short; that does not last for ever."""
        if spare and self._is_left_out(view, partition, offset):
            return History([], offset)
        self._left_out.pop((view.topic_id, partition), None)
        history = await self._read(
            view,
            partition=partition,
            offset=offset,
            end_offset=end_offset,
            max_bytes=max_bytes,
            changed=changed,
        )
        self._ahead.ended((view.topic_id, partition), history.next_offset)
        if compression is None or not compression.codec:
            return history
        parts = [await asyncio.to_thread(compressed, part, compression) for part in history.parts]
        return History(parts, history.next_offset)

    async def _read(
        self,
        view: View,
        *,
        partition: int,
        offset: int,
        end_offset: int,
        max_bytes: int,
        changed: bool,
    ) -> History:
        index = self._index(view.files)
        deleted = await load_deletes(view.deletes, self._files, self._cache)
        reader = view.topic_id, partition
        reads_on = self._ahead.follows(reader, offset)
        parts: list[memoryview] = []
        left_bytes = max_bytes
        while offset < end_offset and (left_bytes > 0 or not parts):
            try:
                segment = await self._segments.find(
                    index, deleted, partition, offset, end_offset, view.shape, hurry=not parts
                )
            except CorruptObject:
                if not parts:
                    raise
                return History(parts, offset)
            if segment is None:
                return History(parts, end_offset)
            covered = min(segment.end_offset, end_offset)
            encoder = segment.encoder
            self._ahead.came((*reader, offset), encoder)
            if reads_on and segment.key is not None and covered < end_offset:
                self._read_ahead(view, index, deleted, partition, segment, end_offset)
            start, stop = np.searchsorted(encoder.offsets, [offset, covered]).tolist()
            if start < stop:
                try:
                    part, after = await _encode_sound(encoder, start, stop, left_bytes, checks=not changed)
                except CorruptObject as error:
                    if not parts:
                        raise _located(error, index, partition, int(encoder.offsets[start])) from error
                    return History(parts, offset)
                if parts and len(part) > left_bytes:
                    return History(parts, offset)
                parts.append(part)
                left_bytes -= len(part)
                if after < stop:
                    return History(parts, int(encoder.offsets[after - 1]) + 1)
            if reads_on and segment.key is not None:
                self._cache.let_go_first(segment.key)
            offset = covered
            if segment.glance and parts:
                break
        return History(parts, offset)

    def _is_left_out(self, view: View, partition: int, offset: int) -> bool:
        if not self._cache.is_short or self._segments.is_held(self._index(view.files), partition, offset):
            return False
        now_s = asyncio.get_running_loop().time()
        since_s = self._left_out.setdefault((view.topic_id, partition), now_s)
        if len(self._left_out) > _LEFT_OUT_KEPT:
            self._left_out.popitem(last=False)
        return now_s - since_s < _LEFT_OUT_S

    def _read_ahead(
        self, view: View, index: FileIndex, deleted: Deleted, partition: int, segment: Segment, end_offset: int
    ) -> None:
        """What follows the segment, which is about as large."""

        async def load() -> Encoder | None:
            found = await self._segments.find(
                index, deleted, partition, segment.end_offset, end_offset, view.shape, ahead=True
            )
            return None if found is None else found.encoder

        if not self._cache.is_short:
            key = view.topic_id, partition, min(segment.end_offset, end_offset)
            self._ahead.begin(key, segment.encoder.size_bytes, load)

    async def first_at_or_after(
        self,
        view: View,
        *,
        partition: int,
        timestamp_ms: int,
        offset: int,
        end_offset: int,
    ) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record in [offset, end_offset) that is not older."""
        deleted = await load_deletes(view.deletes, self._files, self._cache)
        best: tuple[int, int] | None = None
        for file in self._index(view.files).overlapping(partition, offset, end_offset - 1, since_ms=timestamp_ms):
            if best is not None and (file.offset_min or 0) > best[0]:
                break
            for group in await self._rows.groups(file):
                high = best[0] if best is not None else end_offset
                if group.row_group.timestamp_max_ms >= timestamp_ms and _overlaps(group, partition, offset, high - 1):
                    places = await self._rows.places(group, deleted, times=True)
                    best = _first(places, partition, timestamp_ms, offset, high) or best
        return best

    async def newest(
        self,
        view: View,
        *,
        partition: int,
        end_offset: int,
        offset: int = 0,
    ) -> tuple[int, int] | None:
        """(offset, timestamp) of the record in [offset, end_offset) with the newest timestamp, the first of them if
        several share it."""
        deleted = await load_deletes(view.deletes, self._files, self._cache)
        best: tuple[int, int] | None = None
        for file, bound_ms in self._index(view.files).newest_first(partition, end_offset):
            if best is not None and bound_ms < best[1]:
                break
            for group in await self._rows.groups(file):
                known_ms = best[1] if best is not None else -1
                if group.row_group.timestamp_max_ms >= known_ms and _overlaps(group, partition, offset, end_offset - 1):
                    places = await self._rows.places(group, deleted, times=True)
                    found = _newest(places, partition, offset, end_offset)
                    if found is not None and (best is None or (-found[1], found[0]) < (-best[1], best[0])):
                        best = found
        return best

    def _index(self, files: Sequence[DataFile]) -> FileIndex:
        """A view's files as a rule are their own index. Others are known by identity: an immutable tuple, held here so
        that its identity stays its own."""
        if isinstance(files, FileIndex):
            return files
        found = self._indexes.get(id(files))
        if found is None:
            found = files, index_of(files)
            self._indexes[id(files)] = found
            if len(self._indexes) > _KEPT_INDEXES:
                self._indexes.popitem(last=False)
        self._indexes.move_to_end(id(files))
        return found[1]


def _located(error: CorruptObject, index: FileIndex, partition: int, offset: int) -> CorruptObject:
    """With the files that may have the record: one, if their bounds do not overlap."""
    first, *others = [file.path for file in index.overlapping(partition, offset, offset)]
    among = f" or one of {len(others)} others" if others else ""
    return CorruptObject(f"partition {partition}: {error}; it is in {first}{among}")


async def _encode_sound(
    encoder: Encoder, start: int, stop: int, max_bytes: int, *, checks: bool
) -> tuple[memoryview, int]:
    """Some of the rows, or all; `CorruptObject` only for the first of them."""
    try:
        return await _encode(encoder, start, stop, max_bytes, checks=checks)
    except CorruptObject as error:
        if stop - start == 1:
            raise CorruptObject(
                f"{error}; an engine has changed its key, value or headers, or its file is damaged: delete the row, or"
                " roll the table back, or let changed rows be its records (the topic's lakestream.table.updates=record)"
            ) from error
        return await _encode_sound(encoder, start, (start + stop) // 2, max_bytes, checks=checks)


async def _encode(encoder: Encoder, start: int, stop: int, max_bytes: int, *, checks: bool) -> tuple[memoryview, int]:
    if max_bytes <= _INLINE_BYTES:
        return encoder.encode(start, stop, max_bytes=max_bytes, checks=checks)
    return await asyncio.to_thread(encoder.encode, start, stop, max_bytes=max_bytes, checks=checks)


def _overlaps(group: DecodedGroup, partition: int, low: int, high: int) -> bool:
    bounds = group.bounds(partition)
    return bounds is not None and bounds[0] <= high and bounds[1] >= low


def _first(places: RowPlaces, partition: int, timestamp_ms: int, low: int, end: int) -> tuple[int, int] | None:
    hit = (places.partition == partition) & (places.timestamp_ms >= timestamp_ms)
    hit &= (places.offset >= low) & (places.offset < end)
    rows = np.flatnonzero(hit)
    if not len(rows):
        return None
    row = rows[np.argmin(places.offset[rows])]
    return int(places.offset[row]), int(places.timestamp_ms[row])


def _newest(places: RowPlaces, partition: int, low: int, end: int) -> tuple[int, int] | None:
    hit = (places.partition == partition) & (places.timestamp_ms >= 0)
    rows = np.flatnonzero(hit & (places.offset >= low) & (places.offset < end))
    if not len(rows):
        return None
    newest_ms = places.timestamp_ms[rows].max()
    return int(places.offset[rows][places.timestamp_ms[rows] == newest_ms].min()), int(newest_ms)
