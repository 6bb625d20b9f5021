"""Columns to the batches of one idempotent producer, as a client would send them."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lakestream.records.batches import BatchInfo, crc32c, walk
from lakestream.records.checking.rewriting import take
from lakestream.records.checking.rules import BatchRules
from lakestream.records.columns import Columns
from lakestream.records.encoding import BATCH_BYTES, Encoder
from lakestream.records.layout import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    CRC,
    HEADER_BYTES,
    PRODUCER_EPOCH,
    PRODUCER_ID,
)
from lakestream.records.native import Buffer

_AT_ONCE_BYTES: Final = 4 * 1024 * 1024
_EPOCH: Final = 0


class SequencedBatch(NamedTuple):
    """One batch for one partition, in the form in which its topic keeps it."""

    partition: int
    run: Buffer
    info: BatchInfo


def sequenced(
    pieces: Sequence[Columns],
    partitions: Sequence[npt.NDArray[np.int32]],
    producer_id: int,
    rules: BatchRules,
    now_ms: int,
) -> Iterator[SequencedBatch]:
    """The rows of all pieces, each in the partition that stands beside it: partition by partition, in the order of the
    rows, with sequences from 0 in each. Raises what `take` does for rows that the topic does not take."""
    orders = [np.argsort(each, kind="stable") for each in partitions]
    ordered = [each[order] for each, order in zip(partitions, orders, strict=True)]
    for partition in np.unique(np.concatenate([np.empty(0, np.int32), *partitions])).tolist():
        encoders = []
        count = 0
        for columns, order, found in zip(pieces, orders, ordered, strict=True):
            first, last = np.searchsorted(found, (partition, partition + 1)).tolist()
            if first == last:
                continue
            rows = order[first:last]
            offset = np.zeros(len(columns), np.int64)
            offset[rows] = np.arange(count, count + len(rows))
            count += len(rows)
            encoders.append(Encoder(replace(columns, offset=offset), rows))
        for run, info in _batches(Encoder.joined(encoders), count, producer_id, rules, now_ms):
            yield SequencedBatch(partition, run, info)


def _batches(
    encoder: Encoder, count: int, producer_id: int, rules: BatchRules, now_ms: int
) -> Iterator[tuple[Buffer, BatchInfo]]:
    at = sequence = 0
    batch_bytes = max(HEADER_BYTES, min(BATCH_BYTES, rules.max_bytes))
    while at < count:
        runs, at = encoder.encode(at, count, max_bytes=_AT_ONCE_BYTES, batch_bytes=batch_bytes, checks=False)
        for info in walk(runs):
            batch = bytearray(runs[info.position : info.position + info.length])
            struct.pack_into(">q", batch, BASE_OFFSET, 0)
            struct.pack_into(">q", batch, PRODUCER_ID, producer_id)
            struct.pack_into(">h", batch, PRODUCER_EPOCH, _EPOCH)
            struct.pack_into(">i", batch, BASE_SEQUENCE, sequence)
            struct.pack_into(">I", batch, CRC, crc32c(memoryview(batch)[ATTRIBUTES:]))
            sequence += info.record_count
            yield take(batch, rules, now_ms)
