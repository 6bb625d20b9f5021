# mypy: ignore-errors
"""Values that are no object, array or null, added to their slots."""

import numpy as np
from numba import njit

from lakestream.records.kernels.intrinsics import get_i64, get_u8, set_i32, set_i64, set_u8
from lakestream.schemas.codecs.kernels.json.doubles import read_double, read_number
from lakestream.schemas.codecs.kernels.json.layout import ReadOp
from lakestream.schemas.codecs.kernels.json.scanning import (
    COMMA,
    DOT,
    HAS_ESCAPES,
    MINUS,
    NINE,
    QUOTE,
    ZERO,
    number_end,
    string_end,
    value_end,
    word_end,
)
from lakestream.schemas.codecs.kernels.json.strings import unescaped
from lakestream.schemas.codecs.kernels.json.times import DATE_BYTES, NOT_ONE, read_date, read_time
from lakestream.schemas.codecs.kernels.slots import BYTES, COUNT, DATA, OFFSETS, add_copy, added, added_bytes
from lakestream.schemas.codecs.layout import ValueStatus

STRING, LONG, DOUBLE, BOOLEAN = int(ReadOp.STRING), int(ReadOp.LONG), int(ReadOp.DOUBLE), int(ReadOp.BOOLEAN)
DATE, JSON = int(ReadOp.DATE), int(ReadOp.JSON)
DONE, MALFORMED, FULL = int(ValueStatus.DONE), int(ValueStatus.MALFORMED), int(ValueStatus.FULL)
MOST_LONG = np.uint64(1) << np.uint64(63)


@njit(nogil=True)
def add_string(slot, buffer, position, end):
    """Adds the string at `position`, behind its quote. (status, position after it)."""
    close, found = string_end(buffer, position, end)
    if close < 0:
        return MALFORMED, position
    if not found & HAS_ESCAPES:
        if not add_copy(slot, buffer, position, close - position):
            return FULL, position
        return DONE, close + 1
    at = added_bytes(slot, close - position)
    if at < 0:
        return FULL, position
    stop = unescaped(get_i64(slot, DATA), at, buffer, position, close)
    if stop < 0:
        return MALFORMED, position
    set_i32(get_i64(slot, OFFSETS), get_i64(slot, COUNT), np.int32(stop))
    set_i64(slot, BYTES, stop)
    return DONE, close + 1


@njit(nogil=True)
def read_long(buffer, position, end):
    """(number, position after it or -1): a number of 64 bits that is whole, however it is written."""
    start = position
    value = np.int64(0)
    is_negative = position < end and get_u8(buffer, position) == MINUS
    if is_negative:
        position += 1
    first = position
    while position < end and position - first < 18:
        byte = np.int64(get_u8(buffer, position))
        if byte < ZERO or byte > NINE:
            break
        value = value * 10 + byte - ZERO
        position += 1
    count = position - first
    if 0 < count < 18 and (count == 1 or get_u8(buffer, first) != ZERO):
        byte = get_u8(buffer, position) if position < end else np.uint8(COMMA)
        if byte != DOT and byte | 0x20 != 0x65:
            return -value if is_negative else value, position
    close = number_end(buffer, start, end)
    if close < 0:
        return value, close
    is_negative, digits, power, has_more, _ = read_number(buffer, start, close)
    if has_more:
        return value, np.int64(-1)
    while power < 0 and digits != 0:
        rest = digits // np.uint64(10)
        if rest * np.uint64(10) != digits:
            return value, np.int64(-1)
        digits = rest
        power += 1
    while power > 0 and digits != 0:
        if digits > MOST_LONG // np.uint64(10):
            return value, np.int64(-1)
        digits *= np.uint64(10)
        power -= 1
    if digits > MOST_LONG or (digits == MOST_LONG and not is_negative):
        return value, np.int64(-1)
    value = np.int64(digits)
    return -value if is_negative else value, close


@njit(nogil=True)
def add_scalar(op, slot, powers, buffer, position, end):
    """Adds what is no object, array or null. (status, position after it)."""
    byte = get_u8(buffer, position)
    if op == STRING:
        if byte != QUOTE:
            return MALFORMED, position
        return add_string(slot, buffer, position + 1, end)
    if op == JSON:
        close = value_end(buffer, position, end)
        if close < 0:
            return MALFORMED, position
        return (DONE if add_copy(slot, buffer, position, close - position) else FULL), close
    if op == LONG:
        value, close = read_long(buffer, position, end)
        if close < 0:
            return MALFORMED, position
        place = added(slot)
        if place >= 0:
            set_i64(get_i64(slot, DATA), place, value)
        return (DONE if place >= 0 else FULL), close
    if op == DOUBLE:
        close = number_end(buffer, position, end)
        if close < 0:
            return MALFORMED, position
        is_negative, digits, power, has_more, _ = read_number(buffer, position, close)
        bits, is_known = read_double(powers, is_negative, digits, power, has_more)
        if not is_known:
            return MALFORMED, position
        place = added(slot)
        if place >= 0:
            set_i64(get_i64(slot, DATA), place, bits)
        return (DONE if place >= 0 else FULL), close
    if op == BOOLEAN:
        close = word_end(buffer, position, end)
        if close < 0:
            return MALFORMED, position
        place = added(slot)
        if place >= 0:
            set_u8(get_i64(slot, DATA), place, np.uint8(close - position == 4))
        return (DONE if place >= 0 else FULL), close
    if byte != QUOTE:
        return MALFORMED, position
    close, found = string_end(buffer, position + 1, end)
    if close < 0 or found & HAS_ESCAPES:
        return MALFORMED, position
    if op == DATE:
        value = read_date(buffer, position + 1, close)
        if close - position - 1 != DATE_BYTES:
            return MALFORMED, position
    else:
        value = read_time(buffer, position + 1, close)
    if value == NOT_ONE:
        return MALFORMED, position
    place = added(slot)
    if place >= 0:
        if op == DATE:
            set_i32(get_i64(slot, DATA), place, np.int32(value))
        else:
            set_i64(get_i64(slot, DATA), place, value)
    return (DONE if place >= 0 else FULL), close + 1
