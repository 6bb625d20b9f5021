"""Rows of row groups, decoded once and kept: whole records, or only where and when they are."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakestream.errors import CorruptObject
from lakestream.model import DataFile
from lakestream.records import Columns, Encoder
from lakestream.table.arrow import canonical, from_arrow, places_from_arrow
from lakestream.table.cache import SharedCache
from lakestream.table.deletes import Deleted
from lakestream.table.parquet import Footer, ParquetFiles, RowGroup

T = TypeVar("T")
Longs = npt.NDArray[np.int64]

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
_PLACE_COLUMNS: Final = ("_stream_partition", "_offset")
_TIME_COLUMNS: Final = ("_stream_partition", "_offset", "_timestamp")
_FOOTER_CACHE_BYTES: Final = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Group:
    """A row group with the footer it comes from."""

    row_group: RowGroup
    footer: Footer

    def bounds(self, partition: int) -> tuple[int, int] | None:
        """The offsets of the partition that may be in it, inclusive; None: not one."""
        group = self.row_group
        if group.index in self.footer.exact:
            return self.footer.exact[group.index].get(partition)
        if not group.partition_min <= partition <= group.partition_max:
            return None
        return group.offset_min, group.offset_max

    @property
    def is_exact(self) -> bool:
        return self.row_group.index in self.footer.exact

    @property
    def name(self) -> tuple[str, int]:
        return self.row_group.path, self.row_group.index


@dataclass(frozen=True, slots=True)
class Places:
    """Partition, offset and, where asked for, timestamp (-1: none) of the rows that are there, with their positions."""

    partition: npt.NDArray[np.int32]
    offset: Longs
    timestamp_ms: Longs
    row: Longs

    @property
    def size_bytes(self) -> int:
        return self.partition.nbytes + self.offset.nbytes + self.timestamp_ms.nbytes + self.row.nbytes


class GroupRecords:
    """A decoded row group, ready to be encoded partition by partition."""

    def __init__(self, columns: Columns, kept: npt.NDArray[np.bool_] | None) -> None:
        self._columns = columns
        self._kept = kept
        self._encoders: dict[int, Encoder] = {}

    @property
    def size_bytes(self) -> int:
        """Of the columns and of one encoder's order of rows."""
        columns = self._columns
        binaries = (columns.key, columns.value, columns.header_key, columns.header_value, columns.headers_raw)
        return 64 * len(columns) + sum(b.offsets.nbytes + b.data.nbytes + b.valid.nbytes for b in binaries)

    async def encoder(self, partition: int) -> Encoder:
        if partition not in self._encoders:
            await asyncio.to_thread(self.prepare, partition)
        return self._encoders[partition]

    def prepare(self, partition: int) -> None:
        hit = self._columns.partition == partition
        rows = np.flatnonzero(hit if self._kept is None else hit & self._kept)
        self._encoders[partition] = sorted_encoder(self._columns, rows)


def sorted_encoder(columns: Columns, rows: Longs) -> Encoder:
    """The rows by offset. `CorruptObject` if an offset stands twice."""
    offsets = columns.offset[rows]
    steps = np.diff(offsets)
    if not np.all(steps > 0):
        order = np.argsort(offsets, kind="stable")
        rows = rows[order]
        check_unique(offsets[order])
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

    async def groups(self, file: DataFile) -> list[Group]:
        """`CorruptObject` also if the file does not hold as many rows as the table says."""
        path = file.path
        try:
            footer = await self._footers.get(path, lambda: self.files.footer(path), lambda loaded: loaded.size_bytes)
            if footer.metadata.num_rows != file.record_count:
                raise CorruptObject(
                    f"{path} holds {footer.metadata.num_rows} rows where {file.record_count} were added"
                )
        except CorruptObject as error:
            raise CorruptObject(
                f"{error}; partitions {file.partition_min} to {file.partition_max}, offsets {file.offset_min} to "
                f"{file.offset_max} cannot be served"
            ) from error
        return [Group(row_group, footer) for row_group in footer.groups]

    async def records(self, group: Group, deleted: Deleted, partition: int) -> Encoder:
        """The partition's records of a row group, by offset."""

        def decode(table: pa.Table) -> GroupRecords:
            records = GroupRecords(from_arrow(table), _kept(group, deleted))
            records.prepare(partition)
            return records

        async def load() -> GroupRecords:
            return await self._read(group, decode)

        key = ("records", *group.name, deleted.token(group.row_group.path))
        records = await self.cache.get(key, load, lambda loaded: loaded.size_bytes)
        return await records.encoder(partition)

    async def places(self, group: Group, deleted: Deleted, *, times: bool = False) -> Places:
        """Also makes the group's bounds exact."""

        async def load() -> Places:
            columns = _TIME_COLUMNS if times else _PLACE_COLUMNS
            return await self.files.read(
                group.row_group, group.footer, columns, lambda table: _places(table, group, deleted)
            )

        key = ("places", *group.name, deleted.token(group.row_group.path), times)
        return await self.cache.get(key, load, lambda loaded: loaded.size_bytes)

    async def take(self, group: Group, rows: Longs) -> pa.Table:
        """The record columns of some rows, uncached, in the schema's types."""
        return await self._read(group, lambda table: canonical(table, RECORD_COLUMNS).take(pa.array(rows)))

    async def _read(self, group: Group, convert: Callable[[pa.Table], T]) -> T:
        wanted = [name for name in RECORD_COLUMNS if name not in group.row_group.empty_columns]
        return await self.files.read(group.row_group, group.footer, wanted, convert)


def _kept(group: Group, deleted: Deleted) -> npt.NDArray[np.bool_] | None:
    return deleted.kept(group.row_group.path, group.row_group.first_row, group.row_group.row_count)


def _places(table: pa.Table, group: Group, deleted: Deleted) -> Places:
    partition, offset, timestamp_ms = places_from_arrow(table)
    group.footer.exact[group.row_group.index] = {
        number: (int(offset[partition == number].min()), int(offset[partition == number].max()))
        for number in np.unique(partition).tolist()
    }
    kept = _kept(group, deleted)
    row = np.arange(len(offset)) if kept is None else np.flatnonzero(kept)
    return Places(partition[row], offset[row], timestamp_ms[row], row)
