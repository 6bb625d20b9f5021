# mypy: ignore-errors
"""Whole batches: bounds, the deep check of a produce request, numbering in place."""

import numpy as np
from numba import njit

from lakestream.records.kernels.checksum import update
from lakestream.records.kernels.intrinsics import get_i64, get_u8, read_i32, set_i64, write_i32, write_i64
from lakestream.records.kernels.wire import read_record
from lakestream.records.layout import (
    ATTRIBUTES,
    BASE_OFFSET,
    BATCH_LENGTH,
    CRC,
    FRAME_BYTES,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    MAGIC,
    MAX_TIMESTAMP_MS,
    MIN_RECORD_BYTES,
    NO_TIMESTAMP,
    Status,
)

DONE = int(Status.DONE)
TRUNCATED = int(Status.TRUNCATED)
BAD_MAGIC = int(Status.BAD_MAGIC)
BAD_CRC = int(Status.BAD_CRC)
BAD_RECORD = int(Status.BAD_RECORD)
BAD_COUNT = int(Status.BAD_COUNT)
BAD_OFFSET = int(Status.BAD_OFFSET)
BAD_TIMESTAMP = int(Status.BAD_TIMESTAMP)
TRAILING_BYTES = int(Status.TRAILING_BYTES)
AGAINST_RULES = int(Status.AGAINST_RULES)


@njit(nogil=True)
def batch_end(buffer, position, limit):
    """Where the batch at `position` ends, or -1 if it does not lie within the limit."""
    if limit - position < HEADER_BYTES:
        return np.int64(-1)
    length = np.int64(read_i32(buffer, position + BATCH_LENGTH))
    if length < HEADER_BYTES - LEADER_EPOCH or length > limit - position - LEADER_EPOCH:
        return np.int64(-1)
    return position + LEADER_EPOCH + length


@njit(nogil=True)
def crc_holds(buffer, position, end):
    expected = np.uint32(read_i32(buffer, position + CRC))
    return update(np.uint32(0), buffer, position + ATTRIBUTES, end) == expected


@njit(nogil=True)
def framed_id(buffer, start, length):
    """The id of the schema before a value: a zero byte, the id in four. -1: there is none."""
    if length < FRAME_BYTES or get_u8(buffer, start) != 0:
        return np.int64(-1)
    return np.int64(read_i32(buffer, start + 1)) & 0xFFFFFFFF


@njit(nogil=True)
def is_among(ids, count, wanted):
    """Whether it is one of the ids, which ascend."""
    low, high = np.int64(0), count
    while low < high:
        middle = (low + high) // 2
        if get_i64(ids, middle) < wanted:
            low = middle + 1
        else:
            high = middle
    return low < count and get_i64(ids, low) == wanted


@njit(nogil=True)
def check_records(buffer, position, end, count, base_timestamp, needs_keys, earliest, latest, ids, id_count, result):
    """Walks `count` records that must fill [position, end) exactly, offset deltas 0, 1, 2 …; result[0]: their newest
    timestamp. The base timestamp is already known to be in range. What is no record at all is told before what is one
    that the topic does not take: without a key, of a time outside [earliest, latest], or with a value that does not
    begin with one of the ids (`id_count` negative: any value will do)."""
    if count <= 0 or count > (end - position) // MIN_RECORD_BYTES:
        return BAD_COUNT
    newest = np.int64(NO_TIMESTAMP)
    last_id = np.int64(-1)
    taken = True
    for index in range(count):
        record = read_record(buffer, position, end)
        if record.end < 0:
            return BAD_RECORD
        if record.offset_delta != index:
            return BAD_OFFSET
        delta = record.timestamp_delta
        if delta > MAX_TIMESTAMP_MS - base_timestamp or delta < NO_TIMESTAMP - base_timestamp:
            return BAD_TIMESTAMP
        timestamp = base_timestamp + delta
        if needs_keys and record.key_length < 0:
            taken = False
        if (timestamp < earliest or timestamp > latest) and timestamp != NO_TIMESTAMP:
            taken = False
        if id_count >= 0 and record.value_length >= 0:
            schema_id = framed_id(buffer, record.value_start, record.value_length)
            if schema_id != last_id:
                if is_among(ids, id_count, schema_id):
                    last_id = schema_id
                else:
                    taken = False
            elif schema_id < 0:
                taken = False
        newest = max(newest, timestamp)
        position = record.end
    set_i64(result, 0, newest)
    if position != end:
        return TRAILING_BYTES
    return DONE if taken else AGAINST_RULES


@njit(nogil=True)
def stamp(buffer, limit, offset):
    """Numbers the batches densely from `offset`; the offset after the last one, or an error."""
    position = np.int64(0)
    while position < limit:
        end = batch_end(buffer, position, limit)
        if end < 0:
            return np.int64(TRUNCATED)
        if get_u8(buffer, position + MAGIC) != 2:
            return np.int64(BAD_MAGIC)
        last_offset_delta = np.int64(read_i32(buffer, position + LAST_OFFSET_DELTA))
        if last_offset_delta < 0:
            return np.int64(BAD_OFFSET)
        write_i64(buffer, position + BASE_OFFSET, offset)
        write_i32(buffer, position + LEADER_EPOCH, np.int32(0))
        offset += last_offset_delta + 1
        position = end
    return offset
