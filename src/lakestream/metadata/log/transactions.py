"""What a partition's log says of transactions: how each ends in it, and what was never committed.

A transaction is known by its transactional id and its number, which only grows with each transaction of that id. Where
a partition stands with it is guarded by the head's version, like everything else in the log.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from lakestream.metadata.log.head import Extent, Marker


class Ending(NamedTuple):
    """What is to be written to every partition that a transaction enlisted. `epoch`: that of its batches. `next_epoch`:
    the one with which its producer goes on, if that is another: what comes late in the old one is refused from then on.
    """

    transactional_id: str
    number: int
    producer_id: int
    epoch: int
    committed: bool
    next_epoch: int | None
    coordinator_epoch: int
    time_ms: int


def marker_of(extent: Extent) -> Marker | None:
    """None: the extent holds records."""
    return extent.marker


def markers_in(extents: Iterable[Extent]) -> Iterator[tuple[int, Marker]]:
    """Each with its own offset."""
    for extent in extents:
        if extent.marker is not None:
            yield extent.base_offset, extent.marker


class AbortedRange(NamedTuple):
    """The producer's transactional batches in [first_offset, marker_offset) were never committed."""

    producer_id: int
    first_offset: int
    marker_offset: int


def aborted_ranges(extents: Iterable[Extent]) -> list[AbortedRange]:
    """In order of the markers."""
    return [
        AbortedRange(marker.producer_id, marker.first_offset, offset)
        for offset, marker in markers_in(extents)
        if not marker.committed and marker.first_offset is not None
    ]
