# mypy: ignore-errors
"""Protobuf values to columns: one interpreter for the programs of all schemas.

Whether a field of a message was there is told by its slot, which has one entry more than the message had before it. So
fields may come in any order. A value that has one of them twice (or two of a oneof) is `UNUSUAL`: what it means is told
elsewhere. A value that is not what its schema says leaves no trace but an empty row.
"""

import numpy as np
from numba import njit

from lakestream.records.kernels.intrinsics import (
    copy_bytes,
    get_i32,
    get_i64,
    get_u8,
    read_i32,
    set_i32,
    set_i64,
    set_u8,
)
from lakestream.schemas.codecs.kernels.pieces import has_unique_keys
from lakestream.schemas.codecs.kernels.protobuf.checking import check_message
from lakestream.schemas.codecs.kernels.protobuf.leaves import (
    FULL,
    IS_PLAIN,
    MALFORMED,
    add_default,
    add_leaf,
    has_unique_numbers,
    is_seen,
    not_plain,
)
from lakestream.schemas.codecs.kernels.protobuf.wire import (
    ALTERNATIVE,
    TAG,
    find_field,
    instruction,
    read_length,
    read_tag,
    read_varint,
    skip_field,
)
from lakestream.schemas.codecs.kernels.slots import (
    CAPACITY,
    COUNT,
    DATA,
    OFFSETS,
    added,
    added_bytes,
    leave_empty,
    slot_at,
    take_back,
)
from lakestream.schemas.codecs.layout import JSON_PREFIX_BYTES, STACK_WORDS
from lakestream.schemas.codecs.protobuf.layout import (
    FRAME_WORDS,
    PROGRAM_WORDS,
    SCRATCH_WORDS,
    Label,
    ProgramWord,
    ProtoOp,
    RowState,
    Word,
)

OP, SLOT, LABEL, LIST, BLOCK = int(Word.OP), int(Word.SLOT), int(Word.LABEL), int(Word.LIST), int(Word.BLOCK)
SIBLINGS_AT, SIBLINGS = int(Word.SIBLINGS_AT), int(Word.SIBLINGS)
EMPTIES_AT, EMPTIES = int(Word.EMPTIES_AT), int(Word.EMPTIES)
TEXT_NUMBER, WIDTH = int(Word.TEXT), int(Word.WIDTH)
TEXT, MESSAGE, WRAPPER, MAP = int(ProtoOp.TEXT), int(ProtoOp.MESSAGE), int(ProtoOp.WRAPPER), int(ProtoOp.MAP)
OPTIONAL, IMPLICIT, REQUIRED, ALWAYS = (
    int(label) for label in (Label.OPTIONAL, Label.IMPLICIT, Label.REQUIRED, Label.ALWAYS)
)
REPEATED = int(Label.REPEATED)
CODE, EXTRA, START, ROOT_SLOT = (
    int(word) for word in (ProgramWord.CODE, ProgramWord.EXTRA, ProgramWord.BLOCK, ProgramWord.SLOT)
)
FOREIGN_AT, FOREIGN = int(ProgramWord.EMPTIES_AT), int(ProgramWord.EMPTIES)
EMPTY, TYPED, UNUSUAL = int(RowState.EMPTY), int(RowState.TYPED), int(RowState.UNUSUAL)
TWICE = -3
"""In place of a position."""
FULL_SLOT = 1
"""In the scratch of the stack."""
ROW, SLOT_WITHOUT_ROOM, EMPTY_COUNT, IS_ENTRIES = 0, 1, 2, 3
"""Places in the cursor: as those of Avro's."""
FRAMING_BYTES = 5
MAX_INDEX_BYTES = 3
INDEX_BITS = 20


@njit(nogil=True, inline="always")
def full(stack, number):
    set_i64(stack, FULL_SLOT, number)
    return np.int64(FULL)


@njit(nogil=True)
def begin_message(code, extra, slots, stack, block):
    """Slots that the message does not know. False: one has no room."""
    head = instruction(code, block)
    if get_i64(head, EMPTIES) > 0:
        found = leave_empty(slots, extra, get_i64(head, EMPTIES_AT), get_i64(head, EMPTIES))
        if found >= 0:
            set_i64(stack, FULL_SLOT, found)
            return False
    return True


@njit(nogil=True)
def end_message(code, extra, slots, stack, first, stop, place):
    """What was not there. `stop`, the instruction of a message that has to be filled by defaults first, or an error."""
    for pc in range(first, stop):
        at = instruction(code, pc)
        label = get_i64(at, LABEL)
        number = get_i64(at, SLOT)
        slot = slot_at(slots, number)
        if label >= REPEATED:
            list_number = get_i64(at, LIST)
            whole = slot_at(slots, list_number)
            if added(whole) < 0:
                return full(stack, list_number)
            offsets = get_i64(whole, OFFSETS)
            count = get_i64(slot, COUNT)
            set_i32(offsets, place + 1, np.int32(count))
            if get_i64(at, OP) == MAP:
                begin = np.int64(get_i32(offsets, place))
                if count - begin > 1:
                    width = get_i64(at, WIDTH)
                    if width == 0:
                        if not has_unique_keys(slot, begin, count):
                            not_plain(stack)
                    elif not has_unique_numbers(slot, width, begin, count):
                        not_plain(stack)
        elif not is_seen(slot, place):
            if label == OPTIONAL:
                found = leave_empty(slots, extra, get_i64(at, EMPTIES_AT), get_i64(at, EMPTIES))
                if found >= 0:
                    return full(stack, found)
            elif label == REQUIRED:
                return np.int64(MALFORMED)
            elif get_i64(at, OP) >= TEXT:
                return np.int64(pc)
            elif not add_default(get_i64(at, OP), at, slot, extra):
                return full(stack, number)
    return np.int64(stop)


@njit(nogil=True)
def add_text(code, at, slot, stack, depth, buffer, position, end):
    """The bytes of a message behind the number of its type."""
    if not check_message(code, get_i64(at, BLOCK), stack, depth, buffer, position, end):
        return np.int64(MALFORMED)
    target = added_bytes(slot, end - position + JSON_PREFIX_BYTES)
    if target < 0:
        return np.int64(FULL)
    data = get_i64(slot, DATA)
    number = get_i64(at, TEXT_NUMBER)
    for index in range(JSON_PREFIX_BYTES):
        set_u8(data, target + index, np.uint8((number >> (8 * index)) & 0xFF))
    copy_bytes(data, target + JSON_PREFIX_BYTES, buffer, position, end - position)
    not_plain(stack)
    return end


@njit(nogil=True)
def is_set_already(at, extra, slots, slot, place):
    """The field, or another of its oneof."""
    if is_seen(slot, place):
        return True
    position = get_i64(at, SIBLINGS_AT)
    for index in range(get_i64(at, SIBLINGS)):
        if is_seen(slot_at(slots, get_i64(extra, position + index)), place):
            return True
    return False


@njit(nogil=True)
def decode_message(code, extra, block, slots, stack, buffer, position, limit, place):
    """One value into its slots: the position after it, or an error."""
    set_i64(stack, IS_PLAIN, np.int64(1))
    depth = np.int64(SCRATCH_WORDS)
    if not begin_message(code, extra, slots, stack, block):
        return np.int64(FULL)
    first = block + 1
    stop = first + get_i64(instruction(code, block), BLOCK)
    pc = first
    while True:
        if position == limit:
            pending = end_message(code, extra, slots, stack, first, stop, place)
            if pending < 0:
                return pending
            if pending == stop:
                if depth == SCRATCH_WORDS:
                    return position
                depth -= FRAME_WORDS
                first, stop = get_i64(stack, depth), get_i64(stack, depth + 1)
                pc, place, limit = get_i64(stack, depth + 2), get_i64(stack, depth + 3), get_i64(stack, depth + 4)
                continue
            # A map's entry without the message that is its value: it has all its defaults.
            pc = pending
            at = instruction(code, pc)
            op = get_i64(at, OP)
            number = get_i64(at, SLOT)
            slot = slot_at(slots, number)
            length = np.int64(0)
        else:
            tag, position = read_tag(buffer, position, limit)
            if position < 0:
                return np.int64(MALFORMED)
            at = instruction(code, pc)
            if pc >= stop or get_i64(at, TAG) != tag:
                pc = find_field(code, first, stop, pc, tag >> 3)
                if pc < 0:
                    position = skip_field(buffer, position, limit, tag, stack, depth)
                    if position < 0:
                        return np.int64(MALFORMED)
                    not_plain(stack)
                    pc = first
                    continue
                at = instruction(code, pc)
            op = get_i64(at, OP)
            label = get_i64(at, LABEL)
            number = get_i64(at, SLOT)
            slot = slot_at(slots, number)
            if label < REPEATED:
                if is_set_already(at, extra, slots, slot, place):
                    return np.int64(TWICE)
                pc += 1
            if op < TEXT:
                if tag == get_i64(at, TAG):
                    is_packed = label > REPEATED
                elif tag == get_i64(at, ALTERNATIVE):
                    is_packed = label == REPEATED
                else:
                    return np.int64(MALFORMED)
                if is_packed:
                    length, position = read_length(buffer, position, limit)
                    if position < 0:
                        return np.int64(MALFORMED)
                    end = position + length
                    while position < end:
                        position = add_leaf(op, at, slot, extra, stack, depth, buffer, position, end)
                        if position < 0:
                            return position if position == MALFORMED else full(stack, number)
                else:
                    position = add_leaf(op, at, slot, extra, stack, depth, buffer, position, limit)
                    if position < 0:
                        return position if position == MALFORMED else full(stack, number)
                continue
            if tag != get_i64(at, TAG):
                return np.int64(MALFORMED)
            length, position = read_length(buffer, position, limit)
            if position < 0:
                return np.int64(MALFORMED)
        if op == TEXT:
            position = add_text(code, at, slot, stack, depth, buffer, position, position + length)
            if position < 0:
                return position if position == MALFORMED else full(stack, number)
            continue
        if depth + FRAME_WORDS > STACK_WORDS:
            return np.int64(MALFORMED)
        set_i64(stack, depth, first)
        set_i64(stack, depth + 1, stop)
        set_i64(stack, depth + 2, pc)
        set_i64(stack, depth + 3, place)
        set_i64(stack, depth + 4, limit)
        depth += FRAME_WORDS
        limit = position + length
        if op == MESSAGE:
            place = added(slot)
            if place < 0:
                return full(stack, number)
        else:
            place = get_i64(slot, COUNT)
        inner = get_i64(at, BLOCK)
        if not begin_message(code, extra, slots, stack, inner):
            return np.int64(FULL)
        first = inner + 1
        stop = first + get_i64(instruction(code, inner), BLOCK)
        pc = first


@njit(nogil=True)
def decode_row(program, slots, stack, buffer, begin, end, row):
    """The position after the value, or an error."""
    code, extra = get_i64(program, CODE), get_i64(program, EXTRA)
    found = leave_empty(slots, extra, get_i64(program, FOREIGN_AT), get_i64(program, FOREIGN))
    if found >= 0:
        return full(stack, found)
    root = get_i64(program, ROOT_SLOT)
    if root >= 0 and added(slot_at(slots, root)) < 0:
        return full(stack, root)
    return decode_message(code, extra, get_i64(program, START), slots, stack, buffer, begin, end, row)


@njit(nogil=True)
def decode_protobuf(
    programs, which, empties, slots, parents, slot_count, stack, begins, ends, data, stop, states, cursor
):
    """The values from cursor[ROW] on, at begins[row] to ends[row]: which[row] is the number of its program, negative
    for a row that stays empty. FULL: a slot has no room, and nothing of that row is there."""
    row = get_i64(cursor, ROW)
    while row < stop:
        which_program = np.int64(get_i32(which, row))
        state = np.int64(EMPTY)
        if which_program >= 0:
            program = programs + which_program * (PROGRAM_WORDS * 8)
            status = decode_row(program, slots, stack, data, get_i64(begins, row), get_i64(ends, row), row)
            if status >= 0:
                state = TYPED + get_i64(stack, IS_PLAIN)
            else:
                number = get_i64(stack, FULL_SLOT)
                if status == FULL:
                    slot = slot_at(slots, number)
                    set_i64(cursor, IS_ENTRIES, np.int64(get_i64(slot, COUNT) >= get_i64(slot, CAPACITY)))
                take_back(slots, parents, slot_count, row)
                if status == FULL:
                    set_i64(cursor, ROW, row)
                    set_i64(cursor, SLOT_WITHOUT_ROOM, number)
                    return np.int64(FULL)
                if status == TWICE:
                    state = np.int64(UNUSUAL)
        if state in (EMPTY, UNUSUAL):
            found = leave_empty(slots, empties, np.int64(0), get_i64(cursor, EMPTY_COUNT))
            if found >= 0:
                take_back(slots, parents, slot_count, row)
                set_i64(cursor, IS_ENTRIES, np.int64(1))
                set_i64(cursor, ROW, row)
                set_i64(cursor, SLOT_WITHOUT_ROOM, found)
                return np.int64(FULL)
        set_u8(states, row, np.uint8(state))
        row += 1
    set_i64(cursor, ROW, row)
    return np.int64(0)


@njit(nogil=True)
def place_values(keys, numbers, key_count, offsets, data, valid, stop, which, begins, ends):
    """The program of each framed value, -1 where there is none, and where the value is behind its framing. A key is the
    schema's id and the message's index behind each other; the keys are in order."""
    known, known_which = np.int64(-1), np.int32(-1)
    for row in range(stop):
        start, end = np.int64(get_i32(offsets, row)), np.int64(get_i32(offsets, row + 1))
        set_i32(which, row, np.int32(-1))
        if get_u8(valid, row) == 0 or end - start <= FRAMING_BYTES or get_u8(data, start) != 0:
            continue
        schema_id = np.int64(read_i32(data, start + 1)) & 0xFFFFFFFF
        position = start + FRAMING_BYTES
        index = np.int64(get_u8(data, position))
        position += 1
        if index == 2:
            # One index: 0 has a shorter form, which alone is written again.
            index, after = read_varint(data, position, min(end, position + MAX_INDEX_BYTES))
            if after < 0 or index <= 0 or index & 1 or (after > position + 1 and get_u8(data, after - 1) == 0):
                continue
            index >>= 1
            position = after
        elif index != 0:
            continue
        key = schema_id << INDEX_BITS | index
        if key != known:
            low, high = np.int64(0), np.int64(key_count)
            while low < high:
                middle = (low + high) >> 1
                if get_i64(keys, middle) < key:
                    low = middle + 1
                else:
                    high = middle
            known = key
            known_which = np.int32(-1)
            if low < key_count and get_i64(keys, low) == key:
                known_which = np.int32(get_i32(numbers, low))
        set_i32(which, row, known_which)
        set_i64(begins, row, position)
        set_i64(ends, row, end)
    return np.int64(0)
