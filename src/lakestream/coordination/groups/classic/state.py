"""A consumer group of the classic protocol as a state machine: pure, synchronous, told what time it is.

    EMPTY ──join──► PREPARING ──all joined, or time is out──► COMPLETING ──leader's sync──► STABLE
      ▲                 ▲                                         │                           │
      └── last one left └───────── join, leave, expiry ───────────┴───────────────────────────┘

Members that wait are answered through the callbacks they came with. The owner keeps these answers back while the group
is `unsaved`: whatever a member hears of generation, membership and assignment is stored, so that another coordinator
goes on from there, and no generation is given twice.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass, field

from lakestream.coordination.groups.classic.members import Member, common_protocols, elect_protocol
from lakestream.coordination.groups.model import (
    Answer,
    GroupError,
    Join,
    Joined,
    JoinedMember,
    Sync,
    SyncAnswer,
    Synced,
)

_NEVER = float("inf")


class State(enum.Enum):
    """By the names that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(slots=True)
class Group:
    """Invariants: the leader is a member, or there is none; a member that `joining` waits for the next generation;
    PREPARING is the only state in which members wait to join."""

    initial_delay_ms: int
    max_members: int
    generation: int = 0
    state: State = State.EMPTY
    protocol_type: str = ""
    protocol: str | None = None
    leader: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)
    pending: dict[str, float] = field(default_factory=dict)
    """Ids that were given out but not used yet, and when they lapse."""
    unsaved: bool = False
    """Generation, seated members or assignments have changed since they were stored."""
    _delay_until_ms: float = 0
    _join_until_ms: float = _NEVER
    _sync_until_ms: float = _NEVER

    # Joining

    def join(self, request: Join, answer: Answer, new_id: Callable[[], str], now_ms: float) -> None:
        """Answers at once or when the next generation begins."""
        error = self._join_error(request)
        if error is not GroupError.NONE:
            answer(Joined(error, request.member_id))
        elif request.member_id:
            self._join_known(request, answer, now_ms)
        elif request.instance_id is not None and request.instance_id in self.static:
            self._replace_static(request, answer, new_id(), now_ms)
        elif request.id_required and request.instance_id is None:
            member_id = new_id()
            self.pending[member_id] = now_ms + request.session_timeout_ms
            answer(Joined(GroupError.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(request, new_id(), answer, now_ms)

    def _join_error(self, request: Join) -> GroupError:
        if not request.protocol_type or not request.protocols:
            return GroupError.INCONSISTENT_PROTOCOL
        if self.members and request.protocol_type != self.protocol_type:
            return GroupError.INCONSISTENT_PROTOCOL
        others = [member for member in self.members.values() if member.member_id != request.member_id]
        if others and common_protocols(others).isdisjoint(protocol.name for protocol in request.protocols):
            return GroupError.INCONSISTENT_PROTOCOL
        if request.member_id not in self.members and len(self.members) >= self.max_members:
            replaces = request.instance_id is not None and request.instance_id in self.static
            return GroupError.NONE if replaces else GroupError.GROUP_FULL
        return GroupError.NONE

    def _join_known(self, request: Join, answer: Answer, now_ms: float) -> None:
        error = self._identity_error(request.member_id, request.instance_id)
        if request.member_id in self.pending and request.instance_id is None:
            self._add(request, request.member_id, answer, now_ms)
            return
        if error is not GroupError.NONE:
            answer(Joined(error, request.member_id))
            return
        member = self.members[request.member_id]
        same = tuple(member.protocols) == tuple(request.protocols)
        settled = (self.state is State.COMPLETING and same) or (
            self.state is State.STABLE and same and member.member_id != self.leader
        )
        if settled:
            self._touch(member, now_ms)
            answer(self._joined(member))
            return
        self._update(member, request, answer)
        self._prepare(now_ms)

    def _add(self, request: Join, member_id: str, answer: Answer, now_ms: float) -> None:
        self.pending.pop(member_id, None)
        if not self.members:
            self.protocol_type = request.protocol_type
            self.leader = member_id
        member = Member(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            tuple(request.protocols),
            now_ms + request.session_timeout_ms,
            joining=answer,
        )
        self.members[member_id] = member
        if request.instance_id is not None:
            self.static[request.instance_id] = member_id
        first_round = self.state is State.PREPARING and self._delay_until_ms > now_ms
        if first_round:
            # Others are arriving: the first generation waits a little longer, never beyond the rebalance time-out.
            self._delay_until_ms = min(now_ms + self.initial_delay_ms, self._join_until_ms)
        self._prepare(now_ms)

    def _replace_static(self, request: Join, answer: Answer, member_id: str, now_ms: float) -> None:
        """A static member came back under a new id; the one that had its place is fenced."""
        instance_id = request.instance_id
        assert instance_id is not None
        old = self.members.pop(self.static[instance_id])
        self.unsaved |= old.seated
        self._dismiss(old, GroupError.FENCED_INSTANCE)
        was_leader, old_leader = old.member_id == self.leader, self.leader
        if was_leader:
            self.leader = member_id
        same = tuple(old.protocols) == tuple(request.protocols)
        old.member_id, self.static[instance_id] = member_id, member_id
        old.client_id, old.client_host = request.client_id, request.client_host
        self.members[member_id] = old
        if self.state is State.STABLE and same:
            old.session_timeout_ms, old.rebalance_timeout_ms = request.session_timeout_ms, request.rebalance_timeout_ms
            self._touch(old, now_ms)
            joined = self._joined(old, skip_assignment=was_leader and request.skips_assignment)
            if was_leader and not request.skips_assignment:
                # It must not assign anew, so it is not told that it leads.
                joined = Joined(
                    GroupError.NONE, member_id, self.generation, self.protocol_type, self.protocol, old_leader
                )
            answer(joined)
            return
        self._update(old, request, answer)
        self._prepare(now_ms)

    def _update(self, member: Member, request: Join, answer: Answer) -> None:
        if member.joining is not None:
            member.joining(Joined(GroupError.REBALANCING, member.member_id))
        member.protocols = tuple(request.protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.joining = answer

    def _prepare(self, now_ms: float) -> None:
        """Every member has to join again."""
        if self.state is State.PREPARING:
            return
        for member in self.members.values():
            if member.syncing is not None:
                self._answer_sync(member, Synced(GroupError.REBALANCING), now_ms)
        first = self.state is State.EMPTY
        self.state = State.PREPARING
        self._sync_until_ms = _NEVER
        rebalance_ms = max((member.rebalance_timeout_ms for member in self.members.values()), default=0)
        self._join_until_ms = now_ms + max(rebalance_ms, self.initial_delay_ms if first else 0)
        self._delay_until_ms = now_ms + self.initial_delay_ms if first else now_ms

    def rebalance(self, now_ms: float) -> None:
        """Every member is asked to join again."""
        self._prepare(now_ms)

    # The next generation

    def ready(self, now_ms: float) -> bool:
        """The owner should call `begin_generation`."""
        if self.state is not State.PREPARING or now_ms < self._delay_until_ms:
            return False
        everyone = all(member.joining is not None for member in self.members.values()) and not self.pending
        return everyone or now_ms >= self._join_until_ms

    def begin_generation(self, now_ms: float) -> None:
        """Those who joined are in; those who did not are out, unless they are static."""
        for member in [each for each in self.members.values() if each.joining is None and each.instance_id is None]:
            self._remove(member)
        joined = [member for member in self.members.values() if member.joining is not None]
        self.generation += 1
        self.unsaved = True
        self._join_until_ms = _NEVER
        if not self.members:
            self.state, self.protocol, self.leader = State.EMPTY, None, ""
            return
        if not joined:
            # Only static members are left and none has come back: they have until their sessions end.
            self._join_until_ms = now_ms + max(member.rebalance_timeout_ms for member in self.members.values())
            return
        if self.leader not in self.members or self.members[self.leader].joining is None:
            self.leader = joined[0].member_id
        self.protocol = elect_protocol(self.members[self.leader], self.members.values())
        self.state = State.COMPLETING
        self._sync_until_ms = now_ms + max(member.rebalance_timeout_ms for member in self.members.values())
        for member in self.members.values():
            member.synced, member.assignment, member.seated = False, b"", True
        for member in joined:
            answer, member.joining = member.joining, None
            self._touch(member, now_ms)
            if answer is not None:
                answer(self._joined(member))

    def _joined(self, member: Member, *, skip_assignment: bool = False) -> Joined:
        leads = member.member_id == self.leader
        return Joined(
            GroupError.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader,
            [
                JoinedMember(each.member_id, each.instance_id, each.metadata(self.protocol or ""))
                for each in self.members.values()
            ]
            if leads
            else (),
            skip_assignment,
        )

    # Assignments and life signs

    def sync(self, request: Sync, answer: SyncAnswer, now_ms: float) -> None:
        """Answers at once or when the leader has brought the assignments."""
        error = self._member_error(request.member_id, request.instance_id, request.generation)
        if error is GroupError.NONE and (
            request.protocol_type not in (None, self.protocol_type) or request.protocol not in (None, self.protocol)
        ):
            error = GroupError.INCONSISTENT_PROTOCOL
        if error is GroupError.NONE and self.state is State.PREPARING:
            error = GroupError.REBALANCING
        if error is not GroupError.NONE:
            answer(Synced(error))
            return
        member = self.members[request.member_id]
        member.synced = True
        if self.state is State.STABLE:
            self._touch(member, now_ms)
            answer(self._synced(member))
            return
        if member.syncing is not None:
            member.syncing(Synced(GroupError.REBALANCING))
        member.syncing = answer
        if request.member_id == self.leader:
            for each in self.members.values():
                each.assignment = request.assignments.get(each.member_id, b"")
            self.state = State.STABLE
            self.unsaved = True
            for each in self.members.values():
                if each.syncing is not None:
                    self._answer_sync(each, self._synced(each), now_ms)

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: float) -> GroupError:
        error = self._member_error(member_id, instance_id, generation)
        if error is not GroupError.NONE:
            return error
        self._touch(self.members[member_id], now_ms)
        return GroupError.REBALANCING if self.state is State.PREPARING else GroupError.NONE

    def leave(self, member_id: str, instance_id: str | None, now_ms: float) -> GroupError:
        if instance_id is not None and not member_id:
            member_id = self.static.get(instance_id, "")
        if self.pending.pop(member_id, None) is not None:
            return GroupError.NONE
        error = self._identity_error(member_id, instance_id)
        if error is GroupError.NONE:
            self._drop(self.members[member_id], now_ms)
        return error

    def commit_error(self, member_id: str, instance_id: str | None, generation: int, now_ms: float) -> GroupError:
        """Whether this member may commit offsets now. An empty group takes them from anyone without a generation."""
        if generation < 0 and not member_id and instance_id is None and not self.members:
            return GroupError.NONE
        error = self._member_error(member_id, instance_id, generation)
        if error is not GroupError.NONE:
            return error
        self._touch(self.members[member_id], now_ms)
        return GroupError.REBALANCING if self.state is State.COMPLETING else GroupError.NONE

    # Time

    def next_deadline_ms(self) -> float:
        """When `expire` has something to do, or `ready` may change its mind."""
        deadlines = [member.deadline_ms for member in self.members.values() if not member.waits]
        deadlines.extend(self.pending.values())
        if self.state is State.PREPARING:
            waits_for_delay = all(member.joining is not None for member in self.members.values())
            deadlines.append(self._delay_until_ms if waits_for_delay and not self.pending else self._join_until_ms)
        deadlines.append(self._sync_until_ms)
        return min(deadlines, default=_NEVER)

    def expire(self, now_ms: float) -> list[str]:
        """Drops whoever is overdue; their ids."""
        gone = [member_id for member_id, lapses_ms in self.pending.items() if lapses_ms <= now_ms]
        for member_id in gone:
            del self.pending[member_id]
        late = now_ms >= self._sync_until_ms
        if late:
            self._sync_until_ms = _NEVER
        for member in list(self.members.values()):
            if (not member.waits and member.deadline_ms <= now_ms) or (late and not member.synced):
                gone.append(member.member_id)
                self._drop(member, now_ms)
        return gone

    def postpone(self, by_ms: float) -> None:
        """For so long nobody could be answered: nothing that is due is due before that much later."""
        for member in self.members.values():
            member.deadline_ms += by_ms
        for member_id in self.pending:
            self.pending[member_id] += by_ms
        self._join_until_ms += by_ms
        self._sync_until_ms += by_ms

    def dismiss_all(self, error: GroupError) -> None:
        """Answers everyone who waits: the group is no longer coordinated here."""
        for member in self.members.values():
            self._dismiss(member, error)

    # Parts

    def _drop(self, member: Member, now_ms: float) -> None:
        self._dismiss(member, GroupError.UNKNOWN_MEMBER)
        self._remove(member)
        self._prepare(now_ms)

    def _remove(self, member: Member) -> None:
        del self.members[member.member_id]
        self.unsaved |= member.seated
        if member.instance_id is not None and self.static.get(member.instance_id) == member.member_id:
            del self.static[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), "")

    def _dismiss(self, member: Member, error: GroupError) -> None:
        joining, syncing = member.joining, member.syncing
        member.joining = member.syncing = None
        if joining is not None:
            joining(Joined(error, member.member_id))
        if syncing is not None:
            syncing(Synced(error))

    def _answer_sync(self, member: Member, synced: Synced, now_ms: float) -> None:
        answer, member.syncing = member.syncing, None
        self._touch(member, now_ms)
        if answer is not None:
            answer(synced)

    def _synced(self, member: Member) -> Synced:
        return Synced(GroupError.NONE, member.assignment, self.protocol_type, self.protocol)

    def _touch(self, member: Member, now_ms: float) -> None:
        member.deadline_ms = now_ms + member.session_timeout_ms

    def _identity_error(self, member_id: str, instance_id: str | None) -> GroupError:
        if instance_id is not None and self.static.get(instance_id, member_id) != member_id:
            return GroupError.FENCED_INSTANCE
        if member_id not in self.members or (instance_id is not None and instance_id not in self.static):
            return GroupError.UNKNOWN_MEMBER
        return GroupError.NONE

    def _member_error(self, member_id: str, instance_id: str | None, generation: int) -> GroupError:
        error = self._identity_error(member_id, instance_id)
        if error is GroupError.NONE and generation != self.generation:
            return GroupError.STALE_GENERATION
        return error
