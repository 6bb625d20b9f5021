"""A share group as a state machine: pure, synchronous, told what time it is.

As in the newer protocol of consumers the coordinator assigns and members hear of it with their heartbeats. Several may
read one partition, so nobody waits for another to give it up: with its next heartbeat each member has its part of the
target. An answer may be given when what it says is stored: the owner keeps it back while the group is `unsaved`.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from lakestream.coordination.groups.consumer.members import NEVER, ConsumerMember
from lakestream.coordination.groups.consumer.model import JOINS, LEAVES, Beat, Beaten
from lakestream.coordination.groups.consumer.topics import KnownTopics
from lakestream.coordination.groups.model import GroupError
from lakestream.coordination.groups.share.assigning import assign_shared
from lakestream.coordination.settings import GroupSettings

SHARES: Final = "share"
ASSIGNOR: Final = "simple"
_LONGEST_ID: Final = 36


class ShareGroupState(enum.Enum):
    """By the names that Kafka's tools show."""

    EMPTY = "Empty"
    STABLE = "Stable"


@dataclass(slots=True)
class ShareGroup:
    settings: GroupSettings
    epoch: int = 0
    assignment_epoch: int = 0
    digest: str = ""
    """Of the topics that the target was made for."""
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    unsaved: bool = False

    # What every kind of group has

    @property
    def generation(self) -> int:
        return self.epoch

    @property
    def pending(self) -> Mapping[str, float]:
        """Nobody is only on the way into such a group."""
        return {}

    @property
    def protocol_type(self) -> str:
        return SHARES

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def ready(self, now_ms: float) -> bool:
        return False

    def begin_generation(self, now_ms: float) -> None:
        raise AssertionError("the members of such a group move on one by one")

    def dismiss_all(self, error: GroupError) -> None:
        """Nobody waits inside."""

    def subscribed(self) -> frozenset[str]:
        return frozenset(name for member in self.members.values() for name in member.topics)

    # Heartbeats

    def heartbeat(self, beat: Beat, topics: KnownTopics, now_ms: float) -> Beaten:
        """Of one that fits together (`problem_of`)."""
        member = self.members.get(beat.member_id)
        if member is None and beat.epoch != JOINS:
            return Beaten(GroupError.UNKNOWN_MEMBER, message=f"member {beat.member_id} is not in the group")
        if beat.epoch == LEAVES and member is not None:
            self.remove(member)
            return Beaten(GroupError.NONE, beat.member_id, LEAVES)
        if member is None:
            if len(self.members) >= self.settings.share_max_members:
                message = f"the group has {len(self.members)} members, the most it may"
                return Beaten(GroupError.GROUP_FULL, message=message)
            member = ConsumerMember(beat.member_id, None, beat.client_id, beat.client_host)
            self.admit(member)
        elif beat.epoch not in (JOINS, member.epoch, member.previous_epoch):
            message = f"the member is in epoch {member.epoch}, not {beat.epoch}: it is to join again"
            return Beaten(GroupError.FENCED_EPOCH, message=message)
        before = member.assigned
        changed = self._told(member, beat)
        if changed or topics.digest(self.subscribed()) != self.digest:
            self.bump()
        if self.epoch > self.assignment_epoch:
            self._assign(topics)
        self._bring_on(member)
        self.touch(member, now_ms)
        tells = (
            beat.epoch == JOINS or beat.topics is not None or before != member.assigned or beat.epoch != member.epoch
        )
        return Beaten(
            GroupError.NONE,
            member.member_id,
            member.epoch,
            self.settings.share_heartbeat_interval_ms,
            member.assigned if tells else None,
        )

    def admit(self, member: ConsumerMember) -> None:
        self.members[member.member_id] = member
        self.unsaved = True

    def _told(self, member: ConsumerMember, beat: Beat) -> bool:
        """What the member says of itself. True: it subscribes to other topics than before."""
        topics = member.topics
        before = (topics, member.rack_id, member.client_id, member.client_host)
        if beat.topics is not None:
            member.topics = tuple(sorted(set(beat.topics)))
        if beat.rack_id is not None:
            member.rack_id = beat.rack_id
        member.client_id, member.client_host = beat.client_id, beat.client_host
        self.unsaved |= before != (member.topics, member.rack_id, member.client_id, member.client_host)
        return topics != member.topics

    def bump(self) -> None:
        self.epoch += 1
        self.unsaved = True

    def _assign(self, topics: KnownTopics) -> None:
        wanted = {
            member.member_id: frozenset(
                topics.by_name[name].topic_id for name in member.topics if name in topics.by_name
            )
            for member in self.members.values()
        }
        read = frozenset[UUID]().union(*wanted.values())
        counts = {topic_id: topics.by_name[topics.names[topic_id]].partitions for topic_id in sorted(read)}
        before = {member.member_id: member.target for member in self.members.values()}
        targets = assign_shared(wanted, counts, before, sorted(self.members))
        for member in self.members.values():
            member.target = targets[member.member_id]
        self.digest = topics.digest(self.subscribed())
        self.assignment_epoch = self.epoch
        self.unsaved = True

    def _bring_on(self, member: ConsumerMember) -> None:
        had = (member.epoch, member.assigned)
        member.move_to(self.assignment_epoch)
        member.assigned = member.target
        self.unsaved |= had != (member.epoch, member.assigned)

    def remove(self, member: ConsumerMember) -> None:
        del self.members[member.member_id]
        self.bump()

    # Commits

    def commit_error(self, member_id: str, instance_id: str | None, generation: int, now_ms: float) -> GroupError:
        """Such a group commits no offsets: it acknowledges records."""
        return GroupError.UNKNOWN_GROUP

    # Time

    def touch(self, member: ConsumerMember, now_ms: float) -> None:
        member.deadline_ms = now_ms + self.settings.share_session_timeout_ms

    def next_deadline_ms(self) -> float:
        return min((member.deadline_ms for member in self.members.values()), default=NEVER)

    def expire(self, now_ms: float) -> list[str]:
        """Drops whoever is overdue; their ids."""
        late = [member for member in self.members.values() if member.deadline_ms <= now_ms]
        for member in late:
            self.remove(member)
        return [member.member_id for member in late]

    def postpone(self, by_ms: float) -> None:
        """For so long nobody could be answered: nothing that is due is due before that much later."""
        for member in self.members.values():
            member.deadline_ms += by_ms


def problem_of(beat: Beat) -> str:
    """Whether what a heartbeat says fits together; empty: it does."""
    if not beat.member_id or len(beat.member_id) > _LONGEST_ID:
        return f"a member has an id of at most {_LONGEST_ID} characters"
    if beat.epoch < LEAVES:
        return f"{beat.epoch} is no epoch"
    if beat.rack_id == "":
        return "a rack id is not empty"
    if beat.epoch == JOINS and not beat.topics:
        return "who joins subscribes to topics"
    return ""
