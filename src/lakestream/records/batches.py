"""Batch headers: read them, number them, fill gaps with them."""

import struct
from typing import Final, NamedTuple

from lakestream.errors import CorruptRecords
from lakestream.records.layout import (
    ATTRIBUTES,
    CONTROL_BIT,
    CRC,
    HEADER_BYTES,
    LEADER_EPOCH,
    NO_TIMESTAMP,
    STATUS_TEXT,
    TRANSACTIONAL_BIT,
    Status,
)
from lakestream.records.native import Buffer, address, kernels
from lakestream.records.varint import varint

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
MAX_OFFSET_DELTA: Final = 0x7FFFFFFF

# The key of a marker is a version and its type, its value a version and the coordinator's epoch.
_MARKER_KEY: Final = struct.Struct(">hh")
_MARKER_VALUE: Final = struct.Struct(">hi")
_ABORT: Final = 0
_COMMIT: Final = 1
_NO_SEQUENCE: Final = -1


class BatchInfo(NamedTuple):
    """What a batch's header says. `position` and `length` locate the whole batch in its run."""

    position: int
    length: int
    record_count: int
    last_offset_delta: int
    attributes: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int


def crc32c(buffer: Buffer, crc: int = 0) -> int:
    """CRC32C of the buffer, appended to what `crc` stands for."""
    return kernels().crc32c(crc, address(buffer), 0, len(buffer))


def walk(run: Buffer) -> list[BatchInfo]:
    """The headers of the run's batches; nothing inside them is looked at.

    Raises:
        CorruptRecords: a batch does not lie within the run, or is not of magic 2.
    """
    batches = []
    position, limit = 0, len(run)
    while position < limit:
        if limit - position < HEADER_BYTES:
            raise CorruptRecords(f"byte {position}: {STATUS_TEXT[Status.TRUNCATED]}")
        fields = HEADER.unpack_from(run, position)
        _, length, _, magic, _, attributes, last_offset_delta, base_timestamp, max_timestamp, *producer, count = fields
        end = position + LEADER_EPOCH + length
        if magic != 2:
            raise CorruptRecords(f"byte {position}: {STATUS_TEXT[Status.BAD_MAGIC]}")
        if length < HEADER_BYTES - LEADER_EPOCH or end > limit:
            raise CorruptRecords(f"byte {position}: {STATUS_TEXT[Status.TRUNCATED]}")
        if last_offset_delta < 0 or count < 0:
            raise CorruptRecords(f"byte {position}: {STATUS_TEXT[Status.BAD_COUNT]}")
        producer_id, producer_epoch, base_sequence = producer
        batches.append(
            BatchInfo(
                position,
                end - position,
                count,
                last_offset_delta,
                attributes,
                base_timestamp,
                max_timestamp,
                producer_id,
                producer_epoch,
                base_sequence,
            )
        )
        position = end
    return batches


def batch_at(run: Buffer, offset: int) -> BatchInfo | None:
    """The numbered batch that holds the offset, if one does."""
    for info in walk(run):
        (base_offset,) = struct.unpack_from(">q", run, info.position)
        if base_offset <= offset <= base_offset + info.last_offset_delta:
            return info
    return None


def stamp(run: bytearray | memoryview, base_offset: int) -> int:
    """Numbers the run's batches densely from base_offset, in place, leader epoch 0: both lie outside the CRC.

    Returns:
        The offset after the last record.

    Raises:
        CorruptRecords: a batch does not lie within the run; those before it are stamped.
    """
    if isinstance(run, memoryview) and run.readonly:
        raise TypeError("a run is stamped in place: it must be writable")
    result = kernels().stamp(address(run), len(run), base_offset)
    if result < 0:
        raise CorruptRecords(STATUS_TEXT[result])
    return result


def control_batch(first_offset: int, last_offset: int) -> bytes:
    """One commit marker without a producer, which lets a consumer pass a gap: no client hands it to its user.

    It covers [first_offset, last_offset], of a gap wider than a batch can be its end."""
    base_offset = max(first_offset, last_offset - MAX_OFFSET_DELTA)
    return _control(base_offset, last_offset - base_offset, CONTROL_BIT, NO_TIMESTAMP, -1, -1, _COMMIT, 0)


def marker_batch(*, committed: bool, producer_id: int, epoch: int, coordinator_epoch: int, time_ms: int) -> bytes:
    """What ends a producer's transaction in a log, of one offset, not numbered yet."""
    kind = _COMMIT if committed else _ABORT
    attributes = CONTROL_BIT | TRANSACTIONAL_BIT
    return _control(0, 0, attributes, time_ms, producer_id, epoch, kind, coordinator_epoch)


def _control(
    base_offset: int,
    delta: int,
    attributes: int,
    time_ms: int,
    producer_id: int,
    epoch: int,
    kind: int,
    coordinator_epoch: int,
) -> bytes:
    key, value = _MARKER_KEY.pack(0, kind), _MARKER_VALUE.pack(0, coordinator_epoch)
    # Attributes, timestamp delta, offset delta, key, value, no headers.
    record = b"\x00\x00" + varint(delta << 1) + varint(len(key) << 1) + key + varint(len(value) << 1) + value + b"\x00"
    records = varint(len(record) << 1) + record
    batch = bytearray(HEADER_BYTES + len(records))
    batch[HEADER_BYTES:] = records
    producer = producer_id, epoch, _NO_SEQUENCE
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LEADER_EPOCH,
        0,
        2,
        0,
        attributes,
        delta,
        time_ms,
        time_ms,
        *producer,
        1,
    )
    struct.pack_into(">I", batch, CRC, crc32c(memoryview(batch)[ATTRIBUTES:]))
    return bytes(batch)
