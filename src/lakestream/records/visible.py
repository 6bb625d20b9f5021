"""What readers of committed records see of batches: not those of aborted transactions."""

import struct
from collections.abc import Sequence
from typing import Final, Protocol

from lakestream.records.batches import walk
from lakestream.records.decoding import Run
from lakestream.records.layout import CONTROL_BIT, TRANSACTIONAL_BIT
from lakestream.records.native import Buffer

_BASE_OFFSET: Final = struct.Struct(">q")


class AbortedFrom(Protocol):
    """A transaction whose records from first_offset on, up to its marker, are not to be seen."""

    @property
    def producer_id(self) -> int: ...

    @property
    def first_offset(self) -> int: ...


def visible_runs(partition: int, data: Buffer, aborted: Sequence[AbortedFrom]) -> tuple[list[Run], int]:
    """Adjacent batches as runs, without those of aborted transactions, and the offset after them all."""
    view = memoryview(data)
    waiting = sorted(aborted, key=lambda found: found.first_offset, reverse=True)
    open_producers: set[int] = set()
    runs: list[Run] = []
    first = end = 0
    base, after = -1, -1
    for batch in walk(data):
        (offset,) = _BASE_OFFSET.unpack_from(data, batch.position)
        while waiting and waiting[-1].first_offset <= offset + batch.last_offset_delta:
            open_producers.add(waiting.pop().producer_id)
        hidden = bool(batch.attributes & TRANSACTIONAL_BIT) and batch.producer_id in open_producers
        if batch.attributes & CONTROL_BIT:
            open_producers.discard(batch.producer_id)
        if hidden or offset != after or end != batch.position:
            if base >= 0:
                runs.append(Run(partition, base, view[first:end]))
            base, first, end = -1, batch.position, batch.position
        after = offset + batch.last_offset_delta + 1
        if not hidden:
            base = offset if base < 0 else base
            end = batch.position + batch.length
    if base >= 0:
        runs.append(Run(partition, base, view[first:end]))
    return runs, after
