"""Deciding a flush: offsets, sequences, duplicates, session marks."""

from uuid import UUID

import msgspec
import pytest

from lakestream.metadata.commit import DUPLICATE, FENCED, SEQUENCE_GAP, Batch, Offer, decide
from lakestream.metadata.head import Accepted, Head, ProducerState, SessionMark
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
    assert decision.results == (Accepted(2), Accepted(-1, SEQUENCE_GAP), Accepted(5))
    assert [(extent.base_offset, extent.end_offset, extent.position) for extent in decision.extents] == [
        (2, 5, 50),
        (5, 9, 250),
    ]


def test_each_of_the_last_five_batches_gets_its_original_offset() -> None:
    head, states = Head(), {}
    for number in range(7):
        decision = decide(head, states, offer(batch(2, producer=4, sequence=number * 2), flush=number))
        head, states = decision.head, {**states, **decision.producers}
    for number in range(2, 7):
        again = decide(head, states, offer(batch(2, producer=4, sequence=number * 2), flush=100))
        assert again.results == (Accepted(number * 2, DUPLICATE),)
        assert (again.extents, again.head.next_offset) == ((), head.next_offset)
    forgotten = decide(head, states, offer(batch(2, producer=4, sequence=0), flush=100))
    assert forgotten.results == (Accepted(-1, DUPLICATE),)


@pytest.mark.parametrize(("sequence", "count", "next_sequence"), [(LAST, 1, 0), (LAST - 1, 4, 2), (LAST - 9, 10, 0)])
def test_the_sequence_after_the_last_is_zero(sequence: int, count: int, next_sequence: int) -> None:
    first = decide(Head(), {}, offer(batch(count, producer=1, sequence=sequence)))
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
    assert mid.results == (Accepted(-1, SEQUENCE_GAP),)
    new = decide(first.head, states, offer(batch(1, producer=1, epoch=4, sequence=0)))
    assert new.results == (Accepted(1),)
    assert [entry.base_offset for entry in new.producers[1].batches] == [1]


def test_several_batches_of_one_producer_in_one_flush() -> None:
    batches = [batch(1, position=100 * number, producer=1, sequence=number) for number in range(8)]
    decision = decide(Head(), {}, offer(*batches))
    assert [result.base_offset for result in decision.results] == list(range(8))
    assert len(decision.producers[1].batches) == 5
    twice = decide(Head(), {}, offer(batch(1, producer=1, sequence=0), batch(1, position=100, producer=1, sequence=0)))
    assert twice.results == (Accepted(0), Accepted(0, DUPLICATE))


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert decide(Head(), {}, offer(batch(1, producer=1, sequence=77))).results == (Accepted(0),)


def test_marks_below_the_fence_go_with_the_next_commit_and_others_stay() -> None:
    marks = {"old": SessionMark(1, 3, 0, ()), "young": SessionMark(1, 4, 0, ())}
    head = msgspec.structs.replace(Head(), fence=4, sessions=marks)
    assert decide(head, {}, offer(batch(1), generation=5)).head.sessions.keys() == {"young", "s"}


def test_states_given_are_not_changed() -> None:
    states: dict[int, ProducerState] = {}
    decide(Head(), states, offer(batch(1, producer=1, sequence=0)))
    assert states == {}
