"""The rows of share partitions: what members are given, say and lose, record by record."""

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from support.properties import examples
from support.shares.records import RULES, batches, check, records

from lakestream.coordination.shares.acquiring import acquire, overlapping, wanted_from
from lakestream.coordination.shares.model import Ack, AckError, AckType, Acquired
from lakestream.coordination.shares.ranges import (
    DONE,
    acknowledge,
    advanced,
    fault_of,
    lapsed,
    next_lapse_ms,
    open_records,
    released,
)
from lakestream.metadata.shares import Delivery, ShareRange, ShareState

EMPTY = ShareState(0)


def given(state: ShareState, member: str, *sizes: int, most: int = 100, now_ms: int = 1, **more: Any) -> Any:
    hidden, is_exact = more.get("hidden", ()), more.get("is_exact", False)
    read = batches(*sizes, hidden=hidden)
    return acquire(state, member, read, 0, most, RULES, now_ms, is_exact=is_exact)


def accepted(state: ShareState, member: str, first: int, last: int, *types: int, now_ms: int = 2) -> Any:
    return acknowledge(state, member, [Ack(first, last, types or (1,))], RULES, now_ms)


def test_whole_batches_are_given_and_what_is_accepted_is_done_with() -> None:
    state, acquired = given(EMPTY, "a", 4, 4, 4, most=5)
    assert acquired == (Acquired(0, 8, 1),)
    state, acquired = given(state, "b", 4, 4, 4, most=5)
    assert acquired == (Acquired(8, 12, 1),), "what another member has is passed over"
    state, outcome = accepted(state, "a", 0, 5)
    assert (outcome.error, state.start) == (None, 6)
    state, outcome = accepted(state, "b", 8, 11)
    assert (outcome.error, state.start, state.end) == (None, 6, 12)
    state, outcome = accepted(state, "a", 6, 7)
    assert (state, outcome.error) == (ShareState(12), None)


def test_no_more_than_asked_for_if_that_is_wanted() -> None:
    state, acquired = given(EMPTY, "a", 4, 4, most=6, is_exact=True)
    assert acquired == (Acquired(0, 6, 1),)
    assert state.end == 6, "what was never given is not remembered"
    assert wanted_from(state, RULES) == 6


def test_released_records_come_again_until_they_were_often_enough() -> None:
    state = EMPTY
    for count in (1, 2):
        state, acquired = given(state, "a", 3)
        assert acquired == (Acquired(0, 3, count),)
        state, _ = accepted(state, "a", 0, 2, AckType.RELEASE)
    assert wanted_from(state, RULES) == 0
    for offset in range(3):
        state, acquired = given(state, "a", 3)
        assert acquired == (Acquired(offset, offset + 1, 3),), "before its last delivery a record comes alone"
        state, _ = accepted(state, "a", offset, offset, AckType.RELEASE)
    assert state == ShareState(3), "given up"


def test_a_record_that_comes_alone_does_not_join_others() -> None:
    state = ShareState(0, (ShareRange(0, 2, Delivery.AVAILABLE, 1), ShareRange(2, 4, Delivery.AVAILABLE, 2)))
    state, acquired = given(state, "a", 4)
    assert acquired == (Acquired(0, 2, 2),)
    state, acquired = given(state, "b", 4, 4)
    assert acquired == (Acquired(2, 3, 3),)


def test_locks_lapse_and_can_be_renewed() -> None:
    state, _ = given(EMPTY, "a", 4, now_ms=1)
    assert next_lapse_ms(state) == 101
    state, outcome = accepted(state, "a", 0, 1, AckType.RENEW, now_ms=50)
    assert outcome.error is None
    state = lapsed(state, RULES, 101)
    assert [each.state for each in records(state).values()] == [1, 1, 0, 0]
    assert accepted(state, "a", 2, 3).outcome.error is AckError.INVALID_STATE
    assert accepted(state, "a", 0, 1).outcome.error is None


def test_acknowledgements_count_all_or_none() -> None:
    state, _ = given(EMPTY, "a", 4)
    assert accepted(state, "b", 0, 3).outcome.error is AckError.INVALID_STATE
    mixed = [Ack(0, 1, (1,)), Ack(3, 4, (1,))]
    told = acknowledge(state, "a", mixed, RULES, 2)
    assert (told.state, told.outcome.error) == (state, AckError.INVALID_REQUEST)
    twice = acknowledge(state, "a", [Ack(0, 1, (1,)), Ack(1, 2, (1,))], RULES, 2)
    assert (twice.state, twice.outcome.error) == (state, AckError.INVALID_STATE)
    state, outcome = accepted(state, "a", 0, 3, 1, 2, 3, 0)
    assert outcome.error is None
    assert [each.state for each in records(state).values()] == [0, 4, 4]
    assert accepted(state, "a", 0, 0).outcome.error is None, "of what lies before the start nothing is to be said"


def test_gaps_markers_and_what_was_aborted_are_done_with() -> None:
    state, acquired = given(EMPTY, "a", -2, 3, 1, -4, 2, hidden=(1,))
    assert acquired == (Acquired(2, 5, 1), Acquired(10, 12, 1))
    assert state.start == 2
    assert open_records(state, 12) == 5
    assert overlapping(batches(-2, 3, 1, -4, 2, hidden=(1,)), acquired) == [
        each for each in batches(-2, 3, 1, -4, 2, hidden=(1,)) if each.is_visible
    ]


def test_so_many_are_on_their_way_and_no_more() -> None:
    state, acquired = given(EMPTY, "a", 15, 15, 15)
    assert acquired == (Acquired(0, 30, 1),), "a batch is not cut"
    assert wanted_from(state, RULES) is None
    state, _ = accepted(state, "a", 0, 10)
    assert wanted_from(state, RULES) == 30


def test_a_group_that_was_set_back_is_not_taken_past_what_it_was_set_to() -> None:
    state = ShareState(3)
    assert acquire(state, "a", batches(5, first=10), 10, 100, RULES, 1, is_exact=False) == (state, ())


@pytest.mark.parametrize(
    ("acks", "is_good"),
    [
        ([], True),
        ([Ack(0, 3, (1,)), Ack(4, 5, (1, 2))], True),
        ([Ack(3, 2, (1,))], False),
        ([Ack(0, 3, (1,)), Ack(2, 5, (1,))], False),
        ([Ack(0, 3, ())], False),
        ([Ack(0, 3, (1, 1))], False),
        ([Ack(0, 0, (5,))], False),
        ([Ack(0, 0, (-1,))], False),
        ([Ack(0, 0, (4,))], False),
    ],
)
def test_what_acknowledgements_may_say(acks: list[Ack], is_good: bool) -> None:
    assert (fault_of(acks, renews=False) == "") is is_good


def test_only_who_renews_may_renew() -> None:
    assert fault_of([Ack(0, 0, (AckType.RENEW,))], renews=True) == ""
    state, _ = given(EMPTY, "a", 1)
    told = acknowledge(state, "a", [Ack(0, 0, (4,))], RULES._replace(renews=False), 2)
    assert told.outcome.error is AckError.INVALID_STATE


MEMBERS = st.sampled_from("abc")
TYPES = st.sampled_from([AckType.GAP, AckType.ACCEPT, AckType.RELEASE, AckType.REJECT, AckType.RENEW])


class ShareMachine(RuleBasedStateMachine):
    """Records one by one beside the ranges. Nothing that is done with is ever given again."""

    def __init__(self) -> None:
        super().__init__()
        self.state = EMPTY
        self.now_ms = 1
        self.log: list[int] = []
        self.deliveries: dict[int, int] = {}
        self.done: set[int] = set()

    @rule(size=st.integers(1, 6))
    def append(self, size: int) -> None:
        self.log.append(size)

    @rule(member=MEMBERS, most=st.integers(1, 8), is_exact=st.booleans())
    def fetch(self, member: str, most: int, is_exact: bool) -> None:
        offset = wanted_from(self.state, RULES)
        if offset is None:
            return
        read = [each for each in batches(*self.log) if each.end > offset]
        before, had = self.state, records(self.state)
        self.state, acquired = acquire(before, member, read, offset, most, RULES, self.now_ms, is_exact=is_exact)
        for first, end, deliveries in acquired:
            for number in range(first, end):
                assert number not in self.done
                one = had.get(number)
                assert one is None or one.state is Delivery.AVAILABLE
                assert deliveries == self.deliveries.get(number, 0) + 1 <= RULES.most_deliveries
                self.deliveries[number] = deliveries
        given = {number for first, end, _ in acquired for number in range(first, end)}
        if is_exact:
            assert len(given) <= most
        now = records(self.state)
        for number, one in now.items():
            if number in given:
                assert (one.member, one.until_ms) == (member, self.now_ms + RULES.lock_ms)
            else:
                assert one == had[number]
        assert self.state.end - self.state.start <= RULES.most_in_flight + 5
        if read and not had:
            assert given, "there are records, and nobody has any"

    @rule(member=MEMBERS, first=st.integers(0, 30), types=st.lists(TYPES, min_size=1, max_size=8))
    def acknowledge(self, member: str, first: int, types: list[AckType]) -> None:
        last, before, had = first + len(types) - 1, self.state, records(self.state)
        told = acknowledge(before, member, [Ack(first, last, types)], RULES, self.now_ms)
        concerned = [number for number in range(first, last + 1) if number >= before.start]
        good = all(number in had and had[number].member == member for number in concerned)
        assert (told.outcome.error is None) == good
        self.state = told.state
        if not good:
            assert told.state == before
            return
        for number in concerned:
            kind, one = types[number - first], records(self.state).get(number)
            if kind is AckType.RENEW:
                assert one is not None
                assert one.until_ms == self.now_ms + RULES.lock_ms
            elif kind is AckType.RELEASE and self.deliveries[number] < RULES.most_deliveries:
                assert one is not None
                assert one.state is Delivery.AVAILABLE
            else:
                self.done.add(number)

    @rule(by_ms=st.integers(1, 80))
    def wait(self, by_ms: int) -> None:
        self.now_ms += by_ms
        had = records(self.state)
        self.state = lapsed(self.state, RULES, self.now_ms)
        self._freed({number for number, one in had.items() if one.member and one.until_ms <= self.now_ms})

    @rule(member=MEMBERS)
    def leave(self, member: str) -> None:
        had = records(self.state)
        self.state = released(self.state, member, RULES)
        self._freed({number for number, one in had.items() if one.member == member})

    def _freed(self, numbers: set[int]) -> None:
        now = records(self.state)
        for number in numbers:
            if self.deliveries[number] >= RULES.most_deliveries:
                self.done.add(number)
            else:
                assert now[number].state is Delivery.AVAILABLE

    @rule(start=st.integers(0, 30))
    def delete(self, start: int) -> None:
        start = min(start, sum(self.log))
        self.done |= set(range(start))
        self.state = advanced(self.state, start)
        assert self.state.start >= start

    @invariant()
    def holds(self) -> None:
        check(self.state)
        for number, one in records(self.state).items():
            assert (one.state in DONE) == (number in self.done)
        assert set(range(self.state.start)) <= self.done


ShareMachine.TestCase.settings = examples(200, stateful_step_count=40)
TestShareMachine = ShareMachine.TestCase
