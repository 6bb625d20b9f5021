"""The deep check of what a producer sends, with Kafka's answer for each fault.

Kafka takes exactly one batch of magic 2 per partition and request. Framing, size and CRC faults are CORRUPT_MESSAGE
(the wire may be to blame: clients retry); whatever is wrong under a valid CRC is the producer's doing, INVALID_RECORD.
Stricter than Kafka: offset deltas are dense in every batch, a producer never claims LogAppendTime, and a timestamp is
one that a table can hold, and a transaction has a producer. Whoever does not say that it takes batches of transactions
gets none.
"""

import ctypes
from typing import Final

from lakestream.errors import (
    CorruptRecords,
    InvalidRecords,
    InvalidTimestamp,
    LakestreamError,
    RecordsTooLarge,
    UnsupportedRecords,
)
from lakestream.records.batches import HEADER, BatchInfo
from lakestream.records.checking.blaming import blame
from lakestream.records.checking.rules import BatchRules
from lakestream.records.compression import MAX_DECOMPRESSED_BYTES, ZSTD, Bytes, decompress
from lakestream.records.layout import (
    APPEND_TIME_BIT,
    ATTRIBUTES,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    LEADER_EPOCH,
    MAGIC,
    MAX_TIMESTAMP_MS,
    NO_TIMESTAMP,
    STATUS_TEXT,
    TRANSACTIONAL_BIT,
    Status,
)
from lakestream.records.native import Buffer, address, kernels

_FRAME_BYTES: Final = MAGIC + 1


def validate(run: Buffer, rules: BatchRules, now_ms: int, room_bytes: int = MAX_DECOMPRESSED_BYTES) -> BatchInfo:
    """The batch of a produce payload, checked to the last byte. No Python per record, unless the topic does not take
    one of them: the error then names them.

    `max_timestamp_ms` is the newest of the records, whatever the header claims.

    Raises:
        OutOfRoom: a compressed batch grows beyond room_bytes; nothing is said about it.
        CorruptRecords: cut short, impossible lengths, unknown magic, wrong CRC.
        UnsupportedRecords: magic 0 or 1, or an unknown compression.
        RecordsTooLarge: more than the topic takes, or a compressed batch that grows beyond all bounds.
        InvalidTimestamp: outside [-1, year 9999] or what the topic takes, or LogAppendTime.
        UnknownSchema: values name schemas that the rules do not have.
        InvalidRecords: anything else.
    """
    size = len(run)
    if size == 0:
        raise InvalidRecords("a produce request needs one record batch per partition")
    if size < _FRAME_BYTES:
        raise CorruptRecords(STATUS_TEXT[Status.TRUNCATED])
    if run[MAGIC] in (0, 1):
        raise UnsupportedRecords(f"magic {run[MAGIC]}: {STATUS_TEXT[Status.BAD_MAGIC]}")
    if run[MAGIC] != 2:
        raise CorruptRecords(f"magic {run[MAGIC]}: {STATUS_TEXT[Status.BAD_MAGIC]}")
    if size < HEADER_BYTES:
        raise CorruptRecords(STATUS_TEXT[Status.TRUNCATED])
    _, length, _, _, crc, attributes, last_delta, base_timestamp, max_timestamp, producer_id, epoch, sequence, count = (
        HEADER.unpack_from(run, 0)
    )
    end = LEADER_EPOCH + length
    if end < HEADER_BYTES:
        raise CorruptRecords(STATUS_TEXT[Status.TRUNCATED])
    if end > rules.max_bytes:
        raise RecordsTooLarge(f"a batch of {end} bytes is above the maximum of {rules.max_bytes}")
    if end > size:
        raise CorruptRecords(STATUS_TEXT[Status.TRUNCATED])
    if end < size:
        raise _surplus(run, end)
    start = address(run)
    if kernels().crc32c(0, start, ATTRIBUTES, end) != crc:
        raise CorruptRecords(STATUS_TEXT[Status.BAD_CRC])
    _check_header(attributes, last_delta, count, producer_id, epoch, sequence)
    if attributes & TRANSACTIONAL_BIT:
        _check_transactional(producer_id, rules)
    if not (_is_timestamp(base_timestamp) and _is_timestamp(max_timestamp)):
        raise InvalidTimestamp(STATUS_TEXT[Status.BAD_TIMESTAMP])
    newest = ctypes.c_int64()
    ids = (0, -1) if rules.value_ids is None else (address(rules.value_ids.ids), len(rules.value_ids.ids))
    wanted = (count, base_timestamp, rules.needs_keys, *rules.bounds(now_ms), *ids, ctypes.byref(newest))
    if codec := attributes & CODEC_MASK:
        plain = _decompress(codec, memoryview(run)[HEADER_BYTES:end], room_bytes)
        status = kernels().check_records(address(plain), 0, len(plain), *wanted)
    else:
        status = kernels().check_records(start, HEADER_BYTES, end, *wanted)
    if status == Status.AGAINST_RULES:
        raise blame(run, rules, now_ms)
    if status == Status.BAD_TIMESTAMP:
        raise InvalidTimestamp(STATUS_TEXT[status])
    if status != Status.DONE:
        raise InvalidRecords(STATUS_TEXT[status])
    return BatchInfo(0, end, count, last_delta, attributes, base_timestamp, newest.value, producer_id, epoch, sequence)


def _is_timestamp(timestamp_ms: int) -> bool:
    return NO_TIMESTAMP <= timestamp_ms <= MAX_TIMESTAMP_MS


def _surplus(run: Buffer, end: int) -> LakestreamError:
    """Bytes follow the batch: a second batch, or the beginning of something."""
    if len(run) - end >= _FRAME_BYTES and run[end + MAGIC] == 2:
        return InvalidRecords("a produce request may hold one record batch per partition, not several")
    return CorruptRecords("bytes are left over after the batch")


def _check_header(attributes: int, last_delta: int, count: int, producer_id: int, epoch: int, sequence: int) -> None:
    if count <= 0 or last_delta != count - 1:
        raise InvalidRecords(f"{count} records cannot span offset deltas 0 to {last_delta}")
    if attributes & CONTROL_BIT:
        raise InvalidRecords("producers may not write control batches")
    if attributes & APPEND_TIME_BIT:
        raise InvalidTimestamp("a producer may not claim LogAppendTime")
    if attributes & CODEC_MASK > ZSTD:
        raise UnsupportedRecords(f"compression codec {attributes & CODEC_MASK} does not exist")
    if producer_id >= 0 and (sequence < 0 or epoch < 0):
        raise InvalidRecords(f"producer {producer_id} needs a sequence and an epoch, not {sequence} and {epoch}")


def _check_transactional(producer_id: int, rules: BatchRules) -> None:
    if not rules.transactional:
        raise InvalidRecords("transactions are not served here: send records without a transactional id")
    if producer_id < 0:
        raise InvalidRecords("a batch of a transaction needs a producer id")


def _decompress(codec: int, data: memoryview, room_bytes: int) -> Bytes:
    try:
        return decompress(codec, data, room_bytes)
    except CorruptRecords as error:
        raise InvalidRecords(str(error)) from error
