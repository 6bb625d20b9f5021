# mypy: ignore-errors
"""Single values in Avro's binary form, and what makes one survive every engine."""

import numpy as np
from numba import njit

from lakestream.records.kernels.intrinsics import get_i32, get_i64, get_u8, load_word, set_u8
from lakestream.records.kernels.wire import is_utf8, read_varlong, write_unsigned
from lakestream.schemas.codecs.kernels.slots import DATA, OFFSETS
from lakestream.schemas.codecs.layout import MAX_UNIQUE_KEYS

HIGH_BITS = np.uint64(0x8080808080808080)


@njit(nogil=True, inline="always")
def read_long(buffer, position, end):
    """A zigzag number, and the position after it or -1."""
    if position < end:
        byte = np.int64(get_u8(buffer, position))
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position + 1
    return read_varlong(buffer, position, end)


@njit(nogil=True, inline="always")
def write_long(buffer, position, number):
    value = np.uint64((number << 1) ^ (number >> 63))
    if value < 0x80:
        set_u8(buffer, position, np.uint8(value))
        return position + 1
    return write_unsigned(buffer, position, value)


@njit(nogil=True)
def is_text(buffer, position, end):
    while end - position >= 8 and not load_word(buffer, position) & HIGH_BITS:
        position += 8
    return is_utf8(buffer, position, end)


@njit(nogil=True)
def same_bytes(left, left_at, right, right_at, length):
    at = np.int64(0)
    while length - at >= 8:
        if load_word(left, left_at + at) != load_word(right, right_at + at):
            return False
        at += 8
    while at < length:
        if get_u8(left, left_at + at) != get_u8(right, right_at + at):
            return False
        at += 1
    return True


@njit(nogil=True)
def has_unique_keys(keys, first, stop):
    """False also where there are too many to tell."""
    if stop - first > MAX_UNIQUE_KEYS:
        return False
    offsets, data = get_i64(keys, OFFSETS), get_i64(keys, DATA)
    for one in range(first, stop):
        start = np.int64(get_i32(offsets, one))
        length = np.int64(get_i32(offsets, one + 1)) - start
        for other in range(first, one):
            begin = np.int64(get_i32(offsets, other))
            if np.int64(get_i32(offsets, other + 1)) - begin == length and same_bytes(data, start, data, begin, length):
                return False
    return True


@njit(nogil=True)
def read_decimal(buffer, position, length):
    """Big-endian two's complement of at most 16 bytes as its (high, low) halves."""
    high = np.uint64(0)
    low = np.uint64(0)
    if get_u8(buffer, position) >= 0x80:
        high = ~high
        low = ~low
    for index in range(length):
        high = (high << np.uint64(8)) | (low >> np.uint64(56))
        low = (low << np.uint64(8)) | np.uint64(get_u8(buffer, position + index))
    return high, low


@njit(nogil=True)
def is_below(high, low, limit_high, limit_low):
    """Whether the absolute value is."""
    if high >> np.uint64(63):
        low = ~low + np.uint64(1)
        high = ~high
        if low == np.uint64(0):
            high += np.uint64(1)
    return high < limit_high or (high == limit_high and low < limit_low)


@njit(nogil=True)
def decimal_size(high, low):
    """The fewest bytes that hold it with its sign."""
    size = 16
    while size > 1:
        top = decimal_byte(high, low, size - 1)
        below = decimal_byte(high, low, size - 2)
        if not ((top == 0 and below < 0x80) or (top == 0xFF and below >= 0x80)):
            break
        size -= 1
    return size


@njit(nogil=True)
def decimal_byte(high, low, place):
    """Counted from the lowest."""
    if place < 8:
        return np.int64((low >> np.uint64(8 * place)) & np.uint64(0xFF))
    return np.int64((high >> np.uint64(8 * (place - 8))) & np.uint64(0xFF))


@njit(nogil=True, inline="always")
def hex_digit(value):
    return np.uint8(48 + value if value < 10 else 87 + value)


@njit(nogil=True)
def write_uuid(target, at, buffer, position):
    """16 bytes as 36 characters."""
    for index in range(16):
        if index == 4 or index == 6 or index == 8 or index == 10:
            set_u8(target, at, np.uint8(45))
            at += 1
        byte = np.int64(get_u8(buffer, position + index))
        set_u8(target, at, hex_digit(byte >> 4))
        set_u8(target, at + 1, hex_digit(byte & 15))
        at += 2


@njit(nogil=True)
def hex_value(digit):
    if 48 <= digit <= 57:
        return digit - 48
    if 97 <= digit <= 102:
        return digit - 87
    return np.int64(-1)


@njit(nogil=True)
def read_uuid(target, at, buffer, position):
    """36 characters as 16 bytes; False: they are none."""
    for index in range(16):
        if index == 4 or index == 6 or index == 8 or index == 10:
            if get_u8(buffer, position) != 45:
                return False
            position += 1
        high = hex_value(np.int64(get_u8(buffer, position)))
        low = hex_value(np.int64(get_u8(buffer, position + 1)))
        if high < 0 or low < 0:
            return False
        set_u8(target, at + index, np.uint8(high * 16 + low))
        position += 2
    return True
