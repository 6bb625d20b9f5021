"""What a program of Protobuf's interpreter is made of. Shared by the kernels and their callers.

A program is blocks of instructions, one block for each message where it appears: its `HEAD`, then its fields by their
numbers. `extra` has lists of numbers that instructions name by position and length.
"""

from enum import IntEnum
from typing import Final

INSTRUCTION_BYTES: Final = 128
FRAME_WORDS: Final = 6
SCRATCH_WORDS: Final = 2
"""At the bottom of the stack: whether nothing but the bytes' form can set the columns apart from the value, and the
slot without room."""
MAX_CHECKED_LEVELS: Final = 40
"""Of messages that become text."""


class ProtoOp(IntEnum):
    """What the value of a field is. Widths of numbers are the slot's: an int32 may be in a column of longs."""

    HEAD = 0
    BOOL = 1
    INT32 = 2
    SINT32 = 3
    SFIXED32 = 4
    UINT32 = 5
    FIXED32 = 6
    INT64 = 7
    SINT64 = 8
    SFIXED64 = 9
    UINT64 = 10
    FIXED64 = 11
    FLOAT = 12
    DOUBLE = 13
    ENUM = 14
    STRING = 15
    BYTES = 16
    TIMESTAMP = 17
    PRESENT = 18  # a message without fields
    TEXT = 19  # a message that becomes text
    MESSAGE = 20
    WRAPPER = 21  # a message of one field, whose slot is the message's
    MAP = 22  # entries: messages whose fields are those of a map's column


class Label(IntEnum):
    """What an absent field is, and how many there can be."""

    OPTIONAL = 0
    IMPLICIT = 1  # absent is the default, and the default is absent
    REQUIRED = 2
    ALWAYS = 3  # of a map's entry: written even if it is the default
    REPEATED = 4
    PACKED = 5


class Word(IntEnum):
    """Places in an instruction. `SLOT` is filled by a value, `LIST` by all of them. `ALTERNATIVE`: the tag that means
    the same in another form, or -1. `SIBLINGS`: slots of the others of a oneof. `EMPTIES`: slots that get a null where
    there is no value; in a `HEAD` those that the message does not know. `BLOCK`: the message's, in a `HEAD` the number
    of its fields, in `TEXT` the one that checks it. `TEXT`: the number of the text's type. `ENUM`: position of its
    list."""

    OP = 0
    SLOT = 1
    TAG = 2
    LABEL = 3
    LIST = 4
    SIBLINGS_AT = 5
    SIBLINGS = 6
    EMPTIES_AT = 7
    EMPTIES = 8
    BLOCK = 9
    TEXT = 10
    WIDTH = 11
    NUMBER = 12
    ALTERNATIVE = 13
    ENUM = 14


class EnumWord(IntEnum):
    """Places in the list of an enum. Behind them are its numbers in order, their places among the column's symbols,
    and the number of each of those symbols, or `NO_NUMBER`. `DEFAULT`: the place of 0, or -1."""

    DEFAULT = 0
    NUMBERS = 1
    SYMBOLS = 2
    LISTS = 3


NO_NUMBER: Final = 1 << 40


class ProgramWord(IntEnum):
    """Places in the table of programs. `SLOT`: that of the struct which the value is, or -1: its fields are columns."""

    CODE = 0
    EXTRA = 1
    BLOCK = 2
    SLOT = 3
    EMPTIES_AT = 4
    EMPTIES = 5
    PREFIX_BYTES = 6
    PREFIX = 7  # of 16 bytes


PROGRAM_WORDS: Final = 9
MIN_TIMESTAMP_S: Final = -62_135_596_800
MAX_TIMESTAMP_S: Final = 253_402_300_799


class RowState(IntEnum):
    EMPTY = 0
    TYPED = 1
    EXACT = 2
    UNUSUAL = 3
