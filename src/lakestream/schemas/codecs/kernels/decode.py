# mypy: ignore-errors
"""Avro values to columns: one interpreter for the programs of all schemas.

A value that is not what its schema says leaves no trace but an empty row. What the bytes claim is believed only within
the bytes that are there.
"""

import numpy as np
from numba import njit

from lakestream.records.kernels.intrinsics import (
    copy_bytes,
    get_i32,
    get_i64,
    get_u8,
    set_i32,
    set_i64,
    set_u8,
)
from lakestream.schemas.codecs.kernels.pieces import (
    has_unique_keys,
    is_below,
    is_text,
    read_decimal,
    read_long,
    write_uuid,
)
from lakestream.schemas.codecs.kernels.skip import INT_MAX, INT_MIN, read_count, skip_value
from lakestream.schemas.codecs.kernels.slots import (
    CAPACITY,
    COUNT,
    DATA,
    OFFSETS,
    add_copy,
    added,
    added_bytes,
    leave_empty,
    slot_at,
    take_back,
)
from lakestream.schemas.codecs.layout import (
    BRANCH_WORDS,
    CANONICAL_NAN_32,
    CANONICAL_NAN_64,
    INSTRUCTION_WORDS,
    JSON_PREFIX_BYTES,
    MAX_EMPTY_ITEMS,
    STACK_WORDS,
    Op,
    ValueStatus,
)

END, BOOLEAN, INT, INT_AS_LONG, LONG = (int(op) for op in (Op.END, Op.BOOLEAN, Op.INT, Op.INT_AS_LONG, Op.LONG))
MILLIS, FLOAT, DOUBLE, BYTES, STRING = (int(op) for op in (Op.MILLIS, Op.FLOAT, Op.DOUBLE, Op.BYTES, Op.STRING))
FIXED, UUID, ENUM, DECIMAL = int(Op.FIXED), int(Op.UUID), int(Op.ENUM), int(Op.DECIMAL)
STRUCT, EMPTY, OPTION, UNION, JUMP = (int(op) for op in (Op.STRUCT, Op.EMPTY, Op.OPTION, Op.UNION, Op.JUMP))
ARRAY, NEXT, JSON = int(Op.ARRAY), int(Op.NEXT), int(Op.JSON)
DONE, MALFORMED, FULL = int(ValueStatus.DONE), int(ValueStatus.MALFORMED), int(ValueStatus.FULL)
MILLIS_MAX = (1 << 63) // 1000 - 1

ROW, SLOT, EMPTY_COUNT, IS_ENTRIES = 0, 1, 2, 3
"""Places in the cursor: the next row, the slot without room, how many slots an empty row has, whether it is entries
rather than bytes that the slot has no room for."""


@njit(nogil=True)
def decode_value(code, extra, slots, stack, buffer, position, end):
    """One value, which may have bytes behind it, into its slots. (status, the slot without room or whether nothing but
    the bytes' form can set the columns apart from the value)."""
    pc = np.int64(0)
    depth = np.int64(0)
    budget = np.int64(MAX_EMPTY_ITEMS)
    is_plain = np.int64(1)
    while True:
        at = code + pc * (INSTRUCTION_WORDS * 8)
        op = get_i64(at, 0)
        number = get_i64(at, 1)
        slot = slot_at(slots, number)
        pc += 1
        if op in (STRING, BYTES):
            length, position = read_long(buffer, position, end)
            if position < 0 or length < 0 or length > end - position:
                return MALFORMED, np.int64(0)
            if op == STRING and not is_text(buffer, position, position + length):
                return MALFORMED, np.int64(0)
            if not add_copy(slot, buffer, position, length):
                return FULL, number
            position += length
        elif op in (LONG, INT, INT_AS_LONG, MILLIS):
            value, position = read_long(buffer, position, end)
            if position < 0:
                return MALFORMED, np.int64(0)
            if (op in (INT, INT_AS_LONG)) and (value < INT_MIN or value > INT_MAX):
                return MALFORMED, np.int64(0)
            if op == MILLIS:
                if value < -MILLIS_MAX or value > MILLIS_MAX:
                    return MALFORMED, np.int64(0)
                value *= 1000
            place = added(slot)
            if place < 0:
                return FULL, number
            if op == INT:
                set_i32(get_i64(slot, DATA), place, np.int32(value))
            else:
                set_i64(get_i64(slot, DATA), place, value)
        elif op == OPTION:
            branch, position = read_long(buffer, position, end)
            if position < 0:
                return MALFORMED, np.int64(0)
            if branch == get_i64(at, 2):
                full = leave_empty(slots, extra, get_i64(at, 5), get_i64(at, 6))
                if full >= 0:
                    return FULL, full
                pc = get_i64(at, 4)
            elif branch != get_i64(at, 3):
                return MALFORMED, np.int64(0)
        elif op in (DOUBLE, FLOAT):
            size = 8 if op == DOUBLE else 4
            if size > end - position:
                return MALFORMED, np.int64(0)
            place = added(slot)
            if place < 0:
                return FULL, number
            data = get_i64(slot, DATA)
            if op == DOUBLE:
                copy_bytes(data, place * 8, buffer, position, np.int64(8))
                bits = get_i64(data, place)
                if (bits & 0x7FFFFFFFFFFFFFFF) > 0x7FF0000000000000 and bits != CANONICAL_NAN_64:
                    is_plain = np.int64(0)
            else:
                copy_bytes(data, place * 4, buffer, position, np.int64(4))
                word = np.int64(get_i32(data, place))
                if (word & 0x7FFFFFFF) > 0x7F800000 and word != CANONICAL_NAN_32:
                    is_plain = np.int64(0)
            position += size
        elif op == BOOLEAN:
            if position >= end or get_u8(buffer, position) > 1:
                return MALFORMED, np.int64(0)
            place = added(slot)
            if place < 0:
                return FULL, number
            set_u8(get_i64(slot, DATA), place, get_u8(buffer, position))
            position += 1
        elif op == ENUM:
            symbol, position = read_long(buffer, position, end)
            if position < 0 or symbol < 0 or symbol >= get_i64(at, 2):
                return MALFORMED, np.int64(0)
            place = added(slot)
            if place < 0:
                return FULL, number
            set_i32(get_i64(slot, DATA), place, np.int32(get_i64(extra, get_i64(at, 3) + symbol)))
        elif op == STRUCT:
            if added(slot) < 0:
                return FULL, number
        elif op == EMPTY:
            full = leave_empty(slots, extra, get_i64(at, 2), get_i64(at, 3))
            if full >= 0:
                return FULL, full
        elif op == ARRAY:
            count, position, budget = read_count(buffer, position, end, get_i64(at, 4), budget)
            if position < 0 or depth >= STACK_WORDS:
                return MALFORMED, np.int64(0)
            if count == 0:
                place = added(slot)
                if place < 0:
                    return FULL, number
                offsets = get_i64(slot, OFFSETS)
                set_i32(offsets, place + 1, get_i32(offsets, place))
                pc = get_i64(at, 3)
            else:
                set_i64(stack, depth, count)
                depth += 1
        elif op == NEXT:
            left = get_i64(stack, depth - 1) - 1
            if left == 0:
                left, position, budget = read_count(buffer, position, end, get_i64(at, 4), budget)
                if position < 0:
                    return MALFORMED, np.int64(0)
            if left == 0:
                depth -= 1
                place = added(slot)
                if place < 0:
                    return FULL, number
                offsets = get_i64(slot, OFFSETS)
                child = slot_at(slots, get_i64(at, 2))
                stop = get_i64(child, COUNT)
                set_i32(offsets, place + 1, np.int32(stop))
                if get_i64(at, 5) and not has_unique_keys(child, np.int64(get_i32(offsets, place)), stop):
                    is_plain = np.int64(0)
            else:
                set_i64(stack, depth - 1, left)
                pc = get_i64(at, 3)
        elif op == UNION:
            branch, position = read_long(buffer, position, end)
            if position < 0 or branch < 0 or branch >= get_i64(at, 3):
                return MALFORMED, np.int64(0)
            if branch == get_i64(at, 2):
                full = leave_empty(slots, extra, get_i64(at, 6), get_i64(at, 7))
                if full >= 0:
                    return FULL, full
                pc = get_i64(at, 5)
            else:
                if added(slot) < 0:
                    return FULL, number
                for other in range(get_i64(at, 3)):
                    about = get_i64(at, 4) + other * BRANCH_WORDS
                    if other != branch and get_i64(extra, about + 3) > 0:
                        full = leave_empty(slots, extra, get_i64(extra, about + 2), get_i64(extra, about + 3))
                        if full >= 0:
                            return FULL, full
                pc = get_i64(extra, get_i64(at, 4) + branch * BRANCH_WORDS)
        elif op == JUMP:
            pc = get_i64(at, 2)
        elif op == FIXED:
            size = get_i64(at, 2)
            if size > end - position:
                return MALFORMED, np.int64(0)
            if not add_copy(slot, buffer, position, size):
                return FULL, number
            position += size
        elif op == DECIMAL:
            length = get_i64(at, 2)
            if length < 0:
                length, position = read_long(buffer, position, end)
            if position < 0 or length < 1 or length > 16 or length > end - position:
                return MALFORMED, np.int64(0)
            high, low = read_decimal(buffer, position, length)
            if not is_below(high, low, np.uint64(get_i64(at, 3)), np.uint64(get_i64(at, 4))):
                return MALFORMED, np.int64(0)
            place = added(slot)
            if place < 0:
                return FULL, number
            set_i64(get_i64(slot, DATA), 2 * place, np.int64(low))
            set_i64(get_i64(slot, DATA), 2 * place + 1, np.int64(high))
            position += length
        elif op == UUID:
            if end - position < 16:
                return MALFORMED, np.int64(0)
            target = added_bytes(slot, np.int64(36))
            if target < 0:
                return FULL, number
            write_uuid(get_i64(slot, DATA), target, buffer, position)
            position += 16
        elif op == JSON:
            after = skip_value(code, extra, stack, depth, get_i64(at, 2), buffer, position, end)
            if after < 0:
                return MALFORMED, np.int64(0)
            target = added_bytes(slot, after - position + JSON_PREFIX_BYTES)
            if target < 0:
                return FULL, number
            data = get_i64(slot, DATA)
            program = get_i64(at, 3)
            for index in range(JSON_PREFIX_BYTES):
                set_u8(data, target + index, np.uint8((program >> (8 * index)) & 0xFF))
            copy_bytes(data, target + JSON_PREFIX_BYTES, buffer, position, after - position)
            position = after
            is_plain = np.int64(0)
        elif op == END:
            return DONE, is_plain
        else:
            return MALFORMED, np.int64(0)


@njit(nogil=True)
def decode_values(
    programs, which, root, slots, parents, slot_count, stack, offsets, data, prefix, stop, states, cursor
):
    """The values from cursor[ROW] on: which[row] is the number of its program, negative for a row that stays empty.
    states[row]: 0 empty, 1 typed, 2 typed and perhaps as good as its bytes. Returns FULL where a slot has no room:
    nothing of that row is there then. `root`: position and number of the slots that an empty row leaves empty, in the
    `extra` of every program; `programs` has (code, extra) of each."""
    row = get_i64(cursor, ROW)
    while row < stop:
        program = np.int64(get_i32(which, row))
        state = np.uint8(0)
        if program >= 0:
            code, extra = get_i64(programs, 2 * program), get_i64(programs, 2 * program + 1)
            start, end = np.int64(get_i32(offsets, row)), np.int64(get_i32(offsets, row + 1))
            status, detail = decode_value(code, extra, slots, stack, data, start + prefix, end)
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
