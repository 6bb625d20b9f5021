"""A consumer group of the newer protocol as a state machine: pure, synchronous, told what time it is.

What members want makes the group's epoch; the assignor's answer to an epoch is the target; each member is brought to
its part of the target by its own heartbeats, and is in that epoch then. Never have two members the same partition: it
is given when its former owner has said that it gave it up, or is out of the group.

An answer may be given when what it says is stored: the owner keeps it back while the group is `unsaved`.
"""

import enum
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from lakestream.coordination.groups.consumer.assigning import ASSIGNORS, DEFAULT_ASSIGNOR
from lakestream.coordination.groups.consumer.checking import is_epoch_good, problem_of
from lakestream.coordination.groups.consumer.members import NEVER, ConsumerMember, MemberState
from lakestream.coordination.groups.consumer.model import (
    JOINS,
    LEAVES,
    LEAVES_FOR_A_WHILE,
    NOTHING,
    Beat,
    Beaten,
    Partitions,
)
from lakestream.coordination.groups.consumer.reconciling import reconcile
from lakestream.coordination.groups.consumer.subscribing import MayDescribe, Subscribing
from lakestream.coordination.groups.consumer.topics import KnownTopics
from lakestream.coordination.groups.model import GroupError
from lakestream.coordination.groups.patterns import InvalidPattern
from lakestream.coordination.settings import GroupSettings

CONSUMERS: Final = "consumer"


class ConsumerState(enum.Enum):
    """By the names that Kafka's tools show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(slots=True)
class ConsumerGroup:
    """Invariant: no partition has two owners among the members."""

    settings: GroupSettings
    epoch: int = 0
    assignment_epoch: int = 0
    digest: str = ""
    """Of the topics that the target was made for."""
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)
    owners: dict[tuple[UUID, int], str] = field(default_factory=dict)
    unsaved: bool = False
    subscribing: Subscribing = field(default_factory=Subscribing)

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
        return CONSUMERS

    @property
    def state(self) -> ConsumerState:
        if not self.members:
            return ConsumerState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerState.ASSIGNING
        settled = all(self.is_settled(member) for member in self.members.values())
        return ConsumerState.STABLE if settled else ConsumerState.RECONCILING

    def is_settled(self, member: ConsumerMember) -> bool:
        return member.state is MemberState.STABLE and member.epoch == self.assignment_epoch

    @property
    def assignor(self) -> str:
        """What most members ask for."""
        votes = Counter(member.assignor for member in self.members.values() if member.assignor)
        return max(sorted(votes), key=lambda name: votes[name]) if votes else DEFAULT_ASSIGNOR

    def ready(self, now_ms: float) -> bool:
        """Nothing here waits for a moment when all begin together."""
        return False

    def begin_generation(self, now_ms: float) -> None:
        raise AssertionError("the members of such a group move on one by one")

    def dismiss_all(self, error: GroupError) -> None:
        """Nobody waits inside."""

    def subscribed(self) -> frozenset[str]:
        """The topics that some member reads, as far as patterns were looked up."""
        return frozenset[str]().union(*map(self.subscribing.names, self.members.values()))

    # Heartbeats

    def heartbeat(self, beat: Beat, topics: KnownTopics, now_ms: float) -> Beaten:
        problem = problem_of(beat)
        if problem:
            return Beaten(GroupError.INVALID_REQUEST, message=problem)
        if beat.epoch in (LEAVES, LEAVES_FOR_A_WHILE):
            return self._leave(beat)
        if beat.assignor is not None and beat.assignor not in ASSIGNORS:
            known = ", ".join(ASSIGNORS)
            return Beaten(
                GroupError.UNKNOWN_ASSIGNOR, message=f"there is no assignor {beat.assignor}; there are {known}"
            )
        if len(self.members) >= self.settings.consumer_max_members and beat.member_id not in self.members:
            return Beaten(GroupError.GROUP_FULL, message=f"the group has {len(self.members)} members, the most it may")
        if beat.pattern:
            try:
                self.subscribing.look_up(beat.pattern, topics)
            except InvalidPattern as error:
                return Beaten(GroupError.INVALID_PATTERN, message=f"{beat.pattern!r} is no regular expression: {error}")
        # The last that may refuse: who takes another's place has it from here on.
        member, refusal = self._find(beat)
        if member is None:
            return refusal
        before = member.assigned
        self.admit(member)
        changed = self._told(member, beat)
        self.bring_on(member, beat.owned, topics, beat.may_describe, changed=changed)
        member.classic = None
        self.touch(member, now_ms)
        self._set_revocation_clock(member, now_ms)
        tells = beat.is_full or before != member.assigned
        return Beaten(
            GroupError.NONE,
            member.member_id,
            member.epoch,
            self.settings.consumer_heartbeat_interval_ms,
            member.assigned if tells else None,
        )

    def _find(self, beat: Beat) -> tuple[ConsumerMember | None, Beaten]:
        """A member that is new, or takes the place of another, is not in the group yet."""
        refusal = Beaten(GroupError.NONE)
        if beat.instance_id is not None:
            at_its_place = self.members.get(self.static.get(beat.instance_id, ""))
            if at_its_place is not None and at_its_place.member_id != beat.member_id:
                if beat.epoch != JOINS:
                    message = f"another process is in the group as {beat.instance_id}"
                    return None, Beaten(GroupError.FENCED_INSTANCE, message=message)
                if not at_its_place.is_away and at_its_place.classic is None:
                    message = f"another process is in the group as {beat.instance_id}, and has not left"
                    return None, Beaten(GroupError.UNRELEASED_INSTANCE, message=message)
                return self.successor(at_its_place, beat.member_id), refusal
        member = self.members.get(beat.member_id)
        if member is None:
            if beat.epoch != JOINS:
                message = f"member {beat.member_id} is not in the group: join again"
                return None, Beaten(GroupError.UNKNOWN_MEMBER, message=message)
            return ConsumerMember(beat.member_id, beat.instance_id, beat.client_id, beat.client_host), refusal
        if not is_epoch_good(member, beat):
            message = f"the member is in epoch {member.epoch}, not {beat.epoch}: it is to give up all and join again"
            return None, Beaten(GroupError.FENCED_EPOCH, message=message)
        if member.is_away:
            # The same process has come back before its session ended.
            self.unsaved = True
            member.epoch, member.previous_epoch = 0, 0
        return member, refusal

    def successor(self, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """Has the old one's place from now on; what that one had is free for nobody but this."""
        self.drop(old)
        member = ConsumerMember(
            member_id,
            old.instance_id,
            old.client_id,
            old.client_host,
            old.rack_id,
            old.rebalance_timeout_ms,
            old.topics,
            old.pattern,
            old.assignor,
            assigned=old.assigned,
            target=old.target,
            state=old.state if old.state is not MemberState.REVOKING else MemberState.WAITING,
            classic=old.classic,
        )
        self.admit(member)
        return member

    def admit(self, member: ConsumerMember) -> None:
        if self.members.get(member.member_id) is member:
            return
        self.unsaved = True
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        self._own(member)

    def _told(self, member: ConsumerMember, beat: Beat) -> bool:
        """What the member says of itself. True: what it subscribes to, or would have assigned, has changed."""
        told = (member.topics, member.pattern, member.assignor, member.rack_id)
        before = (*told, member.rebalance_timeout_ms, member.instance_id, member.client_id, member.client_host)
        if beat.topics is not None:
            member.topics = tuple(sorted(set(beat.topics)))
        if beat.pattern is not None:
            member.pattern = beat.pattern
        if beat.assignor is not None:
            member.assignor = beat.assignor
        if beat.rack_id is not None:
            member.rack_id = beat.rack_id
        if beat.rebalance_timeout_ms is not None:
            member.rebalance_timeout_ms = beat.rebalance_timeout_ms
        member.client_id, member.client_host = beat.client_id, beat.client_host
        now = (member.topics, member.pattern, member.assignor, member.rack_id)
        after = (*now, member.rebalance_timeout_ms, member.instance_id, member.client_id, member.client_host)
        self.unsaved |= before != after or member.classic is not None
        return told != now

    # The target, and the way to it

    def bring_on(
        self,
        member: ConsumerMember,
        owned: Partitions | None,
        topics: KnownTopics,
        may_describe: MayDescribe,
        *,
        changed: bool,
    ) -> None:
        """Makes a new target if one is due, and takes the member as far towards it as can be. `changed`: it wants other
        topics than before."""
        if changed or topics is not self.subscribing.seen:
            self.subscribing.refresh(self.members.values(), topics, may_describe)
            if changed or topics.digest(self.subscribed()) != self.digest:
                self.bump()
        if self.epoch > self.assignment_epoch:
            self._assign(topics)
        had = (member.state, member.epoch, member.assigned, member.revoking)
        self._disown(member)
        reconcile(member, self.assignment_epoch, owned, lambda topic_id, index: (topic_id, index) not in self.owners)
        self._own(member)
        self.unsaved |= had != (member.state, member.epoch, member.assigned, member.revoking)

    def bump(self) -> None:
        self.epoch += 1
        self.unsaved = True

    def _assign(self, topics: KnownTopics) -> None:
        wanted = {
            member.member_id: frozenset(
                topics.by_name[name].topic_id for name in self.subscribing.names(member) if name in topics.by_name
            )
            for member in self.members.values()
        }
        read = frozenset[UUID]().union(*wanted.values())
        counts = {topic_id: topics.by_name[topics.names[topic_id]].partitions for topic_id in sorted(read)}
        # Static members first, by what stays the same when they come back.
        order = sorted(self.members, key=lambda each: (self.members[each].instance_id is None, self._name(each)))
        before = {member.member_id: member.target for member in self.members.values()}
        targets = ASSIGNORS[self.assignor](wanted, counts, before, order)
        for member in self.members.values():
            member.target = targets[member.member_id]
        self.digest = topics.digest(self.subscribed())
        self.assignment_epoch = self.epoch
        self.unsaved = True

    def _name(self, member_id: str) -> str:
        return self.members[member_id].instance_id or member_id

    def _own(self, member: ConsumerMember) -> None:
        for pair in member.has():
            self.owners[pair] = member.member_id

    def _disown(self, member: ConsumerMember) -> None:
        for pair in member.has():
            if self.owners.get(pair) == member.member_id:
                del self.owners[pair]

    def awaits_others(self, member: ConsumerMember) -> bool:
        """Whether something of its target is still another's."""
        return any(
            self.owners.get((topic_id, index), member.member_id) != member.member_id
            for topic_id, indexes in member.target.items()
            for index in indexes
        )

    # Leaving

    def _leave(self, beat: Beat) -> Beaten:
        member = self.members.get(beat.member_id)
        if beat.instance_id is not None:
            at_its_place = self.members.get(self.static.get(beat.instance_id, ""))
            if at_its_place is not None and at_its_place.member_id != beat.member_id:
                message = f"another process is in the group as {beat.instance_id}"
                return Beaten(GroupError.FENCED_INSTANCE, message=message)
            member = at_its_place
        if member is None:
            return Beaten(GroupError.UNKNOWN_MEMBER, message=f"member {beat.member_id} is not in the group")
        if beat.epoch == LEAVES_FOR_A_WHILE:
            self._disown(member)
            member.epoch, member.revoking, member.revoke_until_ms = LEAVES_FOR_A_WHILE, NOTHING, NEVER
            self._own(member)
            self.unsaved = True
        else:
            self.remove(member)
        return Beaten(GroupError.NONE, member.member_id, beat.epoch)

    def remove(self, member: ConsumerMember) -> None:
        self.drop(member)
        self.bump()

    def drop(self, member: ConsumerMember) -> None:
        self.unsaved = True
        self._disown(member)
        del self.members[member.member_id]
        if member.instance_id is not None and self.static.get(member.instance_id) == member.member_id:
            del self.static[member.instance_id]

    # Commits

    def commit_error(self, member_id: str, instance_id: str | None, generation: int, now_ms: float) -> GroupError:
        """Whether this member may commit offsets now. An empty group takes them from anyone without an epoch."""
        if generation < 0 and not self.members:
            return GroupError.NONE
        return self.epoch_error(member_id, generation)

    def epoch_error(self, member_id: str, epoch: int) -> GroupError:
        member = self.members.get(member_id)
        if member is None:
            return GroupError.UNKNOWN_MEMBER
        if member.epoch == epoch:
            return GroupError.NONE
        return GroupError.STALE_EPOCH if member.classic is None else GroupError.STALE_GENERATION

    # Time

    def touch(self, member: ConsumerMember, now_ms: float) -> None:
        session_ms = (
            self.settings.consumer_session_timeout_ms if member.classic is None else member.classic.session_timeout_ms
        )
        member.deadline_ms = now_ms + session_ms

    def _set_revocation_clock(self, member: ConsumerMember, now_ms: float) -> None:
        if member.state is not MemberState.REVOKING:
            member.revoke_until_ms = NEVER
        elif member.revoke_until_ms == NEVER:
            member.revoke_until_ms = now_ms + member.rebalance_timeout_ms

    def next_deadline_ms(self) -> float:
        return min(map(_deadline, self.members.values()), default=NEVER)

    def expire(self, now_ms: float) -> list[str]:
        """Drops whoever is overdue; their ids."""
        late = [member for member in self.members.values() if _deadline(member) <= now_ms]
        for member in late:
            self.remove(member)
        return [member.member_id for member in late]

    def postpone(self, by_ms: float) -> None:
        """For so long nobody could be answered: nothing that is due is due before that much later."""
        for member in self.members.values():
            member.deadline_ms += by_ms
            member.revoke_until_ms += by_ms
            member.join_until_ms += by_ms
            member.sync_until_ms += by_ms


def _deadline(member: ConsumerMember) -> float:
    return min(member.deadline_ms, member.revoke_until_ms, member.join_until_ms, member.sync_until_ms)
