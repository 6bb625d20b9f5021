"""Record batches to columns."""

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np

from lakestream.errors import CorruptRecords, RequestError
from lakestream.records.columns import Arena, Columns
from lakestream.records.compression import decompress
from lakestream.records.layout import (
    ATTRIBUTES,
    BATCH_LENGTH,
    CODEC_MASK,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    STATUS_TEXT,
    Status,
)
from lakestream.records.native import Buffer, address, kernels

_POSITION: Final = 3
_NEXT_OFFSET: Final = 4
_PARTITION_BREAK_BYTES: Final = 1024 * 1024
"""From this size on, a fill holds no second partition: its offset bounds then mean something."""


class Run(NamedTuple):
    """Batches of one partition, to be numbered densely from base_offset whatever their headers say. They must end at
    end_offset, if that is known: one offset more or less, and a record would be there twice or never."""

    partition: int
    base_offset: int
    data: Buffer
    end_offset: int | None = None


def decode(runs: Iterable[Run], arena: Arena) -> Iterator[Columns]:
    """The records of the runs, in order, an arena's fill at a time: what is yielded is gone with the next step.

    Control batches take their offsets and become no records. Every CRC is checked.

    Raises:
        CorruptRecords: whatever is wrong with the bytes.
    """
    arena.reset()
    last_partition = -1
    for run in runs:
        if run.partition != last_partition and arena.used_bytes >= _PARTITION_BREAK_BYTES:
            yield arena.columns()
            arena.reset()
        last_partition = run.partition
        yield from _fill(run, arena)
    if arena.row_count:
        yield arena.columns()


def _fill(run: Run, arena: Arena) -> Iterator[Columns]:
    """Decodes the run into the arena, yielding whenever it is full."""
    data = np.frombuffer(run.data, np.uint8)
    start, limit = int(address(data)), len(data)
    arena.cursor[_POSITION] = 0
    arena.cursor[_NEXT_OFFSET] = run.base_offset
    while True:
        status = kernels().decode_run(start, limit, run.partition, *arena.addresses, arena.capacity_bytes)
        needed_bytes = 0
        if status in (Status.COMPRESSED, Status.FULL):
            status, needed_bytes = _decode_one(run, start, arena)
        if status == Status.DONE and arena.cursor[_POSITION] >= limit:
            if run.end_offset not in (None, arena.cursor[_NEXT_OFFSET]):
                raise CorruptRecords(
                    f"the batches of partition {run.partition} are the offsets {run.base_offset} to"
                    f" {arena.cursor[_NEXT_OFFSET]}, not to {run.end_offset}"
                )
            return
        if status == Status.FULL:
            if arena.row_count:
                yield arena.columns()
                arena.reset()
            if needed_bytes > arena.capacity_bytes:
                arena.grow(needed_bytes)
        elif status != Status.DONE:
            raise CorruptRecords(
                f"partition {run.partition}, byte {arena.cursor[_POSITION]} of a run: {STATUS_TEXT[status]}"
            )


def _decode_one(run: Run, start: int, arena: Arena) -> tuple[int, int]:
    """The batch at the cursor alone, whose frame and CRC are known to hold: (status, bytes of its records)."""
    position = int(arena.cursor[_POSITION])
    (length,) = struct.unpack_from(">i", run.data, position + BATCH_LENGTH)
    (attributes,) = struct.unpack_from(">h", run.data, position + ATTRIBUTES)
    (last_offset_delta,) = struct.unpack_from(">i", run.data, position + LAST_OFFSET_DELTA)
    end = position + LEADER_EPOCH + length
    if codec := attributes & CODEC_MASK:
        try:
            plain = decompress(codec, memoryview(run.data)[position + HEADER_BYTES : end])
        except RequestError as error:
            raise CorruptRecords(f"partition {run.partition}, byte {position} of a run: {error}") from error
        records, size = int(address(plain)), len(plain)
    else:
        records, size = start + position + HEADER_BYTES, end - position - HEADER_BYTES
    base_offset = int(arena.cursor[_NEXT_OFFSET])
    status = kernels().decode_batch(
        start + position,
        records,
        size,
        run.partition,
        base_offset,
        *arena.addresses,
        arena.capacity_bytes,
    )
    if status == Status.DONE:
        arena.cursor[_POSITION] = end
        arena.cursor[_NEXT_OFFSET] = base_offset + last_offset_delta + 1
    return status, size
