# mypy: ignore-errors
"""Columns to record batches, each record held against its checksum."""

from collections import namedtuple

import numpy as np
from numba import njit

from lakestream.records.kernels.batch import BAD_CRC, BAD_OFFSET, DONE
from lakestream.records.kernels.checksum import update
from lakestream.records.kernels.decode import FULL, write_piece
from lakestream.records.kernels.intrinsics import (
    copy_bytes,
    get_i32,
    get_i64,
    get_u8,
    set_i64,
    set_u8,
    write_i16,
    write_i32,
    write_i64,
)
from lakestream.records.kernels.wire import varint_size, write_varint
from lakestream.records.layout import (
    APPEND_TIME_BIT,
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    BATCH_LENGTH,
    CRC,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    MAGIC,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
    Status,
)

BAD_HEADER_KEY = int(Status.BAD_HEADER_KEY)
MAX_DELTA = 0x7FFFFFFF

Source = namedtuple(
    "Source", "offset timestamp timestamp_type crc key value header_offsets header_key header_value headers_raw"
)
ROW, WRITTEN, LAST_OFFSET = 0, 1, 2
"""Places in the cursor: the next row to encode (when it fails: the bad one), bytes written, the last offset encoded."""


@njit(nogil=True, inline="always")
def length_of(column, row):
    if not get_u8(column.valid, row):
        return np.int64(-1)
    return np.int64(get_i32(column.offsets, row + 1)) - np.int64(get_i32(column.offsets, row))


@njit(nogil=True, inline="always")
def piece_size(length):
    return varint_size(length) + max(length, np.int64(0))


@njit(nogil=True, inline="always")
def body_size(source, row):
    """Bytes of the record from the key length on, or -1 if a header has no key."""
    size = piece_size(length_of(source.key, row)) + piece_size(length_of(source.value, row))
    raw = length_of(source.headers_raw, row)
    if raw >= 0:
        return size + raw
    first, last = np.int64(get_i32(source.header_offsets, row)), np.int64(get_i32(source.header_offsets, row + 1))
    size += varint_size(last - first)
    for index in range(first, last):
        key_length = length_of(source.header_key, index)
        if key_length < 0:
            return np.int64(-1)
        size += piece_size(key_length) + piece_size(length_of(source.header_value, index))
    return size


@njit(nogil=True, inline="always")
def write_body(out, at, source, row):
    at = write_piece(out, at, source.key.data, np.int64(get_i32(source.key.offsets, row)), length_of(source.key, row))
    at = write_piece(
        out, at, source.value.data, np.int64(get_i32(source.value.offsets, row)), length_of(source.value, row)
    )
    raw = length_of(source.headers_raw, row)
    if raw >= 0:
        copy_bytes(out, at, source.headers_raw.data, np.int64(get_i32(source.headers_raw.offsets, row)), raw)
        return at + raw
    first, last = np.int64(get_i32(source.header_offsets, row)), np.int64(get_i32(source.header_offsets, row + 1))
    at = write_varint(out, at, last - first)
    for index in range(first, last):
        key, value = source.header_key, source.header_value
        at = write_piece(out, at, key.data, np.int64(get_i32(key.offsets, index)), length_of(key, index))
        at = write_piece(out, at, value.data, np.int64(get_i32(value.offsets, index)), length_of(value, index))
    return at


@njit(nogil=True)
def close_batch(out, head, end, base_offset, last_offset, base_timestamp, max_timestamp, append_time, count):
    write_i64(out, head + BASE_OFFSET, base_offset)
    write_i32(out, head + BATCH_LENGTH, np.int32(end - head - LEADER_EPOCH))
    write_i32(out, head + LEADER_EPOCH, np.int32(0))
    set_u8(out, head + MAGIC, np.uint8(2))
    write_i16(out, head + ATTRIBUTES, np.int16(APPEND_TIME_BIT if append_time else 0))
    write_i32(out, head + LAST_OFFSET_DELTA, np.int32(last_offset - base_offset))
    write_i64(out, head + BASE_TIMESTAMP, base_timestamp)
    write_i64(out, head + MAX_TIMESTAMP, max_timestamp)
    write_i64(out, head + PRODUCER_ID, np.int64(-1))
    write_i16(out, head + PRODUCER_EPOCH, np.int16(-1))
    write_i32(out, head + BASE_SEQUENCE, np.int32(-1))
    write_i32(out, head + RECORD_COUNT, np.int32(count))
    write_i32(out, head + CRC, np.int32(update(np.uint32(0), out, head + ATTRIBUTES, end)))


@njit(nogil=True, inline="always")
def is_sound(source, row, out, body, end, checks):
    return not checks or np.int32(update(np.uint32(0), out, body, end)) == get_i32(source.crc, row)


@njit(nogil=True, inline="always")
def encode_batch(source, rows, stop, out, limit, batch_bytes, batch_records, cursor, checks):
    """One batch from row cursor[ROW] on, as many records as belong in it. At least one, else FULL. A record is held
    against its checksum when the next is written: to read bytes right after they were stored stalls the processor."""
    head = get_i64(cursor, WRITTEN)
    at = head + HEADER_BYTES
    index = get_i64(cursor, ROW)
    first = get_i64(rows, index)
    base_offset = get_i64(source.offset, first)
    base_timestamp = get_i64(source.timestamp, first)
    append_time = get_i32(source.timestamp_type, first)
    max_timestamp = base_timestamp
    last_offset = get_i64(cursor, LAST_OFFSET)
    count = 0
    last_row = last_body = last_end = np.int64(0)
    while index < stop and count < batch_records:
        row = get_i64(rows, index)
        offset, timestamp = get_i64(source.offset, row), get_i64(source.timestamp, row)
        if offset <= last_offset:
            set_i64(cursor, ROW, index)
            return BAD_OFFSET
        other_time = get_i32(source.timestamp_type, row) != append_time or (append_time and timestamp != base_timestamp)
        if other_time or offset - base_offset > MAX_DELTA:
            break
        body = body_size(source, row)
        if body < 0:
            set_i64(cursor, ROW, index)
            return BAD_HEADER_KEY
        length = 1 + varint_size(timestamp - base_timestamp) + varint_size(offset - base_offset) + body
        after = at + varint_size(length) + length
        if after > limit or (count > 0 and after - head > batch_bytes):
            break
        at = write_varint(out, at, length)
        set_u8(out, at, np.uint8(0))
        at = write_varint(out, at + 1, timestamp - base_timestamp)
        at = write_varint(out, at, offset - base_offset)
        write_body(out, at, source, row)
        if count > 0 and not is_sound(source, last_row, out, last_body, last_end, checks):
            set_i64(cursor, ROW, index - 1)
            return BAD_CRC
        last_row, last_body, last_end = row, at, after
        at = after
        max_timestamp = max(max_timestamp, timestamp)
        last_offset = offset
        count += 1
        index += 1
    if count == 0:
        return FULL
    if not is_sound(source, last_row, out, last_body, last_end, checks):
        set_i64(cursor, ROW, index - 1)
        return BAD_CRC
    close_batch(out, head, at, base_offset, last_offset, base_timestamp, max_timestamp, append_time, count)
    set_i64(cursor, ROW, index)
    set_i64(cursor, WRITTEN, at)
    set_i64(cursor, LAST_OFFSET, last_offset)
    return DONE


@njit(nogil=True)
def encode(source, rows, stop, out, limit, batch_bytes, batch_records, cursor, checks):
    """Batches until the rows end or the next record would pass the limit. Bytes are written below the limit only.
    Without `checks` records are encoded whatever their checksums say."""
    while get_i64(cursor, ROW) < stop:
        status = encode_batch(source, rows, stop, out, limit, batch_bytes, batch_records, cursor, checks)
        if status != DONE:
            return status
    return DONE
