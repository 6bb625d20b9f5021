# mypy: ignore-errors
"""Checks a value that fills no slots: what is to become text."""

import numpy as np
from numba import njit

from lakestream.records.kernels.intrinsics import get_i64, get_u8, set_i64
from lakestream.schemas.codecs.kernels.pieces import is_text, read_long
from lakestream.schemas.codecs.layout import INSTRUCTION_WORDS, MAX_EMPTY_ITEMS, STACK_WORDS, Op

SKIP_BOOLEAN, SKIP_INT, SKIP_LONG = int(Op.SKIP_BOOLEAN), int(Op.SKIP_INT), int(Op.SKIP_LONG)
SKIP_BYTES, SKIP_STRING, SKIP_FIXED = int(Op.SKIP_BYTES), int(Op.SKIP_STRING), int(Op.SKIP_FIXED)
SKIP_ENUM, SKIP_UNION = int(Op.SKIP_ENUM), int(Op.SKIP_UNION)
SKIP_ARRAY, SKIP_NEXT = int(Op.SKIP_ARRAY), int(Op.SKIP_NEXT)
JUMP, CALL, RETURN = int(Op.JUMP), int(Op.CALL), int(Op.RETURN)
INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1
LONGEST = 1 << 40


@njit(nogil=True)
def read_count(buffer, position, end, least, budget):
    """(items of a block, position after, what is left of the budget): items that take no bytes are counted against it.
    Position -1: the block claims more than there is."""
    count, position = read_long(buffer, position, end)
    if position < 0 or count < -LONGEST or count > LONGEST:
        return np.int64(0), np.int64(-1), budget
    if count < 0:
        count = -count
        size, position = read_long(buffer, position, end)
        if position < 0 or size < 0 or size > end - position:
            return np.int64(0), np.int64(-1), budget
    if least > 0:
        if count > (end - position) // least:
            return np.int64(0), np.int64(-1), budget
    else:
        budget -= count
        if budget < 0:
            return np.int64(0), np.int64(-1), budget
    return count, position, budget


@njit(nogil=True)
def skip_value(code, extra, stack, depth, pc, buffer, position, end):
    """The position after the value that the instructions from `pc` on describe, or -1. Uses the stack from `depth`."""
    budget = np.int64(MAX_EMPTY_ITEMS)
    bottom = depth
    while True:
        at = code + pc * (INSTRUCTION_WORDS * 8)
        op = get_i64(at, 0)
        pc += 1
        if op == SKIP_BOOLEAN:
            if position >= end or get_u8(buffer, position) > 1:
                return np.int64(-1)
            position += 1
        elif op in (SKIP_INT, SKIP_LONG):
            number, position = read_long(buffer, position, end)
            if position < 0 or (op == SKIP_INT and (number < INT_MIN or number > INT_MAX)):
                return np.int64(-1)
        elif op in (SKIP_BYTES, SKIP_STRING):
            length, position = read_long(buffer, position, end)
            if position < 0 or length < 0 or length > end - position:
                return np.int64(-1)
            if op == SKIP_STRING and not is_text(buffer, position, position + length):
                return np.int64(-1)
            position += length
        elif op == SKIP_FIXED:
            size = get_i64(at, 2)
            if size > end - position:
                return np.int64(-1)
            position += size
        elif op == SKIP_ENUM:
            number, position = read_long(buffer, position, end)
            if position < 0 or number < 0 or number >= get_i64(at, 2):
                return np.int64(-1)
        elif op == SKIP_UNION:
            number, position = read_long(buffer, position, end)
            if position < 0 or number < 0 or number >= get_i64(at, 2):
                return np.int64(-1)
            pc = get_i64(extra, get_i64(at, 3) + number)
        elif op == JUMP:
            pc = get_i64(at, 2)
        elif op == SKIP_ARRAY:
            count, position, budget = read_count(buffer, position, end, get_i64(at, 2), budget)
            if position < 0 or depth >= STACK_WORDS:
                return np.int64(-1)
            if count == 0:
                pc = get_i64(at, 3)
            else:
                set_i64(stack, depth, count)
                depth += 1
        elif op == SKIP_NEXT:
            left = get_i64(stack, depth - 1) - 1
            if left == 0:
                left, position, budget = read_count(buffer, position, end, get_i64(at, 2), budget)
                if position < 0:
                    return np.int64(-1)
            if left == 0:
                depth -= 1
            else:
                set_i64(stack, depth - 1, left)
                pc = get_i64(at, 3)
        elif op == CALL:
            if depth >= STACK_WORDS:
                return np.int64(-1)
            set_i64(stack, depth, pc)
            depth += 1
            pc = get_i64(at, 2)
        elif op == RETURN:
            if depth == bottom:
                return position
            depth -= 1
            pc = get_i64(stack, depth)
        else:
            return np.int64(-1)
