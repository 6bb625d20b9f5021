"""Records one by one, as a door that is told them singly has them, to batches."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from lakestream.records.batches import walk
from lakestream.records.columns import Binary, Columns
from lakestream.records.encoding import Encoder
from lakestream.records.native import Buffer

NO_BYTES: Final = np.zeros(0, np.uint8)
_ALL_BYTES: Final = 1 << 62


class PlainRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Sequence[tuple[bytes, bytes | None]] = ()


class BuiltBatch(NamedTuple):
    """So many of the records, in their order."""

    run: Buffer
    record_count: int


def batches_of(records: Sequence[PlainRecord], most_bytes: int) -> list[BuiltBatch]:
    """All records as uncompressed batches of at most so many bytes, unless a single one has more."""
    encoder = Encoder(columns_of(records))
    run, _ = encoder.encode(0, len(records), max_bytes=_ALL_BYTES, batch_bytes=most_bytes, checks=False)
    return [BuiltBatch(run[each.position : each.position + each.length], each.record_count) for each in walk(run)]


def columns_of(records: Sequence[PlainRecord]) -> Columns:
    count = len(records)
    zeros = np.zeros(count, np.int32)
    headers = [header for record in records for header in record.headers]
    ends = np.zeros(count + 1, np.int32)
    if headers:
        np.cumsum([len(record.headers) for record in records], out=ends[1:])
    return Columns(
        zeros,
        np.arange(count, dtype=np.int64),
        np.fromiter((record.timestamp_ms for record in records), np.int64, count),
        zeros,
        zeros,
        binary_of([record.key for record in records]),
        binary_of([record.value for record in records]),
        ends,
        binary_of([name for name, _ in headers]),
        binary_of([value for _, value in headers]),
        Binary(np.zeros(count + 1, np.int32), NO_BYTES, np.zeros(count, np.uint8)),
    )


def binary_of(values: Sequence[bytes | None]) -> Binary:
    count = len(values)
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.fromiter((0 if each is None else len(each) for each in values), np.int32, count), out=offsets[1:])
    data = b"".join([each for each in values if each])
    valid = np.fromiter((each is not None for each in values), np.uint8, count)
    return Binary(offsets, np.frombuffer(data, np.uint8) if data else NO_BYTES, valid)
