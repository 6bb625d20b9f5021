"""Batches in another form: compressed otherwise, or with the broker's time. Their records stay as they are."""

import struct

from lakestream.errors import RecordsTooLarge
from lakestream.records.batches import BatchInfo, crc32c, walk
from lakestream.records.checking.rules import BatchRules
from lakestream.records.checking.validation import validate
from lakestream.records.compression import MAX_DECOMPRESSED_BYTES, BatchCompression, compress, decompress
from lakestream.records.layout import (
    APPEND_TIME_BIT,
    ATTRIBUTES,
    BATCH_LENGTH,
    CODEC_MASK,
    CONTROL_BIT,
    CRC,
    HEADER_BYTES,
    LEADER_EPOCH,
    MAX_TIMESTAMP,
)
from lakestream.records.native import Buffer


def take(
    run: Buffer, rules: BatchRules, now_ms: int, room_bytes: int = MAX_DECOMPRESSED_BYTES
) -> tuple[Buffer, BatchInfo]:
    """The batch of a produce payload, checked, in the form in which the topic keeps it. Raises what `validate` does."""
    info = validate(run, rules, now_ms, room_bytes)
    codec = info.attributes & CODEC_MASK
    other = rules.compression if rules.compression is not None and rules.compression.codec != codec else None
    if other is None and not rules.append_time:
        return run, info
    batch = bytearray(run) if other is None else _compressed(memoryview(run), codec, other)
    if len(batch) > rules.max_bytes:
        raise RecordsTooLarge(
            f"a batch of {len(batch)} bytes, as this topic compresses it, is above the maximum of {rules.max_bytes}"
        )
    if rules.append_time:
        _set_append_time(batch, now_ms)
    _seal(batch)
    (kept,) = walk(batch)
    return batch, kept._replace(max_timestamp_ms=now_ms if rules.append_time else info.max_timestamp_ms)


def compressed(run: memoryview, compression: BatchCompression) -> memoryview:
    """Batches that are not compressed yet, compressed one by one."""
    out = bytearray()
    for info in walk(run):
        batch = run[info.position : info.position + info.length]
        if info.attributes & (CODEC_MASK | CONTROL_BIT):
            out += batch
        else:
            packed = _compressed(batch, 0, compression)
            _seal(packed)
            out += packed
    return memoryview(out).toreadonly()


def _compressed(batch: memoryview, codec: int, other: BatchCompression) -> bytearray:
    """All but its checksum."""
    plain = decompress(codec, batch[HEADER_BYTES:]).data if codec else batch[HEADER_BYTES:]
    out = bytearray(batch[:HEADER_BYTES])
    out += compress(other, plain) if other.codec else plain
    (attributes,) = struct.unpack_from(">h", out, ATTRIBUTES)
    struct.pack_into(">h", out, ATTRIBUTES, attributes & ~CODEC_MASK | other.codec)
    struct.pack_into(">i", out, BATCH_LENGTH, len(out) - LEADER_EPOCH)
    return out


def _set_append_time(batch: bytearray, now_ms: int) -> None:
    """All records of such a batch have its newest timestamp, whatever their own says."""
    (attributes,) = struct.unpack_from(">h", batch, ATTRIBUTES)
    struct.pack_into(">h", batch, ATTRIBUTES, attributes | APPEND_TIME_BIT)
    struct.pack_into(">q", batch, MAX_TIMESTAMP, now_ms)


def _seal(batch: bytearray) -> None:
    struct.pack_into(">I", batch, CRC, crc32c(memoryview(batch)[ATTRIBUTES:]))
