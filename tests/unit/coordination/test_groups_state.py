"""The group's state machine, step by step."""

from collections.abc import Callable

import pytest
from support.groups.stage import BOTH, Scene

from lakestream.coordination.groups import GroupError, Protocol, State


def test_one_member_joins_and_gets_its_assignment() -> None:
    scene = Scene()
    [joined] = scene.join()
    assert (joined.error, joined.generation, joined.leader, joined.protocol) == (GroupError.NONE, 1, "m1", "range")
    assert [member.member_id for member in joined.members] == ["m1"]
    [synced] = scene.sync("m1", {"m1": b"all"})
    assert (synced.error, synced.assignment) == (GroupError.NONE, b"all")
    assert scene.heartbeat("m1") is GroupError.NONE


def test_a_generation_is_never_below_the_persisted_one() -> None:
    assert Scene(generation=7).join()[0].generation == 8


def test_a_second_member_makes_the_first_join_again() -> None:
    scene = Scene()
    scene.stable(1)
    second = scene.join()
    assert not second
    assert scene.heartbeat("m1") is GroupError.REBALANCING
    [first] = scene.join("m1")
    assert first.generation == second[0].generation == 2
    assert len(first.members) == 2
    assert second[0].members == ()
    waiting = scene.sync("m2")
    assert not waiting
    scene.sync("m1", {"m1": b"a", "m2": b"b"})
    assert waiting[0].assignment == b"b"


def test_a_new_member_is_told_its_id_first() -> None:
    scene = Scene()
    [told] = scene.join(id_required=True)
    assert told.error is GroupError.MEMBER_ID_REQUIRED
    assert scene.group.state is State.EMPTY
    [joined] = scene.join(told.member_id, id_required=True)
    assert (joined.error, joined.member_id) == (GroupError.NONE, told.member_id)


def test_an_id_that_nobody_uses_lapses() -> None:
    scene = Scene()
    [told] = scene.join(id_required=True)
    scene.after(1_001)
    assert scene.join(told.member_id)[0].error is GroupError.UNKNOWN_MEMBER


def test_members_that_were_told_their_id_are_waited_for() -> None:
    scene = Scene()
    scene.stable(1)
    [told] = scene.join(id_required=True)
    heard = scene.join("m1", protocols=BOTH)
    assert not heard
    scene.join(told.member_id)
    assert heard[0].generation == 2
    assert len(heard[0].members) == 2


def test_the_first_generation_waits_for_more_members() -> None:
    scene = Scene(initial_delay_ms=100)
    first = scene.join()
    scene.after(60)
    second = scene.join()
    scene.after(60)
    assert not first
    scene.after(40)
    assert first[0].generation == second[0].generation == 1


def test_the_wait_for_more_members_ends_with_the_rebalance_timeout() -> None:
    scene = Scene(initial_delay_ms=100)
    first = scene.join(rebalance_timeout_ms=250)
    for _ in range(5):
        scene.after(60)
        scene.join(rebalance_timeout_ms=250)
    assert first
    assert first[0].generation == 1


def test_whoever_does_not_join_again_in_time_is_out() -> None:
    scene = Scene()
    scene.stable(2)
    heard = scene.join("m1")
    for _ in range(6):
        scene.after(900)
        scene.heartbeat("m2")
    assert [member.member_id for member in heard[0].members] == ["m1"]
    assert scene.heartbeat("m2") is GroupError.UNKNOWN_MEMBER


def test_a_silent_member_is_taken_for_dead() -> None:
    scene = Scene()
    scene.stable(2)
    scene.after(600)
    assert scene.heartbeat("m1") is GroupError.NONE
    scene.after(600)
    assert "m2" not in scene.group.members
    assert scene.heartbeat("m1") is GroupError.REBALANCING


def test_a_member_that_waits_is_not_taken_for_dead() -> None:
    scene = Scene()
    scene.stable(2)
    scene.join("m1")
    scene.after(1_001)
    assert list(scene.group.members) == ["m1"]


def test_whoever_never_fetches_its_assignment_is_out() -> None:
    scene = Scene()
    scene.join()
    for _ in range(6):
        scene.after(900)
        scene.heartbeat("m1")
    assert scene.group.state is State.EMPTY


def test_when_the_last_one_leaves_the_group_is_empty_and_goes_on_counting() -> None:
    scene = Scene()
    scene.stable(1)
    assert scene.leave("m1") is GroupError.NONE
    assert (scene.group.state, scene.group.generation, scene.saved) == (State.EMPTY, 2, 2)
    assert scene.join()[0].generation == 3


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (lambda scene: scene.heartbeat("ghost"), GroupError.UNKNOWN_MEMBER),
        (lambda scene: scene.heartbeat("m1", 99), GroupError.STALE_GENERATION),
        (lambda scene: scene.heartbeat("m1", instance_id="i"), GroupError.UNKNOWN_MEMBER),
        (lambda scene: scene.leave("ghost"), GroupError.UNKNOWN_MEMBER),
        (lambda scene: scene.sync("ghost")[0].error, GroupError.UNKNOWN_MEMBER),
        (lambda scene: scene.sync("m1", generation=0)[0].error, GroupError.STALE_GENERATION),
        (lambda scene: scene.sync("m1", protocol="other")[0].error, GroupError.INCONSISTENT_PROTOCOL),
        (lambda scene: scene.sync("m1", protocol_type="other")[0].error, GroupError.INCONSISTENT_PROTOCOL),
        (lambda scene: scene.join("ghost")[0].error, GroupError.UNKNOWN_MEMBER),
        (lambda scene: scene.join(protocol_type="connect")[0].error, GroupError.INCONSISTENT_PROTOCOL),
        (lambda scene: scene.join(protocols=(Protocol("x", b""),))[0].error, GroupError.INCONSISTENT_PROTOCOL),
        (lambda scene: scene.join(protocols=())[0].error, GroupError.INCONSISTENT_PROTOCOL),
        (lambda scene: scene.join("m1", instance_id="i")[0].error, GroupError.UNKNOWN_MEMBER),
    ],
)
def test_refusals(act: Callable[[Scene], GroupError], expected: GroupError) -> None:
    scene = Scene()
    scene.stable(2)
    assert act(scene) is expected
    assert scene.group.state is State.STABLE


def test_a_full_group_takes_nobody() -> None:
    scene = Scene(max_members=1)
    scene.stable(1)
    assert scene.join()[0].error is GroupError.GROUP_FULL


def test_a_follower_that_joins_again_unchanged_hears_the_present_generation() -> None:
    scene = Scene()
    scene.stable(2)
    [again] = scene.join("m2")
    assert (again.generation, again.members) == (scene.group.generation, ())
    assert scene.group.state is State.STABLE


def test_a_leader_that_joins_again_starts_a_rebalance() -> None:
    scene = Scene()
    scene.stable(2)
    assert not scene.join("m1")
    assert scene.group.state is State.PREPARING


def test_a_sync_that_waits_hears_of_a_rebalance() -> None:
    scene = Scene()
    scene.stable(2)
    scene.join("m1")
    scene.join("m2")
    waiting = scene.sync("m2")
    scene.join("m1", protocols=BOTH)
    assert waiting[0].error is GroupError.REBALANCING


def test_the_protocol_is_one_that_all_support() -> None:
    scene = Scene(initial_delay_ms=10)
    heard = scene.join(protocols=BOTH)
    scene.join(protocols=(Protocol("sticky", b"s2"),))
    scene.after(10)
    assert heard[0].protocol == "sticky"
    assert [member.metadata for member in heard[0].members] == [b"s", b"s2"]


def test_the_protocol_with_most_votes_wins() -> None:
    scene = Scene(initial_delay_ms=10)
    heard = scene.join(protocols=BOTH)
    scene.join(protocols=tuple(reversed(BOTH)))
    scene.join(protocols=tuple(reversed(BOTH)))
    scene.after(10)
    assert heard[0].protocol == "sticky"


class TestStaticMembers:
    def _stable(self) -> Scene:
        scene = Scene(initial_delay_ms=10)
        scene.join(instance_id="a")
        scene.join(instance_id="b")
        scene.after(10)
        scene.sync("m2", instance_id="b")
        scene.sync("m1", {"m1": b"a", "m2": b"b"}, instance_id="a")
        assert scene.group.state is State.STABLE
        return scene

    def test_a_follower_comes_back_without_a_rebalance(self) -> None:
        scene = self._stable()
        [again] = scene.join(instance_id="b")
        assert (again.error, again.generation, again.leader) == (GroupError.NONE, 1, "m1")
        assert again.member_id not in ("m1", "m2")
        assert scene.sync(again.member_id, instance_id="b")[0].assignment == b"b"
        assert scene.heartbeat("m2", instance_id="b") is GroupError.FENCED_INSTANCE
        assert scene.heartbeat("m2") is GroupError.UNKNOWN_MEMBER

    def test_a_leader_comes_back_and_skips_the_assignment(self) -> None:
        scene = self._stable()
        [again] = scene.join(instance_id="a")
        assert again.skip_assignment
        assert again.leader == again.member_id
        assert len(again.members) == 2

    def test_an_old_client_that_comes_back_as_leader_is_not_told(self) -> None:
        scene = self._stable()
        [again] = scene.join(instance_id="a", skips_assignment=False)
        assert again.leader != again.member_id
        assert again.members == ()
        assert scene.sync(again.member_id, instance_id="a")[0].assignment == b"a"

    def test_other_protocols_make_a_rebalance(self) -> None:
        scene = self._stable()
        assert not scene.join(instance_id="b", protocols=BOTH)
        assert scene.group.state is State.PREPARING

    def test_whoever_waits_under_the_old_id_is_fenced(self) -> None:
        scene = self._stable()
        waiting = scene.join("m1", instance_id="a")
        assert not waiting
        scene.join(instance_id="a")
        assert waiting[0].error is GroupError.FENCED_INSTANCE

    def test_one_that_is_away_keeps_its_place_through_a_rebalance(self) -> None:
        scene = self._stable()
        heard = scene.join("m1", instance_id="a", protocols=BOTH, session_timeout_ms=60_000)
        scene.group.members["m2"].session_timeout_ms = 60_000
        scene.heartbeat("m2", instance_id="b")
        scene.after(5_001)
        assert {member.member_id for member in heard[0].members} == {"m1", "m2"}

    def test_leaving_by_instance_id(self) -> None:
        scene = self._stable()
        assert scene.leave("", "nobody") is GroupError.UNKNOWN_MEMBER
        assert scene.leave("m1", "b") is GroupError.FENCED_INSTANCE
        assert scene.leave("", "b") is GroupError.NONE
        assert "m2" not in scene.group.members


class TestCommits:
    def test_an_empty_group_takes_them_from_anyone(self) -> None:
        assert Scene().group.commit_error("", None, -1, 0) is GroupError.NONE

    def test_but_not_with_a_generation_it_does_not_have(self) -> None:
        assert Scene().group.commit_error("m1", None, 3, 0) is GroupError.UNKNOWN_MEMBER

    def test_members_commit_in_their_generation(self) -> None:
        scene = Scene()
        scene.stable(2)
        group = scene.group
        assert group.commit_error("m1", None, group.generation, 0) is GroupError.NONE
        assert group.commit_error("m1", None, group.generation - 1, 0) is GroupError.STALE_GENERATION
        assert group.commit_error("", None, -1, 0) is GroupError.UNKNOWN_MEMBER
        scene.join("m1", protocols=BOTH)
        assert group.commit_error("m2", None, group.generation, 0) is GroupError.NONE
        scene.join("m2")
        assert group.state is State.COMPLETING
        assert group.commit_error("m2", None, group.generation, 0) is GroupError.REBALANCING


def test_everyone_who_waits_hears_that_the_coordinator_is_gone() -> None:
    scene = Scene()
    scene.stable(2)
    joining = scene.join("m1")
    scene.group.dismiss_all(GroupError.NOT_COORDINATOR)
    assert joining[0].error is GroupError.NOT_COORDINATOR
