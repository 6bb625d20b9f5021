"""Rows of one key out of table files: row groups are read only where a filter, or bounds, let them have it.

What says no is a bloom filter of ours, whose checksum holds, or else the bounds of the column. Files of other engines
have no filter that is trusted here: their keys are read. Filters are kept, for files never change.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakestream.model import DataFile, PositionDeletes
from lakestream.table.parquet.arrow import canonical, places_from_arrow
from lakestream.table.parquet.files import ParquetFiles
from lakestream.table.parquet.filters import KeyFilter, filter_places, key_hash, parse_filter
from lakestream.table.reading.cache import SharedCache
from lakestream.table.reading.deletes import Deleted, load_deletes
from lakestream.table.reading.files import UNBOUNDED
from lakestream.table.reading.ranges import Ranges
from lakestream.table.reading.rows import DecodedGroup, RowReader, some_at_once
from lakestream.table.shape import TableShape

_COLUMN: Final = "_key"
_PLACE: Final = ("_stream_partition", "_offset")
_CACHE_BYTES: Final = 96 * 1024 * 1024
"""For filters and deleted rows. 10 bits or so for each key that a row group has, up to 20 where its size is rounded."""
_WINDOW: Final = 1_024
"""Offsets of a partition that are looked through first."""
_GROWTH: Final = 8
_OVERHEAD_BYTES: Final = 200
"""Of a filter in the cache, beside its words."""


@dataclass(frozen=True, slots=True)
class KeyRows:
    """`since`: by partition from where on all rows of the key are among these."""

    tables: list[pa.Table]
    since: Mapping[int, int]


class KeyReader:
    """Of one store. Its caches are for one event loop."""

    def __init__(self, files: ParquetFiles) -> None:
        self._files = files
        self._cache = SharedCache(_CACHE_BYTES)
        self._rows = RowReader(files, self._cache)

    async def may_hold(self, group: DecodedGroup, key: bytes) -> bool:
        filters = await self._filters(group)
        found = filters[group.row_group.index]
        return found.may_hold(key_hash(key)) if found is not None else _within_bounds(group, key)

    async def newest(
        self,
        files: Sequence[DataFile],
        deletes: Sequence[PositionDeletes],
        ranges: Ranges,
        key: bytes,
        columns: Sequence[str],
        shape: TableShape,
        enough: int,
    ) -> KeyRows:
        """Backwards through the ranges, in windows of offsets, each larger than the one before, until there are enough
        rows. `StorageError` if a file is missing or damaged."""
        deleted = await load_deletes(deletes, self._files, self._cache)
        starts = {partition: start for partition, start, _ in ranges}
        ends = {partition: end for partition, _, end in ranges}
        at, width = dict(ends), _WINDOW
        found: dict[tuple[str, int], pa.Table | None] = {}
        while at != starts and _count(found.values(), Ranges.between(at, ends)) < enough:
            since = {partition: max(start, at[partition] - width) for partition, start in starts.items()}
            window = Ranges.between(since, at)
            groups = [group for group in await self._groups(files, window) if group.name not in found]
            reads = [self._of_key(group, deleted, ranges, key, columns, shape) for group in groups]
            tables = await some_at_once(reads) if reads else []
            found |= {group.name: table for group, table in zip(groups, tables, strict=True)}
            at, width = since, width * _GROWTH
        kept = Ranges.between(at, ends)
        return KeyRows([_held(table, kept) for table in found.values() if table is not None], at)

    async def _groups(self, files: Sequence[DataFile], window: Ranges) -> list[DecodedGroup]:
        near = [file for file in files if window.may_hold(*_bounds(file))]
        return [
            group
            for groups in await self._rows.groups_of(near)
            for group in groups
            if window.may_hold(
                (group.row_group.partition_min, group.row_group.partition_max),
                (group.row_group.offset_min, group.row_group.offset_max),
            )
        ]

    async def _of_key(
        self,
        group: DecodedGroup,
        deleted: Deleted,
        ranges: Ranges,
        key: bytes,
        columns: Sequence[str],
        shape: TableShape,
    ) -> pa.Table | None:
        """The rows of the key that are in the ranges; None: there are none."""
        about = group.row_group
        if _COLUMN in about.empty_columns or not await self.may_hold(group, key):
            return None
        stored = shape.stored_names([_COLUMN])
        rows = await self._files.read(about, group.footer, stored, lambda read: _rows_of(read, key, shape))
        kept = deleted.kept(about.path, about.first_row, about.row_count)
        if kept is not None:
            rows = rows[kept[rows]]
        if not len(rows):
            return None
        names = list(dict.fromkeys((*_PLACE, *columns)))
        table = await self._files.read(
            about,
            group.footer,
            shape.stored_names(names),
            lambda read: canonical(read, names, shape).take(pa.array(rows)),
        )
        return _held(table, ranges)

    async def _filters(self, group: DecodedGroup) -> tuple[KeyFilter | None, ...]:
        """Of all row groups of its file."""
        path = group.row_group.path

        async def load() -> tuple[KeyFilter | None, ...]:
            places = filter_places(group.footer.metadata, _COLUMN) if group.footer.checksums is not None else ()
            if not places:
                return (None,) * len(group.footer.groups)
            start, end = min(place.start for place in places), max(place.end for place in places)
            data = memoryview(await self._files.read_range(path, start, end))
            return tuple(parse_filter(data[each.start - start : each.end - start], each.checksum) for each in places)

        return await self._cache.get(("filters", path), load, _filter_bytes)


def _filter_bytes(filters: Sequence[KeyFilter | None]) -> int:
    return sum(_OVERHEAD_BYTES + (0 if each is None else each.size_bytes) for each in filters)


def _within_bounds(group: DecodedGroup, key: bytes) -> bool:
    leaves = group.footer.leaves
    if _COLUMN not in leaves:
        return True
    about: Any = group.footer.metadata.row_group(group.row_group.index).column(leaves.index(_COLUMN))
    statistics = about.statistics
    if statistics is None or not statistics.has_min_max or not isinstance(statistics.min, bytes):
        return True
    return bool(statistics.min <= key <= statistics.max)


def _rows_of(read: pa.Table, key: bytes, shape: TableShape) -> npt.NDArray[np.int64]:
    keys = canonical(read, [_COLUMN], shape).column(0)
    return np.flatnonzero(pc.fill_null(pc.equal(keys, pa.scalar(key, pa.binary())), False).to_numpy())


def _held(table: pa.Table, ranges: Ranges) -> pa.Table:
    partition, offset, _ = places_from_arrow(table.select(_PLACE))
    held = ranges.holds(partition, offset)
    return table if held.all() else table.filter(pa.array(held))


def _count(tables: Iterable[pa.Table | None], ranges: Ranges) -> int:
    return sum(_held(table, ranges).num_rows for table in tables if table is not None)


def _bounds(file: DataFile) -> tuple[tuple[int, int], tuple[int, int]]:
    """Of partitions and offsets."""
    return (
        (file.partition_min or 0, UNBOUNDED if file.partition_max is None else file.partition_max),
        (file.offset_min or 0, UNBOUNDED if file.offset_max is None else file.offset_max),
    )
