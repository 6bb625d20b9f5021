"""Members of both protocols in one group: how it goes over and back, and what the classic ones are told meanwhile."""

from typing import Any

import pytest
from support.groups.newer import beat, known, topic_id

from lakestream.coordination.groups import Beaten, ConsumerGroup, Group, GroupError, Join, Joined, Protocol, State, Sync
from lakestream.coordination.groups.consumer import classic
from lakestream.coordination.groups.consumer.embedded import assignment_data, assignment_of, subscription_of
from lakestream.coordination.groups.consumer.members import MemberState
from lakestream.coordination.groups.converting import downgraded, is_to_go_back, upgraded
from lakestream.coordination.settings import GroupSettings

TOPICS = known(t=4)
SETTINGS = GroupSettings()


def subscription(*topics: str, owned: dict[str, list[int]] | None = None) -> bytes:
    """ConsumerProtocolSubscription, version 3."""
    told = assignment_data(3, {name: frozenset(indexes) for name, indexes in (owned or {}).items()})
    names = b"".join(len(name).to_bytes(2, "big") + name.encode() for name in topics)
    head = (3).to_bytes(2, "big") + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"
    return head + told[2:-4] + (1).to_bytes(4, "big") + b"\0\4rack"


def joining(member_id: str = "", *, owned: dict[str, list[int]] | None = None, **changes: Any) -> Join:
    fields: dict[str, Any] = {
        "member_id": member_id,
        "instance_id": None,
        "client_id": "c",
        "client_host": "h",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 5_000,
        "protocol_type": "consumer",
        "protocols": (Protocol("range", subscription("t", owned=owned)),),
        "id_required": False,
        "skips_assignment": True,
    }
    return Join(**fields | changes)


def classic_group(**shares: list[int]) -> Group:
    """At rest, with these members and what each has."""
    group, heard = Group(0, 100), list[Joined]()
    for name in shares:
        group.join(joining(), heard.append, lambda name=name: name, 0)  # type: ignore[misc]
    group.begin_generation(0)
    plan = {name: assignment_data(3, {"t": frozenset(indexes)}) for name, indexes in shares.items()}
    for name in shares:
        group.sync(Sync(name, None, 1, None, None, plan if name == group.leader else {}), lambda _: None, 0)
    assert group.state is State.STABLE
    return group


def over(group: Group, settings: GroupSettings = SETTINGS) -> ConsumerGroup:
    found = upgraded(group, settings, TOPICS, 0)
    assert found is not None
    return found


def join(group: ConsumerGroup, request: Join, now_ms: float = 0) -> Joined:
    return classic.join(group, request, TOPICS, lambda: "new", lambda _: True, now_ms)


def synced(group: ConsumerGroup, member_id: str, epoch: int) -> dict[str, list[int]]:
    told = classic.sync(group, Sync(member_id, None, epoch, "consumer", "range", {}), TOPICS, 0)
    assert told.error is GroupError.NONE
    return {name: sorted(indexes) for name, indexes in assignment_of(told.assignment).items()}


def test_what_consumers_tell_one_another() -> None:
    found = subscription_of(subscription("t", "u", owned={"t": [0, 3]}))
    assert (found.version, found.topics, found.owned, found.rack_id) == (3, ("t", "u"), {"t": {0, 3}}, "rack")
    assert assignment_of(assignment_data(1, {"t": frozenset((1, 2))})) == {"t": {1, 2}}


def test_members_keep_what_they_have_and_give_up_one_by_one() -> None:
    group = over(classic_group(a=[0, 1], b=[2, 3]))
    assert (group.epoch, group.assignment_epoch) == (1, 1)
    new = group.heartbeat(beat("n"), TOPICS, 0)
    assert (new.error, new.epoch, new.assigned) == (GroupError.NONE, 2, {})
    assert classic.heartbeat(group, "a", None, 1, 0) is GroupError.REBALANCING
    loser = next(member for member in group.members.values() if len(member.target.get(topic_id("t"), ())) == 1)
    keeps = sorted(loser.target[topic_id("t")])
    # It joins with what it still has, is told what to give up, and joins again without that.
    again = join(group, joining(loser.member_id, owned={"t": [0, 1] if loser.member_id == "a" else [2, 3]}))
    assert (again.error, again.generation, again.leader, again.members) == (GroupError.NONE, 1, "", ())
    assert synced(group, loser.member_id, 1) == {"t": keeps}
    assert group.heartbeat(beat("n", 2), TOPICS, 0).assigned is None, "it has not given up anything yet"
    assert classic.heartbeat(group, loser.member_id, None, 1, 0) is GroupError.REBALANCING
    assert join(group, joining(loser.member_id, owned={"t": keeps})).generation == 2
    assert len((group.heartbeat(beat("n", 2), TOPICS, 0).assigned or {})[topic_id("t")]) == 1


def test_one_that_does_not_come_back_in_time_is_out() -> None:
    group = over(classic_group(a=[0, 1, 2, 3]))
    group.heartbeat(beat("n"), TOPICS, 0)
    assert classic.heartbeat(group, "a", None, 1, 1_000) is GroupError.REBALANCING
    assert group.expire(5_999) == []
    assert group.expire(6_001) == ["a"]
    joined = join(group, joining("x"), 6_001)
    assert group.expire(6_001 + 5_001) == ["x"], "it never asked for its assignment"
    assert classic.heartbeat(group, "x", None, joined.generation, 12_000) is GroupError.UNKNOWN_MEMBER


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (joining(protocol_type="connect"), GroupError.INCONSISTENT_PROTOCOL),
        (joining(protocols=(Protocol("mine", subscription("t")),)), GroupError.INCONSISTENT_PROTOCOL),
        (joining(protocols=(Protocol("range", b"?"),)), GroupError.INCONSISTENT_PROTOCOL),
        (joining(id_required=True), GroupError.MEMBER_ID_REQUIRED),
        (joining("x", instance_id="i"), GroupError.UNKNOWN_MEMBER),
        (joining(), GroupError.NONE),
    ],
)
def test_who_may_join(request_: Join, error: GroupError) -> None:
    group = over(classic_group(a=[0, 1, 2, 3]))
    assert group.heartbeat(beat("n"), TOPICS, 0).error is GroupError.NONE
    assert join(group, request_).error is error


def test_classic_requests_for_what_is_not_there() -> None:
    group = over(classic_group(a=[0, 1, 2, 3]))
    group.heartbeat(beat("n", instance_id="i"), TOPICS, 0)
    for member_id, instance_id, generation, error in (
        ("x", None, 1, GroupError.UNKNOWN_MEMBER),
        ("n", None, 2, GroupError.UNKNOWN_MEMBER),
        ("x", "i", 1, GroupError.FENCED_INSTANCE),
        ("x", "j", 1, GroupError.UNKNOWN_MEMBER),
        ("a", None, 7, GroupError.STALE_GENERATION),
    ):
        assert classic.heartbeat(group, member_id, instance_id, generation, 0) is error
        assert classic.sync(group, Sync(member_id, instance_id, generation, None, None, {}), TOPICS, 0).error is error
    wrong = classic.sync(group, Sync("a", None, 1, "consumer", "sticky", {}), TOPICS, 0)
    assert wrong.error is GroupError.INCONSISTENT_PROTOCOL
    assert group.commit_error("a", None, 7, 0) is GroupError.STALE_GENERATION
    assert classic.leave(group, "n", None) is GroupError.UNKNOWN_MEMBER
    assert classic.leave(group, "a", None) is GroupError.NONE
    assert set(group.members) == {"n"}


def test_back_to_the_classic_protocol() -> None:
    group = over(classic_group(a=[0, 1], b=[2, 3]))
    group.heartbeat(beat("n"), TOPICS, 0)
    assert not is_to_go_back(group)
    group.heartbeat(beat("n", -1), TOPICS, 0)
    assert is_to_go_back(group)
    back = downgraded(group, TOPICS, 0)
    assert (back.generation, back.state, set(back.members)) == (group.epoch, State.PREPARING, {"a", "b"})
    assert assignment_of(back.members["a"].assignment) == {"t": {0, 1}}
    heard = list[Joined]()
    for name in ("a", "b"):
        back.join(joining(name), heard.append, lambda: "?", 0)
    assert back.ready(0)
    back.begin_generation(0)
    assert [each.error for each in heard] == [GroupError.NONE] * 2


def test_a_static_member_changes_its_protocol() -> None:
    group = ConsumerGroup(SETTINGS)
    first = group.heartbeat(beat("n", instance_id="i"), TOPICS, 0)
    joined = join(group, joining(instance_id="i"))
    assert (joined.error, joined.member_id) == (GroupError.NONE, "new")
    assert synced(group, "new", joined.generation) == {"t": [0, 1, 2, 3]}
    assert is_to_go_back(group)
    again = group.heartbeat(beat("m", instance_id="i"), TOPICS, 0)
    assert (again.error, again.assigned) == (GroupError.NONE, first.assigned)
    assert not is_to_go_back(group)


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_a_policy_forbids_to_go_over(policy: Any) -> None:
    assert upgraded(classic_group(a=[0]), GroupSettings(consumer_migration_policy=policy), TOPICS, 0) is None


def test_what_cannot_go_over() -> None:
    assert upgraded(classic_group(a=[0], b=[0]), SETTINGS, TOPICS, 0) is None, "a leader gave it to two"
    broken = classic_group(a=[0])
    broken.members["a"].assignment = b"\0"
    assert upgraded(broken, SETTINGS, TOPICS, 0) is None
    other = classic_group(a=[0])
    other.protocol_type = "connect"
    assert upgraded(other, SETTINGS, TOPICS, 0) is None


def test_who_has_joined_already_has_what_it_says() -> None:
    """A cooperative member keeps reading while the next generation is waited for."""
    group = classic_group(a=[0, 1], b=[2, 3])
    group.join(joining("a", owned={"t": [0]}), lambda _: None, lambda: "?", 0)
    assert group.state is State.PREPARING
    found = over(group)
    has = {name: sorted(member.assigned.get(topic_id("t"), ())) for name, member in found.members.items()}
    assert has == {"a": [0], "b": [2, 3]}
    assert all(member.state is MemberState.STABLE for member in found.members.values())


def test_an_answer_has_no_news_by_itself() -> None:
    assert Beaten(GroupError.NONE).assigned is None
