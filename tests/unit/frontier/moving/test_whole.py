"""Vectors that split no transaction: against brute force, over random interleavings."""

from dataclasses import dataclass, field
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakestream.frontier.moving.whole import CommittedTransaction, EndedPart, committed, greatest, split

_APPENDS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 2)), min_size=1, max_size=14)
"""(transaction, partition, records)."""


@dataclass
class _Log:
    """One partition: what each offset holds, a transaction's number or None for a marker."""

    rows: list[int | None] = field(default_factory=list)
    boundaries: list[int] = field(default_factory=lambda: [0])
    markers: list[EndedPart] = field(default_factory=list)

    def append(self, transaction: int | None, records: int) -> None:
        self.rows += [transaction] * records
        self.boundaries.append(len(self.rows))

    def range_of(self, transaction: int) -> tuple[int, int]:
        held = [offset for offset, found in enumerate(self.rows) if found == transaction]
        return (held[0], held[-1] + 1) if held else (0, 0)


@st.composite
def _worlds(draw: st.DrawFn) -> tuple[list[_Log], dict[int, int], set[int]]:
    """Transactions interleaved over three partitions. Some end, with a marker in every partition or, while the end is
    under way, in some. (logs, last stable offsets, committed transactions)"""
    logs = [_Log() for _ in range(3)]
    enlisted: dict[int, set[int]] = {}
    ended: dict[int, bool] = {}
    pending: dict[int, set[int]] = {}
    for transaction, index, records in draw(_APPENDS):
        if transaction in ended:
            continue
        enlisted.setdefault(transaction, set()).add(index)
        logs[index].append(transaction, records)
        if draw(st.integers(0, 3)) == 0:
            everywhere = enlisted[transaction] | draw(st.sets(st.integers(0, 2), max_size=1))
            ended[transaction] = draw(st.booleans())
            pending[transaction] = draw(st.sets(st.sampled_from(sorted(everywhere)))) if draw(st.booleans()) else set()
            for at in sorted(everywhere - pending[transaction]):
                start, end = logs[at].range_of(transaction)
                told = EndedPart(
                    (f"t{transaction}", 0), transaction, ended[transaction], start, end, frozenset(everywhere)
                )
                logs[at].append(None, 1)
                logs[at].markers.append(told)
    stable = {}
    for index, log in enumerate(logs):
        opened = [
            log.range_of(each)[0]
            for each in enlisted
            if each in log.rows and (each not in ended or index in pending[each])
        ]
        stable[index] = min([*opened, len(log.rows)])
    return logs, stable, {each for each, result in ended.items() if result}


def _splits(logs: list[_Log], starts: tuple[int, ...], ends: tuple[int, ...], transactions: set[int]) -> set[int]:
    """By looking at every row."""
    found = set()
    for transaction in transactions:
        below = above = False
        for log, start, end in zip(logs, starts, ends, strict=True):
            rows = [offset for offset, each in enumerate(log.rows) if each == transaction and offset >= start]
            below |= any(offset < end for offset in rows)
            above |= any(offset >= end for offset in rows)
        if below and above:
            found.add(transaction)
    return found


def _tails(logs: list[_Log]) -> list[CommittedTransaction]:
    return committed({index: log.markers for index, log in enumerate(logs)})


@given(_worlds())
def test_the_vector_is_the_greatest_that_splits_nothing(world: tuple[list[_Log], dict[int, int], set[int]]) -> None:
    logs, stable, kept = world
    starts = (0, 0, 0)
    found = greatest(dict(enumerate(starts)), stable, _tails(logs))
    ends = (found[0], found[1], found[2])
    assert not _splits(logs, starts, ends, kept)
    options = [[at for at in log.boundaries if at <= stable[index]] for index, log in enumerate(logs)]
    unsplit = [each for each in product(*options) if not _splits(logs, starts, each, kept)]
    # A transaction whose end is not everywhere yet may get no further records, but nobody knows it.
    ending = {int(one.transaction[0][1:]) for one in _tails(logs) if one.unseen}
    honest = [each for each in unsplit if not any(_touches(logs, each, one) for one in ending)]
    assert ends in honest
    assert all(all(a <= b for a, b in zip(each, ends, strict=True)) for each in honest)


def _touches(logs: list[_Log], ends: tuple[int, ...], transaction: int) -> bool:
    return any(transaction in log.rows[:end] for log, end in zip(logs, ends, strict=True))


@given(_worlds(), st.data())
def test_two_such_vectors_make_one(world: tuple[list[_Log], dict[int, int], set[int]], data: st.DataObject) -> None:
    """Workers side by side plan on what each of them has seen."""
    logs, stable, kept = world
    transactions = _tails(logs)
    ends = []
    for _ in range(2):
        caps = {index: data.draw(st.integers(0, cap)) for index, cap in stable.items()}
        found = greatest({}, caps, transactions)
        ends.append((found[0], found[1], found[2]))
    both = tuple(max(pair) for pair in zip(*ends, strict=True))
    assert not _splits(logs, (0, 0, 0), both, kept)  # type: ignore[arg-type]


@given(_worlds(), st.sets(st.integers(0, 2)), st.data())
def test_what_is_split_is_named(
    world: tuple[list[_Log], dict[int, int], set[int]], free: set[int], data: st.DataObject
) -> None:
    logs, stable, kept = world
    transactions = _tails(logs)
    starts = {
        index: data.draw(st.sampled_from([at for at in log.boundaries if at <= stable[index]]))
        for index, log in enumerate(logs)
    }
    found = greatest(starts, stable, transactions, free)
    assert all(starts[index] <= found[index] <= stable[index] for index in found)
    assert all(found[index] == stable[index] for index in free)
    ends = (found[0], found[1], found[2])
    truly = _splits(logs, (starts[0], starts[1], starts[2]), ends, kept)
    named = {int(one[0][1:]) for one in split(starts, found, transactions)}
    assert truly <= named
    # Beyond those only such as may still have records that nobody has seen.
    assert named - truly <= {int(one.transaction[0][1:]) for one in transactions if one.unseen}
    if not free:
        assert not named


def _ended(name: str, start: int, end: int, partitions: set[int], *, commits: bool = True) -> EndedPart:
    return EndedPart((name, 1), 7, commits, start, end, frozenset(partitions))


def test_a_transaction_waits_for_its_marker_in_each_partition() -> None:
    told = {0: [_ended("a", 2, 4, {0, 1})], 1: []}
    assert greatest({}, {0: 5, 1: 3}, committed(told)) == {0: 2, 1: 3}
    told = {0: [_ended("a", 2, 4, {0, 1})], 1: [_ended("a", 1, 2, {0, 1})]}
    assert greatest({}, {0: 5, 1: 3}, committed(told)) == {0: 5, 1: 3}


def test_a_transaction_that_does_not_fit_takes_others_with_it() -> None:
    """b has records before a's in one partition, and others behind an end that a forces on the other."""
    told = {
        0: [_ended("a", 3, 5, {0, 1}), _ended("b", 4, 6, {0, 2})],
        1: [_ended("a", 0, 9, {0, 1})],
        2: [_ended("b", 1, 2, {0, 2})],
    }
    assert greatest({}, {0: 10, 1: 8, 2: 10}, committed(told)) == {0: 3, 1: 0, 2: 1}
    assert greatest({}, {0: 10, 1: 8, 2: 10}, committed(told), {1}) == {0: 10, 1: 8, 2: 10}
    assert split({}, {0: 10, 1: 8, 2: 10}, committed(told)) == [("a", 1)]


def test_what_was_aborted_may_be_cut_anywhere() -> None:
    told = {0: [_ended("a", 2, 4, {0, 1}, commits=False)], 1: []}
    assert greatest({}, {0: 3, 1: 3}, committed(told)) == {0: 3, 1: 3}


def test_a_partition_that_is_gone_is_not_waited_for() -> None:
    told = {0: [_ended("a", 2, 4, {0, 1})]}
    assert greatest({}, {0: 5}, committed(told, gone={1})) == {0: 5}


def test_what_is_split_already_comes_as_soon_as_it_can_be_whole() -> None:
    told = {0: [_ended("a", 2, 4, {0, 1})], 1: [_ended("a", 0, 6, {0, 1})]}
    transactions = committed(told)
    assert greatest({0: 3}, {0: 5, 1: 5}, transactions) == {0: 3, 1: 0}
    assert greatest({0: 3}, {0: 5, 1: 6}, transactions) == {0: 5, 1: 6}
    assert split({0: 3}, {0: 5, 1: 6}, transactions) == []


@pytest.mark.parametrize("count", [20_000])
def test_many_transactions_take_no_square_of_time(count: int) -> None:
    """Each overlaps the next, and the last does not fit: all of them go out, one after the other."""
    told = {
        index: [_ended(f"t{number}", number + index, number + 2, {0, 1}) for number in range(count)]
        for index in range(2)
    }
    assert greatest({}, {0: count + 2, 1: count}, committed(told)) == {0: 0, 1: 1}
