"""Rows of a stream's table between two frontiers, in steps of a bounded size, whatever way its files lie."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from lakestream.model import DataFile
from lakestream.objects.store import ObjectStore
from lakestream.table.parquet.arrow import canonical, places_from_arrow
from lakestream.table.parquet.files import ParquetFiles
from lakestream.table.reading.cache import SharedCache
from lakestream.table.reading.deletes import Deleted, load_deletes
from lakestream.table.reading.files import FileIndex, index_of
from lakestream.table.reading.rows import DecodedGroup, RowReader
from lakestream.table.shape import TableShape
from lakestream.table.view import View

_CACHE_BYTES: Final = 16 * 1024 * 1024
_AT_ONCE: Final = 64
"""Files whose footers are held while a step is planned."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """From one frontier to another, by partition; `groups` may have rows between them."""

    start: tuple[int, ...]
    end: tuple[int, ...]
    groups: tuple[DecodedGroup, ...]


class StreamRows:
    """`max_rows`, `max_bytes` (uncompressed): of one step, about."""

    def __init__(self, store: ObjectStore, *, max_rows: int, max_bytes: int) -> None:
        self._files = ParquetFiles(store)
        self._cache = SharedCache(_CACHE_BYTES)
        self._rows = RowReader(self._files, self._cache)
        self._max_rows = max_rows
        self._max_bytes = max_bytes

    async def step(self, view: View, start: Sequence[int]) -> Stretch | None:
        """What comes next behind `start`, no row group twice. None: nothing, up to the view's frontier."""
        begun = tuple(start[index] if index < len(start) else 0 for index in range(len(view.frontier)))
        behind = [index for index, end in enumerate(view.frontier) if begun[index] < end]
        if not behind:
            return None
        index = index_of(view.files)
        ends = list(begun)
        groups: dict[tuple[str, int], DecodedGroup] = {}
        rows, size_bytes = max(1, self._max_rows // len(behind)), max(1, self._max_bytes // len(behind))
        for partition in behind:
            ends[partition], found = await self._reach(
                index, partition, begun[partition], view.frontier[partition], rows, size_bytes
            )
            groups |= {group.name: group for group in found}
        return Stretch(begun, tuple(ends), tuple(groups.values()))

    async def read(
        self, view: View, step: Stretch, columns: Sequence[str], having: str | None = None
    ) -> list[pa.Table]:
        """Those of the columns of the step's rows that are there, in the shape's types; of row groups alone that have
        something in the column `having`."""
        deleted = await load_deletes(view.deletes, self._files, self._cache)
        tables = []
        for group in step.groups:
            if having in group.row_group.empty_columns:
                continue
            take = partial(_between, columns=columns, group=group, deleted=deleted, step=step, shape=view.shape)
            wanted = [name for name in columns if name not in group.row_group.empty_columns]
            tables.append(await self._files.read(group.row_group, group.footer, wanted, take))
        return tables

    async def found(
        self, view: View, files: Sequence[DataFile], columns: Sequence[str], take: Callable[[pa.Table], pa.Table]
    ) -> list[pa.Table]:
        """What `take`, which runs in a thread, makes of those columns of the rows that are there, file by file."""
        deleted = await load_deletes(view.deletes, self._files, self._cache)
        found = []
        for file in files:
            for group in await self._rows.groups(file):
                there = partial(_there, columns=columns, group=group, deleted=deleted, shape=view.shape, take=take)
                found.append(await self._files.read(group.row_group, group.footer, columns, there))
        return found

    async def _reach(
        self, index: FileIndex, partition: int, start: int, frontier: int, rows: int, size_bytes: int
    ) -> tuple[int, list[DecodedGroup]]:
        """How far a step goes in a partition, and the row groups that it may find rows in."""
        end = min(frontier, start + rows)
        files = index.overlapping(partition, start, end - 1)
        if not files:
            return max(end, min(frontier, index.next_start(partition, start))), []
        if len(files) > _AT_ONCE:
            starts = [file.offset_min for file in files[_AT_ONCE:] if file.offset_min is not None]
            end = min(end, max(start + 1, min(starts, default=end)))
            files = index.overlapping(partition, start, end - 1)
        groups = [
            group
            for found in await self._rows.groups_of(files)
            for group in found
            if _overlaps(group, partition, start, end)
        ]
        row_count = sum(group.row_group.row_count for group in groups)
        row_bytes = sum(group.row_group.size_bytes for group in groups) // max(1, row_count)
        end = min(end, start + max(1, size_bytes // max(1, row_bytes)))
        return end, [group for group in groups if _overlaps(group, partition, start, end)]


def _overlaps(group: DecodedGroup, partition: int, start: int, end: int) -> bool:
    bounds = group.bounds(partition)
    return bounds is not None and bounds[0] < end and bounds[1] >= start


def _there(
    table: pa.Table,
    columns: Sequence[str],
    group: DecodedGroup,
    deleted: Deleted,
    shape: TableShape,
    take: Callable[[pa.Table], pa.Table],
) -> pa.Table:
    rows = canonical(table, columns, shape)
    kept = deleted.kept(group.row_group.path, group.row_group.first_row, group.row_group.row_count)
    return take(rows if kept is None else rows.filter(pa.array(kept)))


def _between(
    table: pa.Table, columns: Sequence[str], group: DecodedGroup, deleted: Deleted, step: Stretch, shape: TableShape
) -> pa.Table:
    rows = canonical(table, columns, shape)
    partition, offset, _ = places_from_arrow(rows)
    known = partition < len(step.end)
    places = np.where(known, partition, 0)
    inside = known & (offset >= np.asarray(step.start)[places]) & (offset < np.asarray(step.end)[places])
    kept = deleted.kept(group.row_group.path, group.row_group.first_row, group.row_group.row_count)
    if kept is not None:
        inside &= kept
    return rows if inside.all() else rows.filter(pa.array(inside))
