"""Members that come, go, die and come back, in any order: what must hold at every step, and in the end."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.groups.stage import BOTH, RANGE, Scene
from support.properties import examples

from lakestream.coordination.groups import State


class Crowd(RuleBasedStateMachine):
    """Members that come, go, die and come back, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene(initial_delay_ms=20)
        self.answers: list[list[Any]] = []
        self.generations: list[int] = []

    def _heard(self, answer: list[Any]) -> None:
        self.answers.append(answer)

    def _some(self, number: int) -> str:
        ids = [*self.scene.group.members, *self.scene.group.pending, "ghost"]
        return ids[number % len(ids)]

    @rule(instance=st.sampled_from([None, None, "a", "b"]), id_required=st.booleans(), both=st.booleans())
    def arrive(self, instance: str | None, id_required: bool, both: bool) -> None:
        self._heard(self.scene.join(instance_id=instance, id_required=id_required, protocols=BOTH if both else RANGE))

    @rule(number=st.integers(0, 20), both=st.booleans())
    def join_again(self, number: int, both: bool) -> None:
        member_id = self._some(number)
        member = self.scene.group.members.get(member_id)
        instance = member.instance_id if member else None
        self._heard(self.scene.join(member_id, instance_id=instance, protocols=BOTH if both else RANGE))

    @rule(number=st.integers(0, 20))
    def sync(self, number: int) -> None:
        assignments = {member_id: member_id.encode() for member_id in self.scene.group.members}
        self._heard(self.scene.sync(self._some(number), assignments))

    @rule(number=st.integers(0, 20))
    def beat(self, number: int) -> None:
        self.scene.heartbeat(self._some(number))

    @rule(number=st.integers(0, 20))
    def leave(self, number: int) -> None:
        self.scene.leave(self._some(number))

    @rule(ms=st.sampled_from([1, 20, 400, 1_100, 5_100]))
    def wait(self, ms: int) -> None:
        self.scene.after(ms)

    @precondition(lambda self: self.scene.group.members)
    @rule()
    def all_die(self) -> None:
        for _ in range(12):
            self.scene.after(1_100)
        assert self.scene.group.state is State.EMPTY
        assert not self.scene.group.members

    @invariant()
    def holds(self) -> None:
        group = self.scene.group
        self.generations.append(group.generation)
        assert self.generations == sorted(self.generations)
        assert group.generation == self.scene.saved
        assert (group.leader in group.members) == bool(group.members)
        assert all(len(answer) <= 1 for answer in self.answers)
        if group.state is State.EMPTY:
            assert not group.members
        if group.state is not State.PREPARING:
            assert not any(member.joining for member in group.members.values())
        if group.state is not State.COMPLETING:
            assert not any(member.syncing for member in group.members.values())
        assert set(group.static.values()) <= set(group.members)
        if group.members or group.pending:
            assert group.next_deadline_ms() < float("inf")

    def teardown(self) -> None:
        """Whoever asked is answered in the end."""
        for _ in range(20):
            self.scene.after(2_000)
        assert all(len(answer) == 1 for answer in self.answers)


TestCrowd = Crowd.TestCase
TestCrowd.settings = examples(60, stateful_step_count=30)
