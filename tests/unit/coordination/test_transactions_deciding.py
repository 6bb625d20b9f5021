"""A transactional id's state, by Kafka's rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakestream.coordination.transactions.deciding import (
    LAST_EPOCH,
    MAX_EPOCH,
    Producer,
    aborted_by_others,
    begun_anew,
    check_expected,
    completed,
    created,
    ended_before,
    ending_by_client,
    joined,
    needs_producer_id,
    ongoing,
    producer_of,
)
from lakestream.errors import (
    ConcurrentTransactions,
    InvalidTransactionState,
    LakestreamError,
    ProducerFenced,
    UnknownTransaction,
)
from lakestream.metadata.transactions import TransactionState

FRESH = 77


def new(epoch: int = 0) -> TransactionState:
    state = created("t", 7, 1000, 0)
    while state.epoch < min(epoch, 2):
        state = begun_anew(state, None, None, 1000, 0)
    return state if state.epoch == epoch else _at(state, epoch)


def _at(state: TransactionState, epoch: int) -> TransactionState:
    return TransactionState(state.transactional_id, state.producer_id, epoch, state.timeout_ms, state.changed_ms)


def opened(state: TransactionState) -> TransactionState:
    return joined(state, producer_of(state), 5)


def end(state: TransactionState, *, committed: bool = True, bumps: bool = True) -> TransactionState:
    fresh = FRESH if state.epoch >= LAST_EPOCH else None
    return ending_by_client(state, producer_of(state), committed=committed, bumps=bumps, fresh_id=fresh, now_ms=9)


def test_each_producer_that_begins_fences_the_one_before() -> None:
    first = new()
    second = begun_anew(first, None, None, 2000, 1)
    assert producer_of(second) == Producer(7, 1)
    assert second.timeout_ms == 2000
    for refused in (lambda: joined(second, Producer(7, 0), 2), lambda: ongoing(second, Producer(7, 0))):
        with pytest.raises(ProducerFenced):
            refused()
    with pytest.raises(UnknownTransaction):
        joined(second, Producer(8, 1), 2)
    with pytest.raises(UnknownTransaction):
        joined(None, Producer(7, 1), 2)


def test_a_producer_that_says_who_it_was_is_told_the_same_twice() -> None:
    first = new(2)
    told = begun_anew(first, Producer(7, 2), None, 1000, 1)
    assert producer_of(told) == Producer(7, 3)
    check_expected(told, Producer(7, 2))
    assert producer_of(begun_anew(told, Producer(7, 2), None, 1000, 2)) == Producer(7, 3)
    for stranger in (Producer(7, 1), Producer(8, 3), Producer(7, 4)):
        with pytest.raises(ProducerFenced):
            check_expected(told, stranger)
    # Another producer has begun in between: whoever had the epoch before is not the newest.
    other = begun_anew(told, None, None, 1000, 3)
    with pytest.raises(ProducerFenced):
        check_expected(other, Producer(7, 3))


def test_an_exhausted_epoch_is_followed_by_another_producer_id() -> None:
    last = new(LAST_EPOCH)
    assert needs_producer_id(last, None)
    rotated = begun_anew(last, Producer(7, LAST_EPOCH), FRESH, 1000, 1)
    assert producer_of(rotated) == Producer(FRESH, 0)
    check_expected(rotated, Producer(7, LAST_EPOCH))
    assert not needs_producer_id(rotated, Producer(7, LAST_EPOCH))
    again = begun_anew(rotated, Producer(7, LAST_EPOCH), None, 1000, 2)
    assert producer_of(again) == Producer(FRESH, 0)


def test_the_end_of_version_2_goes_on_in_the_next_epoch_and_is_told_twice() -> None:
    state = opened(new(1))
    assert (state.phase, state.number, state.started_ms) == ("ONGOING", 1, 5)
    prepared = end(state)
    assert (prepared.phase, producer_of(prepared)) == ("PREPARE_COMMIT", Producer(7, 2))
    assert prepared.end is not None
    assert (prepared.end.epoch, prepared.end.next_epoch) == (1, 2)
    with pytest.raises(ConcurrentTransactions):
        joined(prepared, Producer(7, 2), 6)
    for again in (prepared, completed(prepared, 10)):
        assert ended_before(again, Producer(7, 1), committed=True, bumps=True)
        with pytest.raises(InvalidTransactionState):
            ended_before(again, Producer(7, 1), committed=False, bumps=True)
    following = joined(completed(prepared, 10), Producer(7, 2), 11)
    assert following.number == 2
    assert not ended_before(following, Producer(7, 1), committed=True, bumps=True)
    with pytest.raises(ProducerFenced):
        ending_by_client(following, Producer(7, 1), committed=True, bumps=True, fresh_id=None, now_ms=12)


def test_the_end_of_version_2_in_the_last_epoch_goes_on_with_another_producer_id() -> None:
    prepared = end(opened(new(LAST_EPOCH)))
    assert producer_of(prepared) == Producer(FRESH, 0)
    assert prepared.end is not None
    assert (prepared.end.producer_id, prepared.end.epoch, prepared.end.next_epoch) == (7, LAST_EPOCH, MAX_EPOCH)
    done = completed(prepared, 10)
    assert ended_before(done, Producer(7, LAST_EPOCH), committed=True, bumps=True)
    assert joined(done, Producer(FRESH, 0), 11).number == 2


def test_the_end_of_version_1_keeps_the_epoch() -> None:
    prepared = end(opened(new(1)), bumps=False)
    assert producer_of(prepared) == Producer(7, 1)
    assert prepared.end is not None
    assert prepared.end.next_epoch is None
    done = completed(prepared, 10)
    assert done.phase == "COMPLETE_COMMIT"
    assert ended_before(done, Producer(7, 1), committed=True, bumps=False)
    with pytest.raises(InvalidTransactionState):
        ended_before(done, Producer(7, 1), committed=False, bumps=False)


def test_nothing_can_be_aborted_by_version_2_alone_and_committed_by_nobody() -> None:
    aborted = end(new(1), committed=False)
    assert (aborted.phase, producer_of(aborted), aborted.number) == ("COMPLETE_ABORT", Producer(7, 2), 0)
    assert ended_before(aborted, Producer(7, 1), committed=False, bumps=True)
    for committed, bumps in ((True, True), (True, False), (False, False)):
        with pytest.raises(InvalidTransactionState):
            end(new(1), committed=committed, bumps=bumps)


def test_who_is_aborted_by_others_is_fenced_and_hears_no_success() -> None:
    prepared = aborted_by_others(opened(new(1)), 9)
    assert (prepared.phase, producer_of(prepared)) == ("PREPARE_ABORT", Producer(7, 2))
    for state in (prepared, completed(prepared, 10)):
        for bumps in (True, False):
            assert not ended_before(state, Producer(7, 1), committed=False, bumps=bumps)
        with pytest.raises(ProducerFenced):
            check_expected(state, Producer(7, 1))
    with pytest.raises(ProducerFenced):
        joined(completed(prepared, 10), Producer(7, 1), 11)


def test_fencing_the_last_epoch_never_overflows() -> None:
    done = completed(aborted_by_others(opened(new(LAST_EPOCH)), 9), 10)
    assert done.epoch == MAX_EPOCH
    assert needs_producer_id(done, None)
    assert producer_of(begun_anew(done, None, FRESH, 1000, 11)) == Producer(FRESH, 0)


@given(st.lists(st.sampled_from(["begin", "again", "open", "commit", "abort", "commit1", "abort1", "fence", "done"])))
def test_no_producer_is_ever_given_twice_and_numbers_only_grow(steps: list[str]) -> None:
    """Whatever happens: epochs of one producer id never fall, and a transaction has one number."""
    state, fresh, seen = new(LAST_EPOCH - 3), FRESH, [(7, LAST_EPOCH - 3)]
    for step in steps:
        before = state
        try:
            if step in ("begin", "again") and state.phase != "ONGOING" and not state.is_ending:
                expected = producer_of(state) if step == "again" else None
                wanted = fresh if needs_producer_id(state, expected) else None
                state = begun_anew(state, expected, wanted, 1000, 1)
            elif step == "open":
                state = joined(state, producer_of(state), 2)
                assert state.number == before.number + (before.phase != "ONGOING")
            elif step == "fence" and state.phase == "ONGOING":
                state = aborted_by_others(state, 3)
            elif step == "done" and state.is_ending:
                state = completed(state, 4)
            elif step[:5] in ("commi", "abort"):
                state = ending_by_client(
                    state,
                    producer_of(state),
                    committed=step.startswith("commit"),
                    bumps=not step.endswith("1"),
                    fresh_id=fresh,
                    now_ms=5,
                )
        except LakestreamError:
            assert state is before
        assert state.number >= before.number
        assert 0 <= state.epoch <= MAX_EPOCH
        if producer_of(state) != producer_of(before):
            assert tuple(producer_of(state)) not in seen
            seen.append(tuple(producer_of(state)))
        if state.producer_id == before.producer_id:
            assert state.epoch >= before.epoch
        else:
            fresh += 1
