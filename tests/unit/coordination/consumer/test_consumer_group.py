"""A group of the newer protocol, step by step: epochs, fencing, giving up and taking, static members, patterns."""

from typing import Any

import pytest
from support.groups.newer import NewerScene, known, topic_id

from lakestream.coordination.groups import ConsumerState, GroupError


def test_a_lone_member_has_everything_at_once() -> None:
    scene = NewerScene()
    beaten = scene.beat()
    assert (beaten.error, beaten.epoch, beaten.heartbeat_interval_ms) == (GroupError.NONE, 1, 5_000)
    assert beaten.assigned == {topic_id("t"): frozenset(range(4))}
    assert scene.group.state is ConsumerState.STABLE
    scene.group.unsaved = False
    assert scene.beat(epoch=1).assigned is None
    assert not scene.group.unsaved, "a heartbeat that changes nothing writes nothing"


def test_a_partition_is_given_when_its_owner_has_given_it_up() -> None:
    scene = NewerScene()
    first = scene.add("a", is_slow=True)
    first.settle()
    second = scene.add("b")
    assert scene.shares() == {"a": [0, 1, 2, 3], "b": []}
    assert scene.group.state is ConsumerState.RECONCILING
    scene.turn(first)
    assert (first.epoch, len(first.assigned), len(first.owned)) == (1, 2, 4), "it is asked and stays where it is"
    scene.turn(second)
    assert not second.owned
    scene.turn(first)
    assert first.epoch == 1, "it has not said yet that it gave up anything"
    first.settle()
    scene.turn(first)
    assert first.epoch == 2
    scene.turn(second)
    assert [len(client.owned) for client in (first, second)] == [2, 2]
    assert scene.group.state is ConsumerState.STABLE


def test_who_takes_too_long_to_give_up_is_out() -> None:
    scene = NewerScene()
    first = scene.add("a", is_slow=True)
    first.settle()
    second = scene.add("b")
    scene.turn(first)
    assert scene.after(4_999) == []
    assert scene.after(2) == ["a"]
    scene.turn(second)
    scene.turn(second)
    assert scene.shares()["b"] == [0, 1, 2, 3]
    scene.turn(first)
    assert first.errors == [], "it begins again by itself"


def test_sessions_end() -> None:
    scene = NewerScene(consumer_session_timeout_ms=1_000)
    scene.add("a")
    second = scene.add("b")
    scene.rounds(4)
    scene.now_ms += 900
    scene.turn(second)
    assert scene.after(200) == ["a"]
    scene.turn(second)
    assert scene.shares()["b"] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"member_id": "x", "epoch": 3}, GroupError.UNKNOWN_MEMBER),
        ({"epoch": 9}, GroupError.FENCED_EPOCH),
        ({"member_id": "", "epoch": 0}, GroupError.INVALID_REQUEST),
        ({"topics": None}, GroupError.INVALID_REQUEST),
        ({"topics": ()}, GroupError.INVALID_REQUEST),
        ({"rebalance_timeout_ms": None}, GroupError.INVALID_REQUEST),
        ({"owned": None}, GroupError.INVALID_REQUEST),
        ({"owned": {topic_id("t"): frozenset((0,))}}, GroupError.INVALID_REQUEST),
        ({"instance_id": ""}, GroupError.INVALID_REQUEST),
        ({"epoch": -2}, GroupError.INVALID_REQUEST),
        ({"epoch": -3}, GroupError.INVALID_REQUEST),
        ({"assignor": "mine"}, GroupError.UNKNOWN_ASSIGNOR),
        ({"topics": None, "pattern": "("}, GroupError.INVALID_PATTERN),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(changes: dict[str, Any], error: GroupError) -> None:
    scene = NewerScene()
    scene.beat()
    scene.group.unsaved = False
    beaten = scene.beat(**changes)
    assert beaten.error is error
    assert beaten.message
    assert not scene.group.unsaved
    assert list(scene.group.members) == ["m"]


def test_an_earlier_epoch_is_good_once_if_the_answer_was_lost() -> None:
    scene = NewerScene()
    first, second = scene.add("a"), scene.add("b")
    scene.turn(first)
    scene.turn(first, loses_answer=True)
    assert (first.epoch, scene.group.members["a"].epoch) == (1, 2)
    scene.turn(first)
    assert (first.epoch, first.errors) == (2, [])
    scene.turn(second)
    claims_too_much = scene.beat("a", 1, owned={topic_id("t"): frozenset(range(4))})
    assert claims_too_much.error is GroupError.FENCED_EPOCH


def test_a_join_that_is_sent_again_is_answered_again() -> None:
    scene = NewerScene()
    first = scene.beat()
    again = scene.beat()
    assert (again.epoch, again.assigned) == (first.epoch, first.assigned)


def test_static_members_keep_their_place_and_their_partitions() -> None:
    scene = NewerScene()
    first = scene.beat("a", instance_id="one")
    assert scene.beat("b", instance_id="one").error is GroupError.UNRELEASED_INSTANCE
    assert scene.beat("b", epoch=1, instance_id="one").error is GroupError.FENCED_INSTANCE
    assert scene.beat("a", epoch=-2, instance_id="one").epoch == -2
    assert scene.group.members["a"].assigned == first.assigned, "kept for it"
    other = scene.beat("c", instance_id="two")
    assert other.assigned == {}
    again = scene.beat("b", instance_id="one")
    assert again.error is GroupError.NONE
    assert scene.beat("a", epoch=1, instance_id="one").error is GroupError.FENCED_INSTANCE
    assert set(scene.group.members) == {"b", "c"}


def test_a_static_member_that_comes_back_as_it_was_moves_nobody() -> None:
    scene = NewerScene()
    scene.beat("a", instance_id="one")
    epoch = scene.group.epoch
    scene.beat("a", epoch=-2, instance_id="one")
    again = scene.beat("b", instance_id="one")
    assert (again.epoch, again.assigned) == (epoch, {topic_id("t"): frozenset(range(4))})


def test_topics_come_grow_and_go() -> None:
    scene = NewerScene(known(t=1))
    scene.beat(topics=("t", "later"))
    assert scene.beat(epoch=1).assigned is None
    scene.topics = known(t=2, later=1, other=5)
    grown = scene.beat(epoch=1)
    assert grown.epoch == 2
    assert grown.assigned == {topic_id("t"): frozenset((0, 1)), topic_id("later"): frozenset((0,))}
    scene.topics = known(t=2, other=6)
    assert scene.beat(epoch=2).assigned == {topic_id("t"): frozenset((0, 1))}, "to be given up"
    assert scene.beat(epoch=2, owned={topic_id("t"): frozenset((0, 1))}).epoch == 3
    scene.group.unsaved = False
    scene.topics = known(t=2, other=7)
    assert scene.beat(epoch=3).epoch == 3
    assert not scene.group.unsaved, "nobody reads what has changed"


def test_who_is_refused_takes_nobodys_place() -> None:
    scene = NewerScene()
    scene.beat("a", instance_id="one")
    scene.beat("a", epoch=-2, instance_id="one")
    scene.group.unsaved = False
    assert scene.beat("b", instance_id="one", pattern="(").error is GroupError.INVALID_PATTERN
    assert list(scene.group.members) == ["a"]
    assert not scene.group.unsaved


def test_a_pattern_finds_topics_that_the_member_may_know_of() -> None:
    scene = NewerScene(known(**{"orders.eu": 1, "orders.us": 1, "secret.orders": 1}))
    beaten = scene.beat(topics=None, pattern="(secret|orders)\\..*", may_describe=lambda name: name[0] == "o")
    assert beaten.assigned is not None
    assert set(beaten.assigned) == {topic_id("orders.eu"), topic_id("orders.us")}
    scene.topics = known(**{"orders.eu": 1, "orders.us": 1, "orders.asia": 2})
    assert len(scene.beat(epoch=1).assigned or ()) == 3
    assert scene.group.subscribed() == {"orders.eu", "orders.us", "orders.asia"}


def test_the_assignor_that_most_ask_for() -> None:
    scene = NewerScene(known(t=2, u=2))
    for number in range(3):
        scene.beat(f"m{number}", topics=("t", "u"), assignor="range" if number < 2 else "uniform")
    assert scene.group.assignor == "range"
    assert scene.group.members["m2"].target == {}


def test_commits_are_taken_from_members_where_they_are() -> None:
    scene = NewerScene()
    assert scene.group.commit_error("", None, -1, 0) is GroupError.NONE
    scene.beat()
    assert scene.group.commit_error("m", None, 1, 0) is GroupError.NONE
    assert scene.group.commit_error("m", None, 0, 0) is GroupError.STALE_EPOCH
    assert scene.group.commit_error("x", None, 1, 0) is GroupError.UNKNOWN_MEMBER
    assert scene.group.commit_error("", None, -1, 0) is GroupError.UNKNOWN_MEMBER


def test_a_full_group() -> None:
    scene = NewerScene(consumer_max_members=1)
    scene.beat("a")
    assert scene.beat("b").error is GroupError.GROUP_FULL
    assert scene.beat("a", epoch=1).error is GroupError.NONE
