"""Transactions in a rebuilt log. Their ends are in the metadata store alone: with it they are lost.

So of a transaction whose records are still in the log, and not in the table, nobody knows whether it was committed.
Such ones are aborted, and whoever recovers is told. What is in the table was committed. Offsets that no WAL object
explains were those of lost markers, if there are no more of them side by side than transactional producers; they stay
taken.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from lakestream.bucket.gaps import KnownBatches, Placement
from lakestream.metadata.log.commit import Batch
from lakestream.metadata.log.ending import marker_extent
from lakestream.metadata.log.enlistment import InTransaction
from lakestream.metadata.log.head import NO_NUMBER, Extent, Marker, ProducerState
from lakestream.records import BatchInfo
from lakestream.records.layout import NO_TIMESTAMP, TRANSACTIONAL_BIT

LOST_MARKERS: Final = ""
"""In place of the object in which known batches lie."""
_IN_SOME: Final = InTransaction("", implicit=False)
_NOBODY: Final = -1


def transaction_of(info: BatchInfo) -> InTransaction | None:
    """Which one the batch belongs to nobody knows, only that it does."""
    return _IN_SOME if info.attributes & TRANSACTIONAL_BIT else None


def producers_in(batches: Iterable[Batch], saved: Mapping[int, ProducerState]) -> frozenset[int]:
    """Those that are known to have had transactions here."""
    told = {number for number, state in saved.items() if state.open is not None or state.ended != NO_NUMBER}
    return frozenset(told | {batch.producer_id for batch in batches if batch.transaction is not None})


def lost_markers(
    known: Sequence[KnownBatches], filled: Mapping[int, Sequence[Placement]], frontier: int, most: int
) -> KnownBatches | None:
    """What takes the place of the first gap that nothing fills. None: there is no such gap, or it is too wide."""
    at = frontier
    for each in known:
        if each.end_offset <= frontier:
            continue
        if each.base_offset > at and not filled.get(each.base_offset):
            width = each.base_offset - at
            return KnownBatches(at, LOST_MARKERS, (_place(width),)) if width <= most else None
        at = max(at, each.end_offset)
    return None


def _place(width: int) -> Batch:
    return Batch(0, 0, width, NO_TIMESTAMP, _NOBODY, -1, -1)


@dataclass(slots=True)
class _Doubt:
    epoch: int
    first_offset: int
    end_offset: int
    records: int


@dataclass(slots=True)
class Doubts:
    """Of a partition: what its transactional producers have in the log, beyond the table."""

    frontier: int
    of: dict[int, _Doubt] = field(default_factory=dict)

    @property
    def records(self) -> int:
        return sum(doubt.records for doubt in self.of.values())

    def note(self, batch: Batch, base_offset: int) -> None:
        if batch.transaction is None or base_offset < self.frontier:
            return
        doubt = self.of.setdefault(batch.producer_id, _Doubt(batch.producer_epoch, base_offset, base_offset, 0))
        doubt.epoch = max(doubt.epoch, batch.producer_epoch)
        doubt.end_offset = base_offset + batch.record_count
        doubt.records += batch.record_count

    def ends(self, next_offset: int) -> list[Extent]:
        """A marker for each, from that offset on: all of it is aborted, whatever came in between."""
        return [
            _abort(next_offset + number, producer_id, doubt.epoch, doubt.first_offset, doubt.end_offset)
            for number, (producer_id, doubt) in enumerate(sorted(self.of.items()))
        ]


def taken_up(start: int, end: int) -> list[Extent]:
    """Markers of nobody's transaction, where others have been."""
    return [_abort(offset, _NOBODY, -1, None, None) for offset in range(start, end)]


def _abort(offset: int, producer_id: int, epoch: int, first: int | None, end: int | None) -> Extent:
    marker = Marker("", NO_NUMBER, producer_id, epoch, False, first, end, (), -1)
    return marker_extent(offset, marker, None, NO_TIMESTAMP)


def with_nothing_open(state: ProducerState) -> ProducerState:
    return msgspec.structs.replace(state, open=None)
