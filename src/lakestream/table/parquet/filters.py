"""Bloom filters of keys in files that we write: whether a row group can have a row with that key.

They are Parquet's own (split blocks, XXH64), one for each row group and filtered column, written by Arrow behind the
rows, so other engines use them, too. No seal covers that part of a file; the footer therefore has the filters'
checksums. A filter without one, another engine's or a damaged one, is none: it only saves reading, and one that says no
where there is a row would hide it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow.parquet as pq
import xxhash

from lakestream.records import crc32c

FILTERED: Final = ("_key",)
"""Columns of bytes, at the top of a stream's table."""
_KEY: Final = "lakestream.filters"
_VERSION: Final = "1"
_DIGITS: Final = 8
_MOST_WRONG: Final = 0.01
"""One row group in so many is read for a key that it does not have."""
_SALTS: Final = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint32
)
_SIZE_FIELD: Final = 0x15
_HEADER_REST: Final = bytes.fromhex("1c1c00001c1c00001c1c000000")
"""Of the header in Thrift: split blocks, XXH64, not compressed."""


@dataclass(frozen=True, slots=True)
class FilterPlace:
    """Where in a file the filter of a row group is."""

    start: int
    end: int
    checksum: int


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """`words` of eight to a block."""

    words: np.ndarray[Any, np.dtype[np.uint32]]

    @property
    def size_bytes(self) -> int:
        return self.words.nbytes

    def may_hold(self, key_hash: int) -> bool:
        block = (key_hash >> 32) * (len(self.words) // 8) >> 32
        with np.errstate(over="ignore"):
            bits = np.uint32(1) << ((_SALTS * np.uint32(key_hash & 0xFFFFFFFF)) >> np.uint32(27))
        return bool(np.all(self.words[8 * block : 8 * block + 8] & bits))


def key_hash(key: bytes) -> int:
    return int(xxhash.xxh64_intdigest(key))


def filter_options(columns: Sequence[str], rows: int) -> dict[str, Any]:
    """For Arrow's writer. What is too large for the keys that there are it folds."""
    return {column: {"ndv": max(rows, 1), "fpp": _MOST_WRONG} for column in columns}


def filter_seal(columns: Sequence[str], checksums: Sequence[int]) -> dict[str, str]:
    """What the footer says of the filters, row group by row group, column by column."""
    digits = "".join(f"{checksum:08x}" for checksum in checksums)
    return {_KEY: f"{_VERSION}:{','.join(columns)}:{digits}"}


def filter_checksums(columns: Sequence[str], metadata: pq.FileMetaData, data: memoryview) -> list[int]:
    """Of a file under way, whose bytes `data` are."""
    places = _places(columns, metadata)
    return [crc32c(data[start:end]) for start, end in places]


def filter_places(metadata: pq.FileMetaData, column: str) -> tuple[FilterPlace, ...]:
    """By row group; empty: there are none that can be trusted. Of a footer whose own checksum holds."""
    version, _, rest = (metadata.metadata or {}).get(_KEY.encode(), b"").decode().partition(":")
    names, _, digits = rest.partition(":")
    columns = names.split(",")
    if version != _VERSION or column not in columns or len(digits) != _DIGITS * len(columns) * metadata.num_row_groups:
        return ()
    checksums = [int(digits[at : at + _DIGITS], 16) for at in range(0, len(digits), _DIGITS)]
    found = zip(_places(columns, metadata), checksums, strict=True)
    places = [FilterPlace(start, end, checksum) for (start, end), checksum in found]
    return tuple(places[columns.index(column) :: len(columns)])


def parse_filter(data: memoryview, checksum: int) -> KeyFilter | None:
    """None: damaged, or of another kind."""
    if not len(data) or crc32c(data) != checksum or data[0] != _SIZE_FIELD:
        return None
    doubled, at, shift = 0, 1, 0
    while True:
        byte = data[at]
        doubled |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            break
    size_bytes = doubled >> 1
    if bytes(data[at : at + len(_HEADER_REST)]) != _HEADER_REST or len(data) != at + len(_HEADER_REST) + size_bytes:
        return None
    return KeyFilter(np.frombuffer(bytes(data[-size_bytes:]), np.dtype("<u4")))


def _places(columns: Sequence[str], metadata: pq.FileMetaData) -> list[tuple[int, int]]:
    position = _positions(metadata)
    found = []
    for group in range(metadata.num_row_groups):
        described = metadata.row_group(group)
        for column in columns:
            chunk = described.column(position[column])
            start = chunk.bloom_filter_offset or 0
            found.append((start, start + (chunk.bloom_filter_length or 0)))
    return found


def _positions(metadata: pq.FileMetaData) -> Mapping[str, int]:
    schema = metadata.schema
    return {schema.column(position).path: position for position in range(metadata.num_columns)}
