"""Deciding a flush: which batches of a partition enter the log, and at which offsets.

Pure functions. Sequence checks are made here, on rows that the head's version guards, and
nowhere else: a cache alone never decides.

An epoch of a producer begins with sequence 0 and goes on without a gap, so what lies between its lowest and its last
sequence was appended: only that is a duplicate. A batch whose predecessor is not in the log is `AWAITED`: the
predecessor may be under way through another broker, so nothing is decided and the producer is to send both again, in
order. When it has been awaited for too long (a topic that was created again), or at once if the producer's row may have
expired, the epoch is closed in the log, in the transaction that refuses the batch: from then on no attempt of that
epoch can land, wherever it is under way, so the producer may send what it has in a new epoch without writing anything
twice. (An expired producer is not asked to wait: librdkafka restarts itself only if that is the first it hears.)
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

import msgspec

from lakestream.metadata.log.enlistment import (
    CONCURRENT,
    NOT_ENLISTED,
    NOT_VERIFIED,
    Answer,
    InTransaction,
    NotEnlisted,
)
from lakestream.metadata.log.head import (
    Accepted,
    Extent,
    Head,
    OpenHere,
    OpenTransaction,
    ProducerRun,
    ProducerState,
    SessionMark,
)
from lakestream.metadata.log.partition import live_marks
from lakestream.model import StreamPartition
from lakestream.records import BatchInfo

REMEMBERED_RUNS: Final = 20
"""Of these a retry gets its original offset. A client has five batches in flight on a connection, and sends a
partition's batches to one broker until its metadata names another: this is five for each of four brokers, even if
every batch is a run of its own because other producers write in between. Older ones are duplicates without offset."""
FIRST_SEQUENCE: Final = 0
SEQUENCE_SPAN: Final = 1 << 31

AWAITED: Final = "predecessor-awaited"
SEQUENCE_GAP: Final = "sequence-gap"
UNKNOWN_PRODUCER: Final = "unknown-producer"
DUPLICATE: Final = "duplicate"
FENCED: Final = "fenced"
TRANSACTION_OPEN: Final = "transaction-open"
"""A batch outside of the transaction that its producer has open in the partition."""

ProducerEpoch = tuple[int, int]
"""A producer's id and epoch."""
Asked = tuple[InTransaction, ProducerEpoch]
"""Whether this producer may append to this transaction."""
NO_ANSWERS: Final[Mapping[Asked, Answer]] = {}


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch as it lies in a WAL object: in an offer `position` counts from the section's start."""

    position: int
    length: int
    record_count: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    transaction: InTransaction | None = None

    @property
    def last_sequence(self) -> int:
        return (self.base_sequence + self.record_count - 1) % SEQUENCE_SPAN


def batch_at(info: BatchInfo, start: int, transaction: InTransaction | None = None) -> Batch:
    """`start`: where the bytes begin that `info` was read from."""
    return Batch(
        position=start + info.position,
        length=info.length,
        record_count=info.record_count,
        max_timestamp_ms=info.max_timestamp_ms,
        producer_id=info.producer_id,
        producer_epoch=info.producer_epoch,
        base_sequence=info.base_sequence,
        transaction=transaction,
    )


@dataclass(frozen=True, slots=True)
class Offer:
    """What one flush brings for one partition. `checksum(start, end)` is CRC32C of the section's bytes there. `time_ms`
    is the broker's clock when the offer was made."""

    partition: StreamPartition
    session: str
    flush: int
    generation: int
    stores: tuple[str, ...]
    object_key: str
    position: int
    batches: Sequence[Batch]
    checksum: Callable[[int, int], int]
    time_ms: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """What a commit would write. `results` has one entry per batch, in order."""

    head: Head
    extents: tuple[Extent, ...]
    producers: Mapping[int, ProducerState]
    results: tuple[Accepted, ...]
    opened: tuple[OpenTransaction, ...] = ()


def decide(
    head: Head,
    producers: Mapping[int, ProducerState],
    offer: Offer,
    overdue: AbstractSet[ProducerEpoch] = frozenset(),
    answers: Mapping[Asked, Answer] = NO_ANSWERS,
) -> Decision:
    """`producers` holds the states of all producers in the offer that have one. `overdue`: those whose predecessors
    were awaited for too long. `answers`: whether the partition is in the transactions of those that have none open
    here, learned since the head was read."""
    states = dict(producers)
    touched: dict[int, ProducerState] = {}
    results: list[Accepted] = []
    extents: list[Extent] = []
    opened: list[OpenTransaction] = []
    next_offset = head.next_offset
    run: list[Batch] = []
    run_base = next_offset
    for batch in offer.batches:
        producer, state = batch.producer_id, states.get(batch.producer_id)
        refused = refusal_of(state, batch) if producer >= 0 else None
        if refused is not None and refused.refusal == AWAITED and _is_over(head, state, batch, overdue):
            closed = _closed(head, state, batch, offer.time_ms)
            states[producer] = touched[producer] = closed
            refused = Accepted(-1, closed.closed)
        begins = None
        if refused is None and (batch.transaction is not None or (state is not None and state.open is not None)):
            refusal, begins = _in_transaction(state, batch, answers)
            refused = Accepted(-1, refusal) if refusal else None
        results.append(refused or Accepted(next_offset))
        if refused is not None:
            if run:
                extents.append(_extent(offer, run, run_base))
                run = []
            continue
        if not run:
            run_base = next_offset
        run.append(batch)
        if producer >= 0:
            remembered = _remember(state, batch, next_offset, offer.time_ms)
            if begins is not None and batch.transaction is not None:
                remembered = msgspec.structs.replace(remembered, open=OpenHere(begins, next_offset))
                opened.append(_opened(batch.transaction, begins, batch, next_offset, offer.time_ms))
            states[producer] = touched[producer] = remembered
        next_offset += batch.record_count
    if run:
        extents.append(_extent(offer, run, run_base))
    mark = SessionMark(offer.flush, offer.generation, head.next_offset, tuple(results))
    kept = live_marks(head, head.fence)
    first_open = opened[0].first_offset if opened and head.first_open is None else head.first_open
    decided = msgspec.structs.replace(
        kept, next_offset=next_offset, sessions={**kept.sessions, offer.session: mark}, first_open=first_open
    )
    return Decision(decided, tuple(extents), touched, tuple(results), tuple(opened))


def needs_enlistment(state: ProducerState | None, batch: Batch) -> bool:
    """Whether a transactional batch is next in line and its producer has no transaction open here yet."""
    if state is not None and state.open is not None and state.epoch == batch.producer_epoch:
        return False
    return refusal_of(state, batch) is None


def _in_transaction(
    state: ProducerState | None, batch: Batch, answers: Mapping[Asked, Answer]
) -> tuple[str, int | None]:
    """Of a batch that is next in line: why it is refused (empty: it is not), and the number of the transaction that it
    begins in this partition."""
    open_here = None if state is None else state.open
    if batch.transaction is None:
        return TRANSACTION_OPEN, None
    if open_here is not None and state is not None and state.epoch == batch.producer_epoch:
        return "", None
    answer = answers.get((batch.transaction, (batch.producer_id, batch.producer_epoch)))
    if answer is None:
        return NOT_VERIFIED, None
    if isinstance(answer, NotEnlisted):
        return answer.reason, None
    if open_here is not None:
        return CONCURRENT, None
    if state is not None and answer.number <= state.ended:
        return NOT_ENLISTED, None
    return "", answer.number


def _opened(transaction: InTransaction, number: int, batch: Batch, first_offset: int, time_ms: int) -> OpenTransaction:
    return OpenTransaction(
        transaction.transactional_id, number, batch.producer_id, batch.producer_epoch, first_offset, time_ms
    )


def refusal_of(state: ProducerState | None, batch: Batch) -> Accepted | None:
    """None: the batch is next in line. A retry of a remembered batch is answered with its original offset."""
    begins = batch.base_sequence == FIRST_SEQUENCE
    if state is None:
        return None if begins else Accepted(-1, AWAITED)
    if batch.producer_epoch < state.epoch:
        return Accepted(-1, FENCED)
    if batch.producer_epoch > state.epoch:
        return None if begins else Accepted(-1, AWAITED)
    for known in reversed(state.runs):
        distance = _ahead(known.first_sequence, batch.base_sequence)
        if distance + batch.record_count <= _ahead(known.first_sequence, known.last_sequence) + 1:
            return Accepted(known.base_offset + distance, DUPLICATE)
    if state.runs:
        last = state.runs[-1].last_sequence
        appended = _ahead(state.lowest_sequence, last) + 1
        if _ahead(state.lowest_sequence, batch.base_sequence) + batch.record_count <= appended:
            return Accepted(-1, DUPLICATE)
        if not state.closed and batch.base_sequence == (last + 1) % SEQUENCE_SPAN:
            return None
    elif begins and not state.closed:
        return None
    return Accepted(-1, state.closed or AWAITED)


def _is_over(head: Head, state: ProducerState | None, batch: Batch, overdue: AbstractSet[ProducerEpoch]) -> bool:
    """Whether the predecessor of this batch is awaited no longer."""
    has_expired = state is None and batch.producer_id <= head.expired_producers
    return has_expired or (batch.producer_id, batch.producer_epoch) in overdue


def _closed(head: Head, state: ProducerState | None, batch: Batch, time_ms: int) -> ProducerState:
    """Ends the epoch of a batch that has no predecessor. What the epoch appended stays known."""
    expired = state is None and batch.producer_id <= head.expired_producers
    return closed_epoch(state, batch, time_ms, UNKNOWN_PRODUCER if expired else SEQUENCE_GAP)


def closed_epoch(state: ProducerState | None, batch: Batch, time_ms: int, reason: str = SEQUENCE_GAP) -> ProducerState:
    """The producer's state once the epoch of the batch is closed."""
    if state is not None and state.epoch == batch.producer_epoch:
        return msgspec.structs.replace(state, closed=reason)
    return _new_epoch(state, ProducerState(batch.producer_epoch, (), FIRST_SEQUENCE, time_ms, reason))


def _new_epoch(before: ProducerState | None, state: ProducerState) -> ProducerState:
    """What is known of the producer's transactions does not end with an epoch."""
    if before is None:
        return state
    return msgspec.structs.replace(
        state, open=before.open, ended=before.ended, coordinator_epoch=before.coordinator_epoch
    )


def _remember(state: ProducerState | None, batch: Batch, base_offset: int, time_ms: int) -> ProducerState:
    fresh = ProducerRun(batch.base_sequence, batch.last_sequence, base_offset, batch.max_timestamp_ms)
    if state is None or state.epoch != batch.producer_epoch or not state.runs:
        return _new_epoch(state, ProducerState(batch.producer_epoch, (fresh,), batch.base_sequence, time_ms))
    last, lowest = state.runs[-1], state.lowest_sequence
    length = _ahead(last.first_sequence, last.last_sequence) + 1
    runs = (*state.runs, fresh)
    if last.base_offset + length == base_offset and length + batch.record_count < SEQUENCE_SPAN // 2:
        timestamp_ms = max(last.max_timestamp_ms, fresh.max_timestamp_ms)
        runs = (*state.runs[:-1], ProducerRun(last.first_sequence, fresh.last_sequence, last.base_offset, timestamp_ms))
    if _ahead(lowest, fresh.last_sequence) >= SEQUENCE_SPAN // 2:
        # Sequences wrap: what lies more than half a turn back could be mistaken for what is still to come.
        lowest = (fresh.last_sequence - SEQUENCE_SPAN // 2 + 1) % SEQUENCE_SPAN
    return msgspec.structs.replace(
        state,
        runs=runs[-REMEMBERED_RUNS:],
        lowest_sequence=lowest,
        last_append_ms=max(time_ms, state.last_append_ms),
        closed="",
    )


def end_of(run: ProducerRun) -> int:
    """The offset after its last record."""
    return run.base_offset + _ahead(run.first_sequence, run.last_sequence) + 1


def _ahead(start: int, sequence: int) -> int:
    """How many sequences after `start` this one is."""
    return (sequence - start) % SEQUENCE_SPAN


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


def remembered_offset(state: ProducerState | None, batch: Batch) -> int | None:
    """Where the producer's state says that the batch is in the log. None: it does not say it."""
    if state is None or state.epoch != batch.producer_epoch:
        return None
    found = refusal_of(state, batch)
    return None if found is None or found.base_offset < 0 else found.base_offset


def is_next(state: ProducerState | None, batch: Batch) -> bool:
    """Whether a batch of which nobody knows what became of it may be appended. Of a producer without a state anything
    may: what came before may be in the table."""
    return batch.producer_id < 0 or state is None or refusal_of(state, batch) is None


def replayed(state: ProducerState | None, batch: Batch, base_offset: int, time_ms: int) -> ProducerState:
    """The producer's state after a batch that is in the log, whatever is known of those before it."""
    if state is not None and state.epoch > batch.producer_epoch:
        return state
    if state is None or state.epoch < batch.producer_epoch or not state.runs:
        run = ProducerRun(batch.base_sequence, batch.last_sequence, base_offset, batch.max_timestamp_ms)
        return _new_epoch(state, ProducerState(batch.producer_epoch, (run,), batch.base_sequence, time_ms))
    refused = refusal_of(msgspec.structs.replace(state, closed=""), batch)
    if refused is not None and refused.refusal == DUPLICATE:
        return state
    return _remember(state, batch, base_offset, time_ms)
