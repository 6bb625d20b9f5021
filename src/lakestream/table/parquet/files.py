"""Parquet files in an object store: footers, and the row groups that are needed, in few range reads.

The only place where Parquet is read; the decoding runs in threads.
"""

import asyncio
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakestream.errors import CorruptObject, LakestreamError, StorageError
from lakestream.objects.store import Buffer, ObjectStore
from lakestream.records import crc32c
from lakestream.table.parquet.arrow import implied_column
from lakestream.table.parquet.footers import (
    UNREADABLE,
    Chunk,
    ParquetFooter,
    RowGroup,
    chunks_of,
    footer_bytes,
    named,
    parse_footers,
)
from lakestream.table.reading.files import key_in

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

TAIL_BYTES: Final = 64 * 1024
"""What is read for a footer at first; most fit."""
MAX_GAP_BYTES: Final = 256 * 1024
"""Column chunks this close are read as one."""
PIECE_BYTES: Final = 2 * 1024 * 1024
"""Decoded as one, at most about. Arrow's memory for a column doubles while it grows, and what allocators hand out in
sizes of many megabytes they do not keep: a row group in one piece costs half as much again, all in page faults."""
_PIECE_ROWS: Final = 1024
"""At least, whatever a footer says of their size."""
_COPIED_BYTES: Final = 256 * 1024
_REPEATED_TEXT: Final = "_format"
"""A column of few long texts, each of many rows: it is decoded into those, and of each row which one it has, rather
than into a copy for each row."""


@dataclass(frozen=True, slots=True)
class GroupRead(Generic[T_co]):
    """A row group, and what is to be made of its rows."""

    group: RowGroup
    footer: ParquetFooter
    convert: Callable[[pa.Table], T_co]
    pieces: bool = False
    """Gives `convert` a table of several chunks, of about `PIECE_BYTES` each, rather than each column in one."""


class ParquetFiles:
    """Reads of one store's Parquet files. A missing file is `ObjectMissing`, one that is no Parquet `CorruptObject`."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def key(self, path: str) -> str:
        key = key_in(self._store, path)
        if key is None:
            raise StorageError(f"{path} is outside of the bucket {self._store.url}")
        return key

    async def footers(self, paths: Sequence[str]) -> list[ParquetFooter | LakestreamError]:
        """Of each file its footer, or what is wrong with it. Parsed in one go: a hop between threads costs more."""
        tails = await asyncio.gather(*map(self._tail, paths))
        return await asyncio.to_thread(parse_footers, paths, tails)

    async def _tail(self, path: str) -> bytes | LakestreamError:
        """The footer and perhaps more."""
        try:
            key = self.key(path)
            tail = await self._store.get_tail(key, TAIL_BYTES)
            needed_bytes = footer_bytes(path, tail)
            if needed_bytes > len(tail):
                tail = await self._store.get_tail(key, needed_bytes)
                if needed_bytes > len(tail):
                    raise CorruptObject(f"{path} is cut short: its footer is larger than the file")
        except LakestreamError as error:
            return error
        return tail

    async def read(
        self,
        group: RowGroup,
        footer: ParquetFooter,
        columns: Sequence[str],
        convert: Callable[[pa.Table], T],
        *,
        pieces: bool = False,
    ) -> T:
        """What `convert`, which runs in a thread, makes of those of the columns that the file has, as it has them, and
        of those that its footer tells."""
        [outcome] = await self.read_each([GroupRead(group, footer, convert, pieces)], columns)
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
    ) -> "tuple[_ByteSpans, Sequence[Chunk]] | LakestreamError":
        try:
            chunks = chunks_of(read.group, read.footer, _stored(read.group, columns))
            spans = _spans([(chunk.start, chunk.end) for chunk in chunks])
            key = self.key(read.group.path)
        except LakestreamError as error:
            return error
        try:
            asked = [self._store.get_range(key, start, end - start) for start, end in spans]
            data = [await asked[0]] if len(asked) == 1 else await asyncio.gather(*asked)
        except CorruptObject as error:
            return CorruptObject(f"{named(read.group)} cannot be read: {error}")
        except LakestreamError as error:
            return error
        return _ByteSpans([(start, piece) for (start, _), piece in zip(spans, data, strict=True)]), chunks

    async def read_range(self, path: str, start: int, end: int) -> Buffer:
        return await self._store.get_range(self.key(path), start, end - start)

    async def read_bytes(self, path: str, size_bytes: int) -> bytes:
        """The first bytes of a file that need not be Parquet; `CorruptObject` if it has fewer."""
        try:
            return bytes(await self._store.get_range(self.key(path), 0, size_bytes, once=True))
        except CorruptObject as error:
            raise CorruptObject(f"{path} is cut short: {error}") from error

    async def read_all(self, path: str, columns: Sequence[str], convert: Callable[[pa.Table], T]) -> T:
        """The same for a small file as a whole."""
        data = await self._store.get(self.key(path))
        return await asyncio.to_thread(_parse_file, path, data, list(columns), convert)


class _ByteSpans(io.RawIOBase):
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


def _spans(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The byte ranges, near ones joined."""
    spans: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if spans and start - spans[-1][1] <= MAX_GAP_BYTES:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    return spans


def _stored(group: RowGroup, columns: Sequence[str]) -> list[str]:
    """Those that have to be read."""
    return [name for name in columns if name not in group.implied]


def _group_or_error(
    read: GroupRead[T], source: _ByteSpans, chunks: Sequence[Chunk], columns: list[str]
) -> T | LakestreamError:
    try:
        return _parse_group(read, source, chunks, columns)
    except LakestreamError as error:
        return error


def _parse_group(read: GroupRead[T], source: _ByteSpans, chunks: Sequence[Chunk], columns: list[str]) -> T:
    group = read.group
    for chunk in chunks:
        if chunk.checksum is not None and crc32c(source.between(chunk.start, chunk.end)) != chunk.checksum:
            raise CorruptObject(f"{named(group)} is damaged: the checksum of its column {chunk.column} does not hold")
    stored = _stored(group, columns)
    implied = {
        name: implied_column(name, group.implied[name], group.row_count) for name in columns if name in group.implied
    }
    try:
        table = _decoded(read, source, stored) if stored else pa.table(implied)
        if table.num_rows != group.row_count:
            raise CorruptObject(f"{named(group)} has {table.num_rows} rows, its footer says {group.row_count}")
    except UNREADABLE as error:
        raise CorruptObject(f"{named(group)} cannot be read: {error}") from error
    for name, column in implied.items() if stored else ():
        table = table.append_column(name, column)
    try:
        return read.convert(table)
    except (CorruptObject, *UNREADABLE) as error:
        raise CorruptObject(f"{named(group)} is not what a stream's table has: {error}") from error


def _decoded(read: GroupRead[T], source: _ByteSpans, columns: list[str]) -> pa.Table:
    file = pq.ParquetFile(
        source.opened(),
        metadata=read.footer.metadata,
        pre_buffer=False,
        page_checksum_verification=read.footer.checksums is None,
        read_dictionary=[name for name in columns if name == _REPEATED_TEXT and _is_text(name, read.footer)],
    )
    table = _in_pieces(file, read.group, columns) if read.pieces else _in_one(file, read.group, columns)
    for column in table.columns:
        if pa.types.is_dictionary(column.type):
            # Arrow takes the places in a dictionary from the file unseen, and later reads memory at them.
            column.validate(full=True)
    return table


def _is_text(name: str, footer: ParquetFooter) -> bool:
    """Whether it is a column of the file, and one text in each row."""
    if name not in footer.leaves:
        return False
    column = footer.metadata.schema.column(footer.leaves.index(name))
    is_text: bool = column.logical_type.type == "STRING" and column.max_repetition_level == 0
    return is_text


def _in_one(file: pq.ParquetFile, group: RowGroup, columns: list[str]) -> pa.Table:
    return file.read_row_group(group.index, columns=columns, use_threads=False)


def _in_pieces(file: pq.ParquetFile, group: RowGroup, columns: list[str]) -> pa.Table:
    rows = max(_PIECE_ROWS, PIECE_BYTES * group.row_count // max(group.size_bytes, 1))
    if rows >= group.row_count:
        return _in_one(file, group, columns)
    pieces = file.iter_batches(batch_size=rows, row_groups=[group.index], columns=columns, use_threads=False)
    return pa.Table.from_batches(list(pieces))


def _parse_file(path: str, data: bytes, columns: list[str], convert: Callable[[pa.Table], T]) -> T:
    [footer] = parse_footers([path], [data])
    if isinstance(footer, LakestreamError):
        raise footer
    try:
        file = pa.BufferReader(data)
        return convert(pq.read_table(file, columns=columns, use_threads=False, page_checksum_verification=True))
    except UNREADABLE as error:
        raise CorruptObject(f"{path} cannot be read: {error}") from error
