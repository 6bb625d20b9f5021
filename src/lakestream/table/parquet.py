"""Parquet files in an object store: footers, and the row groups that are needed, in few range reads.

The only place where Parquet is read; the decoding runs in threads.
"""

import asyncio
import io
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakestream.errors import CorruptObject, LakestreamError, StorageError
from lakestream.objects.store import Buffer, ObjectStore
from lakestream.records import crc32c
from lakestream.table.files import UNBOUNDED, key_in
from lakestream.table.seal import check_footer, chunk_checksums, chunk_range

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

TAIL_BYTES: Final = 64 * 1024
"""What is read for a footer at first; most fit."""
MAX_GAP_BYTES: Final = 256 * 1024
"""Column chunks this close are read as one."""
_COPIED_BYTES: Final = 256 * 1024
_FOOTER_END: Final = struct.Struct("<I4s")
_UNITS_PER_MS: Final = {"s": 0.001, "ms": 1, "us": 1000, "ns": 1_000_000}
_UNREADABLE: Final = (pa.ArrowException, OSError, ValueError, IndexError, OverflowError)
"""How Arrow and its bindings tell that bytes are not what they should be."""
_OPTIONAL_COLUMNS: Final = {
    "_key": "_key",
    "_value": "_value",
    "_headers_raw": "_headers_raw",
    "_headers": "_headers.list.element.key",
}
"""Columns that need not be read if this leaf of them holds nulls only."""
_JUDGED_LEAVES: Final = ("_stream_partition", "_offset", "_timestamp", *_OPTIONAL_COLUMNS.values())
"""Of which a row group's statistics are looked at."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """What a footer says of a row group. Bounds are inclusive and never too narrow."""

    path: str
    index: int
    first_row: int
    row_count: int
    partition_min: int
    partition_max: int
    offset_min: int
    offset_max: int
    timestamp_max_ms: int
    size_bytes: int
    empty_columns: frozenset[str]


@dataclass(frozen=True, slots=True)
class Footer:
    """`leaves` are the paths of the stored columns in their order. `exact` remembers, per row group whose rows were
    read, the true bounds of each partition in it, deleted rows included."""

    metadata: pq.FileMetaData
    leaves: tuple[str, ...]
    groups: tuple[RowGroup, ...]
    checksums: tuple[int, ...] | None
    exact: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        return int(self.metadata.serialized_size) * 4 + 512 * len(self.groups)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A column of a row group. `checksum` is CRC32C of its bytes, if the file has it."""

    column: str
    start: int
    end: int
    checksum: int | None


@dataclass(frozen=True, slots=True)
class GroupRead(Generic[T_co]):
    """A row group, and what is to be made of its rows."""

    group: RowGroup
    footer: Footer
    convert: Callable[[pa.Table], T_co]


class ParquetFiles:
    """Reads of one store's Parquet files. A missing file is `ObjectMissing`, one that is no Parquet `CorruptObject`."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def key(self, path: str) -> str:
        key = key_in(self._store, path)
        if key is None:
            raise StorageError(f"{path} is outside of the bucket {self._store.url}")
        return key

    async def footers(self, paths: Sequence[str]) -> list[Footer | LakestreamError]:
        """Of each file its footer, or what is wrong with it. Parsed in one go: a hop between threads costs more."""
        tails = await asyncio.gather(*map(self._tail, paths))
        return await asyncio.to_thread(lambda: [*map(_footer_or_error, paths, tails)])

    async def _tail(self, path: str) -> bytes | LakestreamError:
        """The footer and perhaps more."""
        try:
            key = self.key(path)
            tail = await self._store.get_tail(key, TAIL_BYTES)
            needed_bytes = _footer_bytes(path, tail)
            if needed_bytes > len(tail):
                tail = await self._store.get_tail(key, needed_bytes)
                if needed_bytes > len(tail):
                    raise CorruptObject(f"{path} is cut short: its footer is larger than the file")
        except LakestreamError as error:
            return error
        return tail

    async def read(
        self, group: RowGroup, footer: Footer, columns: Sequence[str], convert: Callable[[pa.Table], T]
    ) -> T:
        """What `convert`, which runs in a thread, makes of those of the columns that the file has, as it has them."""
        [outcome] = await self.read_each([GroupRead(group, footer, convert)], columns)
        if isinstance(outcome, LakestreamError):
            raise outcome
        return outcome

    async def read_each(self, reads: "Sequence[GroupRead[T]]", columns: Sequence[str]) -> list[T | LakestreamError]:
        """The same of several row groups, of each its outcome or what is wrong with it; decoded in one go."""
        fetched = await asyncio.gather(*(self._fetch(read, columns) for read in reads))
        return await asyncio.to_thread(
            lambda: [
                data if isinstance(data, LakestreamError) else _group_or_error(read, *data, list(columns))
                for read, data in zip(reads, fetched, strict=True)
            ]
        )

    async def _fetch(
        self, read: "GroupRead[T]", columns: Sequence[str]
    ) -> "tuple[_Spans, Sequence[_Chunk]] | LakestreamError":
        try:
            chunks = _chunks(read.group, read.footer, columns)
            spans = _spans([(chunk.start, chunk.end) for chunk in chunks])
            key = self.key(read.group.path)
        except LakestreamError as error:
            return error
        try:
            data = await asyncio.gather(*(self._store.get_range(key, start, end - start) for start, end in spans))
        except CorruptObject as error:
            return CorruptObject(f"{_named(read.group)} cannot be read: {error}")
        except LakestreamError as error:
            return error
        return _Spans([(start, piece) for (start, _), piece in zip(spans, data, strict=True)]), chunks

    async def read_all(self, path: str, columns: Sequence[str], convert: Callable[[pa.Table], T]) -> T:
        """The same for a small file as a whole."""
        data = await self._store.get(self.key(path))
        return await asyncio.to_thread(_parse_file, path, data, list(columns), convert)


class _Spans(io.RawIOBase):
    """The bytes that were read of a file, at the places where they were."""

    def __init__(self, spans: list[tuple[int, Buffer]]) -> None:
        super().__init__()
        self._spans = spans
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._end}[whence]
        self._position = origin + offset
        return self._position

    def read(self, size: int = -1) -> Any:
        for start, data in self._spans:
            at = self._position - start
            if 0 <= at < len(data):
                piece = memoryview(data)[at:] if size < 0 else memoryview(data)[at : at + size]
                self._position += len(piece)
                return piece
        return b""

    def opened(self) -> pa.NativeFile:
        """For Arrow to read. Little is put where it was in a file that is empty otherwise, and takes no memory there:
        each call back into Python would cost more than the copy."""
        if sum(len(data) for _, data in self._spans) > _COPIED_BYTES:
            return pa.PythonFile(self, mode="r")
        whole = np.zeros(self._end, np.uint8)
        for start, data in self._spans:
            whole[start : start + len(data)] = np.frombuffer(data, np.uint8)
        return pa.BufferReader(pa.py_buffer(whole))

    def between(self, start: int, end: int) -> memoryview:
        """Bytes that were read as one."""
        self._position = start
        piece: memoryview = self.read(end - start)
        return piece

    @property
    def _end(self) -> int:
        return max((start + len(data) for start, data in self._spans), default=0)


def _footer_bytes(path: str, tail: bytes) -> int:
    if len(tail) < _FOOTER_END.size:
        raise CorruptObject(f"{path} is no Parquet file: {len(tail)} bytes")
    length, magic = _FOOTER_END.unpack_from(tail, len(tail) - _FOOTER_END.size)
    if magic != b"PAR1":
        raise CorruptObject(f"{path} is no Parquet file: it ends in {magic!r}")
    return int(length) + _FOOTER_END.size


def _footer_or_error(path: str, tail: bytes | LakestreamError) -> Footer | LakestreamError:
    if isinstance(tail, LakestreamError):
        return tail
    try:
        check_footer(path, memoryview(tail)[-_footer_bytes(path, tail) :])
        return _parse_footer(path, tail)
    except LakestreamError as error:
        return error


def _parse_footer(path: str, tail: bytes) -> Footer:
    try:
        metadata = pq.read_metadata(pa.BufferReader(tail))
        checksums = chunk_checksums(path, metadata)
        unit = _timestamp_unit(metadata)
        schema = metadata.schema
        leaves = tuple(schema.column(position).path for position in range(metadata.num_columns))
        places = {leaf: position for position, leaf in enumerate(leaves)}
        groups = []
        first_row = 0
        for index in range(metadata.num_row_groups):
            group = _row_group(path, metadata.row_group(index), places, index, first_row, unit)
            first_row += group.row_count
            groups.append(group)
    except _UNREADABLE as error:
        raise CorruptObject(f"the footer of {path} cannot be read: {error}") from error
    return Footer(metadata, leaves, tuple(groups), checksums)


def _timestamp_unit(metadata: pq.FileMetaData) -> str | None:
    schema = metadata.schema.to_arrow_schema()
    position = schema.get_field_index("_timestamp")
    kind = schema.field(position).type if position >= 0 else None
    return kind.unit if kind is not None and pa.types.is_timestamp(kind) else None


def _row_group(
    path: str, group: Any, places: Mapping[str, int], index: int, first_row: int, timestamp_unit: str | None
) -> RowGroup:
    chunks = {leaf: group.column(places[leaf]) for leaf in _JUDGED_LEAVES if leaf in places}
    partition_min, partition_max = _bounds(chunks.get("_stream_partition"))
    offset_min, offset_max = _bounds(chunks.get("_offset"))
    _, newest = _bounds(chunks.get("_timestamp")) if timestamp_unit else (0, UNBOUNDED)
    if timestamp_unit and newest != UNBOUNDED:
        newest = int(newest / _UNITS_PER_MS[timestamp_unit]) + 1
    return RowGroup(
        path=path,
        index=index,
        first_row=first_row,
        row_count=group.num_rows,
        partition_min=partition_min,
        partition_max=partition_max,
        offset_min=offset_min,
        offset_max=offset_max,
        timestamp_max_ms=newest,
        size_bytes=group.total_byte_size,
        empty_columns=frozenset(name for name, leaf in _OPTIONAL_COLUMNS.items() if _is_empty(chunks.get(leaf))),
    )


def _bounds(chunk: Any) -> tuple[int, int]:
    statistics = chunk.statistics if chunk is not None else None
    if statistics is None or not statistics.has_min_max or not isinstance(statistics.max_raw, int):
        return 0, UNBOUNDED
    return statistics.min_raw, statistics.max_raw


def _is_empty(chunk: Any) -> bool:
    statistics = chunk.statistics if chunk is not None else None
    return statistics is not None and statistics.has_null_count and statistics.null_count == chunk.num_values


def _chunks(group: RowGroup, footer: Footer, columns: Sequence[str]) -> list[_Chunk]:
    """The chunks of the columns in a row group."""
    found = []
    try:
        described = footer.metadata.row_group(group.index)
        for position, leaf in enumerate(footer.leaves):
            if leaf.split(".", 1)[0] in columns:
                start, end = chunk_range(described.column(position))
                at = group.index * len(footer.leaves) + position
                checksum = None if footer.checksums is None else footer.checksums[at]
                found.append(_Chunk(leaf, start, end, checksum))
    except _UNREADABLE as error:
        raise CorruptObject(f"{_named(group)} cannot be found in its file: {error}") from error
    if any(not 0 <= chunk.start <= chunk.end for chunk in found):
        raise CorruptObject(f"{_named(group)} cannot be found in its file: the footer's positions make no sense")
    return found


def _named(group: RowGroup) -> str:
    return (
        f"row group {group.index} of {group.path} (partitions {group.partition_min} to {group.partition_max}, "
        f"offsets {group.offset_min} to {group.offset_max})"
    )


def _spans(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The byte ranges, near ones joined."""
    spans: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if spans and start - spans[-1][1] <= MAX_GAP_BYTES:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    return spans


def _group_or_error(
    read: GroupRead[T], source: _Spans, chunks: Sequence[_Chunk], columns: list[str]
) -> T | LakestreamError:
    try:
        return _parse_group(read, source, chunks, columns)
    except LakestreamError as error:
        return error


def _parse_group(read: GroupRead[T], source: _Spans, chunks: Sequence[_Chunk], columns: list[str]) -> T:
    group, footer = read.group, read.footer
    for chunk in chunks:
        if chunk.checksum is not None and crc32c(source.between(chunk.start, chunk.end)) != chunk.checksum:
            raise CorruptObject(f"{_named(group)} is damaged: the checksum of its column {chunk.column} does not hold")
    try:
        file = pq.ParquetFile(
            source.opened(),
            metadata=footer.metadata,
            pre_buffer=False,
            page_checksum_verification=footer.checksums is None,
        )
        table = file.read_row_group(group.index, columns=columns, use_threads=False)
        if table.num_rows != group.row_count:
            raise CorruptObject(f"{_named(group)} has {table.num_rows} rows, its footer says {group.row_count}")
        return read.convert(table)
    except _UNREADABLE as error:
        raise CorruptObject(f"{_named(group)} cannot be read: {error}") from error


def _parse_file(path: str, data: bytes, columns: list[str], convert: Callable[[pa.Table], T]) -> T:
    try:
        file = pa.BufferReader(data)
        return convert(pq.read_table(file, columns=columns, use_threads=False, page_checksum_verification=True))
    except _UNREADABLE as error:
        raise CorruptObject(f"{path} cannot be read: {error}") from error
