# mypy: ignore-errors
"""Columns to texts in JSON, by templates, and which template makes a text again."""

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
from lakestream.schemas.codecs.kernels.encode import IMPOSSIBLE, TOO_LONG, is_there
from lakestream.schemas.codecs.kernels.json.doubles import write_double, write_long
from lakestream.schemas.codecs.kernels.json.layout import WriteOp
from lakestream.schemas.codecs.kernels.json.reading import DONE, FULL, ROW
from lakestream.schemas.codecs.kernels.json.scanning import (
    CLOSE_LIST,
    CLOSE_OBJECT,
    OPEN_LIST,
    OPEN_OBJECT,
    is_json,
)
from lakestream.schemas.codecs.kernels.json.strings import write_string
from lakestream.schemas.codecs.kernels.json.times import write_date, write_time
from lakestream.schemas.codecs.kernels.pieces import same_bytes
from lakestream.schemas.codecs.kernels.slots import DATA, OFFSETS, slot_at
from lakestream.schemas.codecs.layout import INSTRUCTION_WORDS, STACK_WORDS

END, TEXT, NULL, MEMBER = int(WriteOp.END), int(WriteOp.TEXT), int(WriteOp.NULL), int(WriteOp.MEMBER)
OPEN, CLOSE, LIST, NEXT = int(WriteOp.OPEN), int(WriteOp.CLOSE), int(WriteOp.LIST), int(WriteOp.NEXT)
STRING, LONG, DOUBLE, BOOLEAN = int(WriteOp.STRING), int(WriteOp.LONG), int(WriteOp.DOUBLE), int(WriteOp.BOOLEAN)
DATE, TIME, JSON = int(WriteOp.DATE), int(WriteOp.TIME), int(WriteOp.JSON)
NULL_WORD, TRUE_WORD, FALSE_WORD = 0x6E756C6C, 0x74727565, 0x66616C73


@njit(nogil=True, inline="always")
def put(out, position, byte):
    set_u8(out, position, np.uint8(byte))
    return position + 1


@njit(nogil=True, inline="always")
def put_text(out, position, texts, at, size):
    copy_bytes(out, position, texts, at, size)
    return position + size


@njit(nogil=True, inline="always")
def is_as_expected(out, checked, expected, at, position):
    return expected == 0 or same_bytes(out, checked, expected, at, position - checked)


@njit(nogil=True)
def write_value(code, extra, texts, slots, stack, powers, place, out, position, limit, expected, expected_at):
    """The text of the row `place`, at out[position]. The position after it, `IMPOSSIBLE` or `TOO_LONG`. Up to
    `LONGEST_NUMBER` bytes behind the limit may be overwritten. `expected`: a text that it has to be, as far as it is
    known, or 0."""
    pc = np.int64(0)
    depth = np.int64(0)
    is_first = np.int64(1)
    start = position
    checked = position
    while True:
        if position > limit:
            return np.int64(TOO_LONG)
        at = code + pc * (INSTRUCTION_WORDS * 8)
        op = get_i64(at, 0)
        slot = slot_at(slots, get_i64(at, 1))
        pc += 1
        if op == MEMBER:
            if get_i64(at, 2) and not is_there(slot, place):
                pc = get_i64(at, 7)
                continue
            if expected != 0:
                if not is_as_expected(out, checked, expected, expected_at + checked - start, position):
                    return np.int64(IMPOSSIBLE)
                checked = position
            words = 3 if is_first else 5
            is_first = np.int64(0)
            size = get_i64(at, words + 1)
            if size > limit - position:
                return np.int64(TOO_LONG)
            position = put_text(out, position, texts, get_i64(at, words), size)
            if not is_there(slot, place):
                write_i32(out, position, np.int32(NULL_WORD))
                position += 4
                pc = get_i64(at, 7)
        elif op == STRING:
            if not is_there(slot, place):
                return np.int64(IMPOSSIBLE)
            offsets = get_i64(slot, OFFSETS)
            first, stop = np.int64(get_i32(offsets, place)), np.int64(get_i32(offsets, place + 1))
            position = write_string(
                extra, texts, get_i64(at, 2), out, position, limit, get_i64(slot, DATA), first, stop
            )
        elif op == LONG:
            position = write_long(out, position, get_i64(get_i64(slot, DATA), place))
        elif op == DOUBLE:
            position = write_double(powers, extra, get_i64(at, 2), out, position, get_i64(get_i64(slot, DATA), place))
        elif op == BOOLEAN:
            is_true = get_u8(get_i64(slot, DATA), place)
            write_i32(out, position, np.int32(TRUE_WORD if is_true else FALSE_WORD))
            position += 4
            if not is_true:
                position = put(out, position, 0x65)
        elif op == TEXT:
            size = get_i64(at, 3)
            if size > limit - position:
                return np.int64(TOO_LONG)
            position = put_text(out, position, texts, get_i64(at, 2), size)
        elif op == OPEN:
            if depth >= STACK_WORDS:
                return np.int64(IMPOSSIBLE)
            set_i64(stack, depth, is_first)
            depth += 1
            is_first = np.int64(1)
            position = put(out, position, OPEN_OBJECT)
        elif op == CLOSE:
            words = 4 if is_first else 2
            size = get_i64(at, words + 1)
            if size > limit - position:
                return np.int64(TOO_LONG)
            position = put(out, put_text(out, position, texts, get_i64(at, words), size), CLOSE_OBJECT)
            depth -= 1
            is_first = get_i64(stack, depth)
        elif op == NULL:
            if not is_there(slot, place):
                write_i32(out, position, np.int32(NULL_WORD))
                position += 4
                pc = get_i64(at, 2)
        elif op == LIST:
            offsets = get_i64(slot, OFFSETS)
            first, stop = np.int64(get_i32(offsets, place)), np.int64(get_i32(offsets, place + 1))
            is_map = get_i64(at, 7)
            position = put(out, position, OPEN_OBJECT if is_map else OPEN_LIST)
            words = 2 if stop > first else 4
            size = get_i64(at, words + 1)
            if size > limit - position:
                return np.int64(TOO_LONG)
            position = put_text(out, position, texts, get_i64(at, words), size)
            if stop <= first:
                position = put(out, position, CLOSE_OBJECT if is_map else CLOSE_LIST)
                pc = get_i64(at, 6)
            else:
                if depth + 2 > STACK_WORDS:
                    return np.int64(IMPOSSIBLE)
                set_i64(stack, depth, place)
                set_i64(stack, depth + 1, stop)
                depth += 2
                place = first
        elif op == NEXT:
            place += 1
            is_over = place >= get_i64(stack, depth - 1)
            if expected != 0:
                if not is_as_expected(out, checked, expected, expected_at + checked - start, position):
                    return np.int64(IMPOSSIBLE)
                checked = position
            words = 4 if is_over else 2
            size = get_i64(at, words + 1)
            if size > limit - position:
                return np.int64(TOO_LONG)
            position = put_text(out, position, texts, get_i64(at, words), size)
            if is_over:
                position = put(out, position, CLOSE_OBJECT if get_i64(at, 7) else CLOSE_LIST)
                place = get_i64(stack, depth - 2)
                depth -= 2
            else:
                pc = get_i64(at, 6)
        elif op == DATE:
            position = write_date_text(out, position, get_i32(get_i64(slot, DATA), place))
        elif op == TIME:
            after = write_time(extra, texts, get_i64(at, 2), out, position + 1, get_i64(get_i64(slot, DATA), place))
            set_u8(out, position, np.uint8(0x22))
            position = after if after < 0 else put(out, after, 0x22)
        elif op == JSON:
            offsets = get_i64(slot, OFFSETS)
            first, stop = np.int64(get_i32(offsets, place)), np.int64(get_i32(offsets, place + 1))
            if stop - first > limit - position:
                return np.int64(TOO_LONG)
            if expected == 0 and not is_json(get_i64(slot, DATA), first, stop):
                return np.int64(IMPOSSIBLE)
            position = put_text(out, position, get_i64(slot, DATA), first, stop - first)
        elif op == END:
            is_right = is_as_expected(out, checked, expected, expected_at + checked - start, position)
            return position if is_right else np.int64(IMPOSSIBLE)
        else:
            return np.int64(IMPOSSIBLE)
        if position < 0:
            return np.int64(IMPOSSIBLE)


@njit(nogil=True)
def write_date_text(out, position, days):
    after = write_date(out, position + 1, np.int64(days))
    set_u8(out, position, np.uint8(0x22))
    return after if after < 0 else put(out, after, 0x22)


@njit(nogil=True)
def match_values(
    templates, order, count, slots, stack, powers, offsets, data, prefix, stop, states, spare, formats, cursor
):
    """Of each row from cursor[ROW] on whose state is 2: formats[row] is the template that makes its text again. The
    templates are tried in `order`, in which those that matched last come first. Returns FULL at a row that none makes,
    as often as cursor[1] allows; other such rows get the state 1. `templates` has (code, extra, texts) of each."""
    row = get_i64(cursor, ROW)
    while row < stop:
        if get_u8(states, row) != 2:
            row += 1
            continue
        start = np.int64(get_i32(offsets, row)) + prefix
        length = np.int64(get_i32(offsets, row + 1)) - start
        found = np.int64(-1)
        for rank in range(count):
            template = get_i64(order, rank)
            at = 3 * template
            code, extra, texts = get_i64(templates, at), get_i64(templates, at + 1), get_i64(templates, at + 2)
            size = write_value(code, extra, texts, slots, stack, powers, row, spare, np.int64(0), length, data, start)
            if size == length:
                found = template
                while rank > 0:
                    set_i64(order, rank, get_i64(order, rank - 1))
                    rank -= 1
                set_i64(order, 0, template)
                break
        if found >= 0:
            set_i32(formats, row, np.int32(found))
        elif get_i64(cursor, 1) > 0:
            set_i64(cursor, ROW, row)
            return FULL
        else:
            set_u8(states, row, np.uint8(1))
        row += 1
    set_i64(cursor, ROW, row)
    return DONE


@njit(nogil=True)
def write_values(
    templates,
    which,
    slots,
    stack,
    powers,
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
    """As `encode_values` has it, by the template which[row], behind the id ids[row]. `which` is -1 for raw bytes and -2
    for a row that nothing can be made of."""
    row = get_i64(cursor, ROW)
    while row < stop:
        position = np.int64(get_i32(out_offsets, row))
        template = np.int64(get_i32(which, row))
        valid = np.uint8(1)
        if template >= 0:
            after = np.int64(TOO_LONG)
            if limit - position >= prefix:
                at = 3 * template
                code, extra, texts = get_i64(templates, at), get_i64(templates, at + 1), get_i64(templates, at + 2)
                begin = position + prefix
                after = write_value(
                    code, extra, texts, slots, stack, powers, row, out, begin, limit, np.int64(0), np.int64(0)
                )
            if after == TOO_LONG:
                set_i64(cursor, ROW, row)
                return FULL
            if after == IMPOSSIBLE:
                after = position
            elif prefix > 0:
                set_u8(out, position, np.uint8(0))
                write_i32(out, position + 1, get_i32(ids, row))
        elif template < -1:
            after = position
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
