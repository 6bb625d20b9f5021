# mypy: ignore-errors
"""Where the parts of a JSON text end. Each gives the position after what it read, or -1 where that is not JSON as
RFC 8259 has it."""

import numpy as np
from numba import njit

from lakestream.records.kernels.intrinsics import get_u8, load_word, trailing_zeros
from lakestream.schemas.codecs.kernels.json.layout import MAX_JSON_LEVELS
from lakestream.schemas.codecs.kernels.pieces import is_text

LOW = np.uint64(0x0101010101010101)
HIGH = np.uint64(0x8080808080808080)
QUOTES = np.uint64(0x2222222222222222)
SLASHES = np.uint64(0x5C5C5C5C5C5C5C5C)
SPACES = np.uint64(0x2020202020202020)
QUOTE, SLASH, COLON, COMMA, MINUS, DOT, ZERO, NINE = 0x22, 0x5C, 0x3A, 0x2C, 0x2D, 0x2E, 0x30, 0x39
OPEN_OBJECT, CLOSE_OBJECT, OPEN_LIST, CLOSE_LIST = 0x7B, 0x7D, 0x5B, 0x5D
SHORT_ESCAPES = (0x22, 0x5C, 0x2F, 0x62, 0x66, 0x6E, 0x72, 0x74)
HAS_ESCAPES, HAS_MORE_THAN_ASCII = 1, 2
"""What is found in a string."""


@njit(nogil=True, inline="always")
def after_space(buffer, position, end):
    while position < end:
        byte = get_u8(buffer, position)
        if byte != 0x20 and byte != 0x0A and byte != 0x0D and byte != 0x09:
            break
        position += 1
    return position


@njit(nogil=True)
def hex_digits(buffer, position, end):
    """The number that four of them are, or -1."""
    if end - position < 4:
        return np.int64(-1)
    value = np.int64(0)
    for index in range(4):
        digit = np.int64(get_u8(buffer, position + index))
        if ZERO <= digit <= NINE:
            digit -= ZERO
        elif 0x61 <= digit <= 0x66:
            digit -= 0x57
        elif 0x41 <= digit <= 0x46:
            digit -= 0x37
        else:
            return np.int64(-1)
        value = value << 4 | digit
    return value


@njit(nogil=True)
def string_end(buffer, position, end):
    """Of a string that begins behind its quote at `position`: where its closing quote is, or -1, and what is in it. Its
    bytes are UTF-8 then."""
    start = position
    found = np.int64(0)
    while position < end:
        if end - position >= 8:
            word = load_word(buffer, position)
            quotes = word ^ QUOTES
            slashes = word ^ SLASHES
            special = ((quotes - LOW) & ~quotes) | ((slashes - LOW) & ~slashes) | ((word - SPACES) & ~word)
            special = (special | word) & HIGH
            if special == 0:
                position += 8
                continue
            position += np.int64(trailing_zeros(special) >> np.uint64(3))
        byte = get_u8(buffer, position)
        if byte == QUOTE:
            if found & HAS_MORE_THAN_ASCII and not is_text(buffer, start, position):
                return np.int64(-1), found
            return position, found
        if byte == SLASH:
            found |= HAS_ESCAPES
            if end - position < 2:
                return np.int64(-1), found
            byte = get_u8(buffer, position + 1)
            if byte == 0x75:
                if hex_digits(buffer, position + 2, end) < 0:
                    return np.int64(-1), found
                position += 4
            elif not (
                byte in (QUOTE, SLASH)
                or byte == 47
                or byte == 98
                or byte == 102
                or byte == 110
                or byte == 114
                or byte == 116
            ):
                return np.int64(-1), found
            position += 2
        elif byte < 0x20:
            return np.int64(-1), found
        else:
            if byte >= 0x80:
                found |= HAS_MORE_THAN_ASCII
            position += 1
    return np.int64(-1), found


@njit(nogil=True)
def digits_end(buffer, position, end):
    """After one digit or more, or -1."""
    start = position
    while position < end and ZERO <= get_u8(buffer, position) <= NINE:
        position += 1
    return position if position > start else np.int64(-1)


@njit(nogil=True)
def number_end(buffer, position, end):
    if position < end and get_u8(buffer, position) == MINUS:
        position += 1
    if position < end and get_u8(buffer, position) == ZERO:
        position += 1
    else:
        position = digits_end(buffer, position, end)
        if position < 0:
            return position
    if position < end and get_u8(buffer, position) == DOT:
        position = digits_end(buffer, position + 1, end)
        if position < 0:
            return position
    if position < end and get_u8(buffer, position) | 0x20 == 0x65:
        position += 1
        if position < end and (get_u8(buffer, position) == MINUS or get_u8(buffer, position) == 0x2B):
            position += 1
        position = digits_end(buffer, position, end)
    return position


@njit(nogil=True)
def word_end(buffer, position, end):
    """Of true, false, null."""
    if end - position >= 4:
        first, second = get_u8(buffer, position), get_u8(buffer, position + 1)
        third, fourth = get_u8(buffer, position + 2), get_u8(buffer, position + 3)
        if first == 0x74 and second == 0x72 and third == 0x75 and fourth == 0x65:
            return position + 4
        if first == 0x6E and second == 0x75 and third == 0x6C and fourth == 0x6C:
            return position + 4
        is_false = first == 0x66 and second == 0x61 and third == 0x6C and fourth == 0x73
        if is_false and end - position >= 5 and get_u8(buffer, position + 4) == 0x65:
            return position + 5
    return np.int64(-1)


@njit(nogil=True)
def value_end(buffer, position, end):
    """Of any value, which begins at `position`. One that is nested deeper than `MAX_JSON_LEVELS` is none."""
    kinds_low, kinds_high = np.uint64(0), np.uint64(0)
    depth = np.int64(0)
    while True:
        if position >= end:
            return np.int64(-1)
        byte = get_u8(buffer, position)
        closed = False
        if byte == QUOTE:
            position, _ = string_end(buffer, position + 1, end)
            if position < 0:
                return position
            position += 1
            closed = True
        elif byte in (OPEN_OBJECT, OPEN_LIST):
            if depth == MAX_JSON_LEVELS:
                return np.int64(-1)
            depth += 1
            kinds_high = kinds_high << np.uint64(1) | kinds_low >> np.uint64(63)
            kinds_low = kinds_low << np.uint64(1) | np.uint64(byte == OPEN_OBJECT)
            position = after_space(buffer, position + 1, end)
            close = CLOSE_OBJECT if byte == OPEN_OBJECT else CLOSE_LIST
            if position < end and get_u8(buffer, position) == close:
                position += 1
                depth -= 1
                kinds_low = kinds_low >> np.uint64(1) | kinds_high << np.uint64(63)
                kinds_high >>= np.uint64(1)
                closed = True
        else:
            if byte == MINUS or ZERO <= byte <= NINE:
                position = number_end(buffer, position, end)
            else:
                position = word_end(buffer, position, end)
            if position < 0:
                return position
            closed = True
        while closed:
            if depth == 0:
                return position
            position = after_space(buffer, position, end)
            if position >= end:
                return np.int64(-1)
            byte = get_u8(buffer, position)
            is_object = kinds_low & np.uint64(1)
            position += 1
            if byte == COMMA:
                position = after_space(buffer, position, end)
                closed = False
            elif byte == (CLOSE_OBJECT if is_object else CLOSE_LIST):
                depth -= 1
                kinds_low = kinds_low >> np.uint64(1) | kinds_high << np.uint64(63)
                kinds_high >>= np.uint64(1)
            else:
                return np.int64(-1)
        if kinds_low & np.uint64(1):
            position = key_end(buffer, position, end)
            if position < 0:
                return position


@njit(nogil=True)
def key_end(buffer, position, end):
    """Of a member's key with its colon: where its value begins."""
    if position >= end or get_u8(buffer, position) != QUOTE:
        return np.int64(-1)
    position, _ = string_end(buffer, position + 1, end)
    return after_colon(buffer, position + 1, end) if position >= 0 else position


@njit(nogil=True, inline="always")
def after_colon(buffer, position, end):
    position = after_space(buffer, position, end)
    if position >= end or get_u8(buffer, position) != COLON:
        return np.int64(-1)
    return after_space(buffer, position + 1, end)


@njit(nogil=True)
def is_json(buffer, position, end):
    """Whether it is one text, perhaps with white space around it."""
    position = value_end(buffer, after_space(buffer, position, end), end)
    return position >= 0 and after_space(buffer, position, end) == end
