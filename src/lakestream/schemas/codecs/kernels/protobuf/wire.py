# mypy: ignore-errors
"""Protobuf's wire format piece by piece. Readers return the position after what they read, or -1."""

import numpy as np
from numba import njit

from lakestream.records.kernels.intrinsics import get_i64, get_u8, set_i64, set_u8
from lakestream.records.kernels.wire import write_unsigned
from lakestream.schemas.codecs.layout import STACK_WORDS
from lakestream.schemas.codecs.protobuf.layout import INSTRUCTION_BYTES, Word

TAG, NUMBER, ALTERNATIVE = int(Word.TAG), int(Word.NUMBER), int(Word.ALTERNATIVE)
VARINT, FIXED64, LENGTH, GROUP, GROUP_END, FIXED32 = 0, 1, 2, 3, 4, 5
MAX_TAG = (1 << 32) - 1
NEAR = 8


@njit(nogil=True)
def read_long_varint(buffer, position, end):
    value = np.uint64(0)
    shift = np.uint64(0)
    while position < end and shift < 70:
        byte = np.uint64(get_u8(buffer, position))
        position += 1
        if shift == 63 and byte > 1:
            return np.int64(0), np.int64(-1)
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < 0x80:
            return np.int64(value), np.int64(position)
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@njit(nogil=True, inline="always")
def read_varint(buffer, position, end):
    """64 bits as a signed number."""
    if position < end:
        byte = np.int64(get_u8(buffer, position))
        if byte < 0x80:
            return byte, position + 1
    return read_long_varint(buffer, position, end)


@njit(nogil=True, inline="always")
def write_varint(buffer, position, number):
    value = np.uint64(number)
    if value < 0x80:
        set_u8(buffer, position, np.uint8(value))
        return position + 1
    return write_unsigned(buffer, position, value)


@njit(nogil=True, inline="always")
def read_tag(buffer, position, end):
    """(tag, position after): -1 also where no field can have that number."""
    tag, position = read_varint(buffer, position, end)
    if tag < 8 or tag > MAX_TAG:
        return tag, np.int64(-1)
    return tag, position


@njit(nogil=True, inline="always")
def read_length(buffer, position, end):
    """(length of what follows, position after): there are so many bytes."""
    length, position = read_varint(buffer, position, end)
    if position < 0 or length < 0 or length > end - position:
        return np.int64(0), np.int64(-1)
    return length, position


@njit(nogil=True, inline="always")
def instruction(code, pc):
    return code + pc * INSTRUCTION_BYTES


@njit(nogil=True)
def find_field(code, first, stop, pc, number):
    """The instruction of the field with that number, or -1. Fast from `pc` on, where it is in values that are in
    order."""
    near = pc
    while near < stop and near < pc + NEAR:
        there = get_i64(instruction(code, near), NUMBER)
        if there == number:
            return near
        if there > number:
            break
        near += 1
    low, high = first, stop
    while low < high:
        middle = (low + high) >> 1
        there = get_i64(instruction(code, middle), NUMBER)
        if there == number:
            return middle
        if there < number:
            low = middle + 1
        else:
            high = middle
    return np.int64(-1)


@njit(nogil=True)
def skip_field(buffer, position, end, tag, stack, depth):
    """Behind the value of a field that nobody knows. Groups inside each other use the stack from `depth`."""
    bottom = depth
    while True:
        wire = tag & 7
        if wire == VARINT:
            _, position = read_varint(buffer, position, end)
        elif wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
            position = position + size if size <= end - position else np.int64(-1)
        elif wire == LENGTH:
            length, position = read_length(buffer, position, end)
            if position >= 0:
                position += length
        elif wire == GROUP:
            if depth >= STACK_WORDS:
                return np.int64(-1)
            set_i64(stack, depth, tag >> 3)
            depth += 1
        elif wire == GROUP_END and depth > bottom and get_i64(stack, depth - 1) == tag >> 3:
            depth -= 1
        else:
            return np.int64(-1)
        if position < 0 or depth == bottom:
            return position
        tag, position = read_tag(buffer, position, end)
        if position < 0:
            return np.int64(-1)
