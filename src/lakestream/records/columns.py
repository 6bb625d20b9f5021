"""Records side by side in columns, in the memory layout of Arrow."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lakestream.records.layout import MIN_HEADER_BYTES, MIN_RECORD_BYTES
from lakestream.records.native import address

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]

ARENA_BYTES: Final = 16 * 1024 * 1024
"""Records of one fill, a row group's worth."""
_MAX_ARENA_BYTES: Final = 0x7FFFFFFF - 64


@dataclass(frozen=True, slots=True)
class Binary:
    """Row i is data[offsets[i]:offsets[i + 1]], or null where valid[i] is 0."""

    offsets: Ints
    data: Bytes
    valid: Bytes

    def slice(self, start: int, stop: int) -> Binary:
        return Binary(self.offsets[start : stop + 1], self.data, self.valid[start:stop])


@dataclass(frozen=True, slots=True)
class Columns:
    """One entry per record. The headers of record i are entries header_offsets[i] to header_offsets[i + 1] of the
    header columns, unless headers_raw holds them in their encoded form (a header key that is not UTF-8).

    `timestamp_ms` is -1 for none; `timestamp_type` 0 for the producer's, 1 for the broker's time; `crc` the CRC32C of
    the encoded record from its key length on, as a signed number.
    """

    partition: Ints
    offset: Longs
    timestamp_ms: Longs
    timestamp_type: Ints
    crc: Ints
    key: Binary
    value: Binary
    header_offsets: Ints
    header_key: Binary
    header_value: Binary
    headers_raw: Binary

    def __len__(self) -> int:
        return len(self.offset)

    def slice(self, start: int, stop: int) -> Columns:
        """The records [start, stop), sharing memory."""
        return Columns(
            self.partition[start:stop],
            self.offset[start:stop],
            self.timestamp_ms[start:stop],
            self.timestamp_type[start:stop],
            self.crc[start:stop],
            self.key.slice(start, stop),
            self.value.slice(start, stop),
            self.header_offsets[start : stop + 1],
            self.header_key,
            self.header_value,
            self.headers_raw.slice(start, stop),
        )

    def split(self, window: int) -> Iterator[tuple[int, int, Columns]]:
        """(partition, first offset of the window, records) for each run of records in one partition and one aligned
        offset window of that width. The records are in (partition, offset) order."""
        if not len(self):
            return
        first, last = int(self.offset[0]) // window, int(self.offset[-1]) // window
        if self.partition[0] == self.partition[-1] and first == last:
            yield int(self.partition[0]), first * window, self
            return
        starts = self.offset - self.offset % window
        cuts = np.flatnonzero((np.diff(self.partition) != 0) | (np.diff(starts) != 0)) + 1
        bounds = [0, *cuts.tolist(), len(self)]
        for start, stop in pairwise(bounds):
            yield int(self.partition[start]), int(starts[start]), self.slice(start, stop)


Empty = Callable[[int, type[np.generic]], npt.NDArray[Any]]


def _returned(count: int, kind: type[np.generic]) -> npt.NDArray[Any]:
    """An array whose memory goes back to the system when it goes. The allocator would keep what was touched once, and
    touch something else the next time."""
    size_bytes = max(1, count * np.dtype(kind).itemsize)
    return np.frombuffer(mmap.mmap(-1, size_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), kind, count)


def _binary(rows: int, data_bytes: int, empty: Empty) -> Binary:
    offsets = empty(rows + 1, np.int32)
    offsets[0] = 0
    return Binary(offsets, empty(data_bytes, np.uint8), empty(rows, np.uint8))


class Arena:
    """The memory that decoding fills again and again.

    Every array is as long as `capacity_bytes` of encoded records can make it at worst; the system backs only the pages
    that were written, so the arena costs about what the records take.
    """

    def __init__(self, capacity_bytes: int = ARENA_BYTES) -> None:
        self._nominal_bytes = capacity_bytes
        self.cursor: Longs = np.zeros(5, np.int64)
        self._allocate(capacity_bytes)

    def _allocate(self, capacity_bytes: int) -> None:
        if capacity_bytes > _MAX_ARENA_BYTES:
            raise ValueError(f"an arena holds less than 2 GiB, not {capacity_bytes} bytes")
        self.capacity_bytes = capacity_bytes
        empty: Empty = np.empty if capacity_bytes == self._nominal_bytes else _returned
        rows, headers = capacity_bytes // MIN_RECORD_BYTES + 1, capacity_bytes // MIN_HEADER_BYTES + 1
        header_offsets = empty(rows + 1, np.int32)
        header_offsets[0] = 0
        self._arrays = Columns(
            empty(rows, np.int32),
            empty(rows, np.int64),
            empty(rows, np.int64),
            empty(rows, np.int32),
            empty(rows, np.int32),
            _binary(rows, capacity_bytes, empty),
            _binary(rows, capacity_bytes, empty),
            header_offsets,
            _binary(headers, capacity_bytes, empty),
            _binary(headers, capacity_bytes, empty),
            _binary(rows, capacity_bytes, empty),
        )
        self._spare = empty(capacity_bytes + 64, np.uint8)
        self._table = address_table([self._arrays.partition, *source_arrays(self._arrays), self._spare])
        self.addresses = (int(address(self._table)), int(address(self.cursor)))
        """Of the arrays' addresses and of the cursor, as the kernels take them."""

    @property
    def row_count(self) -> int:
        return int(self.cursor[0])

    @property
    def used_bytes(self) -> int:
        return int(self.cursor[2])

    def reset(self) -> None:
        self.cursor[:3] = 0
        if self.capacity_bytes > self._nominal_bytes:
            self._allocate(self._nominal_bytes)

    def grow(self, capacity_bytes: int) -> None:
        """Makes room for one batch larger than the arena. Only while it is empty."""
        self._allocate(capacity_bytes)

    def columns(self) -> Columns:
        """What the arena holds now, without a copy: gone with the next fill."""
        rows, headers = self.row_count, int(self.cursor[1])
        filled = self._arrays.slice(0, rows)
        return Columns(
            filled.partition,
            filled.offset,
            filled.timestamp_ms,
            filled.timestamp_type,
            filled.crc,
            filled.key,
            filled.value,
            filled.header_offsets,
            self._arrays.header_key.slice(0, headers),
            self._arrays.header_value.slice(0, headers),
            filled.headers_raw,
        )


def source_arrays(columns: Columns) -> list[npt.NDArray[np.generic]]:
    """The arrays in the order in which the kernels expect their addresses."""
    arrays: list[npt.NDArray[np.generic]] = [
        columns.offset,
        columns.timestamp_ms,
        columns.timestamp_type,
        columns.crc,
    ]
    for column in (columns.key, columns.value):
        arrays += [column.offsets, column.data, column.valid]
    arrays.append(columns.header_offsets)
    for column in (columns.header_key, columns.header_value, columns.headers_raw):
        arrays += [column.offsets, column.data, column.valid]
    return arrays


def address_table(arrays: list[npt.NDArray[np.generic]]) -> Longs:
    return np.array([address(array) for array in arrays], np.int64)
