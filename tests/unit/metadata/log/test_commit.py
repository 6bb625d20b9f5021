"""Deciding a flush: offsets, sequences, duplicates, session marks."""

from uuid import UUID

import msgspec
import pytest

from lakestream.metadata.log.commit import (
    AWAITED,
    DUPLICATE,
    FENCED,
    REMEMBERED_RUNS,
    SEQUENCE_GAP,
    UNKNOWN_PRODUCER,
    Batch,
    Offer,
    decide,
)
from lakestream.metadata.log.head import Accepted, Head, ProducerRun, ProducerState, SessionMark
from lakestream.model import StreamPartition

PARTITION = StreamPartition(UUID(int=1), 0)
LAST = (1 << 31) - 1


def batch(count: int, *, position: int = 0, producer: int = -1, epoch: int = 0, sequence: int = -1) -> Batch:
    return Batch(position, 100, count, 1000 + position, producer, epoch, sequence)


def offer(*batches: Batch, flush: int = 1, generation: int = 1, session: str = "s") -> Offer:
    return Offer(PARTITION, session, flush, generation, ("main",), "wal/x", 50, batches, lambda start, end: start + end)


def test_adjacent_batches_are_one_extent() -> None:
    decision = decide(Head(next_offset=7), {}, offer(batch(3), batch(2, position=100)))
    assert [result.base_offset for result in decision.results] == [7, 10]
    [extent] = decision.extents
    assert (extent.base_offset, extent.end_offset, extent.position, extent.length) == (7, 12, 50, 200)
    assert extent.max_timestamp_ms == 1100
    assert decision.head.next_offset == 12
    assert decision.head.sessions["s"] == SessionMark(1, 1, 7, decision.results)


def test_a_refused_batch_splits_the_extent_and_takes_no_offset() -> None:
    known = {9: decide(Head(), {}, offer(batch(2, producer=9, sequence=0))).producers[9]}
    gap = batch(1, position=100, producer=9, sequence=50)
    decision = decide(Head(next_offset=2), known, offer(batch(3), gap, batch(4, position=200)))
    assert decision.results == (Accepted(2), Accepted(-1, AWAITED), Accepted(5))
    assert [(extent.base_offset, extent.end_offset, extent.position) for extent in decision.extents] == [
        (2, 5, 50),
        (5, 9, 250),
    ]


def test_each_of_the_last_runs_gets_its_original_offset_and_older_ones_are_duplicates_all_the_same() -> None:
    head, states = Head(), {}
    for number in range(REMEMBERED_RUNS + 2):
        other = batch(1, position=100)
        decision = decide(head, states, offer(batch(2, producer=4, sequence=number * 2), other, flush=number))
        head, states = decision.head, {**states, **decision.producers}
    assert len(states[4].runs) == REMEMBERED_RUNS
    for number in range(REMEMBERED_RUNS + 2):
        again = decide(head, states, offer(batch(2, producer=4, sequence=number * 2), flush=100))
        assert again.results == (Accepted(number * 3 if number >= 2 else -1, DUPLICATE),)
        assert (again.extents, again.head.next_offset) == ((), head.next_offset)


def test_batches_that_follow_on_each_other_are_one_run_that_is_never_forgotten() -> None:
    head, states = Head(), {}
    for number in range(100):
        decision = decide(head, states, offer(batch(2, producer=4, sequence=number * 2), flush=number))
        head, states = decision.head, {**states, **decision.producers}
    assert len(states[4].runs) == 1
    for number in range(100):
        again = decide(head, states, offer(batch(2, producer=4, sequence=number * 2), flush=200))
        assert again.results == (Accepted(number * 2, DUPLICATE),)
    partly = decide(head, states, offer(batch(5, producer=4, sequence=198), flush=200))
    assert partly.results == (Accepted(-1, AWAITED),)


@pytest.mark.parametrize(("sequence", "count", "next_sequence"), [(LAST, 1, 0), (LAST - 1, 4, 2), (LAST - 9, 10, 0)])
def test_the_sequence_after_the_last_is_zero(sequence: int, count: int, next_sequence: int) -> None:
    before = (sequence - 1) % (1 << 31)
    state = ProducerState(0, (ProducerRun(before, before, 1_000_000, 0),), before, 0)
    first = decide(Head(), {1: state}, offer(batch(count, producer=1, sequence=sequence)))
    following = decide(first.head, first.producers, offer(batch(1, producer=1, sequence=next_sequence), flush=2))
    assert following.results == (Accepted(count),)
    retried = decide(
        following.head, {**first.producers, **following.producers}, offer(batch(count, producer=1, sequence=sequence))
    )
    assert retried.results == (Accepted(0, DUPLICATE),)


def test_epochs() -> None:
    first = decide(Head(), {}, offer(batch(1, producer=1, epoch=3, sequence=0)))
    states = first.producers
    old = decide(first.head, states, offer(batch(1, producer=1, epoch=2, sequence=1)))
    assert old.results == (Accepted(-1, FENCED),)
    mid = decide(first.head, states, offer(batch(1, producer=1, epoch=4, sequence=1)))
    assert mid.results == (Accepted(-1, AWAITED),)
    new = decide(first.head, states, offer(batch(1, producer=1, epoch=4, sequence=0)))
    assert new.results == (Accepted(1),)
    assert [run.base_offset for run in new.producers[1].runs] == [1]


def test_several_batches_of_one_producer_in_one_flush() -> None:
    batches = [batch(1, position=100 * number, producer=1, sequence=number) for number in range(8)]
    decision = decide(Head(), {}, offer(*batches))
    assert [result.base_offset for result in decision.results] == list(range(8))
    assert decision.producers[1].runs == (ProducerRun(0, 7, 0, 1700),)
    twice = decide(Head(), {}, offer(batch(1, producer=1, sequence=0), batch(1, position=100, producer=1, sequence=0)))
    assert twice.results == (Accepted(0), Accepted(0, DUPLICATE))


def test_without_a_row_only_the_first_sequence_begins() -> None:
    """Batch 1 must not land while batch 0 is under way elsewhere: batch 0 would then look like an old duplicate."""
    early = decide(Head(), {}, offer(batch(1, producer=1, sequence=1)))
    assert (early.results, early.extents, early.producers) == ((Accepted(-1, AWAITED),), (), {})
    first = decide(early.head, {}, offer(batch(1, producer=1, sequence=0), flush=2))
    assert first.results == (Accepted(0),)


def test_what_the_epoch_did_not_append_is_no_duplicate() -> None:
    """Of a row that was upgraded it is not known what lies before its first batch."""
    state = ProducerState(0, (ProducerRun(10, 14, 100, 0),), 10, -1)
    for sequence, count in ((9, 1), (5, 5), (8, 4), (14, 2)):
        found = decide(Head(), {1: state}, offer(batch(count, producer=1, sequence=sequence)))
        assert found.results == (Accepted(-1, AWAITED),)
    assert decide(Head(), {1: state}, offer(batch(2, producer=1, sequence=11))).results == (Accepted(101, DUPLICATE),)


@pytest.mark.parametrize(("expired", "refusal"), [(-1, SEQUENCE_GAP), (0, SEQUENCE_GAP), (1, UNKNOWN_PRODUCER)])
def test_an_overdue_predecessor_closes_the_epoch_for_every_attempt_that_is_under_way(
    expired: int, refusal: str
) -> None:
    head = Head(expired_producers=expired)
    closed = decide(head, {}, offer(batch(1, producer=1, sequence=1)), {(1, 0)})
    assert (closed.results, closed.extents) == ((Accepted(-1, refusal),), ())
    for sequence in (0, 1, 2):
        late = decide(closed.head, closed.producers, offer(batch(1, producer=1, sequence=sequence), flush=2))
        assert late.results == (Accepted(-1, refusal),)
    bumped = decide(closed.head, closed.producers, offer(batch(1, producer=1, epoch=1, sequence=0), flush=3))
    assert bumped.results == (Accepted(0),)


def test_a_closed_epoch_still_knows_what_it_appended() -> None:
    first = decide(Head(), {}, offer(batch(2, producer=1, sequence=0)))
    gap = offer(batch(1, producer=1, sequence=5), flush=2)
    closed = decide(first.head, first.producers, gap, {(1, 0)})
    assert closed.results == (Accepted(-1, SEQUENCE_GAP),)
    again = decide(closed.head, closed.producers, offer(batch(2, producer=1, sequence=0), flush=3))
    assert again.results == (Accepted(0, DUPLICATE),)
    following = decide(closed.head, closed.producers, offer(batch(1, producer=1, sequence=2), flush=3))
    assert following.results == (Accepted(-1, SEQUENCE_GAP),)


def test_after_half_a_turn_of_sequences_what_is_to_come_is_no_duplicate() -> None:
    half = 1 << 30
    state = ProducerState(0, (ProducerRun(0, half - 2, 0, 0),), 0, 0)
    grown = decide(Head(next_offset=half - 1), {1: state}, offer(batch(10, producer=1, sequence=half - 1))).producers[1]
    assert grown.lowest_sequence == 9
    assert decide(Head(), {1: grown}, offer(batch(1, producer=1, sequence=half + 9))).results == (Accepted(0),)
    assert decide(Head(), {1: grown}, offer(batch(1, producer=1, sequence=half + 10))).results == (
        Accepted(-1, AWAITED),
    )


def test_marks_below_the_fence_go_with_the_next_commit_and_others_stay() -> None:
    marks = {"old": SessionMark(1, 3, 0, ()), "young": SessionMark(1, 4, 0, ())}
    head = msgspec.structs.replace(Head(), fence=4, sessions=marks)
    assert decide(head, {}, offer(batch(1), generation=5)).head.sessions.keys() == {"young", "s"}


def test_states_given_are_not_changed() -> None:
    states: dict[int, ProducerState] = {}
    decide(Head(), states, offer(batch(1, producer=1, sequence=0)))
    assert states == {}
