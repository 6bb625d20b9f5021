# mypy: ignore-errors
"""Numbers between text and 64 bits: the nearest double of a decimal text, and the fewest digits that tell a double.

Reading is Eisel's and Lemire's way, writing Giulietti's (Schubfach). `powers` has two words for each power of ten from
`LOWEST_POWER` to `HIGHEST_POWER`, its leading 128 bits, rounded down for reading, and as many rounded up behind them
(`codecs.json.numbers.POWERS`).
"""

import numpy as np
from numba import njit

from lakestream.records.kernels.intrinsics import get_i64, get_u8, leading_zeros, multiply_high, set_u8
from lakestream.schemas.codecs.kernels.json.layout import HIGHEST_POWER, LOWEST_POWER, NumberStyle
from lakestream.schemas.codecs.kernels.json.scanning import DOT, MINUS, NINE, ZERO

ONE = np.uint64(1)
HIDDEN = np.uint64(1 << 52)
FRACTION = np.uint64((1 << 52) - 1)
INFINITE = np.int64(0x7FF)
MOST_DIGITS = 19
"""That are sure to fit 64 bits."""
FAR = 100_000
"""An exponent that no digits make up for."""


@njit(nogil=True)
def read_number(buffer, position, end):
    """Of a number's text, whose grammar is not checked: (is negative, its first digits as a number, the power of ten
    that goes with them, whether there were more digits that are not zero, whether it is digits alone)."""
    is_negative = get_u8(buffer, position) == MINUS
    if is_negative:
        position += 1
    digits = np.uint64(0)
    count = np.int64(0)
    power = np.int64(0)
    has_more = False
    is_whole = True
    after_dot = False
    while position < end:
        byte = np.int64(get_u8(buffer, position))
        position += 1
        if ZERO <= byte <= NINE:
            if count < MOST_DIGITS:
                digits = digits * np.uint64(10) + np.uint64(byte - ZERO)
                if digits != 0:
                    count += 1
                if after_dot:
                    power -= 1
            else:
                if byte != ZERO:
                    has_more = True
                if not after_dot:
                    power += 1
        elif byte == DOT:
            after_dot = True
            is_whole = False
        else:
            is_whole = False
            sign = np.int64(1)
            byte = np.int64(get_u8(buffer, position))
            if byte == MINUS or byte == 0x2B:
                sign = np.int64(-1) if byte == MINUS else sign
                position += 1
            exponent = np.int64(0)
            while position < end:
                if exponent < FAR:
                    exponent = exponent * 10 + np.int64(get_u8(buffer, position)) - ZERO
                position += 1
            power += sign * exponent
    return is_negative, digits, power, has_more, is_whole


@njit(nogil=True)
def power_word(powers, power, which):
    return np.uint64(get_i64(powers, (power - LOWEST_POWER) * 4 + which))


@njit(nogil=True)
def nearest(powers, digits, power):
    """The bits of the double nearest to digits times ten to the power; infinity where there is none."""
    if digits == 0 or power < LOWEST_POWER:
        return np.int64(0)
    if power > HIGHEST_POWER:
        return INFINITE << 52
    zeros = leading_zeros(digits)
    digits <<= zeros
    high, low = power_word(powers, power, 0), power_word(powers, power, 1)
    upper, lower = multiply_high(digits, high), digits * high
    if upper & np.uint64(0x1FF) == np.uint64(0x1FF):
        second = multiply_high(digits, low)
        lower += second
        if second > lower:
            upper += ONE
    top = upper >> np.uint64(63)
    shift = top + np.uint64(9)
    mantissa = upper >> shift
    exponent = ((np.int64(217706) * power) >> 16) + 63 + np.int64(top) - np.int64(zeros) + 1023
    if exponent <= 0:
        if -exponent + 1 >= 64:
            return np.int64(0)
        mantissa >>= np.uint64(-exponent + 1)
        mantissa += mantissa & ONE
        mantissa >>= ONE
        return np.int64(mantissa)  # the carry makes it the least normal one
    if lower <= ONE and -4 <= power <= 23 and mantissa & np.uint64(3) == ONE and mantissa << shift == upper:
        mantissa &= ~ONE
    mantissa += mantissa & ONE
    mantissa >>= ONE
    if mantissa >= HIDDEN << ONE:
        mantissa = HIDDEN
        exponent += 1
    if exponent >= INFINITE:
        return INFINITE << 52
    return np.int64(mantissa & FRACTION) | exponent << 52


@njit(nogil=True)
def read_double(powers, is_negative, digits, power, has_more):
    """(bits, whether it is a finite number and known to be the nearest)."""
    bits = nearest(powers, digits, power)
    if has_more and nearest(powers, digits + ONE, power) != bits:
        return np.int64(0), False
    if bits >> 52 == INFINITE:
        return np.int64(0), False
    return bits | (np.int64(is_negative) << 63), True


@njit(nogil=True, inline="always")
def scaled(high, low, factor):
    """The product of a power and a number, its last bit set where bits were lost."""
    upper, lower = multiply_high(high, factor), high * factor
    carry = multiply_high(low, factor)
    lower += carry
    if lower < carry:
        upper += ONE
    return upper | np.uint64(lower > ONE)


@njit(nogil=True)
def shortest(powers, bits):
    """(digits, power) of a finite positive double: the fewest digits that only this double is nearest to, and of those
    the nearest to it. There may be zeros behind them."""
    fraction = np.uint64(bits) & FRACTION
    biased = np.int64((bits >> 52) & INFINITE)
    if biased != 0:
        mantissa = fraction | HIDDEN
        exponent = biased - 1075
        if 0 <= -exponent < 53 and mantissa & ((ONE << np.uint64(-exponent)) - ONE) == 0:
            return mantissa >> np.uint64(-exponent), np.int64(0)
    else:
        mantissa = fraction
        exponent = np.int64(-1074)
    is_even = mantissa & ONE == 0
    is_closer_below = fraction == 0 and biased > 1
    middle = mantissa << np.uint64(2)
    below = middle - np.uint64(2) + np.uint64(is_closer_below)
    power = (exponent * 1262611 - (524031 if is_closer_below else 0)) >> 22
    shift = np.uint64(exponent + ((-power * 1741647) >> 19) + 1)
    high, low = power_word(powers, -power, 2), power_word(powers, -power, 3)
    least = scaled(high, low, below << shift)
    value = scaled(high, low, middle << shift)
    most = scaled(high, low, (middle + np.uint64(2)) << shift)
    if not is_even:
        least += ONE
        most -= ONE
    whole = value >> np.uint64(2)
    if whole >= 10:
        tenth = whole // np.uint64(10)
        is_down = least <= np.uint64(40) * tenth
        is_up = np.uint64(40) * tenth + np.uint64(40) <= most
        if is_down != is_up:
            return tenth + np.uint64(is_up), power + 1
    is_down = least <= np.uint64(4) * whole
    is_up = np.uint64(4) * whole + np.uint64(4) <= most
    if is_down != is_up:
        return whole + np.uint64(is_up), power
    half = np.uint64(4) * whole + np.uint64(2)
    return whole + np.uint64(value > half or (value == half and whole & ONE == ONE)), power


@njit(nogil=True)
def digit_count(number):
    count = np.int64(1)
    while number >= 10000:
        number //= np.uint64(10000)
        count += 4
    if number >= 1000:
        return count + 3
    if number >= 100:
        return count + 2
    if number >= 10:
        return count + 1
    return count


@njit(nogil=True, inline="always")
def write_digits(out, position, number, count):
    """So many of them, zeros in front where it has fewer."""
    at = position + count - 1
    while at >= position:
        rest = number // np.uint64(10)
        set_u8(out, at, np.uint8(ZERO) + np.uint8(number - rest * np.uint64(10)))
        number = rest
        at -= 1
    return position + count


@njit(nogil=True)
def write_long(out, position, number):
    value = np.uint64(number)
    if number < 0:
        set_u8(out, position, np.uint8(MINUS))
        position += 1
        value = np.uint64(0) - value
    return write_digits(out, position, value, digit_count(value))


@njit(nogil=True, inline="always")
def write_zeros(out, position, count):
    for _ in range(count):
        set_u8(out, position, np.uint8(ZERO))
        position += 1
    return position


LOWEST, HIGHEST, POINT_ZERO = int(NumberStyle.LOWEST), int(NumberStyle.HIGHEST), int(NumberStyle.POINT_ZERO)
LETTER, PLUS, MANTISSA_ZERO = int(NumberStyle.LETTER), int(NumberStyle.PLUS), int(NumberStyle.MANTISSA_ZERO)
EXPONENT_DIGITS, DECIMALS = int(NumberStyle.EXPONENT_DIGITS), int(NumberStyle.DECIMALS)


@njit(nogil=True)
def write_double(powers, extra, style, out, position, bits):
    """In the style at `style` in `extra`, or -1 where that cannot tell it. Takes up to 400 bytes."""
    if bits < 0:
        set_u8(out, position, np.uint8(MINUS))
        position += 1
        bits &= np.int64(0x7FFFFFFFFFFFFFFF)
    if bits >> 52 == INFINITE:
        return np.int64(-1)
    digits, power = np.uint64(0), np.int64(0)
    if bits != 0:
        digits, power = shortest(powers, bits)
        rest = digits // np.uint64(10)
        while rest * np.uint64(10) == digits:
            digits = rest
            power += 1
            rest = digits // np.uint64(10)
    count = digit_count(digits)
    point = count + power if bits != 0 else np.int64(1)
    decimals = get_i64(extra, style + DECIMALS)
    if decimals >= 0:
        if power + decimals < 0 or point > 25:
            return np.int64(-1)
    elif point <= get_i64(extra, style + LOWEST) or point > get_i64(extra, style + HIGHEST):
        return write_scientific(extra, style, out, position, digits, count, point)
    if power >= 0:
        position = write_zeros(out, write_digits(out, position, digits, count), power)
        if decimals < 0:
            if get_i64(extra, style + POINT_ZERO):
                set_u8(out, position, np.uint8(DOT))
                position = write_zeros(out, position + 1, 1)
            return position
        written = np.int64(0)
    elif point > 0:
        scale = np.uint64(1)
        for _ in range(-power):
            scale *= np.uint64(10)
        whole = digits // scale
        position = write_digits(out, position, whole, point)
        set_u8(out, position, np.uint8(DOT))
        position = write_digits(out, position + 1, digits - whole * scale, -power)
        written = -power
    else:
        set_u8(out, position, np.uint8(ZERO))
        set_u8(out, position + 1, np.uint8(DOT))
        position = write_digits(out, write_zeros(out, position + 2, -point), digits, count)
        written = -power
    if decimals > 0:
        if written == 0:
            set_u8(out, position, np.uint8(DOT))
            position += 1
        position = write_zeros(out, position, decimals - written)
    return position


@njit(nogil=True)
def write_scientific(extra, style, out, position, digits, count, point):
    scale = np.uint64(1)
    for _ in range(count - 1):
        scale *= np.uint64(10)
    first = digits // scale
    position = write_digits(out, position, first, 1)
    if count > 1:
        set_u8(out, position, np.uint8(DOT))
        position = write_digits(out, position + 1, digits - first * scale, count - 1)
    elif get_i64(extra, style + MANTISSA_ZERO):
        set_u8(out, position, np.uint8(DOT))
        position = write_zeros(out, position + 1, 1)
    set_u8(out, position, np.uint8(get_i64(extra, style + LETTER)))
    position += 1
    exponent = point - 1
    if exponent < 0:
        set_u8(out, position, np.uint8(MINUS))
        position += 1
        exponent = -exponent
    elif get_i64(extra, style + PLUS):
        set_u8(out, position, np.uint8(0x2B))
        position += 1
    size = max(digit_count(np.uint64(exponent)), get_i64(extra, style + EXPONENT_DIGITS))
    return write_digits(out, position, np.uint64(exponent), size)
