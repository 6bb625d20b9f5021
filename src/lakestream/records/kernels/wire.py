# mypy: ignore-errors
"""The v2 format piece by piece: variable length numbers, UTF-8, one record.

Readers return the position after what they read, or -1 when it does not fit before `end`.
"""

from collections import namedtuple

import numpy as np
from numba import njit

from lakestream.records.kernels.intrinsics import get_u8, set_u8
from lakestream.records.layout import MIN_RECORD_BYTES

Record = namedtuple(
    "Record",
    "end timestamp_delta offset_delta body key_start key_length value_start value_length headers header_count entries",
)
"""`end` -1: malformed. `body`: where the key length starts. `headers`: where their count starts, `entries`: after."""


@njit(nogil=True)
def read_varint(buffer, position, end):
    """A zigzag number of at most 32 bits."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while position < end and shift < 35:
        byte = np.uint64(get_u8(buffer, position))
        position += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < 0x80:
            if value > np.uint64(0xFFFFFFFF):
                return np.int64(0), np.int64(-1)
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), np.int64(position)
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@njit(nogil=True)
def read_varlong(buffer, position, end):
    """A zigzag number of at most 64 bits."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while position < end and shift < 70:
        byte = np.uint64(get_u8(buffer, position))
        position += 1
        if shift == 63 and byte > 1:
            return np.int64(0), np.int64(-1)
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < 0x80:
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), np.int64(position)
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@njit(nogil=True)
def varint_size(number):
    value = np.uint64((number << 1) ^ (number >> 63))
    size = 1
    while value >= 0x80:
        value >>= np.uint64(7)
        size += 1
    return size


@njit(nogil=True, inline="always")
def write_unsigned(buffer, position, value):
    """Seven bits to a byte, the lowest first."""
    while value >= 0x80:
        set_u8(buffer, position, np.uint8((value & np.uint64(0x7F)) | np.uint64(0x80)))
        value >>= np.uint64(7)
        position += 1
    set_u8(buffer, position, np.uint8(value))
    return position + 1


@njit(nogil=True)
def write_varint(buffer, position, number):
    """A zigzag number."""
    return write_unsigned(buffer, position, np.uint64((number << 1) ^ (number >> 63)))


@njit(nogil=True)
def read_bytes(buffer, position, end, lowest):
    """(start, length, position after) of length-prefixed bytes; the length is at least `lowest`, -1 stands for null."""
    length, position = read_varint(buffer, position, end)
    if position < 0 or length < lowest or length > end - position:
        return np.int64(0), np.int64(0), np.int64(-1)
    return position, length, position + max(length, np.int64(0))


@njit(nogil=True)
def skip_headers(buffer, position, end, count):
    for _ in range(count):
        _, _, position = read_bytes(buffer, position, end, 0)
        if position < 0:
            return np.int64(-1)
        _, _, position = read_bytes(buffer, position, end, -1)
        if position < 0:
            return np.int64(-1)
    return position


MALFORMED = Record(*(np.int64(field) for field in (-1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)))


@njit(nogil=True)
def read_record(buffer, position, limit):
    """The record at `position`, every length and count of it checked against the others."""
    length, position = read_varint(buffer, position, limit)
    if position < 0 or length < MIN_RECORD_BYTES - 1 or length > limit - position:
        return MALFORMED
    end = position + length
    timestamp_delta, position = read_varlong(buffer, position + 1, end)
    if position < 0:
        return MALFORMED
    offset_delta, body = read_varint(buffer, position, end)
    if body < 0:
        return MALFORMED
    key_start, key_length, position = read_bytes(buffer, body, end, -1)
    if position < 0:
        return MALFORMED
    value_start, value_length, headers = read_bytes(buffer, position, end, -1)
    if headers < 0:
        return MALFORMED
    header_count, entries = read_varint(buffer, headers, end)
    if entries < 0 or header_count < 0 or 2 * header_count > end - entries:
        return MALFORMED
    if skip_headers(buffer, entries, end, header_count) != end:
        return MALFORMED
    return Record(
        end,
        timestamp_delta,
        offset_delta,
        body,
        key_start,
        key_length,
        value_start,
        value_length,
        headers,
        header_count,
        entries,
    )


@njit(nogil=True)
def is_utf8(buffer, position, end):
    """Well-formed UTF-8 as Unicode defines it: no overlong form, no surrogate, nothing above U+10FFFF."""
    while position < end:
        lead = get_u8(buffer, position)
        position += 1
        if lead < 0x80:
            continue
        low, high = 0x80, 0xBF
        if 0xC2 <= lead <= 0xDF:
            more = 1
        elif 0xE0 <= lead <= 0xEF:
            more = 2
            if lead == 0xE0:
                low = 0xA0
            elif lead == 0xED:
                high = 0x9F
        elif 0xF0 <= lead <= 0xF4:
            more = 3
            if lead == 0xF0:
                low = 0x90
            elif lead == 0xF4:
                high = 0x8F
        else:
            return False
        if more > end - position:
            return False
        for _ in range(more):
            if get_u8(buffer, position) < low or get_u8(buffer, position) > high:
                return False
            low, high = 0x80, 0xBF
            position += 1
    return True
