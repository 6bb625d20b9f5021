"""From one protocol to the other while members stay: a group goes over when its first consumer of the newer protocol
comes, and back when its last one is gone. As Kafka's `group.consumer.migration.policy` allows. Pure."""

from lakestream.coordination.groups.classic.members import Member, common_protocols
from lakestream.coordination.groups.classic.state import Group, State
from lakestream.coordination.groups.classic.subscriptions import CONSUMERS
from lakestream.coordination.groups.consumer.classic import assignment_for, common_names, ids_of
from lakestream.coordination.groups.consumer.embedded import MalformedMetadata, assignment_of, subscription_of
from lakestream.coordination.groups.consumer.group import ConsumerGroup
from lakestream.coordination.groups.consumer.members import ClassicSide, ConsumerMember
from lakestream.coordination.groups.consumer.model import Partitions
from lakestream.coordination.groups.consumer.topics import KnownTopics
from lakestream.coordination.groups.share.group import ShareGroup
from lakestream.coordination.settings import GroupSettings

Machine = Group | ConsumerGroup | ShareGroup


def empty_consumer_group(generation: int, settings: GroupSettings) -> ConsumerGroup:
    """Epochs go on where generations ended: none is given twice."""
    return ConsumerGroup(settings, generation, generation)


def empty_classic_group(generation: int, settings: GroupSettings) -> Group:
    return Group(settings.initial_rebalance_delay_ms, settings.max_members, generation)


def new_share_group(group: Machine, settings: GroupSettings) -> ShareGroup | None:
    """None: the name is taken by a group of another kind."""
    is_taken = bool(group.generation or group.members or group.pending)
    return None if is_taken else ShareGroup(settings)


def upgraded(group: Group, settings: GroupSettings, topics: KnownTopics, now_ms: float) -> ConsumerGroup | None:
    """The same members in a group of the newer protocol, each with what it has now. None: it cannot be. The group that
    was is left as it is."""
    allows = settings.consumer_migration_policy in ("bidirectional", "upgrade")
    if not allows or group.protocol_type != CONSUMERS or len(group.members) > settings.consumer_max_members:
        return None
    found = ConsumerGroup(settings, group.generation, group.generation)
    try:
        for member in group.members.values():
            found.admit(_upgraded(group, member, topics, now_ms))
    except MalformedMetadata:
        return None
    pairs = [pair for member in found.members.values() for pair in member.has()]
    # A leader may have given a partition to two: then nobody could say whose it is.
    return found if len(pairs) == len(set(pairs)) else None


def _upgraded(group: Group, member: Member, topics: KnownTopics, now_ms: float) -> ConsumerMember:
    subscription = subscription_of(member.protocols[0].metadata)
    settled = group.state is State.STABLE or (group.state is State.PREPARING and member.joining is None)
    # Who has joined already has said what it still has.
    assigned: Partitions = ids_of(assignment_of(member.assignment) if settled else subscription.owned, topics)
    return ConsumerMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        subscription.rack_id,
        member.rebalance_timeout_ms,
        tuple(sorted(set(subscription.topics))),
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned=assigned,
        target=assigned,
        classic=ClassicSide(member.session_timeout_ms, tuple(member.protocols)),
        deadline_ms=now_ms + member.session_timeout_ms,
    )


def is_to_go_back(group: Machine) -> bool:
    """Whether only members of the classic protocol are left in a group of the newer one."""
    if not isinstance(group, ConsumerGroup) or not group.members:
        return False
    policy = group.settings.consumer_migration_policy
    if policy not in ("bidirectional", "downgrade") or len(group.members) > group.settings.max_members:
        return False
    members = list(group.members.values())
    return all(member.classic is not None for member in members) and bool(common_names(members))


def downgraded(group: ConsumerGroup, topics: KnownTopics, now_ms: float) -> Group:
    """The same members in a group of the classic protocol; each has to join again."""
    members = {
        member.member_id: _downgraded(member, member.classic, topics, now_ms)
        for member in group.members.values()
        if member.classic is not None
    }
    common = common_protocols(members.values())
    leader = next(iter(members))
    found = Group(
        group.settings.initial_rebalance_delay_ms,
        group.settings.max_members,
        group.epoch,
        State.STABLE,
        CONSUMERS,
        next(each.name for each in members[leader].protocols if each.name in common),
        leader,
        members,
        dict(group.static),
        unsaved=True,
    )
    found.rebalance(now_ms)
    return found


def _downgraded(member: ConsumerMember, side: ClassicSide, topics: KnownTopics, now_ms: float) -> Member:
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        side.session_timeout_ms,
        member.rebalance_timeout_ms,
        side.protocols,
        now_ms + side.session_timeout_ms,
        assignment_for(member.assigned, side.protocols[0], topics),
        synced=True,
        seated=True,
    )
