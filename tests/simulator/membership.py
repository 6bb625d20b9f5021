"""Holds its own record of who is in the group and what was committed, and compares every answer of a coordinator with
it.

Only answers of the broker that holds the group's lease count: one that slept and does not know yet that it was replaced
may say anything, for it changes nothing.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from lakestream.coordination.groups import GroupError
from lakestream.model import StreamPartition

if TYPE_CHECKING:
    from simulator.history import History

FORGOTTEN: Final = (GroupError.UNKNOWN_MEMBER, GroupError.STALE_GENERATION, GroupError.FENCED_INSTANCE)


@dataclass(slots=True)
class _Seat:
    """Since when somebody is known to be a member, and when the last request was sent that was answered as one's."""

    known_s: float
    asked_s: float
    generation: int


class Membership:
    def __init__(self, history: "History", stays_s: float) -> None:
        self._history = history
        self._stays_s = stays_s
        """Who was heard of as a member is one for this long at the least: neither its session nor a rebalance can be
        over before. A join that only repeats what its generation was told does not give the time to sync anew. It
        counts all the same: members here sync at the moment when they are answered, which is within that time unless
        the coordinator kept the answer back."""
        self._seats: dict[str, _Seat] = {}
        self.topics: list[UUID] = []
        """As they came after each other under the one name."""
        self._sent_to: dict[str, UUID | None] = {}
        """Mark of a commit → the topic that had the name for sure when it was sent."""
        self._stored_under: dict[str, list[UUID]] = {}

    # Who is in the group

    def seated(self, member_id: str, generation: int, asked_s: float) -> None:
        """The member heard that it is one."""
        known = self._seats.get(member_id)
        known_s = self._now_s() if known is None else known.known_s
        self._seats[member_id] = _Seat(known_s, asked_s, generation)

    def gives_up(self, member_id: str) -> None:
        """The member leaves, or asks for another place."""
        self._seats.pop(member_id, None)

    def refused(self, member_id: str, generation: int | None, error: GroupError) -> None:
        seat = self._seats.get(member_id)
        if seat is None or error not in FORGOTTEN or not self._is_one(seat):
            return
        if generation in (None, seat.generation):
            self._history.auditor.fail(f"I8: {member_id} is a member, and is told {error.name}")

    def passed_for_empty(self, what: str, asked_s: float) -> None:
        """Something was done that only a group without members allows."""
        for member_id, seat in self._seats.items():
            if seat.known_s <= asked_s and self._is_one(seat):
                self._history.auditor.fail(f"I8: {what} while {member_id} is in the group")

    def is_in_use(self) -> bool:
        return any(map(self._is_one, self._seats.values()))

    def _is_one(self, seat: _Seat) -> bool:
        return self._now_s() < seat.asked_s + self._stays_s

    # What was committed

    def committing(self, mark: str) -> None:
        topic = self._history.topic
        self._sent_to[mark] = None if topic is None else topic.topic_id

    def stored(self, mark: str, partition: StreamPartition) -> None:
        self._stored_under.setdefault(mark, []).append(partition.topic_id)
        if self._is_older(partition.topic_id, self._sent_to.get(mark)):
            self._history.auditor.fail(f"I9: the commit {mark} is stored for a topic that was gone when it was sent")

    def fetched(self, mark: str, named: UUID | None) -> None:
        """An offset was told, to a request that was sent when `named` had the name for sure."""
        under = self._stored_under.get(mark, [])
        if all(self._is_older(topic, named) for topic in under):
            self._history.auditor.fail(f"I9: the offset of commit {mark} is told, which is one of a topic that is gone")

    def _is_older(self, topic: UUID, other: UUID | None) -> bool:
        order = self.topics
        return other is not None and topic in order and other in order and order.index(topic) < order.index(other)

    def _now_s(self) -> float:
        return self._history.loop.time()


def committed_to(key: str) -> StreamPartition:
    """The partition of which a row of a group's shard has the offset."""
    _, topic, index = key.split("/")
    return StreamPartition(UUID(topic), int(index))
