"""The assignors: fair, complete, and moving no more than they must."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

from lakestream.coordination.groups.consumer.assigning import assign_ranges, assign_uniformly
from lakestream.coordination.groups.consumer.members import each_of

A, B, C = (UUID(int=number) for number in (1, 2, 3))
SIZES = st.dictionaries(st.sampled_from([A, B, C]), st.integers(1, 9), min_size=1)
READERS = st.dictionaries(st.sampled_from("abcdef"), st.frozensets(st.sampled_from([A, B, C])), min_size=1)


@pytest.mark.parametrize("assign", [assign_uniformly, assign_ranges])
@given(sizes=SIZES, readers=READERS, fewer=READERS)
@examples(100)
def test_everything_that_is_read_has_one_reader(assign, sizes, readers, fewer) -> None:  # type: ignore[no-untyped-def]
    known = {member: frozenset(topics & sizes.keys()) for member, topics in readers.items()}
    first = assign(known, sizes, {}, sorted(known))
    others = {member: frozenset(topics & sizes.keys()) for member, topics in fewer.items()}
    for subscriptions, targets in ((known, first), (others, assign(others, sizes, first, sorted(others)))):
        pairs = [pair for partitions in targets.values() for pair in each_of(partitions)]
        assert len(pairs) == len(set(pairs))
        read = frozenset[UUID]().union(*subscriptions.values())
        assert set(pairs) == {(topic, index) for topic in read for index in range(sizes[topic])}
        assert all(targets[member].keys() <= topics for member, topics in subscriptions.items())
        assert targets.keys() == subscriptions.keys()


@given(sizes=SIZES, members=st.sets(st.sampled_from("abcdef"), min_size=1), after=st.sets(st.sampled_from("abcdef")))
@examples(100)
def test_uniform_is_even_and_moves_little(sizes: dict[UUID, int], members: set[str], after: set[str]) -> None:
    total = sum(sizes.values())
    first = assign_uniformly(dict.fromkeys(members, frozenset(sizes)), sizes, {}, sorted(members))
    now = after or members
    second = assign_uniformly(dict.fromkeys(now, frozenset(sizes)), sizes, first, sorted(now))
    for targets in (first, second):
        loads = [sum(map(len, partitions.values())) for partitions in targets.values()]
        assert max(loads) - min(loads) <= 1
    owner = {pair: member for member, partitions in first.items() for pair in each_of(partitions)}
    moved = [pair for member in now for pair in each_of(second[member]) if owner[pair] != member]
    had_to = {pair for pair, member in owner.items() if member not in now}
    newcomers = len(now - members)
    assert set(moved) >= had_to
    assert len(moved) <= len(had_to) + newcomers * -(-total // len(now)) + len(now)
    if now == members:
        assert second == first


def test_uniform_with_different_subscriptions() -> None:
    targets = assign_uniformly(
        {"a": frozenset((A,)), "b": frozenset((A, B)), "c": frozenset((B,))}, {A: 4, B: 4}, {}, "abc"
    )
    assert sorted(sum(map(len, partitions.values())) for partitions in targets.values()) == [2, 3, 3]


def test_ranges_cut_topics_alike_and_keep_the_order_of_members() -> None:
    both = frozenset((A, B))
    targets = assign_ranges({"b": both, "a": both, "c": frozenset((B,))}, {A: 3, B: 3}, {}, ["b", "a", "c"])
    assert targets["b"] == {A: frozenset((0, 1)), B: frozenset((0,))}
    assert targets["a"] == {A: frozenset((2,)), B: frozenset((1,))}
    assert targets["c"] == {B: frozenset((2,))}


def test_many_partitions_take_no_time() -> None:
    members = [f"m{number:03}" for number in range(200)]
    targets = assign_uniformly(dict.fromkeys(members, frozenset((A,))), {A: 10_000}, {}, members)
    assert {len(partitions[A]) for partitions in targets.values()} == {50}
