"""A group of the newer protocol as rows, and back: how another coordinator goes on with it. Sessions, and the time that
a member has to give partitions up, begin anew there; which topics a pattern finds is looked up again."""

from typing import Final

from lakestream.coordination.groups.consumer.group import CONSUMERS, ConsumerGroup, ConsumerState
from lakestream.coordination.groups.consumer.members import NEVER, ClassicSide, ConsumerMember, MemberState
from lakestream.coordination.groups.consumer.model import Partitions
from lakestream.coordination.groups.model import Protocol
from lakestream.coordination.settings import GroupSettings
from lakestream.metadata.groups import GroupState, Phase, StoredConsumer, StoredGroup, StoredPartitions

_PHASES: Final[dict[ConsumerState, Phase]] = {
    ConsumerState.EMPTY: "EMPTY",
    ConsumerState.ASSIGNING: "ASSIGNING",
    ConsumerState.RECONCILING: "RECONCILING",
    ConsumerState.STABLE: "STABLE",
}


def stored_consumers(group: ConsumerGroup, before: GroupState, wall_ms: int) -> StoredGroup:
    phase = _PHASES[group.state]
    same = (phase, group.epoch, "consumer") == (before.phase, before.generation, before.kind)
    state = GroupState(
        group.epoch,
        CONSUMERS,
        phase,
        group.assignor,
        "",
        before.changed_ms if same else wall_ms,
        "consumer",
        group.assignment_epoch,
        group.digest,
    )
    return StoredGroup(state, (), [row_of(member) for member in group.members.values()])


def consumer_group(kept: StoredGroup, settings: GroupSettings, now_ms: float) -> ConsumerGroup:
    group = ConsumerGroup(settings, kept.state.generation, kept.state.assignment_epoch, kept.state.digest)
    for row in kept.consumers:
        member = member_of(row)
        group.admit(member)
        group.touch(member, now_ms)
        if member.state is MemberState.REVOKING and member.classic is None:
            member.revoke_until_ms = now_ms + member.rebalance_timeout_ms
    group.unsaved = False
    return group


def row_of(member: ConsumerMember) -> StoredConsumer:
    side = member.classic
    return StoredConsumer(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rack_id,
        member.rebalance_timeout_ms,
        tuple(member.topics),
        member.pattern,
        member.assignor,
        member.epoch,
        member.previous_epoch,
        member.state.value,
        _in_order(member.assigned),
        _in_order(member.revoking),
        _in_order(member.target),
        None
        if side is None
        else (side.session_timeout_ms, tuple((each.name, each.metadata) for each in side.protocols)),
    )


def member_of(row: StoredConsumer) -> ConsumerMember:
    return ConsumerMember(
        row.member_id,
        row.instance_id,
        row.client_id,
        row.client_host,
        row.rack_id,
        row.rebalance_timeout_ms,
        row.topics,
        row.pattern,
        row.assignor,
        row.epoch,
        row.previous_epoch,
        MemberState(row.state),
        _partitions(row.assigned),
        _partitions(row.revoking),
        _partitions(row.target),
        row.classic and ClassicSide(row.classic[0], tuple(Protocol(*each) for each in row.classic[1])),
        deadline_ms=NEVER,
    )


def _in_order(partitions: Partitions) -> StoredPartitions:
    return tuple((topic_id, tuple(sorted(partitions[topic_id]))) for topic_id in sorted(partitions))


def _partitions(kept: StoredPartitions) -> Partitions:
    return {topic_id: frozenset(indexes) for topic_id, indexes in kept}
