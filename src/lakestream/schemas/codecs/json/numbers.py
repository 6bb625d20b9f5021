"""How numbers are written in JSON, and the powers of ten that reading and writing them takes."""

import math
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lakestream.schemas.codecs.kernels.json.layout import HIGHEST_POWER, LOWEST_POWER


class NumberForm(NamedTuple):
    """Numbers are the fewest digits that only they are nearest to. With the decimal point above the place `lowest` and
    not above `highest` (1 is behind the first digit) they have no exponent, and those that are whole end in `whole`:
    `.0`, or nothing. The others have one digit before the point (`single` behind it if it is the only one), the text
    `mark`, and at least so many `exponent_digits`. With `decimals`, unless negative, there are so many, and nothing of
    that counts."""

    lowest: int = 0
    highest: int = 0
    whole: str = ""
    mark: str = "e"
    exponent_digits: int = 1
    single: str = ""
    decimals: int = -1


NUMBER_FORMS: Final = (
    NumberForm(-4, 16, ".0", "e+", 2),  # Python
    NumberForm(-6, 21, "", "e+", 1),  # JavaScript, Go
    NumberForm(-5, 16, ".0", "e", 1),  # Rust, and what is made of it
    NumberForm(-3, 7, ".0", "E", 1, ".0"),  # Java
    NumberForm(-4, 15, "", "E+", 2),  # .NET
    NumberForm(-4, 16, ".0", "e+", 2, ".0"),  # Ruby
    NumberForm(-5, 16, ".0", "e+", 1),  # Rust since 2025
)
"""Of producers. The first ones are assumed where a number could be written by several."""

_FIXED: Final = re.compile(r"-?(?:0|[1-9][0-9]*)\.([0-9]+)")
MOST_DECIMALS: Final = 25


def forms_of(text: str) -> Iterator[NumberForm]:
    """Those in which the number is written like that, the most likely first."""
    number = float(text)
    if not math.isfinite(number):
        return
    yield from (form for form in NUMBER_FORMS if written(form, number) == text)
    decimals = _FIXED.fullmatch(text)
    if decimals is not None and len(decimals[1]) <= MOST_DECIMALS:
        yield NumberForm(decimals=len(decimals[1]))


def written(form: NumberForm, number: float) -> str:
    """Empty: the form does not tell the number."""
    sign = "-" if math.copysign(1, number) < 0 else ""
    digits, point = _digits(abs(number))
    power = point - len(digits)
    if form.decimals >= 0:
        if power + form.decimals < 0 or point > MOST_DECIMALS:
            return ""
    elif not form.lowest < point <= form.highest:
        mantissa = f"{digits[0]}.{digits[1:]}" if len(digits) > 1 else f"{digits}{form.single}"
        mark = form.mark if point > 0 else f"{form.mark[0]}-"
        return f"{sign}{mantissa}{mark}{abs(point - 1):0{form.exponent_digits}}"
    if power >= 0:
        whole, rest = digits + "0" * power, ""
    elif point > 0:
        whole, rest = digits[:point], digits[point:]
    else:
        whole, rest = "0", "0" * -point + digits
    if form.decimals >= 0:
        rest = rest.ljust(form.decimals, "0")
        return f"{sign}{whole}.{rest}" if rest else f"{sign}{whole}"
    return f"{sign}{whole}.{rest}" if rest else f"{sign}{whole}{form.whole}"


def _digits(number: float) -> tuple[str, int]:
    """The fewest, without zeros behind, and where the point is."""
    mantissa, _, exponent = f"{number!r}".partition("e")
    whole, _, rest = mantissa.partition(".")
    found = (whole + rest).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + rest) - len(found))
    return found.rstrip("0") or "0", point if found else 1


def _power_words() -> Iterator[int]:
    for power in range(LOWEST_POWER, HIGHEST_POWER + 1):
        if power >= 0:
            number = 10**power
            shift = number.bit_length() - 128
            below = number >> shift if shift >= 0 else number << -shift
            is_whole = shift <= 0 or below << shift == number
        else:
            number = 10**-power
            shift = number.bit_length() + 127
            below, rest = divmod(1 << shift, number)
            if below >> 128:
                below, rest = divmod(1 << (shift - 1), number)
            is_whole = rest == 0
            assert below >> 127 == 1
        above = below if is_whole else below + 1
        reading = below if power >= 0 else above
        for word in (reading >> 64, reading, above >> 64, above):
            yield word & ((1 << 64) - 1)


POWERS: Final[npt.NDArray[np.uint64]] = np.array([*_power_words()], np.uint64)
"""As `kernels.json.doubles` wants them."""
