"""Deciding a flush: which batches of a partition enter the log, and at which offsets.

Pure functions. Sequence checks are made here, on rows that the head's version guards, and
nowhere else: a cache alone never decides.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from lakestream.metadata.head import Accepted, Extent, Head, ProducerBatch, ProducerState, SessionMark
from lakestream.metadata.log import live_marks
from lakestream.model import StreamPartition

REMEMBERED_BATCHES: Final = 5
"""What a Kafka producer may have in flight: a retry of any of these gets its original offset."""
SEQUENCE_SPAN: Final = 1 << 31

SEQUENCE_GAP: Final = "sequence-gap"
DUPLICATE: Final = "duplicate"
FENCED: Final = "fenced"


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch as it lies in its section of the WAL object: `position` counts from the section's start."""

    position: int
    length: int
    record_count: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int

    @property
    def last_sequence(self) -> int:
        return (self.base_sequence + self.record_count - 1) % SEQUENCE_SPAN


@dataclass(frozen=True, slots=True)
class Offer:
    """What one flush brings for one partition. `checksum(start, end)` is CRC32C of the section's bytes there."""

    partition: StreamPartition
    session: str
    flush: int
    generation: int
    stores: tuple[str, ...]
    object_key: str
    position: int
    batches: Sequence[Batch]
    checksum: Callable[[int, int], int]


@dataclass(frozen=True, slots=True)
class Decision:
    """What a commit would write. `results` has one entry per batch, in order."""

    head: Head
    extents: tuple[Extent, ...]
    producers: Mapping[int, ProducerState]
    results: tuple[Accepted, ...]


def decide(head: Head, producers: Mapping[int, ProducerState], offer: Offer) -> Decision:
    """`producers` holds the states of all producers in the offer that have one."""
    states = dict(producers)
    touched: dict[int, ProducerState] = {}
    results: list[Accepted] = []
    extents: list[Extent] = []
    next_offset = head.next_offset
    run: list[Batch] = []
    run_base = next_offset
    for batch in offer.batches:
        refused = _refusal(states.get(batch.producer_id), batch) if batch.producer_id >= 0 else None
        results.append(refused or Accepted(next_offset))
        if refused is not None:
            if run:
                extents.append(_extent(offer, run, run_base))
                run = []
            continue
        if not run:
            run_base = next_offset
        run.append(batch)
        if batch.producer_id >= 0:
            state = _remember(states.get(batch.producer_id), batch, next_offset)
            states[batch.producer_id] = touched[batch.producer_id] = state
        next_offset += batch.record_count
    if run:
        extents.append(_extent(offer, run, run_base))
    mark = SessionMark(offer.flush, offer.generation, head.next_offset, tuple(results))
    kept = live_marks(head, head.fence)
    decided = msgspec.structs.replace(kept, next_offset=next_offset, sessions={**kept.sessions, offer.session: mark})
    return Decision(decided, tuple(extents), touched, tuple(results))


def _refusal(state: ProducerState | None, batch: Batch) -> Accepted | None:
    """None: the batch is next in line. A retry of a remembered batch is answered with its original offset."""
    if state is None:
        return None
    if batch.producer_epoch < state.epoch:
        return Accepted(-1, FENCED)
    if batch.producer_epoch > state.epoch:
        return None if batch.base_sequence == 0 else Accepted(-1, SEQUENCE_GAP)
    for known in state.batches:
        if (known.first_sequence, known.last_sequence) == (batch.base_sequence, batch.last_sequence):
            return Accepted(known.base_offset, DUPLICATE)
    last = state.batches[-1].last_sequence
    if batch.base_sequence == (last + 1) % SEQUENCE_SPAN:
        return None
    # Sequences wrap, so "older" means less than half a turn behind.
    older = (last - batch.last_sequence) % SEQUENCE_SPAN < SEQUENCE_SPAN // 2
    return Accepted(-1, DUPLICATE if older else SEQUENCE_GAP)


def _remember(state: ProducerState | None, batch: Batch, base_offset: int) -> ProducerState:
    earlier = state.batches if state is not None and state.epoch == batch.producer_epoch else ()
    entry = ProducerBatch(batch.base_sequence, batch.last_sequence, base_offset, batch.max_timestamp_ms)
    return ProducerState(batch.producer_epoch, (*earlier, entry)[-REMEMBERED_BATCHES:])


def _extent(offer: Offer, run: Sequence[Batch], base_offset: int) -> Extent:
    start = run[0].position
    end = run[-1].position + run[-1].length
    return Extent(
        base_offset=base_offset,
        end_offset=base_offset + sum(batch.record_count for batch in run),
        stores=offer.stores,
        object_key=offer.object_key,
        position=offer.position + start,
        length=end - start,
        max_timestamp_ms=max(batch.max_timestamp_ms for batch in run),
        checksum=offer.checksum(start, end),
    )
