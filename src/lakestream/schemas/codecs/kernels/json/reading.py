# mypy: ignore-errors
"""Texts in JSON to columns: one interpreter for the programs of all schemas, whatever style a text is written in.

A text that is no JSON, or not of its schema's types, leaves no trace but an empty row. What it says under keys that the
schema does not have is only looked at: such a row is not as good as its text.
"""

import numpy as np
from numba import njit

from lakestream.records.kernels.intrinsics import get_i32, get_i64, get_u8, set_i32, set_i64, set_u8
from lakestream.schemas.codecs.kernels.json.layout import FRAME_WORDS, MEMBER_WORDS, ReadOp
from lakestream.schemas.codecs.kernels.json.scalars import DONE, FULL, MALFORMED, add_scalar, add_string
from lakestream.schemas.codecs.kernels.json.scanning import (
    CLOSE_LIST,
    CLOSE_OBJECT,
    COMMA,
    HAS_ESCAPES,
    OPEN_LIST,
    OPEN_OBJECT,
    QUOTE,
    after_colon,
    after_space,
    string_end,
    value_end,
    word_end,
)
from lakestream.schemas.codecs.kernels.json.strings import is_key
from lakestream.schemas.codecs.kernels.pieces import has_unique_keys, same_bytes
from lakestream.schemas.codecs.kernels.slots import (
    CAPACITY,
    COUNT,
    OFFSETS,
    added,
    leave_empty,
    slot_at,
    take_back,
)
from lakestream.schemas.codecs.layout import INSTRUCTION_WORDS, STACK_WORDS

OBJECT, LIST, MAP, STRING = int(ReadOp.OBJECT), int(ReadOp.LIST), int(ReadOp.MAP), int(ReadOp.STRING)
NODE, PLACE, SEEN, HINT = range(FRAME_WORDS)
"""Of a frame of the stack: the instruction of what is open, the place of its entry, how many members were seen, where
the hint is what comes next."""
VALUE, KEY, AFTER = 0, 1, 2
"""What is next: a value, a member's key, or what is behind a value."""
ROW, SLOT, EMPTY_COUNT, IS_ENTRIES = 0, 1, 2, 3
"""Places in the cursor, as of `kernels.decode`."""


@njit(nogil=True)
def find_member(extra, texts, members, count, hints, hint, spare, buffer, position, end):
    """(which member has the key at `position`, behind its quote; where its closing quote is): -1 for none, and no
    position where that is no string."""
    expected = get_i64(hints, hint)
    if expected < count:
        member = members + expected * MEMBER_WORDS
        length = get_i64(extra, member + 1)
        is_long_enough = end - position > length and get_u8(buffer, position + length) == QUOTE
        if is_long_enough and same_bytes(texts, get_i64(extra, member), buffer, position, length):
            return expected, position + length
    close, found = string_end(buffer, position, end)
    if close < 0:
        return np.int64(-1), close
    for step in range(count):
        which = expected + step
        if which >= count:
            which -= count
        member = members + which * MEMBER_WORDS
        at, length = get_i64(extra, member), get_i64(extra, member + 1)
        if is_key(texts, at, length, spare, buffer, position, close, found & HAS_ESCAPES):
            set_i64(hints, hint, which)
            return which, close
    return np.int64(-1), close


@njit(nogil=True)
def read_value(code, extra, texts, hints, slots, stack, powers, spare, buffer, position, end, row):
    """One text, with the white space around it, into row `row` of its slots. (status, the slot without room or whether
    there is nothing in it that the columns do not have)."""
    node = np.int64(0)
    depth = np.int64(0)
    is_plain = np.int64(1)
    state = VALUE
    position = after_space(buffer, position, end)
    if get_i64(code, 0) != OBJECT:
        full = leave_empty(slots, extra, get_i64(code, 4), get_i64(code, 5))
        if full >= 0:
            return FULL, full
    while True:
        if position >= end:
            if state == AFTER and depth == 0:
                return DONE, is_plain
            return MALFORMED, np.int64(0)
        byte = get_u8(buffer, position)
        if state == VALUE:
            at = code + node * (INSTRUCTION_WORDS * 8)
            op = get_i64(at, 0)
            number = get_i64(at, 1)
            slot = slot_at(slots, number)
            state = AFTER
            if byte == 0x6E:
                position = word_end(buffer, position, end)
                if position < 0 or number < 0:
                    return MALFORMED, np.int64(0)
                full = leave_empty(slots, extra, get_i64(at, 6), get_i64(at, 7))
                if full >= 0:
                    return FULL, full
            elif op >= STRING:
                status, position = add_scalar(op, slot, powers, buffer, position, end)
                if status != DONE:
                    return status, number
            else:
                if byte != (OPEN_LIST if op == LIST else OPEN_OBJECT) or (depth + 1) * FRAME_WORDS > STACK_WORDS:
                    return MALFORMED, np.int64(0)
                frame = depth * FRAME_WORDS
                depth += 1
                set_i64(stack, frame + NODE, at)
                position = after_space(buffer, position + 1, end)
                if op == OBJECT:
                    place = row
                    if number >= 0:
                        place = added(slot)
                        if place < 0:
                            return FULL, number
                    full = leave_empty(slots, extra, get_i64(at, 4), get_i64(at, 5))
                    if full >= 0:
                        return FULL, full
                    set_i64(stack, frame + PLACE, place)
                    set_i64(stack, frame + SEEN, np.int64(0))
                    set_i64(stack, frame + HINT, get_i64(extra, get_i64(at, 2) - 1))
                close = CLOSE_LIST if op == LIST else CLOSE_OBJECT
                if position >= end or get_u8(buffer, position) != close:
                    state = VALUE if op == LIST else KEY
                    if op == LIST:
                        node = get_i64(at, 2)
        elif state == KEY:
            if byte != QUOTE:
                return MALFORMED, np.int64(0)
            frame = (depth - 1) * FRAME_WORDS
            at = get_i64(stack, frame + NODE)
            if get_i64(at, 0) == MAP:
                keys = get_i64(at, 3)
                status, position = add_string(slot_at(slots, keys), buffer, position + 1, end)
                if status != DONE:
                    return status, keys
                node = get_i64(at, 2)
                position = after_colon(buffer, position, end)
                if position < 0:
                    return MALFORMED, np.int64(0)
                state = VALUE
            else:
                members, count = get_i64(at, 2), get_i64(at, 3)
                hint = get_i64(stack, frame + HINT)
                which, position = find_member(
                    extra, texts, members, count, hints, hint, spare, buffer, position + 1, end
                )
                if position < 0:
                    return MALFORMED, np.int64(0)
                position = after_colon(buffer, position + 1, end)
                if position < 0:
                    return MALFORMED, np.int64(0)
                if which < 0:
                    is_plain = np.int64(0)
                    position = value_end(buffer, position, end)
                    if position < 0:
                        return MALFORMED, np.int64(0)
                    state = AFTER
                else:
                    member = members + which * MEMBER_WORDS
                    if get_i64(slot_at(slots, get_i64(extra, member + 3)), COUNT) != get_i64(stack, frame + PLACE):
                        return MALFORMED, np.int64(0)  # a key twice
                    node = get_i64(extra, member + 2)
                    set_i64(stack, frame + SEEN, get_i64(stack, frame + SEEN) + 1)
                    set_i64(stack, frame + HINT, get_i64(extra, members - 1) + 1 + which)
                    state = VALUE
        else:
            if depth == 0:
                position = after_space(buffer, position, end)
                if position < end:
                    return MALFORMED, np.int64(0)
                continue
            position = after_space(buffer, position, end)
            if position >= end:
                return MALFORMED, np.int64(0)
            byte = get_u8(buffer, position)
            position += 1
            frame = (depth - 1) * FRAME_WORDS
            at = get_i64(stack, frame + NODE)
            op = get_i64(at, 0)
            if byte == COMMA:
                position = after_space(buffer, position, end)
                if op == LIST:
                    node = get_i64(at, 2)
                    state = VALUE
                else:
                    state = KEY
            elif byte != (CLOSE_LIST if op == LIST else CLOSE_OBJECT):
                return MALFORMED, np.int64(0)
            elif op == OBJECT:
                depth -= 1
                count = get_i64(at, 3)
                if get_i64(stack, frame + SEEN) < count:
                    members, place = get_i64(at, 2), get_i64(stack, frame + PLACE)
                    for which in range(count):
                        member = members + which * MEMBER_WORDS
                        if get_i64(slot_at(slots, get_i64(extra, member + 3)), COUNT) == place:
                            child = code + get_i64(extra, member + 2) * (INSTRUCTION_WORDS * 8)
                            full = leave_empty(slots, extra, get_i64(child, 6), get_i64(child, 7))
                            if full >= 0:
                                return FULL, full
            else:
                depth -= 1
                number = get_i64(at, 1)
                slot = slot_at(slots, number)
                place = added(slot)
                if place < 0:
                    return FULL, number
                offsets = get_i64(slot, OFFSETS)
                below = slot_at(slots, get_i64(at, 3))
                stop = get_i64(below, COUNT)
                set_i32(offsets, place + 1, np.int32(stop))
                if op == MAP and not has_unique_keys(below, np.int64(get_i32(offsets, place)), stop):
                    is_plain = np.int64(0)


@njit(nogil=True)
def read_values(
    programs, which, root, slots, parents, slot_count, stack, powers, spare, offsets, data, prefix, stop, states, cursor
):
    """As `decode_values` has it. `programs` has (code, extra, texts, hints) of each. Returns FULL where a slot has no
    room: nothing of that row is there then. `root`: the slots that an empty row leaves empty."""
    row = get_i64(cursor, ROW)
    while row < stop:
        program = np.int64(get_i32(which, row))
        state = np.uint8(0)
        if program >= 0:
            at = 4 * program
            code, extra = get_i64(programs, at), get_i64(programs, at + 1)
            texts, hints = get_i64(programs, at + 2), get_i64(programs, at + 3)
            start, end = np.int64(get_i32(offsets, row)) + prefix, np.int64(get_i32(offsets, row + 1))
            status, detail = read_value(code, extra, texts, hints, slots, stack, powers, spare, data, start, end, row)
            if status != DONE:
                if status == FULL:
                    slot = slot_at(slots, detail)
                    set_i64(cursor, IS_ENTRIES, np.int64(get_i64(slot, COUNT) >= get_i64(slot, CAPACITY)))
                take_back(slots, parents, slot_count, row)
                if status == FULL:
                    set_i64(cursor, ROW, row)
                    set_i64(cursor, SLOT, detail)
                    return FULL
            else:
                state = np.uint8(1 + detail)
        if state == 0:
            leave_empty(slots, root, np.int64(0), get_i64(cursor, EMPTY_COUNT))
        set_u8(states, row, state)
        row += 1
    set_i64(cursor, ROW, row)
    return DONE
