"""A leaf as the pages of a column chunk: levels, values, compression, checksums."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakestream.objects.store import Buffer
from lakestream.records import crc32c
from lakestream.records.packing import extremes, most_delta_bytes, pack_binary, pack_deltas
from lakestream.records.varint import varint
from lakestream.table.parquet.arrow import bytes_in, numbers_in, offsets_in
from lakestream.table.parquet.writing.compressor import UNCOMPRESSED, Compressor
from lakestream.table.parquet.writing.shred import Leaf, Levels
from lakestream.table.parquet.writing.thrift import BINARY, I32, I64, STRUCT, struct

PLAIN: Final = 0
RLE: Final = 3
DELTA_BINARY_PACKED: Final = 5
DATA_PAGE: Final = 0
_INT32, _INT64, _BYTE_ARRAY = 1, 2, 6
_PAGE_BYTES: Final = 1024 * 1024
"""Of values in a page, at most about: a page has at least one row."""
_MOST_BOUND_BYTES: Final = 4096
"""A longest or shortest value that is longer is no bound worth its place in the footer."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How a leaf is written. `is_noise`: what is in it does not compress."""

    has_statistics: bool = False
    is_noise: bool = False


@dataclass(frozen=True, slots=True)
class WrittenChunk:
    """What the footer says of a column chunk. `checksum` is CRC32C of all of its bytes."""

    path: tuple[str, ...]
    physical_type: int
    encoding: int
    codec: int
    entry_count: int
    page_count: int
    plain_bytes: int
    stored_bytes: int
    statistics: bytes | None
    checksum: int


class PageScratch:
    """Room for one page at a time, used again and again."""

    def __init__(self) -> None:
        self._room = np.empty(0, np.uint8)

    def take(self, size_bytes: int) -> npt.NDArray[np.uint8]:
        if len(self._room) < size_bytes:
            self._room = np.empty(1 << size_bytes.bit_length(), np.uint8)
        return self._room


def write_chunk(
    leaf: Leaf, rules: Rules, compressor: Compressor, scratch: PageScratch
) -> tuple[list[Buffer], WrittenChunk]:
    """The chunk's bytes, in pieces, and what is to be said of it."""
    physical = physical_type(leaf.field.type)
    is_binary = physical == _BYTE_ARRAY
    encoding = PLAIN if is_binary or rules.is_noise else DELTA_BINARY_PACKED
    chosen = UNCOMPRESSED if rules.is_noise else compressor
    column = ".".join(leaf.path)
    pieces: list[Buffer] = []
    page_count = plain_bytes = stored_bytes = checksum = 0
    for first, last in _pages(leaf, is_binary):
        body = _body(leaf, first, last, encoding, is_binary, scratch)
        stored = chosen.compress(body, column)
        entries = last - first if leaf.row_entries is None else int(leaf.row_entries[last] - leaf.row_entries[first])
        head = _page_header(len(body), stored, entries, encoding)
        pieces += [head, stored]
        checksum = crc32c(stored, crc32c(head, checksum))
        page_count += 1
        plain_bytes += len(head) + len(body)
        stored_bytes += len(head) + len(stored)
    return pieces, WrittenChunk(
        path=leaf.path,
        physical_type=physical,
        encoding=encoding,
        codec=chosen.codec,
        entry_count=leaf.entry_count,
        page_count=page_count,
        plain_bytes=plain_bytes,
        stored_bytes=stored_bytes,
        statistics=_statistics(leaf, is_binary) if rules.has_statistics else None,
        checksum=checksum,
    )


def physical_type(kind: pa.DataType) -> int:
    """As Parquet numbers them."""
    if pa.types.is_int32(kind):
        return _INT32
    if pa.types.is_int64(kind) or pa.types.is_timestamp(kind):
        return _INT64
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return _BYTE_ARRAY
    raise TypeError(f"columns of {kind} are not written")


def _pages(leaf: Leaf, is_binary: bool) -> Iterator[tuple[int, int]]:
    """Rows [first, last) of each page."""
    if is_binary and len(leaf.values):
        at = offsets_in(leaf.values).astype(np.int64)
        at += 4 * np.arange(len(at), dtype=np.int64)
        ends = at if leaf.row_values is None else at[leaf.row_values]
        first = 0
        while first < leaf.rows:
            last = int(np.searchsorted(ends, ends[first] + _PAGE_BYTES, side="right")) - 1
            last = min(max(last, first + 1), leaf.rows)
            yield first, last
            first = last
        return
    step = _PAGE_BYTES // 8
    for first in range(0, leaf.rows, step):
        yield first, min(first + step, leaf.rows)


def _body(leaf: Leaf, first: int, last: int, encoding: int, is_binary: bool, scratch: PageScratch) -> memoryview:
    """Repetition levels, definition levels, values."""
    start, stop = (first, last) if leaf.row_entries is None else map(int, leaf.row_entries[[first, last]])
    levels = _levels(leaf.repetition, leaf.max_repetition, start, stop)
    levels += _levels(leaf.definition, leaf.max_definition, start, stop)
    start, stop = (first, last) if leaf.row_values is None else map(int, leaf.row_values[[first, last]])
    values = leaf.values if stop - start == len(leaf.values) else leaf.values.slice(start, stop - start)
    if is_binary:
        offsets, data = offsets_in(values), bytes_in(values)
        room = scratch.take(len(levels) + int(offsets[-1]) - int(offsets[0]) + 4 * len(values))
        size = len(levels) + pack_binary(offsets, data, room[len(levels) :])
    elif encoding == PLAIN:
        numbers = numbers_in(values).view(np.uint8)
        room = scratch.take(len(levels) + len(numbers))
        size = len(levels) + len(numbers)
        room[len(levels) : size] = numbers
    else:
        room = scratch.take(len(levels) + most_delta_bytes(len(values)))
        size = len(levels) + pack_deltas(numbers_in(values), room[len(levels) :])
    room[: len(levels)] = np.frombuffer(levels, np.uint8)
    return room.data[:size]


def _levels(levels: Levels, highest: int, start: int, stop: int) -> bytes:
    """In Parquet's mix of runs and packed bits, behind its length: one run if all are the same, else packed bits."""
    if not highest:
        return b""
    count = stop - start
    if isinstance(levels, int):
        packed = varint(count << 1) + bytes([levels])
    else:
        width = highest.bit_length()
        part = levels[start:stop]
        bits = np.unpackbits(part[:, None], axis=1, count=width, bitorder="little")
        whole = np.zeros((-(-count // 8) * 8, width), np.uint8)
        whole[:count] = bits
        packed = varint(-(-count // 8) << 1 | 1) + np.packbits(whole, axis=None, bitorder="little").tobytes()
    return len(packed).to_bytes(4, "little") + packed


def _page_header(plain_bytes: int, stored: Buffer, entries: int, encoding: int) -> bytes:
    crc = zlib.crc32(stored)
    return struct(
        (1, I32, DATA_PAGE),
        (2, I32, plain_bytes),
        (3, I32, len(stored)),
        (4, I32, crc - (1 << 32) if crc >> 31 else crc),
        (5, STRUCT, struct((1, I32, entries), (2, I32, encoding), (3, I32, RLE), (4, I32, RLE))),
    )


def _statistics(leaf: Leaf, is_binary: bool) -> bytes:
    low = high = None
    if len(leaf.values):
        if is_binary:
            low, high = extremes(offsets_in(leaf.values), bytes_in(leaf.values))
            if max(len(low), len(high)) > _MOST_BOUND_BYTES:
                low = high = None
        else:
            numbers = numbers_in(leaf.values)
            low, high = numbers.min().tobytes(), numbers.max().tobytes()
    return struct((3, I64, leaf.entry_count - len(leaf.values)), (5, BINARY, high), (6, BINARY, low))
