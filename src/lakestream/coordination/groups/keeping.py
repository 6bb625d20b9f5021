"""A group's state machine as rows, and back: how another coordinator goes on with it.

Stored are the members of the present generation. One that is only on its way into the next has heard of nothing yet
and joins again. Sessions begin anew with a new coordinator, and so does the time within which a rebalance has to end.
"""

from typing import Final

from lakestream.coordination.groups.classic.members import Member
from lakestream.coordination.groups.classic.state import Group, State
from lakestream.coordination.groups.consumer.group import ConsumerState
from lakestream.coordination.groups.consumer.keeping import consumer_group, stored_consumers
from lakestream.coordination.groups.converting import Machine
from lakestream.coordination.groups.model import Protocol
from lakestream.coordination.groups.share.group import ShareGroup, ShareGroupState
from lakestream.coordination.groups.share.keeping import share_group, stored_shares
from lakestream.coordination.settings import GroupSettings
from lakestream.metadata.groups import GroupState, Kind, Phase, StoredGroup, StoredMember

_PHASES: Final[dict[State, Phase]] = {
    State.EMPTY: "EMPTY",
    State.PREPARING: "PREPARING",
    State.COMPLETING: "COMPLETING",
    State.STABLE: "STABLE",
}
_NEVER: Final = float("inf")


_STATES: Final[dict[Kind, type[State] | type[ConsumerState] | type[ShareGroupState]]] = {
    "classic": State,
    "consumer": ConsumerState,
    "share": ShareGroupState,
}


def state_of(state: GroupState) -> State | ConsumerState | ShareGroupState:
    return _STATES[state.kind][state.phase]


def stored(group: Machine, before: GroupState, wall_ms: int) -> StoredGroup:
    """What is to be kept of a group whose state was `before`."""
    if isinstance(group, Group):
        return _stored_classic(group, before, wall_ms)
    if isinstance(group, ShareGroup):
        return stored_shares(group, before, wall_ms)
    return stored_consumers(group, before, wall_ms)


def _stored_classic(group: Group, before: GroupState, wall_ms: int) -> StoredGroup:
    members = [_row(member) for member in group.members.values() if member.seated]
    phase = _PHASES[group.state] if members else "EMPTY"
    same = (phase, group.generation) == (before.phase, before.generation)
    leads = group.leader in group.members and group.members[group.leader].seated
    state = GroupState(
        group.generation,
        group.protocol_type,
        phase,
        group.protocol if members else None,
        group.leader if leads else "",
        before.changed_ms if same else wall_ms,
    )
    return StoredGroup(state, members)


def restored(kept: StoredGroup, settings: GroupSettings, now_ms: float) -> Machine:
    """The group as its last coordinator left it: members keep ids, generation and assignments; a rebalance that was
    under way goes on."""
    state = kept.state
    if state.kind == "consumer":
        return consumer_group(kept, settings, now_ms)
    if state.kind == "share":
        return share_group(kept, settings, now_ms)
    phase = State[state.phase] if kept.members else State.EMPTY
    rebalance_until_ms = now_ms + max((member.rebalance_timeout_ms for member in kept.members), default=0)
    return Group(
        settings.initial_rebalance_delay_ms,
        settings.max_members,
        generation=state.generation,
        state=phase,
        protocol_type=state.protocol_type,
        protocol=state.protocol,
        leader=state.leader,
        members={each.member_id: _member(each, now_ms, synced=phase is State.STABLE) for each in kept.members},
        static={each.instance_id: each.member_id for each in kept.members if each.instance_id is not None},
        _join_until_ms=rebalance_until_ms if phase is State.PREPARING else _NEVER,
        _sync_until_ms=rebalance_until_ms if phase is State.COMPLETING else _NEVER,
    )


def _row(member: Member) -> StoredMember:
    return StoredMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.session_timeout_ms,
        member.rebalance_timeout_ms,
        tuple((protocol.name, protocol.metadata) for protocol in member.protocols),
        member.assignment,
    )


def _member(row: StoredMember, now_ms: float, *, synced: bool) -> Member:
    return Member(
        row.member_id,
        row.instance_id,
        row.client_id,
        row.client_host,
        row.session_timeout_ms,
        row.rebalance_timeout_ms,
        tuple(Protocol(name, metadata) for name, metadata in row.protocols),
        now_ms + row.session_timeout_ms,
        assignment=row.assignment,
        synced=synced,
        seated=True,
    )
