"""What a program of the value interpreters is made of, and where things are in the tables that they work on. Shared by
the kernels and their callers.

A program is a list of instructions of eight numbers: what to do, with which slot, and up to six operands. A slot is the
memory of one column: of a nested one its children's follow it, in the order of the columns. What is a list of numbers
(slots to leave empty, where the branches of a union begin, symbols of an enum) lies in a second table, `extra`.
"""

from enum import IntEnum
from typing import Final

INSTRUCTION_WORDS: Final = 8
SLOT_WORDS: Final = 8
STACK_WORDS: Final = 256
SLACK_BYTES: Final = 64
"""Behind the limit of what is encoded: numbers are written first, and then found to be too long."""
MAX_EMPTY_ITEMS: Final = 65_536
"""Of one value, in arrays whose items take no bytes: nothing else bounds their number."""
MAX_UNIQUE_KEYS: Final = 64
"""Of a map whose keys are compared with each other. A larger one keeps its bytes."""


class Op(IntEnum):
    """With slot and operands. `empty`: position and number, in `extra`, of slots that stay empty.

    Those that begin with SKIP check what is there and fill nothing: of what becomes text (`JSON`)."""

    END = 0
    BOOLEAN = 1
    INT = 2
    INT_AS_LONG = 3
    LONG = 4
    MILLIS = 5  # a long that is stored times 1,000
    FLOAT = 6
    DOUBLE = 7
    BYTES = 8
    STRING = 9
    FIXED = 10  # size
    UUID = 11  # 16 bytes that are stored as text
    ENUM = 12  # symbols, position of theirs in the column, number of the column's, position of the way back
    DECIMAL = 13  # size or -1, one more than the largest absolute value: high and low half
    STRUCT = 15
    EMPTY = 16  # empty
    OPTION = 17  # null's branch, the other, where the value ends, empty
    UNION = 18  # null's branch or -1, branches, position of (begin, slot, empty) of each, its end, empty
    JUMP = 19  # where
    ARRAY = 20  # first child's slot, where it ends, least bytes of an item
    NEXT = 21  # first child's slot, where the items begin, least bytes of an item, 1 for a map
    JSON = 22  # where the skipping begins, number of the program
    SKIP_BOOLEAN = 30
    SKIP_INT = 31
    SKIP_LONG = 32
    SKIP_BYTES = 33
    SKIP_STRING = 34
    SKIP_FIXED = 35  # size
    SKIP_ENUM = 36  # symbols
    SKIP_UNION = 37  # branches, position of where each begins
    SKIP_ARRAY = 38  # least bytes of an item, where it ends
    SKIP_NEXT = 39  # least bytes of an item, where the items begin
    CALL = 40  # where
    RETURN = 41


class SlotField(IntEnum):
    """Of the numbers of a slot: addresses of its arrays, or 0, and what they hold. `WIDTH`: bytes of an entry of
    `DATA`; 0: it has none, or entries of any length at `OFFSETS`. `BYTES` are those that are used."""

    VALID = 0
    DATA = 1
    OFFSETS = 2
    COUNT = 3
    CAPACITY = 4
    BYTES = 5
    BYTE_CAPACITY = 6
    WIDTH = 7


class ValueStatus(IntEnum):
    DONE = 0
    MALFORMED = -1
    FULL = -2


PARENT_WORDS: Final = 2
"""Of each slot: its parent, or -1, and whether that has many of it in one entry."""
EMPTY_WORDS: Final = 2
BRANCH_WORDS: Final = 4
JSON_PREFIX_BYTES: Final = 4
"""The number of the program, little-endian, before the bytes that are to become text."""
CANONICAL_NAN_32: Final = 0x7FC00000
CANONICAL_NAN_64: Final = 0x7FF8000000000000
