"""What the programs of JSON are made of, shared by the kernels and their callers.

One that reads, made of a schema, has an instruction for each type. One that writes, made of a template, has them in the
order of the text. Both have eight numbers to an instruction and further ones in `extra`; `texts` is the bytes that they
name by position and length.
"""

from enum import IntEnum
from typing import Final


class ReadOp(IntEnum):
    """With slot and two operands. Then come position and number, in `extra`, of the slots that are of other schemas (of
    an object, and of whatever is the first instruction), and of those that a null leaves empty."""

    OBJECT = 0  # members, number of them; its slot is -1 for that of the columns themselves
    LIST = 1  # instruction and slot of its items
    MAP = 2  # instruction of its values, slot of its keys
    STRING = 3
    LONG = 4
    DOUBLE = 5
    BOOLEAN = 6
    DATE = 7
    TIME = 8
    JSON = 9


MEMBER_WORDS: Final = 4
"""Of each member, in `extra`: its key's position and length in `texts`, instruction, slot. In front of the first stands
the position in `hints` of what member is expected first; behind that, what is expected after each."""
FRAME_WORDS: Final = 4


class WriteOp(IntEnum):
    """With slot and operands."""

    END = 0
    TEXT = 1  # position and length
    NULL = 2  # writes null and jumps if the slot is empty: where
    MEMBER = 3  # 1 if it is left out when empty, key with what is before it as the first and as another, where to jump
    OPEN = 4
    CLOSE = 5  # space of one that is not empty, of one that is
    LIST = 6  # space before the first, of an empty one: each position and length; first slot below; where it ends
    NEXT = 7  # space between, at the end: each position and length; where items begin
    STRING = 8  # style
    LONG = 9
    DOUBLE = 10  # style
    BOOLEAN = 11
    DATE = 12
    TIME = 13  # style
    JSON = 14


class EscapeStyle(IntEnum):
    """Numbers of a style of strings: which form a character below 128 is written in (in `texts`, a byte for each), and
    for all others."""

    FORMS = 0
    IS_PLAIN = 1  # only what has to be escaped is, and perhaps DEL
    IS_ASCII = 2  # all others are
    LINE_ENDS = 3  # those of Unicode are
    UPPER = 4  # hexadecimal digits are


ESCAPE_WORDS: Final = 5
RAW_FORM: Final = 0
CODE_FORM: Final = 1
"""Any other form is the character behind the backslash."""


class NumberStyle(IntEnum):
    """Numbers of a style of doubles. With `DECIMALS`, unless negative, there are so many of them, and never an
    exponent. Otherwise it has none if the decimal point's place is above `LOWEST` and not above `HIGHEST`."""

    LOWEST = 0
    HIGHEST = 1
    POINT_ZERO = 2  # a whole number has `.0`
    LETTER = 3
    PLUS = 4
    EXPONENT_DIGITS = 5
    MANTISSA_ZERO = 6  # a mantissa of one digit has `.0`
    DECIMALS = 7


class TimeStyle(IntEnum):
    """Numbers of a style of times."""

    SEPARATOR = 0
    FRACTION = 1  # so many digits, or a `FractionStyle`
    OFFSET_MINUTES = 2
    ZONE = 3  # position and length
    ZONE_BYTES = 4


class FractionStyle(IntEnum):
    BY_THREE = 10  # 0, 3 or 6 digits
    SIX = 11  # 0 or 6
    TRIMMED = 12  # without zeros behind


MAX_JSON_LEVELS: Final = 128
"""Of objects and arrays in each other. A text with more of them stays bytes."""
LOWEST_POWER: Final = -342
HIGHEST_POWER: Final = 324
"""Of ten, that the tables have."""
LONGEST_NUMBER: Final = 400
LONGEST_TIME: Final = 64
"""What one takes at most, in bytes."""
