# mypy: ignore-errors
"""Values of single fields into their slots, and out of them."""

import numpy as np
from numba import njit

from lakestream.records.kernels.intrinsics import (
    copy_bytes,
    get_i32,
    get_i64,
    get_u8,
    load_word,
    set_i32,
    set_i64,
    set_u8,
)
from lakestream.schemas.codecs.kernels.pieces import is_text, same_bytes
from lakestream.schemas.codecs.kernels.protobuf.wire import (
    read_length,
    read_tag,
    read_varint,
    skip_field,
    write_varint,
)
from lakestream.schemas.codecs.kernels.skip import INT_MAX, INT_MIN
from lakestream.schemas.codecs.kernels.slots import COUNT, DATA, OFFSETS, VALID, add_copy, added, added_bytes
from lakestream.schemas.codecs.layout import CANONICAL_NAN_32, CANONICAL_NAN_64, MAX_UNIQUE_KEYS
from lakestream.schemas.codecs.protobuf.layout import (
    MAX_TIMESTAMP_S,
    MIN_TIMESTAMP_S,
    NO_NUMBER,
    EnumWord,
    ProtoOp,
    Word,
)

BOOL, INT32, SINT32, SFIXED32 = int(ProtoOp.BOOL), int(ProtoOp.INT32), int(ProtoOp.SINT32), int(ProtoOp.SFIXED32)
UINT32, FIXED32, INT64, SINT64 = int(ProtoOp.UINT32), int(ProtoOp.FIXED32), int(ProtoOp.INT64), int(ProtoOp.SINT64)
SFIXED64, UINT64, FIXED64 = int(ProtoOp.SFIXED64), int(ProtoOp.UINT64), int(ProtoOp.FIXED64)
FLOAT, DOUBLE, ENUM = int(ProtoOp.FLOAT), int(ProtoOp.DOUBLE), int(ProtoOp.ENUM)
STRING, BYTES = int(ProtoOp.STRING), int(ProtoOp.BYTES)
TIMESTAMP, PRESENT = int(ProtoOp.TIMESTAMP), int(ProtoOp.PRESENT)
WIDTH, ENUM_AT = int(Word.WIDTH), int(Word.ENUM)
DEFAULT, NUMBERS, SYMBOLS, LISTS = (int(word) for word in EnumWord)
IS_PLAIN = 0
"""In the scratch of the stack."""
MALFORMED, FULL = -1, -2
"""In place of a position."""
IMPOSSIBLE, TOO_LONG = -1, -2
MASK_32 = 0xFFFFFFFF
MICROS = 1_000_000


@njit(nogil=True, inline="always")
def not_plain(stack):
    set_i64(stack, IS_PLAIN, np.int64(0))


@njit(nogil=True, inline="always")
def set_number(slot, place, width, value):
    """Signed, in as many bytes as the slot has: a number of 16 has its sign in the upper half."""
    data = get_i64(slot, DATA)
    if width == 8:
        set_i64(data, place, value)
    elif width == 4:
        set_i32(data, place, np.int32(value))
    elif width == 16:
        set_i64(data, 2 * place, value)
        set_i64(data, 2 * place + 1, np.int64(0))
    else:
        set_u8(data, place, np.uint8(value))


@njit(nogil=True)
def enum_place(enum, number):
    """Of the symbol in the column, or -1. Most enums count from 0."""
    count = get_i64(enum, NUMBERS)
    low, high = np.int64(0), count
    if 0 <= number < count and get_i64(enum, LISTS + number) == number:
        return get_i64(enum, LISTS + count + number)
    while low < high:
        middle = (low + high) >> 1
        there = get_i64(enum, LISTS + middle)
        if there == number:
            return get_i64(enum, LISTS + count + middle)
        if there < number:
            low = middle + 1
        else:
            high = middle
    return np.int64(-1)


@njit(nogil=True)
def add_null(slot, width, stack):
    """What the column cannot hold. False: there is no room."""
    place = added(slot)
    if place < 0:
        return False
    set_number(slot, place, width, np.int64(0))
    set_u8(get_i64(slot, VALID), place, np.uint8(0))
    not_plain(stack)
    return True


@njit(nogil=True)
def add_timestamp(slot, width, stack, depth, buffer, position, end):
    seconds, nanos = np.int64(0), np.int64(0)
    while position < end:
        tag, position = read_tag(buffer, position, end)
        if position < 0:
            return np.int64(MALFORMED)
        if tag == 8:
            seconds, position = read_varint(buffer, position, end)
        elif tag == 16:
            nanos, position = read_varint(buffer, position, end)
            nanos = np.int64(np.int32(nanos & MASK_32))
        elif tag >> 3 <= 2:
            return np.int64(MALFORMED)
        else:
            position = skip_field(buffer, position, end, tag, stack, depth)
            not_plain(stack)
        if position < 0:
            return np.int64(MALFORMED)
    if seconds < MIN_TIMESTAMP_S or seconds > MAX_TIMESTAMP_S or nanos < 0 or nanos > 999_999_999:
        return position if add_null(slot, width, stack) else np.int64(FULL)
    place = added(slot)
    if place < 0:
        return np.int64(FULL)
    set_i64(get_i64(slot, DATA), place, seconds * MICROS + nanos // 1000)
    return position


@njit(nogil=True)
def add_leaf(op, at, slot, extra, stack, depth, buffer, position, end):
    """One value, without its tag. The position after it, `MALFORMED` or `FULL`."""
    if op in (STRING, BYTES):
        length, position = read_length(buffer, position, end)
        if position < 0 or (op == STRING and not is_text(buffer, position, position + length)):
            return np.int64(MALFORMED)
        return position + length if add_copy(slot, buffer, position, length) else np.int64(FULL)
    width = get_i64(at, WIDTH)
    if op in (DOUBLE, FLOAT):
        size = 8 if op == DOUBLE else 4
        if size > end - position:
            return np.int64(MALFORMED)
        place = added(slot)
        if place < 0:
            return np.int64(FULL)
        data = get_i64(slot, DATA)
        if op == DOUBLE:
            copy_bytes(data, place * 8, buffer, position, np.int64(8))
            bits = get_i64(data, place)
            if (bits & 0x7FFFFFFFFFFFFFFF) > 0x7FF0000000000000 and bits != CANONICAL_NAN_64:
                not_plain(stack)
        else:
            copy_bytes(data, place * 4, buffer, position, np.int64(4))
            word = np.int64(get_i32(data, place))
            if (word & 0x7FFFFFFF) > 0x7F800000 and word != CANONICAL_NAN_32:
                not_plain(stack)
        return position + size
    if op == TIMESTAMP:
        length, position = read_length(buffer, position, end)
        if position < 0:
            return np.int64(MALFORMED)
        return add_timestamp(slot, width, stack, depth, buffer, position, position + length)
    if op == PRESENT:
        length, position = read_length(buffer, position, end)
        if position < 0:
            return np.int64(MALFORMED)
        if length > 0:
            not_plain(stack)
            end = position + length
            while position < end:
                tag, position = read_tag(buffer, position, end)
                if position >= 0:
                    position = skip_field(buffer, position, end, tag, stack, depth)
                if position < 0:
                    return np.int64(MALFORMED)
        return position if add_braces(slot) else np.int64(FULL)
    if op in (SFIXED32, FIXED32, SFIXED64, FIXED64):
        size = 4 if op in (SFIXED32, FIXED32) else 8
        if size > end - position:
            return np.int64(MALFORMED)
        if size == 8:
            value = np.int64(load_word(buffer, position))
        else:
            value = np.int64(get_u8(buffer, position)) | np.int64(get_u8(buffer, position + 1)) << 8
            value |= np.int64(get_u8(buffer, position + 2)) << 16 | np.int64(get_u8(buffer, position + 3)) << 24
            if op == SFIXED32:
                value = np.int64(np.int32(value))
        position += size
    else:
        value, position = read_varint(buffer, position, end)
        if position < 0:
            return np.int64(MALFORMED)
        if op == INT32:
            value = np.int64(np.int32(value & MASK_32))
        elif op == SINT32:
            value &= MASK_32
            value = (value >> 1) ^ -(value & 1)
        elif op == UINT32:
            value &= MASK_32
        elif op == SINT64:
            value = np.int64(np.uint64(value) >> np.uint64(1)) ^ -(value & 1)
        elif op == BOOL:
            value = np.int64(value != 0)
        elif op == ENUM:
            value = enum_place(extra + 8 * get_i64(at, ENUM_AT), np.int64(np.int32(value & MASK_32)))
            if value < 0:
                return position if add_null(slot, width, stack) else np.int64(FULL)
    place = added(slot)
    if place < 0:
        return np.int64(FULL)
    set_number(slot, place, width, value)
    return position


@njit(nogil=True)
def add_braces(slot):
    at = added_bytes(slot, np.int64(2))
    if at < 0:
        return False
    set_u8(get_i64(slot, DATA), at, np.uint8(123))
    set_u8(get_i64(slot, DATA), at + 1, np.uint8(125))
    return True


@njit(nogil=True)
def add_default(op, at, slot, extra):
    """False: there is no room."""
    if op in (STRING, BYTES):
        return added_bytes(slot, np.int64(0)) >= 0
    if op == PRESENT:
        return add_braces(slot)
    place = added(slot)
    if place < 0:
        return False
    value = np.int64(0)
    if op == ENUM:
        value = get_i64(extra, get_i64(at, ENUM_AT) + DEFAULT)
        if value < 0:
            value = np.int64(0)
            set_u8(get_i64(slot, VALID), place, np.uint8(0))
    set_number(slot, place, get_i64(at, WIDTH), value)
    return True


@njit(nogil=True, inline="always")
def number_at(slot, place, width):
    data = get_i64(slot, DATA)
    if width == 8:
        return get_i64(data, place)
    if width == 4:
        return np.int64(get_i32(data, place))
    if width == 16:
        return get_i64(data, 2 * place)
    return np.int64(get_u8(data, place))


@njit(nogil=True)
def is_default(op, at, slot, place, extra):
    if op in (STRING, BYTES):
        offsets = get_i64(slot, OFFSETS)
        return get_i32(offsets, place) == get_i32(offsets, place + 1)
    width = get_i64(at, WIDTH)
    if op == ENUM:
        return number_at(slot, place, width) == get_i64(extra, get_i64(at, ENUM_AT) + DEFAULT)
    if width == 16 and get_i64(get_i64(slot, DATA), 2 * place + 1) != 0:
        return False
    return number_at(slot, place, width) == 0


@njit(nogil=True)
def write_word(out, position, value, size):
    word = np.uint64(value)
    for index in range(size):
        set_u8(out, position + index, np.uint8((word >> np.uint64(8 * index)) & np.uint64(0xFF)))
    return position + size


@njit(nogil=True)
def write_leaf(op, at, slot, place, extra, out, position, limit):
    """Without its tag. The position after it, `IMPOSSIBLE` or `TOO_LONG`. What is shorter than the slack behind the
    limit is not held against it."""
    if op in (STRING, BYTES, PRESENT):
        offsets = get_i64(slot, OFFSETS)
        start = np.int64(get_i32(offsets, place))
        length = np.int64(get_i32(offsets, place + 1)) - start
        if op == PRESENT:
            data = get_i64(slot, DATA)
            if length != 2 or get_u8(data, start) != 123 or get_u8(data, start + 1) != 125:
                return np.int64(IMPOSSIBLE)
            return write_varint(out, position, np.int64(0))
        position = write_varint(out, position, length)
        if length > limit - position:
            return np.int64(TOO_LONG)
        copy_bytes(out, position, get_i64(slot, DATA), start, length)
        return position + length
    if op in (DOUBLE, FLOAT):
        size = np.int64(8) if op == DOUBLE else np.int64(4)
        copy_bytes(out, position, get_i64(slot, DATA), place * size, size)
        return position + size
    width = get_i64(at, WIDTH)
    if width == 16 and get_i64(get_i64(slot, DATA), 2 * place + 1) != 0:
        return np.int64(IMPOSSIBLE)
    value = number_at(slot, place, width)
    if op in (INT64, UINT64):
        return write_varint(out, position, value)
    if op == ENUM:
        enum = extra + 8 * get_i64(at, ENUM_AT)
        if value < 0 or value >= get_i64(enum, SYMBOLS):
            return np.int64(IMPOSSIBLE)
        value = get_i64(enum, LISTS + 2 * get_i64(enum, NUMBERS) + value)
        if value == NO_NUMBER:
            return np.int64(IMPOSSIBLE)
        return write_varint(out, position, value)
    if op == TIMESTAMP:
        seconds = value // MICROS
        nanos = (value - seconds * MICROS) * 1000
        if seconds < MIN_TIMESTAMP_S or seconds > MAX_TIMESTAMP_S:
            return np.int64(IMPOSSIBLE)
        begin = position
        position += 1
        if seconds != 0:
            set_u8(out, position, np.uint8(8))
            position = write_varint(out, position + 1, seconds)
        if nanos != 0:
            set_u8(out, position, np.uint8(16))
            position = write_varint(out, position + 1, nanos)
        set_u8(out, begin, np.uint8(position - begin - 1))
        return position
    if op == SINT64:
        return write_varint(out, position, (value << 1) ^ (value >> 63))
    if op in (SFIXED64, FIXED64):
        return write_word(out, position, value, 8)
    if op == BOOL:
        return write_varint(out, position, value)
    if op in (UINT32, FIXED32):
        if value < 0 or value > MASK_32:
            return np.int64(IMPOSSIBLE)
        return write_varint(out, position, value) if op == UINT32 else write_word(out, position, value, 4)
    if value < INT_MIN or value > INT_MAX:
        return np.int64(IMPOSSIBLE)
    if op == INT32:
        return write_varint(out, position, value)
    if op == SINT32:
        return write_varint(out, position, ((value << 1) ^ (value >> 63)) & MASK_32)
    if op == SFIXED32:
        return write_word(out, position, value & MASK_32, 4)
    return np.int64(IMPOSSIBLE)


@njit(nogil=True)
def has_unique_numbers(keys, width, first, stop):
    """False also where there are too many to tell."""
    if stop - first > MAX_UNIQUE_KEYS:
        return False
    data = get_i64(keys, DATA)
    for one in range(first, stop):
        for other in range(first, one):
            if same_bytes(data, one * width, data, other * width, width):
                return False
    return True


@njit(nogil=True, inline="always")
def is_seen(slot, place):
    return get_i64(slot, COUNT) > place
