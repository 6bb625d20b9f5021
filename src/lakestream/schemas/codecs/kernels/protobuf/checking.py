# mypy: ignore-errors
"""Checks a message that fills no slots: what is to become text."""

from numba import njit

from lakestream.records.kernels.intrinsics import get_i64, set_i64
from lakestream.schemas.codecs.kernels.pieces import is_text
from lakestream.schemas.codecs.kernels.protobuf.leaves import STRING
from lakestream.schemas.codecs.kernels.protobuf.wire import (
    ALTERNATIVE,
    LENGTH,
    TAG,
    find_field,
    instruction,
    read_length,
    read_tag,
    read_varint,
    skip_field,
)
from lakestream.schemas.codecs.layout import STACK_WORDS
from lakestream.schemas.codecs.protobuf.layout import MAX_CHECKED_LEVELS, Label, ProtoOp, Word

OP, LABEL, BLOCK = int(Word.OP), int(Word.LABEL), int(Word.BLOCK)
MESSAGE, PACKED = int(ProtoOp.MESSAGE), int(Label.PACKED)
CHECK_WORDS = 2


@njit(nogil=True)
def check_message(code, block, stack, depth, buffer, position, end):
    """Whether the bytes are a message of the block, whatever is unknown in it. Uses the stack from `depth`."""
    bottom = depth
    while True:
        if position == end:
            if depth == bottom:
                return True
            depth -= CHECK_WORDS
            block, end = get_i64(stack, depth), get_i64(stack, depth + 1)
            continue
        tag, position = read_tag(buffer, position, end)
        if position < 0:
            return False
        count = get_i64(instruction(code, block), BLOCK)
        pc = find_field(code, block + 1, block + 1 + count, block + 1, tag >> 3)
        if pc < 0:
            position = skip_field(buffer, position, end, tag, stack, depth)
            if position < 0:
                return False
            continue
        at = instruction(code, pc)
        op = get_i64(at, OP)
        if tag != get_i64(at, TAG) and tag != get_i64(at, ALTERNATIVE):
            return False
        if op == MESSAGE:
            length, position = read_length(buffer, position, end)
            if position < 0 or depth + CHECK_WORDS > STACK_WORDS or depth - bottom >= CHECK_WORDS * MAX_CHECKED_LEVELS:
                return False
            set_i64(stack, depth, block)
            set_i64(stack, depth + 1, end)
            depth += CHECK_WORDS
            block, end = get_i64(at, BLOCK), position + length
        elif tag & 7 == LENGTH:
            length, position = read_length(buffer, position, end)
            if position < 0 or (op == STRING and not is_text(buffer, position, position + length)):
                return False
            after = position + length
            if get_i64(at, LABEL) == PACKED:
                unpacked = get_i64(at, ALTERNATIVE) if get_i64(at, TAG) == tag else get_i64(at, TAG)
                if not check_packed(buffer, position, after, unpacked & 7):
                    return False
            position = after
        else:
            position = skip_field(buffer, position, end, tag, stack, depth)
            if position < 0:
                return False


@njit(nogil=True)
def check_packed(buffer, position, end, wire):
    if wire != 0:
        return (end - position) % (8 if wire == 1 else 4) == 0
    while position < end:
        _, position = read_varint(buffer, position, end)
        if position < 0:
            return False
    return True
