# mypy: ignore-errors
"""Columns as the bytes of Parquet's pages: lengths before bytes, differences in as few bits as they need."""

import numpy as np
from numba import njit

from lakestream.records.kernels.intrinsics import (
    copy_bytes,
    get_i32,
    get_i64,
    get_u8,
    put_i32,
    put_i64,
    read_i64,
    set_i64,
    set_u8,
)
from lakestream.records.kernels.wire import write_unsigned, write_varint
from lakestream.records.layout import DELTA_BLOCK, DELTA_GROUP

GROUPS = DELTA_BLOCK // DELTA_GROUP


@njit(nogil=True)
def pack_binary(offsets, data, first, last, out):
    """PLAIN: the rows [first, last), each behind its length. Returns the bytes written."""
    at = np.int64(0)
    start = np.int64(get_i32(offsets, first))
    for row in range(first, last):
        end = np.int64(get_i32(offsets, row + 1))
        put_i32(out, at, np.int32(end - start))
        copy_bytes(out, at + 4, data, start, end - start)
        at += 4 + end - start
        start = end
    return at


@njit(nogil=True, inline="always")
def difference(values, is_wide, index):
    """To the value before, modulo the type's width."""
    if is_wide:
        return get_i64(values, index) - get_i64(values, index - 1)
    return np.int64(np.int32(get_i32(values, index) - get_i32(values, index - 1)))


@njit(nogil=True, inline="always")
def bits_of(number):
    bits = np.int64(0)
    while number:
        number >>= np.uint64(1)
        bits += 1
    return bits


@njit(nogil=True, inline="always")
def pack_group(values, is_wide, first, end, lowest, bits, out, at):
    """So many bits of each, least significant first; what lies behind the end counts as zero."""
    held = np.uint64(0)
    held_bits = np.int64(0)
    for index in range(first, first + DELTA_GROUP):
        number = np.uint64(difference(values, is_wide, index) - lowest) if index < end else np.uint64(0)
        held |= number << np.uint64(held_bits)
        held_bits += bits
        if held_bits >= 64:
            put_i64(out, at, np.int64(held))
            at += 8
            held_bits -= 64
            held = number >> np.uint64(bits - held_bits) if held_bits else np.uint64(0)
    if held_bits:
        put_i32(out, at, np.int32(np.uint32(held)))
        at += 4
    return at


@njit(nogil=True)
def pack_deltas(values, is_wide, count, out):
    """DELTA_BINARY_PACKED: numbers of 64 bits if `is_wide`, else of 32. Returns the bytes written."""
    at = write_unsigned(out, np.int64(0), np.uint64(DELTA_BLOCK))
    at = write_unsigned(out, at, np.uint64(GROUPS))
    at = write_unsigned(out, at, np.uint64(count))
    if count == 0:
        return write_varint(out, at, np.int64(0))
    at = write_varint(out, at, get_i64(values, 0) if is_wide else np.int64(get_i32(values, 0)))
    for first in range(1, count, DELTA_BLOCK):
        end = min(first + DELTA_BLOCK, count)
        lowest = difference(values, is_wide, first)
        for index in range(first + 1, end):
            lowest = min(lowest, difference(values, is_wide, index))
        widths = write_varint(out, at, lowest)
        at = widths + GROUPS
        for group in range(GROUPS):
            start = first + group * DELTA_GROUP
            seen = np.uint64(0)
            for index in range(start, min(start + DELTA_GROUP, end)):
                seen |= np.uint64(difference(values, is_wide, index) - lowest)
            bits = bits_of(seen)
            set_u8(out, widths + group, np.uint8(bits))
            if bits:
                at = pack_group(values, is_wide, start, end, lowest, bits, out, at)
    return at


@njit(nogil=True, inline="always")
def prefix(data, start, end):
    """The first eight bytes as a number that compares as they do; zeros stand where there are none."""
    if end - start >= 8:
        return np.uint64(read_i64(data, start))
    number = np.uint64(0)
    for index in range(8):
        number <<= np.uint64(8)
        if start + index < end:
            number |= np.uint64(get_u8(data, start + index))
    return number


@njit(nogil=True, inline="always")
def is_below(data, start, end, other_start, other_end):
    """As bytes compare, of two whose first eight are the same; a beginning comes before what it begins."""
    common = min(end - start, other_end - other_start)
    index = np.int64(8)
    while index < common:
        # The last word may reach back into bytes that are known to be the same.
        index = min(index, common - 8)
        mine = np.uint64(read_i64(data, start + index))
        other = np.uint64(read_i64(data, other_start + index))
        if mine != other:
            return mine < other
        index += 8
    return end - start < other_end - other_start


@njit(nogil=True)
def extremes(offsets, data, count, result):
    """The rows of the lowest and of the highest of at least one, as bytes compare, into result[0] and result[1]."""
    low = high = np.int64(0)
    low_start = high_start = np.int64(get_i32(offsets, 0))
    low_end = high_end = np.int64(get_i32(offsets, 1))
    low_prefix = high_prefix = prefix(data, low_start, low_end)
    for row in range(1, count):
        start, end = np.int64(get_i32(offsets, row)), np.int64(get_i32(offsets, row + 1))
        found = prefix(data, start, end)
        if found < low_prefix or (found == low_prefix and is_below(data, start, end, low_start, low_end)):
            low, low_start, low_end, low_prefix = row, start, end, found
        if found > high_prefix or (found == high_prefix and is_below(data, high_start, high_end, start, end)):
            high, high_start, high_end, high_prefix = row, start, end, found
    set_i64(result, 0, low)
    set_i64(result, 1, high)
