"""A consumer group's state machine on a stage: a clock to move, and what its members heard."""

from itertools import count
from typing import Any

from lakestream.coordination.groups import Group, GroupError, Join, Joined, Protocol, State, Sync, Synced

RANGE = (Protocol("range", b"r"),)
BOTH = (Protocol("range", b"r"), Protocol("sticky", b"s"))


class Scene:
    """A group, a clock, and what its members heard."""

    def __init__(self, *, initial_delay_ms: int = 0, max_members: int = 100, generation: int = 0) -> None:
        self.group = Group(initial_delay_ms, max_members, generation=generation)
        self.now_ms = 0.0
        self.saved = generation
        self._ids = (f"m{number}" for number in count(1))

    def settle(self) -> None:
        while self.group.ready(self.now_ms):
            self.saved = self.group.generation + 1
            self.group.begin_generation(self.now_ms)

    def after(self, ms: float) -> None:
        self.now_ms += ms
        self.group.expire(self.now_ms)
        self.settle()

    def join(self, member_id: str = "", **changes: Any) -> list[Joined]:
        fields: dict[str, Any] = {
            "member_id": member_id,
            "instance_id": None,
            "client_id": "c",
            "client_host": "h",
            "session_timeout_ms": 1_000,
            "rebalance_timeout_ms": 5_000,
            "protocol_type": "consumer",
            "protocols": RANGE,
            "id_required": False,
            "skips_assignment": True,
        }
        heard: list[Joined] = []
        self.group.join(Join(**fields | changes), heard.append, lambda: next(self._ids), self.now_ms)
        self.settle()
        return heard

    def sync(self, member_id: str, assignments: dict[str, bytes] | None = None, **changes: Any) -> list[Synced]:
        fields: dict[str, Any] = {
            "member_id": member_id,
            "instance_id": None,
            "generation": self.group.generation,
            "protocol_type": None,
            "protocol": None,
            "assignments": assignments or {},
        }
        heard: list[Synced] = []
        self.group.sync(Sync(**fields | changes), heard.append, self.now_ms)
        self.settle()
        return heard

    def leave(self, member_id: str, instance_id: str | None = None) -> GroupError:
        error = self.group.leave(member_id, instance_id, self.now_ms)
        self.settle()
        return error

    def heartbeat(self, member_id: str, generation: int | None = None, instance_id: str | None = None) -> GroupError:
        current = self.group.generation if generation is None else generation
        return self.group.heartbeat(member_id, instance_id, current, self.now_ms)

    def stable(self, members: int) -> list[str]:
        """Brings a group of so many dynamic members to rest; the leader is the first."""
        ids = [f"m{number}" for number in range(1, members + 1)]
        self.join()
        for _ in ids[1:]:
            self.join()
            for member_id in ids:
                if member_id in self.group.members and self.group.members[member_id].joining is None:
                    self.join(member_id)
        for member_id in ids:
            self.sync(member_id, {each: each.encode() for each in ids})
        assert self.group.state is State.STABLE
        return ids
