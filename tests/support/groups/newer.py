"""A group of the newer protocol on a stage: its state machine, a clock, topics, and clients as KIP-848 wants them."""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from lakestream.coordination.groups import Beat, Beaten, ConsumerGroup, GroupError
from lakestream.coordination.groups.consumer.members import each_of
from lakestream.coordination.groups.consumer.topics import KnownTopic, KnownTopics
from lakestream.coordination.settings import GroupSettings

Pair = tuple[str, int]


def known(**partitions: int) -> KnownTopics:
    """Topics of these names, each with an id that follows from its name."""
    return KnownTopics.of({name: KnownTopic(topic_id(name), count) for name, count in partitions.items()})


def topic_id(name: str) -> UUID:
    return UUID(bytes=name.encode().ljust(16, b"\1")[:16])


def beat(member_id: str = "m", epoch: int = 0, **changes: Any) -> Beat:
    """One that joins says all."""
    joining = {"rebalance_timeout_ms": 5_000, "topics": ("t",), "owned": {}} if epoch == 0 else {}
    return Beat(member_id, epoch, "c", "h", **(joining | changes))


@dataclass
class NewerClient:
    """A consumer: gives up at once what is no longer assigned to it, unless it is slow, and says so with its next
    heartbeat."""

    member_id: str
    topics: tuple[str, ...] = ("t",)
    instance_id: str | None = None
    is_slow: bool = False
    epoch: int = 0
    owned: set[tuple[UUID, int]] = field(default_factory=set)
    assigned: set[tuple[UUID, int]] = field(default_factory=set)
    errors: list[GroupError] = field(default_factory=list)

    def request(self) -> Beat:
        owned: dict[UUID, set[int]] = {}
        for topic, index in self.owned:
            owned.setdefault(topic, set()).add(index)
        told = {topic: frozenset(indexes) for topic, indexes in owned.items()}
        return Beat(self.member_id, self.epoch, "c", "h", self.instance_id, None, 5_000, self.topics, owned=told)

    def hear(self, beaten: Beaten) -> None:
        if beaten.error is not GroupError.NONE:
            self.errors.append(beaten.error)
            # Fenced or unknown: it gives up everything and begins again.
            self.epoch, self.owned, self.assigned = 0, set(), set()
            return
        self.epoch = beaten.epoch
        if beaten.assigned is not None:
            self.assigned = set(each_of(beaten.assigned))
        if not self.is_slow:
            self.settle()

    def settle(self) -> None:
        self.owned = set(self.assigned)


class NewerScene:
    def __init__(self, topics: KnownTopics | None = None, **settings: Any) -> None:
        self.group = ConsumerGroup(GroupSettings(**settings))
        self.topics = known(t=4) if topics is None else topics
        self.now_ms = 0.0
        self.clients: dict[str, NewerClient] = {}

    def beat(self, member_id: str = "m", epoch: int = 0, **changes: Any) -> Beaten:
        beaten = self.group.heartbeat(beat(member_id, epoch, **changes), self.topics, self.now_ms)
        self.check()
        return beaten

    def add(self, member_id: str, *topics: str, **changes: Any) -> NewerClient:
        client = self.clients[member_id] = NewerClient(member_id, topics or ("t",), **changes)
        self.turn(client)
        return client

    def turn(self, client: NewerClient, *, loses_answer: bool = False) -> None:
        beaten = self.group.heartbeat(client.request(), self.topics, self.now_ms)
        if not loses_answer:
            client.hear(beaten)
        self.check()

    def rounds(self, count: int = 8) -> None:
        for _ in range(count):
            self.now_ms += 100
            for client in self.clients.values():
                client.settle()
                self.turn(client)

    def after(self, ms: float) -> list[str]:
        self.now_ms += ms
        gone = self.group.expire(self.now_ms)
        for member_id in gone:
            client = self.clients.get(member_id)
            if client is not None:
                # A client whose session is over has stopped by itself.
                client.epoch, client.owned, client.assigned = 0, set(), set()
        self.check()
        return gone

    def check(self) -> None:
        """No partition has two owners, neither by the group's books nor among the clients."""
        pairs = [pair for member in self.group.members.values() for pair in member.has()]
        assert len(pairs) == len(set(pairs))
        assert {pair: member.member_id for member in self.group.members.values() for pair in member.has()} == (
            self.group.owners
        )
        owned = [pair for client in self.clients.values() for pair in client.owned]
        assert len(owned) == len(set(owned)), "two clients read the same partition"

    def shares(self) -> dict[str, list[int]]:
        """Partitions of `t` by client."""
        return {
            client.member_id: sorted(index for topic, index in client.owned if topic == topic_id("t"))
            for client in self.clients.values()
        }
