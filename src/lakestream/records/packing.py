"""Columns into the bytes of Parquet's pages, in memory of the caller's: no Python per row."""

from typing import Final

import numpy as np
import numpy.typing as npt

from lakestream.records.columns import Bytes, Ints, Longs
from lakestream.records.layout import DELTA_BLOCK
from lakestream.records.native import address, kernels

_DELTA_HEAD_BYTES: Final = 24
_DELTA_BLOCK_BYTES: Final = 16 + 8 * DELTA_BLOCK
"""The most that numbers before the blocks, and one block, can take."""


def most_delta_bytes(count: int) -> int:
    """How long the packed differences of so many numbers can be at worst."""
    return _DELTA_HEAD_BYTES + -(-count // DELTA_BLOCK) * _DELTA_BLOCK_BYTES


def pack_deltas(values: Ints | Longs, out: Bytes) -> int:
    """DELTA_BINARY_PACKED into `out`, which has room for `most_delta_bytes`; the bytes written."""
    if not values.flags.c_contiguous or len(out) < most_delta_bytes(len(values)):
        raise ValueError("deltas are packed of numbers that lie side by side, into enough room")
    return kernels().pack_deltas(address(values), int(values.itemsize == 8), len(values), address(out))


def pack_binary(offsets: Ints, data: Bytes, out: Bytes) -> int:
    """PLAIN, each row behind its length: row i is data[offsets[i]:offsets[i + 1]]. The bytes written."""
    rows = len(offsets) - 1
    if int(offsets[-1]) > len(data) or len(out) < int(offsets[-1]) - int(offsets[0]) + 4 * rows:
        raise ValueError("rows are packed that are there, into enough room")
    return kernels().pack_binary(address(offsets), address(data), 0, rows, address(out))


def extremes(offsets: Ints, data: Bytes) -> tuple[bytes, bytes]:
    """The lowest and the highest row, as bytes compare. Needs a row."""
    if len(offsets) < 2 or int(offsets[-1]) > len(data):
        raise ValueError("extremes need a row that is there")
    found: npt.NDArray[np.int64] = np.empty(2, np.int64)
    kernels().extremes(address(offsets), address(data), len(offsets) - 1, address(found))
    low, high = (bytes(data[offsets[row] : offsets[row + 1]]) for row in found.tolist())
    return low, high
