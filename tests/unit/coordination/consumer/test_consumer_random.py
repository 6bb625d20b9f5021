"""Members of the newer protocol that come, go, die, lie and lose answers, in any order: nobody ever reads what another
reads, and when they are left alone all is shared out."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from support.groups.newer import NewerScene, known
from support.properties import examples

from lakestream.coordination.groups import ConsumerState
from lakestream.coordination.groups.consumer.keeping import consumer_group, stored_consumers
from lakestream.metadata.groups import GroupState


class NewerCrowd(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.scene = NewerScene(known(t=5, u=2))
        self.epochs: list[int] = []

    def _some(self, number: int) -> Any:
        clients = list(self.scene.clients.values())
        return clients[number % len(clients)] if clients else None

    @rule(number=st.integers(0, 6), both=st.booleans(), slow=st.booleans(), static=st.booleans())
    def arrive(self, number: int, both: bool, slow: bool, static: bool) -> None:
        topics = ("t", "u") if both else ("t",)
        name = f"m{number}"
        if name not in self.scene.clients:
            self.scene.add(name, *topics, is_slow=slow, instance_id=f"i{number}" if static else None)

    @rule(number=st.integers(0, 20), loses=st.booleans())
    def beats(self, number: int, loses: bool) -> None:
        if client := self._some(number):
            self.scene.turn(client, loses_answer=loses)

    @rule(number=st.integers(0, 20))
    def gives_up(self, number: int) -> None:
        if client := self._some(number):
            client.settle()

    @rule(number=st.integers(0, 20), for_a_while=st.booleans())
    def leave(self, number: int, for_a_while: bool) -> None:
        if client := self._some(number):
            client.owned, client.assigned = set(), set()
            stays = for_a_while and client.instance_id is not None
            del self.scene.clients[client.member_id]
            self.scene.beat(
                client.member_id, -2 if stays else -1, instance_id=client.instance_id, topics=None, owned=None
            )

    @rule(number=st.integers(0, 20))
    def die(self, number: int) -> None:
        if client := self._some(number):
            client.owned, client.assigned = set(), set()
            del self.scene.clients[client.member_id]

    @rule(number=st.integers(0, 20), ahead=st.integers(-2, 3))
    def lie(self, number: int, ahead: int) -> None:
        """A stranger with somebody's id and some epoch; it has nothing and hears nothing that the real one would."""
        if (client := self._some(number)) and client.epoch + ahead > 0:
            self.scene.beat(client.member_id, client.epoch + ahead, instance_id=client.instance_id)

    @rule(partitions=st.integers(1, 8), with_other=st.booleans())
    def topics_change(self, partitions: int, with_other: bool) -> None:
        self.scene.topics = known(t=partitions, u=2) if with_other else known(t=partitions)

    @rule(ms=st.sampled_from([100, 4_000, 50_000]))
    def wait(self, ms: int) -> None:
        self.scene.after(ms)

    @rule()
    def another_coordinator(self) -> None:
        """It reads what is stored and goes on."""
        group = self.scene.group
        kept = stored_consumers(group, GroupState(), 0)
        self.scene.group = consumer_group(kept, group.settings, self.scene.now_ms)
        assert stored_consumers(self.scene.group, GroupState(), 0) == kept
        self.scene.check()

    @rule()
    def left_alone(self) -> None:
        """Whoever died is found out, and then everybody is heard of often enough."""
        live = set(self.scene.clients)
        for _ in range(12):
            self.scene.rounds(1)
            self.scene.after(4_900)
        self.scene.rounds(12)
        group = self.scene.group
        assert set(group.members) == live
        assert group.epoch >= max([*self.epochs, 0])
        self.epochs.append(group.epoch)
        if not live:
            return
        assert group.state is ConsumerState.STABLE
        by_name = self.scene.topics.by_name
        read = {name for client in self.scene.clients.values() for name in client.topics if name in by_name}
        wanted = {(by_name[name].topic_id, index) for name in read for index in range(by_name[name].partitions)}
        assert {pair for client in self.scene.clients.values() for pair in client.owned} == wanted
        for client in self.scene.clients.values():
            assert {pair[0] for pair in client.owned} <= {by_name[name].topic_id for name in read}


TestNewerCrowd = NewerCrowd.TestCase
TestNewerCrowd.settings = examples(60)
