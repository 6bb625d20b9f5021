# mypy: ignore-errors
"""Columns to Protobuf values in their canonical form: fields by their numbers, each once, defaults left out."""

import numpy as np
from numba import njit

from lakestream.records.kernels.intrinsics import copy_bytes, get_i32, get_i64, get_u8, set_i32, set_i64, set_u8
from lakestream.schemas.codecs.kernels.encode import is_there
from lakestream.schemas.codecs.kernels.pieces import same_bytes
from lakestream.schemas.codecs.kernels.protobuf.decode import (
    ALWAYS,
    BLOCK,
    CODE,
    EXTRA,
    IMPLICIT,
    LABEL,
    LIST,
    MAP,
    OP,
    REPEATED,
    REQUIRED,
    ROOT_SLOT,
    ROW,
    SIBLINGS,
    SIBLINGS_AT,
    SLOT,
    START,
    TEXT,
)
from lakestream.schemas.codecs.kernels.protobuf.leaves import FULL, IMPOSSIBLE, TOO_LONG, is_default, write_leaf
from lakestream.schemas.codecs.kernels.protobuf.wire import TAG, instruction, write_varint
from lakestream.schemas.codecs.kernels.slots import OFFSETS, slot_at
from lakestream.schemas.codecs.layout import STACK_WORDS
from lakestream.schemas.codecs.protobuf.layout import FRAME_WORDS, PROGRAM_WORDS, ProgramWord, RowState

PREFIX_BYTES, PREFIX = int(ProgramWord.PREFIX_BYTES), int(ProgramWord.PREFIX)
TYPED, EXACT = int(RowState.TYPED), int(RowState.EXACT)


@njit(nogil=True)
def close_length(out, begin, position, limit):
    """Writes before the bytes from `begin` on how many there are, where one byte was left for that."""
    length = position - begin
    if length < 0x80:
        set_u8(out, begin - 1, np.uint8(length))
        return position
    more = np.int64(1)
    while length >> (7 * (more + 1)) > 0:
        more += 1
    if position + more > limit:
        return np.int64(TOO_LONG)
    index = length
    while index > 0:
        index -= 1
        set_u8(out, begin + more + index, get_u8(out, begin + index))
    write_varint(out, begin - 1, length)
    return position + more


@njit(nogil=True)
def write_packed(op, at, slot, first, stop, extra, out, position, limit):
    begin = position + 1
    position = begin
    for place in range(first, stop):
        if position > limit:
            return np.int64(TOO_LONG)
        if not is_there(slot, place):
            return np.int64(IMPOSSIBLE)
        position = write_leaf(op, at, slot, place, extra, out, position, limit)
        if position < 0:
            return position
    if position > limit:
        return np.int64(TOO_LONG)
    return close_length(out, begin, position, limit)


@njit(nogil=True)
def has_sibling(at, extra, slots, place):
    position = get_i64(at, SIBLINGS_AT)
    for index in range(get_i64(at, SIBLINGS)):
        if is_there(slot_at(slots, get_i64(extra, position + index)), place):
            return True
    return False


@njit(nogil=True)
def encode_message(code, extra, block, slots, stack, place, out, position, limit):
    """The value in entry `place` of its slots, at out[position]. The position after it, `IMPOSSIBLE` or `TOO_LONG`. Up
    to `SLACK_BYTES` behind the limit may be overwritten."""
    depth = np.int64(0)
    pc = block + 1
    stop = pc + get_i64(instruction(code, block), BLOCK)
    item, items = np.int64(0), np.int64(0)
    while True:
        if position > limit:
            return np.int64(TOO_LONG)
        if pc == stop:
            if depth == 0:
                return position
            depth -= FRAME_WORDS
            position = close_length(out, get_i64(stack, depth + 3), position, limit)
            if position < 0:
                return position
            pc, stop, place = get_i64(stack, depth), get_i64(stack, depth + 1), get_i64(stack, depth + 2)
            item, items = get_i64(stack, depth + 4), get_i64(stack, depth + 5)
            if item == items:
                pc += 1
                continue
        at = instruction(code, pc)
        op, label = get_i64(at, OP), get_i64(at, LABEL)
        slot = slot_at(slots, get_i64(at, SLOT))
        if label >= REPEATED:
            if item == items:
                whole = slot_at(slots, get_i64(at, LIST))
                if is_there(whole, place):
                    offsets = get_i64(whole, OFFSETS)
                    item, items = np.int64(get_i32(offsets, place)), np.int64(get_i32(offsets, place + 1))
                if item >= items:
                    item, items = np.int64(0), np.int64(0)
                    pc += 1
                    continue
            if op < TEXT:
                if label > REPEATED:
                    position = write_varint(out, position, get_i64(at, TAG))
                    position = write_packed(op, at, slot, item, items, extra, out, position, limit)
                    if position < 0:
                        return position
                else:
                    while item < items:
                        if position > limit:
                            return np.int64(TOO_LONG)
                        if not is_there(slot, item):
                            return np.int64(IMPOSSIBLE)
                        position = write_varint(out, position, get_i64(at, TAG))
                        position = write_leaf(op, at, slot, item, extra, out, position, limit)
                        if position < 0:
                            return position
                        item += 1
                item, items = np.int64(0), np.int64(0)
                pc += 1
                continue
            entry = item
            item += 1
        else:
            if not is_there(slot, place):
                if label in (REQUIRED, ALWAYS):
                    return np.int64(IMPOSSIBLE)
                pc += 1
                continue
            if label == IMPLICIT and is_default(op, at, slot, place, extra):
                pc += 1
                continue
            if has_sibling(at, extra, slots, place):
                return np.int64(IMPOSSIBLE)
            if op < TEXT:
                position = write_varint(out, position, get_i64(at, TAG))
                position = write_leaf(op, at, slot, place, extra, out, position, limit)
                if position < 0:
                    return position
                pc += 1
                continue
            entry = place
        if op == TEXT or (op != MAP and not is_there(slot, entry)) or depth + FRAME_WORDS > STACK_WORDS:
            return np.int64(IMPOSSIBLE)
        position = write_varint(out, position, get_i64(at, TAG)) + 1
        set_i64(stack, depth, pc)
        set_i64(stack, depth + 1, stop)
        set_i64(stack, depth + 2, place)
        set_i64(stack, depth + 3, position)
        set_i64(stack, depth + 4, item)
        set_i64(stack, depth + 5, items)
        depth += FRAME_WORDS
        place = entry
        item, items = np.int64(0), np.int64(0)
        pc = get_i64(at, BLOCK) + 1
        stop = pc + get_i64(instruction(code, get_i64(at, BLOCK)), BLOCK)


@njit(nogil=True)
def compare_protobuf(programs, which, slots, stack, begins, ends, data, stop, states, spare):
    """Encodes what was decoded: states[row] stays EXACT where that gives the value's bytes, all of them, and becomes
    TYPED where it does not. `spare` has room for the longest value and `SLACK_BYTES`."""
    for row in range(stop):
        if get_u8(states, row) != EXACT:
            continue
        program = programs + np.int64(get_i32(which, row)) * (PROGRAM_WORDS * 8)
        begin = get_i64(begins, row)
        length = get_i64(ends, row) - begin
        size = encode_message(
            get_i64(program, CODE),
            get_i64(program, EXTRA),
            get_i64(program, START),
            slots,
            stack,
            np.int64(row),
            spare,
            np.int64(0),
            length,
        )
        if size != length or not same_bytes(spare, np.int64(0), data, begin, length):
            set_u8(states, row, np.uint8(TYPED))
    return np.int64(0)


@njit(nogil=True)
def chosen_program(programs, choices, first, count, slots, row):
    """Of those of a schema, the one whose struct is there; else the one whose fields are columns. -1: none, or more
    than one."""
    found, plain = np.int64(-1), np.int64(-1)
    for index in range(first, first + count):
        number = np.int64(get_i32(choices, index))
        root = get_i64(programs + number * (PROGRAM_WORDS * 8), ROOT_SLOT)
        if root < 0:
            plain = number
        elif is_there(slot_at(slots, root), row):
            if found >= 0:
                return np.int64(-1)
            found = number
    return found if found >= 0 else plain


@njit(nogil=True)
def encode_protobuf(
    programs,
    choices,
    groups,
    which,
    slots,
    stack,
    raw_offsets,
    raw_data,
    raw_valid,
    stop,
    out,
    limit,
    ends,
    valid,
    cursor,
):
    """The values of the rows from cursor[ROW] on, at ends[row]: which[row] is the place of its schema in `groups` (the
    first of its programs in `choices`, and their number), negative for raw bytes. Where the columns hold no value the
    row has none of its bytes, and its checksum tells. FULL: the next one does not fit."""
    row = get_i64(cursor, ROW)
    while row < stop:
        position = np.int64(get_i32(ends, row))
        schema = np.int64(get_i32(which, row))
        there = np.uint8(1)
        after = position
        if schema >= 0:
            first, count = np.int64(get_i32(groups, 2 * schema)), np.int64(get_i32(groups, 2 * schema + 1))
            number = chosen_program(programs, choices, first, count, slots, row)
            if number >= 0:
                program = programs + number * (PROGRAM_WORDS * 8)
                prefix = get_i64(program, PREFIX_BYTES)
                if limit - position < prefix:
                    after = np.int64(TOO_LONG)
                else:
                    copy_bytes(out, position, program + 8 * PREFIX, np.int64(0), prefix)
                    after = encode_message(
                        get_i64(program, CODE),
                        get_i64(program, EXTRA),
                        get_i64(program, START),
                        slots,
                        stack,
                        row,
                        out,
                        position + prefix,
                        limit,
                    )
                if after == TOO_LONG:
                    set_i64(cursor, ROW, row)
                    return np.int64(FULL)
                if after == IMPOSSIBLE:
                    after = position
        else:
            there = get_u8(raw_valid, row)
            start = np.int64(get_i32(raw_offsets, row))
            length = np.int64(get_i32(raw_offsets, row + 1)) - start if there else np.int64(0)
            if length > limit - position:
                set_i64(cursor, ROW, row)
                return np.int64(FULL)
            copy_bytes(out, position, raw_data, start, length)
            after = position + length
        set_u8(valid, row, there)
        set_i32(ends, row + 1, np.int32(after))
        row += 1
    set_i64(cursor, ROW, row)
    return np.int64(0)
