"""Which batches of an extent become rows: not those of aborted transactions, and not control batches. Both are gaps,
offsets that have no row."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from lakestream.errors import CorruptRecords
from lakestream.metadata.log.head import MARKER_EXTENT, Extent
from lakestream.records import Run, walk
from lakestream.records.layout import CONTROL_BIT, TRANSACTIONAL_BIT
from lakestream.records.native import Buffer

Gap = tuple[int, int, int]
"""A partition and the offsets [start, end) in it."""


class AbortedPart(msgspec.Struct, frozen=True, array_like=True):
    """The producer's transactional batches within [start, end) are no rows."""

    producer_id: int
    start: int
    end: int


class AbortedRanges:
    """Of one partition."""

    def __init__(self, aborted: Iterable[AbortedPart]) -> None:
        self._all = sorted(aborted, key=lambda each: each.start)
        self._starts = [each.start for each in self._all]
        """A transaction that began long ago may reach over many others: from which on one has to look is the greatest
        end so far."""
        self._reach: list[int] = []
        for each in self._all:
            self._reach.append(max(each.end, self._reach[-1] if self._reach else 0))

    def within(self, start: int, end: int) -> list[AbortedPart]:
        """Those that reach into [start, end)."""
        first = bisect_right(self._reach, start)
        last = bisect_right(self._starts, end - 1)
        return [each for each in self._all[first:last] if each.end > start]


class Visible(NamedTuple):
    """`runs`: what is to be decoded, in order; together with the gaps exactly the offsets asked for."""

    runs: Sequence[Run]
    gaps: Sequence[Gap]


NOTHING: Final = Visible((), ())


def visible(
    partition: int, extent: Extent, data: Buffer, start: int, end: int, aborted: Sequence[AbortedPart]
) -> Visible:
    """What of the extent lies in [start, end), both of which are batch boundaries of it or lie outside; `data` are its
    bytes. `CorruptRecords` if its batches are not the offsets that it claims."""
    first, last = max(start, extent.base_offset), min(end, extent.end_offset)
    if first >= last:
        return NOTHING
    if extent.kind == MARKER_EXTENT:
        return Visible((), ((partition, first, last),))
    if not aborted and (first, last) == (extent.base_offset, extent.end_offset):
        return Visible((Run(partition, first, data, last),), ())
    hidden: dict[int, list[tuple[int, int]]] = {}
    for each in aborted:
        hidden.setdefault(each.producer_id, []).append((each.start, each.end))
    runs: list[tuple[int, int, int, int]] = []
    gaps: list[Gap] = []
    offset, reached = extent.base_offset, first
    for batch in walk(data):
        base, offset = offset, offset + batch.last_offset_delta + 1
        if offset <= first or base >= last:
            continue
        if base != reached:
            raise CorruptRecords(f"no batch of partition {partition} starts at {reached}")
        reached = offset
        batch_end = batch.position + batch.length
        if batch.attributes & CONTROL_BIT or (
            batch.attributes & TRANSACTIONAL_BIT
            and any(low <= base < high for low, high in hidden.get(batch.producer_id, ()))
        ):
            if gaps and gaps[-1][2] == base:
                gaps[-1] = (partition, gaps[-1][1], offset)
            else:
                gaps.append((partition, base, offset))
        elif runs and runs[-1][1] == base:
            runs[-1] = (runs[-1][0], offset, runs[-1][2], batch_end)
        else:
            runs.append((base, offset, batch.position, batch_end))
    if offset != extent.end_offset:
        raise CorruptRecords(f"the batches of partition {partition} end at {offset}, not at {extent.end_offset}")
    if reached != last:
        raise CorruptRecords(f"no batch of partition {partition} ends at {last}, but one at {reached}")
    found = memoryview(data)
    return Visible([Run(partition, base, found[low:high], end_offset) for base, end_offset, low, high in runs], gaps)


def joined(gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    """The same offsets in as few gaps as can be. They come in order."""
    found: list[Gap] = []
    for partition, start, end in gaps:
        if found and found[-1][0] == partition and found[-1][2] == start:
            found[-1] = (partition, found[-1][1], end)
        else:
            found.append((partition, start, end))
    return tuple(found)
