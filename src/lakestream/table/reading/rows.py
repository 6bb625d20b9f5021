"""Rows of row groups, decoded once and kept: whole records, or only where and when they are."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakestream.errors import CorruptObject, LakestreamError
from lakestream.model import DataFile
from lakestream.records import Columns, Encoder
from lakestream.table.parquet.arrow import canonical, from_arrow, offsets_from_arrow, places_from_arrow
from lakestream.table.parquet.files import GroupRead, ParquetFiles
from lakestream.table.parquet.footers import ParquetFooter, RowGroup
from lakestream.table.reading.cache import SharedCache
from lakestream.table.reading.deletes import Deleted
from lakestream.table.shape import TableShape

T = TypeVar("T")
Longs = npt.NDArray[np.int64]
_PlacesKey = tuple[str, str, int, tuple[str, ...], bool]

RECORD_COLUMNS: Final = (
    "_stream_partition",
    "_offset",
    "_timestamp",
    "_timestamp_type",
    "_key",
    "_headers",
    "_headers_raw",
    "_value",
    "_crc",
)
_TYPED_COLUMNS: Final = ("_kind", "_schema_id")
_OFFSET_COLUMN: Final = ("_offset",)
_PLACE_COLUMNS: Final = ("_stream_partition", "_offset")
_TIME_COLUMNS: Final = ("_stream_partition", "_offset", "_timestamp")
_FOOTER_CACHE_BYTES: Final = 32 * 1024 * 1024
_AT_ONCE: Final = 4
_BATCH_FILES: Final = 16
"""Footers, or places of row groups, that are fetched at once and decoded in one go."""
_BATCH_ROWS: Final = 256 * 1024
"""RowPlaces that one go decodes at most, one row group excepted."""


@dataclass(frozen=True, slots=True)
class DecodedGroup:
    """A row group with the footer it comes from."""

    row_group: RowGroup
    footer: ParquetFooter

    def bounds(self, partition: int) -> tuple[int, int] | None:
        """The offsets of the partition that may be in it, inclusive; None: not one."""
        group = self.row_group
        if group.index in self.footer.exact:
            return self.footer.exact[group.index].get(partition)
        if not group.partition_min <= partition <= group.partition_max:
            return None
        return group.offset_min, group.offset_max

    @property
    def partition(self) -> int | None:
        """The only one that it holds, if its statistics say so."""
        group = self.row_group
        return group.partition_min if group.partition_min == group.partition_max else None

    @property
    def is_exact(self) -> bool:
        return self.row_group.index in self.footer.exact

    @property
    def name(self) -> tuple[str, int]:
        return self.row_group.path, self.row_group.index


@dataclass(frozen=True, slots=True)
class RowPlaces:
    """Partition, offset and, where asked for, timestamp (-1: none) of the rows that are there, with their positions.
    What was not asked for is empty."""

    partition: npt.NDArray[np.int32]
    offset: Longs
    timestamp_ms: Longs
    row: Longs

    @property
    def size_bytes(self) -> int:
        return self.partition.nbytes + self.offset.nbytes + self.timestamp_ms.nbytes + self.row.nbytes


class GroupRecords:
    """A decoded row group, ready to be encoded partition by partition."""

    def __init__(self, table: pa.Table, kept: npt.NDArray[np.bool_] | None, shape: TableShape) -> None:
        self._table: pa.Table | None = table
        self._shape = shape
        self._pieces = [from_arrow(pa.Table.from_batches([piece]), shape) for piece in table.to_batches()]
        self._kept = kept
        self._encoders: dict[int, Encoder] = {}

    @property
    def size_bytes(self) -> int:
        """Of the columns and of one encoder's order of rows."""
        return sum(map(_size_bytes, self._pieces))

    async def encoder(self, partition: int) -> Encoder:
        if partition not in self._encoders:
            await asyncio.to_thread(self.prepare, partition)
        return self._encoders[partition]

    def prepare(self, partition: int) -> None:
        found = self._sorted(partition)
        if any(after.offsets[0] <= before.offsets[-1] for before, after in pairwise(found)):
            self._join()
            found = self._sorted(partition)
        self._encoders[partition] = Encoder.joined(found)

    def _sorted(self, partition: int) -> list[Encoder]:
        """Piece by piece."""
        found = []
        first_row = 0
        for columns in self._pieces:
            encoder = sorted_encoder(columns, self._rows_of(partition, columns, first_row))
            first_row += len(columns)
            if len(encoder.offsets):
                found.append(encoder)
        return found

    def _join(self) -> None:
        """Rows that are in no order from piece to piece are held in one, and the pieces let go of: what is held is what
        the cache counts."""
        table = self._table
        if table is not None:
            self._pieces, self._table = [from_arrow(table, self._shape)], None

    def _rows_of(self, partition: int, columns: Columns, first_row: int) -> Longs | None:
        """Of the columns, which begin with that row of the group; None: all."""
        hit = columns.partition == partition
        if self._kept is not None:
            hit &= self._kept[first_row : first_row + len(columns)]
        return None if hit.all() else np.flatnonzero(hit)


def _size_bytes(columns: Columns) -> int:
    binaries = (columns.key, columns.value, columns.header_key, columns.header_value, columns.headers_raw)
    return 64 * len(columns) + sum(b.offsets.nbytes + b.data.nbytes + b.valid.nbytes for b in binaries)


def sorted_encoder(columns: Columns, rows: Longs | None = None) -> Encoder:
    """The rows, or all, by offset. `CorruptObject` if an offset stands twice."""
    offsets = columns.offset if rows is None else columns.offset[rows]
    if not np.all(offsets[1:] > offsets[:-1]):
        order = np.argsort(offsets, kind="stable")
        check_unique(offsets[order])
        rows = order if rows is None else rows[order]
    return Encoder(columns, rows)


def check_unique(offsets: Longs) -> None:
    twice = np.flatnonzero(np.diff(offsets) == 0)
    if len(twice):
        raise CorruptObject(f"offset {offsets[twice[0]]} stands in the table twice")


class RowReader:
    """Reads row groups through a cache with one budget for everything that is decoded."""

    def __init__(self, files: ParquetFiles, cache: SharedCache) -> None:
        self.files = files
        self.cache = cache
        self._footers = SharedCache(_FOOTER_CACHE_BYTES)

    async def groups(self, file: DataFile) -> list[DecodedGroup]:
        """`CorruptObject` also if the file does not hold as many rows as the table says."""
        [found] = await self.groups_of([file])
        return found

    async def groups_of(self, files: Sequence[DataFile]) -> list[list[DecodedGroup]]:
        """The same of several files."""
        about = {file.path: file for file in files}

        async def load(paths: Sequence[str]) -> list[ParquetFooter | LakestreamError]:
            batches = [paths[start : start + _BATCH_FILES] for start in range(0, len(paths), _BATCH_FILES)]
            outcomes = chain.from_iterable(await some_at_once([self.files.footers(batch) for batch in batches]))
            return [_told(about[path], outcome) for path, outcome in zip(paths, outcomes, strict=True)]

        footers = await self._footers.get_all([*about], load, lambda loaded: loaded.size_bytes)
        for file, footer in zip(about.values(), footers, strict=True):
            if footer.metadata.num_rows != file.record_count:
                raise _unserved(
                    file, f"{file.path} holds {footer.metadata.num_rows} rows where {file.record_count} were added"
                )
        return [[DecodedGroup(row_group, footer) for row_group in footer.groups] for footer in footers]

    @staticmethod
    def records_key(group: DecodedGroup, deleted: Deleted) -> Hashable:
        """What the cache has the records of a row group under."""
        return ("records", *group.name, deleted.token(group.row_group.path))

    async def records(self, group: DecodedGroup, deleted: Deleted, partition: int, shape: TableShape) -> Encoder:
        """The partition's records of a row group, by offset. What one shape of a table says of its rows, all later ones
        say."""

        def decode(table: pa.Table) -> GroupRecords:
            records = GroupRecords(table, _kept(group, deleted), shape)
            records.prepare(partition)
            return records

        async def load() -> GroupRecords:
            return await self.read(group, decode, shape, pieces=True)

        key = self.records_key(group, deleted)
        records = await self.cache.get(key, load, lambda loaded: loaded.size_bytes)
        return await records.encoder(partition)

    async def places(self, group: DecodedGroup, deleted: Deleted, *, times: bool = False) -> RowPlaces:
        """Also makes the group's bounds exact."""
        [found] = await self.places_of([group], deleted, times=times)
        return found

    async def places_of(
        self, groups: Sequence[DecodedGroup], deleted: Deleted, *, times: bool = False
    ) -> list[RowPlaces]:
        """The same of several row groups."""
        about = {("places", *group.name, deleted.token(group.row_group.path), times): group for group in groups}
        columns = _TIME_COLUMNS if times else _PLACE_COLUMNS

        async def load(keys: Sequence[_PlacesKey]) -> list[RowPlaces | LakestreamError]:
            wanted = [about[key] for key in keys]
            # Of a row group of one partition, as every sorted one is, the offsets say all.
            read = columns if times or any(group.partition is None for group in wanted) else _OFFSET_COLUMN
            batches = [
                [GroupRead(group.row_group, group.footer, _placed(group, deleted)) for group in batch]
                for batch in _batches(wanted)
            ]
            outcomes = await some_at_once([self.files.read_each(batch, read) for batch in batches])
            return [*chain.from_iterable(outcomes)]

        return await self.cache.get_all([*about], load, lambda loaded: loaded.size_bytes)

    async def take(self, group: DecodedGroup, rows: Longs, shape: TableShape) -> pa.Table:
        """The record columns of some rows, uncached, in the schema's types."""
        names = record_columns(shape)
        return await self.read(group, lambda table: canonical(table, names, shape).take(pa.array(rows)), shape)

    async def read(
        self, group: DecodedGroup, convert: Callable[[pa.Table], T], shape: TableShape, *, pieces: bool = False
    ) -> T:
        """What `convert`, which runs in a thread, makes of the record columns, uncached."""
        wanted = [name for name in record_columns(shape) if name not in group.row_group.empty_columns]
        wanted = shape.stored_names(wanted)
        return await self.files.read(group.row_group, group.footer, wanted, convert, pieces=pieces)


def record_columns(shape: TableShape) -> Sequence[str]:
    """Those that a record is made of."""
    if not shape.codec:
        return RECORD_COLUMNS
    return *RECORD_COLUMNS, *_TYPED_COLUMNS, *(column.name for column in shape.value_columns)


def _kept(group: DecodedGroup, deleted: Deleted) -> npt.NDArray[np.bool_] | None:
    return deleted.kept(group.row_group.path, group.row_group.first_row, group.row_group.row_count)


async def some_at_once(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """All of it, a few at a time: each holds row groups, or parts of them, in memory."""
    if len(work) == 1:
        return [await work[0]]
    turns = asyncio.Semaphore(_AT_ONCE)

    async def one(item: Coroutine[Any, Any, T]) -> T:
        async with turns:
            return await item

    return await asyncio.gather(*map(one, work))


def _told(file: DataFile, outcome: ParquetFooter | LakestreamError) -> ParquetFooter | LakestreamError:
    return _unserved(file, outcome) if isinstance(outcome, CorruptObject) else outcome


def _unserved(file: DataFile, why: object) -> CorruptObject:
    return CorruptObject(
        f"{why}; partitions {file.partition_min} to {file.partition_max}, offsets {file.offset_min} to "
        f"{file.offset_max} cannot be served"
    )


def _batches(groups: Sequence[DecodedGroup]) -> list[list[DecodedGroup]]:
    batches: list[list[DecodedGroup]] = []
    row_count = _BATCH_ROWS
    for group in groups:
        row_count += group.row_group.row_count
        if row_count > _BATCH_ROWS or len(batches[-1]) == _BATCH_FILES:
            batches.append([])
            row_count = group.row_group.row_count
        batches[-1].append(group)
    return batches


def _placed(group: DecodedGroup, deleted: Deleted) -> Callable[[pa.Table], RowPlaces]:
    return lambda table: _places(table, group, deleted)


def _places(table: pa.Table, group: DecodedGroup, deleted: Deleted) -> RowPlaces:
    if group.partition is not None and table.num_columns == len(_OFFSET_COLUMN):
        offset, timestamp_ms = offsets_from_arrow(table), np.empty(0, np.int64)
        partition = np.full(len(offset), group.partition, np.int32)
    else:
        partition, offset, timestamp_ms = places_from_arrow(table)
    group.footer.exact[group.row_group.index] = _exact(partition, offset)
    kept = _kept(group, deleted)
    if kept is None:
        return RowPlaces(partition, offset, timestamp_ms, np.arange(len(offset)))
    row = np.flatnonzero(kept)
    return RowPlaces(partition[row], offset[row], timestamp_ms[row] if len(timestamp_ms) else timestamp_ms, row)


def _exact(partition: npt.NDArray[np.int32], offset: Longs) -> dict[int, tuple[int, int]]:
    """By partition, the lowest and the highest offset."""
    if len(partition) and partition.min() == partition.max():
        return {int(partition[0]): (int(offset.min()), int(offset.max()))}
    return {
        number: (int(offset[partition == number].min()), int(offset[partition == number].max()))
        for number in np.unique(partition).tolist()
    }
