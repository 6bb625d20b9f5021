# mypy: ignore-errors
"""Strings with their escapes, and without."""

import numpy as np
from numba import njit

from lakestream.records.kernels.intrinsics import copy_bytes, get_i64, get_u8, load_word, set_u8, trailing_zeros
from lakestream.schemas.codecs.kernels.json.layout import CODE_FORM, RAW_FORM, EscapeStyle
from lakestream.schemas.codecs.kernels.json.scanning import (
    HIGH,
    LOW,
    QUOTE,
    QUOTES,
    SLASH,
    SLASHES,
    SPACES,
    hex_digits,
)
from lakestream.schemas.codecs.kernels.pieces import same_bytes

FORMS, IS_PLAIN, IS_ASCII = int(EscapeStyle.FORMS), int(EscapeStyle.IS_PLAIN), int(EscapeStyle.IS_ASCII)
LINE_ENDS, UPPER = int(EscapeStyle.LINE_ENDS), int(EscapeStyle.UPPER)
DELETES = np.uint64(0x7F7F7F7F7F7F7F7F)


@njit(nogil=True)
def write_utf8(out, position, point):
    if point < 0x80:
        set_u8(out, position, np.uint8(point))
        return position + 1
    if point < 0x800:
        set_u8(out, position, np.uint8(0xC0 | point >> 6))
        set_u8(out, position + 1, np.uint8(0x80 | point & 0x3F))
        return position + 2
    if point < 0x10000:
        set_u8(out, position, np.uint8(0xE0 | point >> 12))
        set_u8(out, position + 1, np.uint8(0x80 | point >> 6 & 0x3F))
        set_u8(out, position + 2, np.uint8(0x80 | point & 0x3F))
        return position + 3
    set_u8(out, position, np.uint8(0xF0 | point >> 18))
    set_u8(out, position + 1, np.uint8(0x80 | point >> 12 & 0x3F))
    set_u8(out, position + 2, np.uint8(0x80 | point >> 6 & 0x3F))
    set_u8(out, position + 3, np.uint8(0x80 | point & 0x3F))
    return position + 4


@njit(nogil=True)
def unescaped(out, at, buffer, position, end):
    """Writes what a string says, whose form is known to be right. The position after it, at most as far on as the
    string is long, or -1: it has half a surrogate pair."""
    while position < end:
        byte = get_u8(buffer, position)
        position += 1
        if byte != SLASH:
            set_u8(out, at, byte)
            at += 1
            continue
        byte = get_u8(buffer, position)
        position += 1
        if byte == 0x75:
            point = hex_digits(buffer, position, end)
            position += 4
            if 0xDC00 <= point < 0xE000:
                return np.int64(-1)
            if 0xD800 <= point < 0xDC00:
                if end - position < 6 or get_u8(buffer, position) != SLASH or get_u8(buffer, position + 1) != 0x75:
                    return np.int64(-1)
                low = hex_digits(buffer, position + 2, end)
                if low < 0xDC00 or low >= 0xE000:
                    return np.int64(-1)
                position += 6
                point = 0x10000 + ((point - 0xD800) << 10) + low - 0xDC00
            at = write_utf8(out, at, point)
            continue
        if byte == 0x62:
            byte = np.uint8(8)
        elif byte == 0x66:
            byte = np.uint8(12)
        elif byte == 0x6E:
            byte = np.uint8(10)
        elif byte == 0x72:
            byte = np.uint8(13)
        elif byte == 0x74:
            byte = np.uint8(9)
        set_u8(out, at, byte)
        at += 1
    return at


@njit(nogil=True)
def is_key(texts, at, length, spare, buffer, start, end, has_escapes):
    """Whether the key between its quotes is the one in `texts`."""
    if not has_escapes:
        return end - start == length and same_bytes(texts, at, buffer, start, length)
    size = unescaped(spare, np.int64(0), buffer, start, end)
    return size == length and same_bytes(texts, at, spare, np.int64(0), length)


@njit(nogil=True)
def write_code(out, position, unit, letters):
    set_u8(out, position, np.uint8(SLASH))
    set_u8(out, position + 1, np.uint8(0x75))
    for index in range(4):
        digit = unit >> (12 - 4 * index) & 15
        set_u8(out, position + 2 + index, np.uint8(digit + (48 if digit < 10 else letters)))
    return position + 6


@njit(nogil=True)
def write_string(extra, texts, style, out, position, limit, data, start, end):
    """With its quotes, in the style at `style` in `extra`, `limit` + 1 where it does not fit, or -1: it is cut off in
    the middle of a character."""
    is_plain = get_i64(extra, style + IS_PLAIN)
    forms = get_i64(extra, style + FORMS)
    is_ascii = get_i64(extra, style + IS_ASCII)
    has_line_ends = get_i64(extra, style + LINE_ENDS)
    letters = 55 if get_i64(extra, style + UPPER) else 87
    too_far = limit + 1
    if end - start > limit - position:
        return too_far
    set_u8(out, position, np.uint8(QUOTE))
    position += 1
    while start < end:
        if is_plain and end - start >= 8:
            word = load_word(data, start)
            quotes = word ^ QUOTES
            slashes = word ^ SLASHES
            special = ((quotes - LOW) & ~quotes) | ((slashes - LOW) & ~slashes) | ((word - SPACES) & ~word)
            deletes = word ^ DELETES
            special |= (deletes - LOW) & ~deletes
            if is_ascii:
                special |= word
            special &= HIGH
            size = np.int64(8) if special == 0 else np.int64(trailing_zeros(special) >> np.uint64(3))
            if position > limit:
                return too_far
            copy_bytes(out, position, data, start, np.int64(8))
            position += size
            start += size
            if size == 8:
                continue
        if position > limit:
            return too_far
        byte = np.int64(get_u8(data, start))
        start += 1
        if byte < 0x80:
            form = get_u8(texts, forms + byte)
            if form == RAW_FORM:
                set_u8(out, position, np.uint8(byte))
                position += 1
            elif form == CODE_FORM:
                position = write_code(out, position, byte, letters)
            else:
                set_u8(out, position, np.uint8(SLASH))
                set_u8(out, position + 1, form)
                position += 2
            continue
        if not is_ascii:
            if has_line_ends and byte == 0xE2 and end - start >= 2 and get_u8(data, start) == 0x80:
                last = np.int64(get_u8(data, start + 1))
                if last == 0xA8 or last == 0xA9:
                    position = write_code(out, position, 0x2028 + last - 0xA8, letters)
                    start += 2
                    continue
            set_u8(out, position, np.uint8(byte))
            position += 1
            continue
        more = 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3
        point = byte & (0x3F >> more)
        if more > end - start:
            return np.int64(-1)
        for _ in range(more):
            point = point << 6 | np.int64(get_u8(data, start)) & 0x3F
            start += 1
        if point >= 0x10000:
            point -= 0x10000
            position = write_code(out, position, 0xD800 + (point >> 10), letters)
            point = 0xDC00 + (point & 0x3FF)
        position = write_code(out, position, point, letters)
    set_u8(out, position, np.uint8(QUOTE))
    return position + 1
