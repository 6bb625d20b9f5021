"""Stretches of a partition in offset order, whatever way the files lie.

Row groups whose offsets overlap form a cluster: no other row group has offsets between its ends. A cluster of one row
group, the layout we write, is decoded once and read in order. In a larger one, which a foreign sort makes, only the
places of the rows are read at first; then the records come in chunks of a bounded size. A chunk may need every row
group of its cluster, so who comes to one gets a glance at first: a few records, out of as few row groups.
"""

import asyncio
import weakref
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakestream.records import Encoder
from lakestream.table.parquet.arrow import arrow_schema, from_arrow
from lakestream.table.reading.deletes import Deleted
from lakestream.table.reading.files import UNBOUNDED, FileIndex
from lakestream.table.reading.rows import DecodedGroup, RowPlaces, RowReader, check_unique, some_at_once, sorted_encoder
from lakestream.table.shape import TableShape

_GLANCE_GROUPS: Final = 2
_GLANCE_BYTES: Final = 4 * 1024 * 1024
"""Decoded for a glance at most, one row group excepted."""
_GLANCE_ROWS: Final = 1024
_GLANCES_KEPT: Final = 1024
_ALONE_KEPT: Final = 256
"""Row groups that readers are in; each holds its footer."""
_DENSE: Final = 8
"""Offsets are dense if their span is less than so many times their number."""


_Opened = dict[str, list[DecodedGroup]]
"""By path, what was opened of the files: held while something is looked for, whatever caches drop meanwhile."""


@dataclass(frozen=True, slots=True)
class Segment:
    """All records of a partition from the offset it was found for up to (not with) `end_offset`. After a `glance`, what
    follows takes long: it is better given away first. `key`: what the cache has it under, if it is kept."""

    encoder: Encoder
    end_offset: int
    glance: bool = False
    key: Hashable = None


@dataclass(frozen=True, slots=True)
class _Alone:
    """A row group of a view's files: from `low` to `high` no other has an offset of the partition it was found for."""

    index: weakref.ref[FileIndex]
    group: DecodedGroup
    low: int
    high: int
    key: Hashable
    """What the cache has its records under."""


@dataclass(frozen=True, slots=True)
class _Merged:
    """The rows of a cluster by offset: which group, which row."""

    offset: npt.NDArray[np.int64]
    group: npt.NDArray[np.int32]
    row: npt.NDArray[np.int64]

    @property
    def size_bytes(self) -> int:
        return self.offset.nbytes + self.group.nbytes + self.row.nbytes


class SegmentReader:
    def __init__(self, rows: RowReader, chunk_bytes: int) -> None:
        self._rows = rows
        self._chunk_bytes = chunk_bytes
        self._glanced: OrderedDict[Hashable, None] = OrderedDict()
        self._alone: OrderedDict[tuple[int, int], _Alone] = OrderedDict()

    def is_held(self, index: FileIndex, partition: int, offset: int) -> bool:
        """Whether what a reader who reads on finds at the offset is in memory, or on its way there."""
        alone = self._known(index, partition, offset)
        return alone is not None and self._rows.cache.holds(alone.key)

    async def find(
        self,
        index: FileIndex,
        deleted: Deleted,
        partition: int,
        offset: int,
        end_offset: int,
        shape: TableShape,
        *,
        hurry: bool = False,
        ahead: bool = False,
    ) -> Segment | None:
        """The segment that holds the first offset at or after `offset` that a file may have; None: there is none below
        end_offset. Who is in a `hurry` is content with a glance. `ahead`: nobody is there yet."""
        opened: _Opened = {}
        while offset < end_offset:
            alone = self._known(index, partition, offset)
            if alone is not None:
                return await self._whole(alone.group, deleted, partition, alone.high, shape)
            cluster, high = await self._cluster(index, opened, partition, offset)
            if not cluster:
                offset = high
                continue
            if len(cluster) == 1:
                if not ahead:
                    key = self._rows.records_key(cluster[0], deleted)
                    self._remember(index, partition, _Alone(weakref.ref(index), cluster[0], offset, high, key))
                return await self._whole(cluster[0], deleted, partition, high, shape)
            if await self._refine(cluster, deleted):
                continue
            return await self._chunk(cluster, deleted, partition, offset, _after(high), shape, hurry=hurry)
        return None

    def _known(self, index: FileIndex, partition: int, offset: int) -> _Alone | None:
        alone = self._alone.get((id(index), partition))
        return alone if alone is not None and alone.index() is index and alone.low <= offset <= alone.high else None

    async def _whole(
        self, group: DecodedGroup, deleted: Deleted, partition: int, high: int, shape: TableShape
    ) -> Segment:
        encoder = await self._rows.records(group, deleted, partition, shape)
        return Segment(encoder, _after(high), key=self._rows.records_key(group, deleted))

    def _remember(self, index: FileIndex, partition: int, alone: _Alone) -> None:
        """Who reads on comes back to the same row group for every answer."""
        self._alone[id(index), partition] = alone
        if len(self._alone) > _ALONE_KEPT:
            self._alone.popitem(last=False)

    async def _cluster(
        self, index: FileIndex, opened: _Opened, partition: int, offset: int
    ) -> tuple[list[DecodedGroup], int]:
        """The row groups that may hold the offset, all that overlap them, and so on; with their highest offset.
        None of them: an empty list and the next offset worth a look."""
        high = offset
        groups = await self._overlapping(index, opened, partition, offset, high)
        if not groups:
            return [], await self._next_start(index, opened, partition, offset)
        while True:
            reach = max(bounds[1] for group in groups if (bounds := group.bounds(partition)))
            if reach <= high:
                return groups, high
            high = reach
            groups = await self._overlapping(index, opened, partition, offset, high)

    async def _overlapping(
        self, index: FileIndex, opened: _Opened, partition: int, low: int, high: int
    ) -> list[DecodedGroup]:
        found = []
        for groups in await self._groups(index, opened, partition, low, high):
            for group in groups:
                bounds = group.bounds(partition)
                if bounds is not None and bounds[0] <= high and bounds[1] >= low:
                    found.append(group)
        return found

    async def _next_start(self, index: FileIndex, opened: _Opened, partition: int, offset: int) -> int:
        starts = [index.next_start(partition, offset)]
        for groups in await self._groups(index, opened, partition, offset, offset):
            starts += [bounds[0] for group in groups if (bounds := group.bounds(partition)) and bounds[0] > offset]
        return min(starts)

    async def _groups(
        self, index: FileIndex, opened: _Opened, partition: int, low: int, high: int
    ) -> Sequence[list[DecodedGroup]]:
        files = index.overlapping(partition, low, high)
        closed = [file for file in files if file.path not in opened]
        if closed:
            opened.update(zip([file.path for file in closed], await self._rows.groups_of(closed), strict=True))
        return [opened[file.path] for file in files]

    async def _refine(self, cluster: list[DecodedGroup], deleted: Deleted) -> bool:
        """Learns the true bounds of the groups in doubt; whether there were any."""
        doubtful = [group for group in cluster if not group.is_exact]
        await self._rows.places_of(doubtful, deleted)
        return bool(doubtful)

    async def _chunk(
        self,
        cluster: list[DecodedGroup],
        deleted: Deleted,
        partition: int,
        offset: int,
        end_offset: int,
        shape: TableShape,
        *,
        hurry: bool,
    ) -> Segment:
        name = tuple((*group.name, deleted.token(group.row_group.path)) for group in cluster)
        merged_key = ("merged", partition, name)
        was_merged = self._rows.cache.holds(merged_key)
        if hurry and not was_merged and _takes_long(cluster) and self._first_time(_top(cluster, partition)):
            return await self._first_look(cluster, deleted, partition, offset, end_offset, shape)

        async def merge() -> _Merged:
            places = await self._rows.places_of(cluster, deleted)
            return await asyncio.to_thread(_merge, places, partition)

        merged = await self._rows.cache.get(merged_key, merge, lambda loaded: loaded.size_bytes)
        row_bytes = _bytes_per_row(cluster)
        chunk_rows = max(1, self._chunk_bytes // row_bytes)
        first = int(np.searchsorted(merged.offset, offset))
        number = first // chunk_rows
        start, stop = number * chunk_rows, (number + 1) * chunk_rows

        async def load() -> Encoder:
            return await self._take(cluster, merged, start, stop, shape)

        key = ("chunk", partition, name, number)
        if hurry and was_merged and not self._rows.cache.holds(key) and self._first_time(key):
            after = first + _glance(cluster, merged.group[first:stop])
            if after < min(stop, len(merged.offset)):
                encoder = await self._take(cluster, merged, first, after, shape)
                return Segment(encoder, int(merged.offset[after]), glance=True)
        encoder = await self._rows.cache.get(key, load, lambda loaded: loaded.size_bytes)
        after = int(merged.offset[stop]) if stop < len(merged.offset) else end_offset
        return Segment(encoder, after, key=key)

    async def _first_look(
        self,
        cluster: list[DecodedGroup],
        deleted: Deleted,
        partition: int,
        offset: int,
        end_offset: int,
        shape: TableShape,
    ) -> Segment:
        """A glance at rows that are not in order yet: only those near the offset are looked at."""
        places = await self._rows.places_of(cluster, deleted)
        width = _GLANCE_ROWS
        while True:
            near = await asyncio.to_thread(_merge, places, partition, offset, min(offset + width, end_offset))
            if len(near.offset) or offset + width >= end_offset:
                break
            width *= 16
        count = _glance(cluster, near.group)
        after = int(near.offset[count]) if count < len(near.offset) else min(offset + width, end_offset)
        return Segment(await self._take(cluster, near, 0, count, shape), after, glance=True)

    def _first_time(self, key: Hashable) -> bool:
        """That a cluster, or a chunk of one, is asked for: the second time it is worth its price."""
        if key in self._glanced:
            del self._glanced[key]
            return False
        self._glanced[key] = None
        if len(self._glanced) > _GLANCES_KEPT:
            self._glanced.popitem(last=False)
        return True

    async def _take(
        self, cluster: list[DecodedGroup], merged: _Merged, start: int, stop: int, shape: TableShape
    ) -> Encoder:
        """Rows [start, stop) of the merged order, a few row groups in memory at a time."""

        async def one(number: int, group: DecodedGroup) -> pa.Table:
            return await self._rows.take(group, merged.row[start:stop][merged.group[start:stop] == number], shape)

        wanted = set(merged.group[start:stop].tolist())
        tables = await some_at_once([one(number, group) for number, group in enumerate(cluster) if number in wanted])
        return await asyncio.to_thread(_encoder, tables, shape)


def _after(offset: int) -> int:
    return offset if offset == UNBOUNDED else offset + 1


def _glance(cluster: Sequence[DecodedGroup], groups: npt.NDArray[np.int32]) -> int:
    """How many of the first rows, of which the groups are given, few row groups hold: one at least, if there is one."""
    chosen: set[int] = set()
    size_bytes = 0
    for count, number in enumerate(groups[:_GLANCE_ROWS].tolist()):
        if number not in chosen:
            size_bytes += cluster[number].row_group.size_bytes
            if chosen and (len(chosen) == _GLANCE_GROUPS or size_bytes > _GLANCE_BYTES):
                return count
            chosen.add(number)
    return min(len(groups), _GLANCE_ROWS)


def _top(cluster: Sequence[DecodedGroup], partition: int) -> Hashable:
    """Names the cluster by the row group it ends with: others drop out as a reader passes them."""
    highest = max(cluster, key=lambda group: (group.bounds(partition) or (-1, -1))[1])
    return "cluster", partition, highest.name


def _takes_long(cluster: Sequence[DecodedGroup]) -> bool:
    return len(cluster) > _GLANCE_GROUPS or sum(group.row_group.size_bytes for group in cluster) > _GLANCE_BYTES


def _merge(places: Sequence[RowPlaces], partition: int, low: int = 0, end: int = UNBOUNDED) -> _Merged:
    """The rows of the partition in [low, end)."""
    offsets, groups, rows = [], [], []
    for number, found in enumerate(places):
        hit = found.partition == partition
        if low > 0 or end < UNBOUNDED:
            hit &= (found.offset >= low) & (found.offset < end)
        offsets.append(found.offset[hit])
        groups.append(np.full(int(hit.sum()), number, np.int32))
        rows.append(found.row[hit])
    offset = np.concatenate(offsets)
    order = _order(offset)
    return _Merged(offset[order], np.concatenate(groups)[order], np.concatenate(rows)[order])


def _order(offset: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
    """What sorts the offsets. `CorruptObject` if one stands twice. Where they are dense, each has its own place, which
    is many times cheaper than a sort."""
    low, high = (int(offset.min()), int(offset.max())) if len(offset) else (0, 0)
    if high - low < _DENSE * len(offset):
        places = np.full(high - low + 1, -1, np.int64)
        places[offset - low] = np.arange(len(offset))
        order = places[places >= 0]
        if len(order) == len(offset):
            return order
    order = np.argsort(offset)
    check_unique(offset[order])
    return order


def _bytes_per_row(cluster: Sequence[DecodedGroup]) -> int:
    rows = sum(group.row_group.row_count for group in cluster)
    return sum(group.row_group.size_bytes for group in cluster) // max(rows, 1) + 64


def _encoder(tables: Sequence[pa.Table], shape: TableShape) -> Encoder:
    return sorted_encoder(from_arrow(pa.concat_tables(tables) if tables else arrow_schema(shape).empty_table(), shape))
