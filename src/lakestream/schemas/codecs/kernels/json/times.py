# mypy: ignore-errors
"""Dates and times in text, of the years 1 to 9999, as days and microseconds since 1970."""

import numpy as np
from numba import njit

from lakestream.records.kernels.intrinsics import copy_bytes, get_i64, get_u8, set_u8
from lakestream.schemas.codecs.kernels.json.doubles import write_digits
from lakestream.schemas.codecs.kernels.json.layout import FractionStyle, TimeStyle
from lakestream.schemas.codecs.kernels.json.scanning import COLON, DOT, MINUS, NINE, ZERO

THOUSANDS, MILLIONS, TRIMMED = int(FractionStyle.BY_THREE), int(FractionStyle.SIX), int(FractionStyle.TRIMMED)
NOT_ONE = np.int64(-1) << 62
"""Stands for what is no date."""
DAY_MICROS = 86_400_000_000
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
DATE_BYTES = 10


@njit(nogil=True, inline="always")
def read_digits(buffer, position, count):
    """The number that so many digits are, or a negative one."""
    value = np.int64(0)
    for index in range(count):
        digit = np.int64(get_u8(buffer, position + index)) - ZERO
        if digit < 0 or digit > 9:
            return NOT_ONE
        value = value * 10 + digit
    return value


@njit(nogil=True)
def day_of(year, month, day):
    """Since 1970-01-01."""
    year -= month <= 2
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


@njit(nogil=True)
def date_of(days):
    """(year, month, day)."""
    days += 719468
    era = days // 146097
    of_era = days - era * 146097
    year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    place = (5 * of_year + 2) // 153
    month = place + (3 if place < 10 else -9)
    return year + era * 400 + (month <= 2), month, of_year - (153 * place + 2) // 5 + 1


@njit(nogil=True)
def read_date(buffer, position, end):
    """Of text whose first ten bytes are YYYY-MM-DD."""
    if end - position < DATE_BYTES:
        return NOT_ONE
    year = read_digits(buffer, position, 4)
    month = read_digits(buffer, position + 5, 2)
    day = read_digits(buffer, position + 8, 2)
    if get_u8(buffer, position + 4) != MINUS or get_u8(buffer, position + 7) != MINUS:
        return NOT_ONE
    if year < 1 or month < 1 or month > 12 or day < 1:
        return NOT_ONE
    days = day_of(year, month, day)
    if date_of(days) != (year, month, day):
        return NOT_ONE
    return days


@njit(nogil=True)
def read_zone(buffer, position, end):
    """Minutes ahead of UTC, of a text that is a zone to its end. None at all is UTC."""
    if position == end:
        return np.int64(0)
    sign = get_u8(buffer, position)
    if sign | 0x20 == 0x7A:
        return np.int64(0) if end - position == 1 else NOT_ONE
    size = end - position
    if (sign != 0x2B and sign != MINUS) or (size != 3 and size != 5 and size != 6):
        return NOT_ONE
    if size == 6 and get_u8(buffer, position + 3) != COLON:
        return NOT_ONE
    hours = read_digits(buffer, position + 1, 2)
    minutes = read_digits(buffer, end - 2, 2) if size > 3 else np.int64(0)
    if hours < 0 or hours > 23 or minutes < 0 or minutes > 59:
        return NOT_ONE
    return (hours * 60 + minutes) * (-1 if sign == MINUS else 1)


@njit(nogil=True)
def read_time(buffer, position, end):
    """Of YYYY-MM-DDTHH:MM with or without seconds, a fraction and a zone. Digits beyond microseconds are cut off."""
    days = read_date(buffer, position, end)
    if days == NOT_ONE or end - position < 16:
        return NOT_ONE
    separator = get_u8(buffer, position + 10)
    hour = read_digits(buffer, position + 11, 2)
    minute = read_digits(buffer, position + 14, 2)
    if (separator | 0x20 != 0x74 and separator != 0x20) or get_u8(buffer, position + 13) != COLON:
        return NOT_ONE
    position += 16
    second = np.int64(0)
    micros = np.int64(0)
    if position < end and get_u8(buffer, position) == COLON:
        if end - position < 3:
            return NOT_ONE
        second = read_digits(buffer, position + 1, 2)
        position += 3
        if position < end and get_u8(buffer, position) == DOT:
            position += 1
            scale = np.int64(100_000)
            start = position
            while position < end and ZERO <= get_u8(buffer, position) <= NINE:
                micros += (np.int64(get_u8(buffer, position)) - ZERO) * scale
                scale //= 10
                position += 1
            if position == start:
                return NOT_ONE
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 60:
        return NOT_ONE
    zone = read_zone(buffer, position, end)
    if zone == NOT_ONE:
        return NOT_ONE
    return days * DAY_MICROS + ((hour * 60 + minute - zone) * 60 + second) * 1_000_000 + micros


@njit(nogil=True)
def write_date(out, position, days):
    """The position after it, or -1: it is not of these years."""
    if days < FIRST_DAY or days > LAST_DAY:
        return np.int64(-1)
    year, month, day = date_of(days)
    position = write_digits(out, position, np.uint64(year), 4)
    set_u8(out, position, np.uint8(MINUS))
    position = write_digits(out, position + 1, np.uint64(month), 2)
    set_u8(out, position, np.uint8(MINUS))
    return write_digits(out, position + 1, np.uint64(day), 2)


SEPARATOR, FRACTION, OFFSET_MINUTES = int(TimeStyle.SEPARATOR), int(TimeStyle.FRACTION), int(TimeStyle.OFFSET_MINUTES)
ZONE, ZONE_BYTES = int(TimeStyle.ZONE), int(TimeStyle.ZONE_BYTES)


@njit(nogil=True)
def write_time(extra, texts, style, out, position, micros):
    """In the style at `style` in `extra`, or -1 where that cannot tell it. Takes up to 64 bytes."""
    if micros < (FIRST_DAY - 2) * DAY_MICROS or micros > (LAST_DAY + 2) * DAY_MICROS:
        return np.int64(-1)
    micros += get_i64(extra, style + OFFSET_MINUTES) * 60_000_000
    days = micros // DAY_MICROS
    rest = micros - days * DAY_MICROS
    position = write_date(out, position, days)
    if position < 0:
        return position
    seconds = rest // 1_000_000
    micros = rest - seconds * 1_000_000
    set_u8(out, position, np.uint8(get_i64(extra, style + SEPARATOR)))
    position = write_digits(out, position + 1, np.uint64(seconds // 3600), 2)
    set_u8(out, position, np.uint8(COLON))
    position = write_digits(out, position + 1, np.uint64(seconds // 60 % 60), 2)
    set_u8(out, position, np.uint8(COLON))
    position = write_digits(out, position + 1, np.uint64(seconds % 60), 2)
    digits = get_i64(extra, style + FRACTION)
    if digits >= THOUSANDS:
        if micros == 0:
            digits = np.int64(0)
        elif digits == TRIMMED:
            digits = np.int64(6)
            scale = np.int64(10)
            while micros % scale == 0:
                digits -= 1
                scale *= 10
        else:
            digits = np.int64(3 if digits == THOUSANDS and micros % 1000 == 0 else 6)
    if digits > 0:
        set_u8(out, position, np.uint8(DOT))
        position += 1
        if digits >= 6:
            position = write_digits(out, position, np.uint64(micros), 6)
            for _ in range(digits - 6):
                set_u8(out, position, np.uint8(ZERO))
                position += 1
        else:
            scale = np.int64(1)
            for _ in range(6 - digits):
                scale *= 10
            if micros % scale != 0:
                return np.int64(-1)
            position = write_digits(out, position, np.uint64(micros // scale), digits)
    elif micros != 0:
        return np.int64(-1)
    size = get_i64(extra, style + ZONE_BYTES)
    copy_bytes(out, position, texts, get_i64(extra, style + ZONE), size)
    return position + size
