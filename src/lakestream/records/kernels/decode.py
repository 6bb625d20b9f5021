# mypy: ignore-errors
"""Record batches to columns.

The arrays are as large as the arena's capacity in record bytes demands at worst (`lakestream.records.columns`): a batch
that fits the capacity fits every array, whatever its records look like.
"""

from collections import namedtuple

import numpy as np
from numba import njit

from lakestream.records.kernels.batch import (
    BAD_COUNT,
    BAD_CRC,
    BAD_MAGIC,
    BAD_OFFSET,
    BAD_RECORD,
    BAD_TIMESTAMP,
    DONE,
    TRAILING_BYTES,
    TRUNCATED,
    batch_end,
    crc_holds,
)
from lakestream.records.kernels.checksum import update
from lakestream.records.kernels.intrinsics import (
    copy_bytes,
    get_i32,
    get_i64,
    get_u8,
    read_i16,
    read_i32,
    read_i64,
    set_i32,
    set_i64,
    set_u8,
)
from lakestream.records.kernels.wire import is_utf8, read_bytes, read_record, varint_size, write_varint
from lakestream.records.layout import (
    APPEND_TIME_BIT,
    ATTRIBUTES,
    BASE_TIMESTAMP,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    MAGIC,
    MAX_TIMESTAMP,
    MAX_TIMESTAMP_MS,
    MIN_RECORD_BYTES,
    NO_TIMESTAMP,
    RECORD_COUNT,
    Status,
)

FULL = int(Status.FULL)
COMPRESSED = int(Status.COMPRESSED)

Binary = namedtuple("Binary", "offsets data valid")
Sink = namedtuple(
    "Sink",
    "partition offset timestamp timestamp_type crc key value header_offsets header_key header_value headers_raw spare",
)
"""Output arrays. `spare`: room to write one record in its shortest form."""

ROWS, HEADERS, CONSUMED, POSITION, NEXT_OFFSET = 0, 1, 2, 3, 4
"""Places in the cursor that lives between calls: what is filled, and how far the run is read."""


@njit(nogil=True, inline="always")
def put(column, row, buffer, start, length):
    """Appends buffer[start:start + length], null if the length is negative, as row `row`."""
    at = np.int64(get_i32(column.offsets, row))
    if length > 0:
        copy_bytes(column.data, at, buffer, start, length)
    set_u8(column.valid, row, np.uint8(length >= 0))
    set_i32(column.offsets, row + 1, np.int32(at + max(length, np.int64(0))))


@njit(nogil=True)
def shortest_size(buffer, record):
    """Bytes of the record's body when every number in it takes its shortest form."""
    size = (
        varint_size(record.key_length)
        + max(record.key_length, np.int64(0))
        + varint_size(record.value_length)
        + max(record.value_length, np.int64(0))
        + varint_size(record.header_count)
    )
    position = record.entries
    for index in range(2 * record.header_count):
        _, length, position = read_bytes(buffer, position, record.end, np.int64(-(index & 1)))
        size += varint_size(length) + max(length, np.int64(0))
    return size


@njit(nogil=True)
def write_piece(target, at, buffer, start, length):
    at = write_varint(target, at, length)
    if length > 0:
        copy_bytes(target, at, buffer, start, length)
        at += length
    return at


@njit(nogil=True)
def write_shortest(target, at, buffer, record):
    """Writes a whole record with its body in shortest form; deltas are left zero."""
    size = shortest_size(buffer, record) + 3
    at = write_varint(target, at, size)
    for _ in range(3):
        set_u8(target, at, np.uint8(0))
        at += 1
    at = write_piece(target, at, buffer, record.key_start, record.key_length)
    at = write_piece(target, at, buffer, record.value_start, record.value_length)
    at = write_varint(target, at, record.header_count)
    position = record.entries
    for index in range(2 * record.header_count):
        start, length, position = read_bytes(buffer, position, record.end, np.int64(-(index & 1)))
        at = write_piece(target, at, buffer, start, length)
    return at


@njit(nogil=True)
def header_keys_are_text(buffer, record):
    position = record.entries
    for _ in range(record.header_count):
        start, length, position = read_bytes(buffer, position, record.end, 0)
        if not is_utf8(buffer, start, start + length):
            return False
        _, _, position = read_bytes(buffer, position, record.end, -1)
    return True


@njit(nogil=True, inline="always")
def put_body(sink, cursor, buffer, record):
    """Everything from the key length on, as columns, with its checksum."""
    row = get_i64(cursor, ROWS)
    set_i32(sink.crc, row, np.int32(update(np.uint32(0), buffer, record.body, record.end)))
    put(sink.key, row, buffer, record.key_start, record.key_length)
    put(sink.value, row, buffer, record.value_start, record.value_length)
    raw_length = np.int64(-1)
    if record.header_count > 0:
        if header_keys_are_text(buffer, record):
            position = record.entries
            for _ in range(record.header_count):
                index = get_i64(cursor, HEADERS)
                start, length, position = read_bytes(buffer, position, record.end, 0)
                put(sink.header_key, index, buffer, start, length)
                start, length, position = read_bytes(buffer, position, record.end, -1)
                put(sink.header_value, index, buffer, start, length)
                set_i64(cursor, HEADERS, index + 1)
        else:
            raw_length = record.end - record.headers
    put(sink.headers_raw, row, buffer, record.headers, raw_length)
    set_i32(sink.header_offsets, row + 1, np.int32(get_i64(cursor, HEADERS)))
    set_i64(cursor, ROWS, row + 1)


@njit(nogil=True)
def decode_batch(head, at, buffer, position, end, partition, base_offset, sink, cursor, capacity):
    """The records in buffer[position:end] of the batch whose header is at head[at]."""
    count = np.int64(read_i32(head, at + RECORD_COUNT))
    last_delta = np.int64(read_i32(head, at + LAST_OFFSET_DELTA))
    if count < 0 or count > (end - position) // MIN_RECORD_BYTES or last_delta < count - 1:
        return BAD_COUNT
    if get_i64(cursor, CONSUMED) + (end - position) > capacity:
        return FULL
    append_time = np.int32(1) if read_i16(head, at + ATTRIBUTES) & APPEND_TIME_BIT else np.int32(0)
    base_timestamp = read_i64(head, at + BASE_TIMESTAMP)
    max_timestamp = read_i64(head, at + MAX_TIMESTAMP)
    consumed = get_i64(cursor, CONSUMED) + (end - position)
    if min(base_timestamp, max_timestamp) < NO_TIMESTAMP or max(base_timestamp, max_timestamp) > MAX_TIMESTAMP_MS:
        return BAD_TIMESTAMP
    previous = np.int64(-1)
    for _ in range(count):
        record = read_record(buffer, position, end)
        if record.end < 0:
            return BAD_RECORD
        if record.offset_delta <= previous or record.offset_delta > last_delta:
            return BAD_OFFSET
        delta = record.timestamp_delta
        if delta > MAX_TIMESTAMP_MS - base_timestamp or delta < NO_TIMESTAMP - base_timestamp:
            return BAD_TIMESTAMP
        previous = record.offset_delta
        position = record.end
        row = get_i64(cursor, ROWS)
        set_i32(sink.partition, row, np.int32(partition))
        set_i64(sink.offset, row, base_offset + record.offset_delta)
        set_i64(sink.timestamp, row, max_timestamp if append_time else base_timestamp + delta)
        set_i32(sink.timestamp_type, row, append_time)
        if shortest_size(buffer, record) == record.end - record.body:
            put_body(sink, cursor, buffer, record)
        else:
            length = write_shortest(sink.spare, np.int64(0), buffer, record)
            put_body(sink, cursor, sink.spare, read_record(sink.spare, np.int64(0), length))
    if position != end:
        return TRAILING_BYTES
    set_i64(cursor, CONSUMED, consumed)
    return DONE


@njit(nogil=True)
def decode_run(buffer, limit, partition, sink, cursor, capacity):
    """Batch after batch from cursor[POSITION], numbered densely from cursor[NEXT_OFFSET], until the run ends, the arena
    is full or a compressed batch comes. Control batches take their offsets and become no rows."""
    while get_i64(cursor, POSITION) < limit:
        position = get_i64(cursor, POSITION)
        end = batch_end(buffer, position, limit)
        if end < 0:
            return TRUNCATED
        if get_u8(buffer, position + MAGIC) != 2:
            return BAD_MAGIC
        if not crc_holds(buffer, position, end):
            return BAD_CRC
        last_delta = np.int64(read_i32(buffer, position + LAST_OFFSET_DELTA))
        if last_delta < 0:
            return BAD_OFFSET
        attributes = read_i16(buffer, position + ATTRIBUTES)
        if not attributes & CONTROL_BIT:
            if attributes & CODEC_MASK:
                return COMPRESSED
            status = decode_batch(
                buffer,
                position,
                buffer,
                position + HEADER_BYTES,
                end,
                partition,
                get_i64(cursor, NEXT_OFFSET),
                sink,
                cursor,
                capacity,
            )
            if status != DONE:
                return status
        set_i64(cursor, NEXT_OFFSET, get_i64(cursor, NEXT_OFFSET) + last_delta + 1)
        set_i64(cursor, POSITION, end)
    return DONE
