# mypy: ignore-errors
"""Columns to Avro values, by the programs that decoded them."""

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
    write_i32,
)
from lakestream.schemas.codecs.kernels.decode import (
    ARRAY,
    BOOLEAN,
    BYTES,
    DECIMAL,
    DONE,
    DOUBLE,
    EMPTY,
    END,
    ENUM,
    FIXED,
    FLOAT,
    FULL,
    INT,
    INT_AS_LONG,
    JUMP,
    LONG,
    MILLIS,
    NEXT,
    OPTION,
    ROW,
    STRING,
    STRUCT,
    UNION,
    UUID,
)
from lakestream.schemas.codecs.kernels.pieces import (
    decimal_byte,
    decimal_size,
    is_below,
    read_uuid,
    same_bytes,
    write_long,
)
from lakestream.schemas.codecs.kernels.skip import INT_MAX, INT_MIN
from lakestream.schemas.codecs.kernels.slots import DATA, OFFSETS, VALID, slot_at
from lakestream.schemas.codecs.layout import BRANCH_WORDS, INSTRUCTION_WORDS, STACK_WORDS

IMPOSSIBLE = -1
"""The columns hold no value of that schema."""
TOO_LONG = -2


@njit(nogil=True, inline="always")
def is_there(slot, place):
    valid = get_i64(slot, VALID)
    return valid == 0 or get_u8(valid, place) != 0


@njit(nogil=True)
def encode_value(code, extra, slots, stack, place, out, position, limit):
    """The value in row `place` of its slots, at out[position]. The position after it, `IMPOSSIBLE` or `TOO_LONG`. Up to
    `SLACK_BYTES` behind the limit may be overwritten."""
    pc = np.int64(0)
    depth = np.int64(0)
    while True:
        if position > limit:
            return np.int64(TOO_LONG)
        at = code + pc * (INSTRUCTION_WORDS * 8)
        op = get_i64(at, 0)
        slot = slot_at(slots, get_i64(at, 1))
        pc += 1
        if op == OPTION:
            if is_there(slot, place):
                position = write_long(out, position, get_i64(at, 3))
            elif get_i64(at, 2) < 0:
                return np.int64(IMPOSSIBLE)
            else:
                position = write_long(out, position, get_i64(at, 2))
                pc = get_i64(at, 4)
        elif op == NEXT:
            place += 1
            if place < get_i64(stack, depth - 1):
                pc = get_i64(at, 3)
            else:
                position = write_long(out, position, np.int64(0))
                place = get_i64(stack, depth - 2)
                depth -= 2
        elif op == UNION:
            null = get_i64(at, 2)
            if is_there(slot, place):
                found = np.int64(-1)
                count = 0
                for branch in range(get_i64(at, 3)):
                    child = get_i64(extra, get_i64(at, 4) + branch * BRANCH_WORDS + 1)
                    if child >= 0 and is_there(slot_at(slots, child), place):
                        found = np.int64(branch)
                        count += 1
                if count != 1:
                    return np.int64(IMPOSSIBLE)
                position = write_long(out, position, found)
                pc = get_i64(extra, get_i64(at, 4) + found * BRANCH_WORDS)
            elif null >= 0:
                position = write_long(out, position, null)
                pc = get_i64(at, 5)
            else:
                return np.int64(IMPOSSIBLE)
        elif op == JUMP:
            pc = get_i64(at, 2)
        elif op == EMPTY:
            continue
        elif op == END:
            return position
        elif not is_there(slot, place):
            return np.int64(IMPOSSIBLE)
        elif op in (STRING, BYTES, FIXED):
            offsets = get_i64(slot, OFFSETS)
            start = np.int64(get_i32(offsets, place))
            length = np.int64(get_i32(offsets, place + 1)) - start
            if op != FIXED:
                position = write_long(out, position, length)
            elif length != get_i64(at, 2):
                return np.int64(IMPOSSIBLE)
            if length > limit - position:
                return np.int64(TOO_LONG)
            copy_bytes(out, position, get_i64(slot, DATA), start, length)
            position += length
        elif op == LONG:
            position = write_long(out, position, get_i64(get_i64(slot, DATA), place))
        elif op == INT:
            position = write_long(out, position, np.int64(get_i32(get_i64(slot, DATA), place)))
        elif op == INT_AS_LONG:
            value = get_i64(get_i64(slot, DATA), place)
            if value < INT_MIN or value > INT_MAX:
                return np.int64(IMPOSSIBLE)
            position = write_long(out, position, value)
        elif op == MILLIS:
            value = get_i64(get_i64(slot, DATA), place)
            if value % 1000 != 0:
                return np.int64(IMPOSSIBLE)
            position = write_long(out, position, value // 1000)
        elif op == DOUBLE:
            copy_bytes(out, position, get_i64(slot, DATA), place * 8, np.int64(8))
            position += 8
        elif op == FLOAT:
            copy_bytes(out, position, get_i64(slot, DATA), place * 4, np.int64(4))
            position += 4
        elif op == BOOLEAN:
            set_u8(out, position, get_u8(get_i64(slot, DATA), place))
            position += 1
        elif op == ENUM:
            symbol = np.int64(get_i32(get_i64(slot, DATA), place))
            if symbol < 0 or symbol >= get_i64(at, 4):
                return np.int64(IMPOSSIBLE)
            symbol = get_i64(extra, get_i64(at, 5) + symbol)
            if symbol < 0:
                return np.int64(IMPOSSIBLE)
            position = write_long(out, position, symbol)
        elif op == STRUCT:
            continue
        elif op == ARRAY:
            offsets = get_i64(slot, OFFSETS)
            first, stop = np.int64(get_i32(offsets, place)), np.int64(get_i32(offsets, place + 1))
            position = write_long(out, position, stop - first)
            if stop <= first:
                pc = get_i64(at, 3)
            else:
                if depth + 2 > STACK_WORDS:
                    return np.int64(IMPOSSIBLE)
                set_i64(stack, depth, place)
                set_i64(stack, depth + 1, stop)
                depth += 2
                place = first
        elif op == DECIMAL:
            data = get_i64(slot, DATA)
            low, high = np.uint64(get_i64(data, 2 * place)), np.uint64(get_i64(data, 2 * place + 1))
            if not is_below(high, low, np.uint64(get_i64(at, 3)), np.uint64(get_i64(at, 4))):
                return np.int64(IMPOSSIBLE)
            size = decimal_size(high, low)
            length = get_i64(at, 2)
            if length < 0:
                length = np.int64(size)
                position = write_long(out, position, length)
            elif length < size:
                return np.int64(IMPOSSIBLE)
            for index in range(length):
                set_u8(out, position + index, np.uint8(decimal_byte(high, low, length - 1 - index)))
            position += length
        elif op == UUID:
            offsets = get_i64(slot, OFFSETS)
            start = np.int64(get_i32(offsets, place))
            if np.int64(get_i32(offsets, place + 1)) - start != 36:
                return np.int64(IMPOSSIBLE)
            if not read_uuid(out, position, get_i64(slot, DATA), start):
                return np.int64(IMPOSSIBLE)
            position += 16
        else:
            return np.int64(IMPOSSIBLE)


@njit(nogil=True)
def compare_values(programs, which, slots, stack, offsets, data, prefix, stop, states, spare):
    """Encodes what was decoded: states[row] stays 2 where that gives the value's bytes, all of them, and becomes 1
    where it does not. `spare` has room for the longest value and `SLACK_BYTES`."""
    for row in range(stop):
        if get_u8(states, row) != 2:
            continue
        program = np.int64(get_i32(which, row))
        start = np.int64(get_i32(offsets, row)) + prefix
        length = np.int64(get_i32(offsets, row + 1)) - start
        code, extra = get_i64(programs, 2 * program), get_i64(programs, 2 * program + 1)
        size = encode_value(code, extra, slots, stack, row, spare, np.int64(0), length)
        if size != length or not same_bytes(spare, np.int64(0), data, start, length):
            set_u8(states, row, np.uint8(1))
    return DONE


@njit(nogil=True)
def encode_values(
    programs,
    which,
    slots,
    stack,
    raw_offsets,
    raw_data,
    raw_valid,
    ids,
    prefix,
    stop,
    out,
    limit,
    out_offsets,
    out_valid,
    cursor,
):
    """The values of the rows from cursor[ROW] on, at out_offsets[row]: by the program which[row], behind the schema's
    id if there is a prefix, or the raw bytes if that is negative. Where the columns hold no value the row has none of
    its bytes, and its checksum tells. FULL: the next one does not fit."""
    row = get_i64(cursor, ROW)
    while row < stop:
        position = np.int64(get_i32(out_offsets, row))
        program = np.int64(get_i32(which, row))
        valid = np.uint8(1)
        if program >= 0:
            after = position
            if limit - position < prefix:
                after = np.int64(TOO_LONG)
            else:
                code, extra = get_i64(programs, 2 * program), get_i64(programs, 2 * program + 1)
                after = encode_value(code, extra, slots, stack, row, out, position + prefix, limit)
            if after == TOO_LONG:
                set_i64(cursor, ROW, row)
                return FULL
            if after == IMPOSSIBLE:
                after = position
            elif prefix > 0:
                set_u8(out, position, np.uint8(0))
                write_i32(out, position + 1, get_i32(ids, program))
        else:
            valid = get_u8(raw_valid, row)
            start = np.int64(get_i32(raw_offsets, row))
            length = np.int64(get_i32(raw_offsets, row + 1)) - start if valid else np.int64(0)
            if length > limit - position:
                set_i64(cursor, ROW, row)
                return FULL
            copy_bytes(out, position, raw_data, start, length)
            after = position + length
        set_u8(out_valid, row, valid)
        set_i32(out_offsets, row + 1, np.int32(after))
        row += 1
    set_i64(cursor, ROW, row)
    return DONE
