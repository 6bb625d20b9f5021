"""Members of the classic protocol in a group of the newer one, while its consumers are exchanged one after the other.

To them it looks like their own kind of group: when there is something new for them a heartbeat asks them to join again.
They are answered at once, none of them leads, and what they join is their own epoch."""

from collections.abc import Callable
from uuid import UUID

from lakestream.coordination.groups.classic.members import common_protocols
from lakestream.coordination.groups.consumer.embedded import (
    MalformedMetadata,
    NamedPartitions,
    Subscription,
    assignment_data,
    subscription_of,
)
from lakestream.coordination.groups.consumer.group import CONSUMERS, ConsumerGroup
from lakestream.coordination.groups.consumer.members import NEVER, ClassicSide, ConsumerMember, MemberState
from lakestream.coordination.groups.consumer.model import Partitions
from lakestream.coordination.groups.consumer.subscribing import MayDescribe
from lakestream.coordination.groups.consumer.topics import KnownTopics
from lakestream.coordination.groups.model import GroupError, Join, Joined, Protocol, Sync, Synced


def join(
    group: ConsumerGroup,
    request: Join,
    topics: KnownTopics,
    new_id: Callable[[], str],
    may_describe: MayDescribe,
    now_ms: float,
) -> Joined:
    """Answers at once; the coordinator has checked the session time-out."""
    subscription = _subscription(group, request)
    if subscription is None:
        return Joined(GroupError.INCONSISTENT_PROTOCOL, request.member_id)
    if len(group.members) >= group.settings.max_members and request.member_id not in group.members:
        return Joined(GroupError.GROUP_FULL, request.member_id)
    member_id = request.member_id or new_id()
    if not request.member_id and request.id_required and request.instance_id is None:
        return Joined(GroupError.MEMBER_ID_REQUIRED, member_id)
    found = _find(group, request, member_id)
    if isinstance(found, GroupError):
        return Joined(found, request.member_id)
    member = found
    group.admit(member)
    before = (member.topics, member.pattern, member.rack_id)
    told = (before, member.classic, member.rebalance_timeout_ms)
    member.topics, member.pattern, member.assignor = tuple(sorted(set(subscription.topics))), "", None
    member.rack_id, member.rebalance_timeout_ms = subscription.rack_id, request.rebalance_timeout_ms
    member.client_id, member.client_host = request.client_id, request.client_host
    member.classic = ClassicSide(request.session_timeout_ms, tuple(request.protocols))
    now = (member.topics, member.pattern, member.rack_id)
    group.unsaved |= told != (now, member.classic, member.rebalance_timeout_ms)
    group.bring_on(member, ids_of(subscription.owned, topics), topics, may_describe, changed=before != now)
    group.touch(member, now_ms)
    member.revoke_until_ms = member.join_until_ms = NEVER
    member.sync_until_ms = now_ms + member.rebalance_timeout_ms
    return Joined(GroupError.NONE, member.member_id, member.epoch, CONSUMERS, request.protocols[0].name)


def sync(group: ConsumerGroup, request: Sync, topics: KnownTopics, now_ms: float) -> Synced:
    member = _member(group, request.member_id, request.instance_id)
    if isinstance(member, GroupError):
        return Synced(member)
    error = _generation_error(member, request.generation)
    first = _side(member).protocols[0]
    if error is GroupError.NONE and (
        request.protocol_type not in (None, CONSUMERS) or request.protocol not in (None, first.name)
    ):
        error = GroupError.INCONSISTENT_PROTOCOL
    if error is GroupError.NONE and group.epoch > member.epoch and member.state is not MemberState.REVOKING:
        _await_join(member, now_ms)
        error = GroupError.REBALANCING
    if error is not GroupError.NONE:
        return Synced(error)
    member.sync_until_ms = NEVER
    group.touch(member, now_ms)
    return Synced(GroupError.NONE, assignment_for(member.assigned, first, topics), CONSUMERS, first.name)


def heartbeat(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int, now_ms: float
) -> GroupError:
    member = _member(group, member_id, instance_id)
    if isinstance(member, GroupError):
        return member
    error = _generation_error(member, generation)
    if error is not GroupError.NONE:
        return error
    group.touch(member, now_ms)
    has_news = member.epoch < group.epoch or member.state is MemberState.REVOKING
    may_have_more = member.state is MemberState.WAITING and not group.awaits_others(member)
    if not has_news and not may_have_more:
        return GroupError.NONE
    _await_join(member, now_ms)
    return GroupError.REBALANCING


def leave(group: ConsumerGroup, member_id: str, instance_id: str | None) -> GroupError:
    """An operator may name a static member by its instance id alone."""
    if instance_id is not None and not member_id:
        member_id = group.static.get(instance_id, "")
    member = _member(group, member_id, instance_id)
    if isinstance(member, GroupError):
        return member
    group.remove(member)
    return GroupError.NONE


def ids_of(named: NamedPartitions, topics: KnownTopics) -> Partitions:
    """Those of topics that there are."""
    return {topics.by_name[name].topic_id: indexes for name, indexes in named.items() if name in topics.by_name}


def assignment_for(partitions: Partitions, protocol: Protocol, topics: KnownTopics) -> bytes:
    """In the version in which the member wrote its subscription."""
    named: dict[str, frozenset[int]] = {
        topics.names[topic_id]: indexes for topic_id, indexes in partitions.items() if _is_known(topic_id, topics)
    }
    return assignment_data(subscription_of(protocol.metadata).version, named)


def _is_known(topic_id: UUID, topics: KnownTopics) -> bool:
    return topic_id in topics.names


def _subscription(group: ConsumerGroup, request: Join) -> Subscription | None:
    """None: nothing that the other members of the classic protocol speak, too."""
    others = [each for each in group.members.values() if each.classic and each.member_id != request.member_id]
    names = {protocol.name for protocol in request.protocols}
    if request.protocol_type != CONSUMERS or not names:
        return None
    if others and common_names(others).isdisjoint(names):
        return None
    try:
        return subscription_of(request.protocols[0].metadata)
    except MalformedMetadata:
        return None


def common_names(members: list[ConsumerMember]) -> set[str]:
    """The protocols that all of these members of the classic protocol support."""
    return common_protocols(_side(member) for member in members)


def _find(group: ConsumerGroup, request: Join, member_id: str) -> ConsumerMember | GroupError:
    instance_id = request.instance_id
    new = ConsumerMember(member_id, instance_id, request.client_id, request.client_host)
    if instance_id is None:
        return group.members.get(member_id, new)
    at_its_place = group.members.get(group.static.get(instance_id, ""))
    if not request.member_id:
        return new if at_its_place is None else group.successor(at_its_place, member_id)
    if at_its_place is None:
        return GroupError.UNKNOWN_MEMBER
    return at_its_place if at_its_place.member_id == member_id else GroupError.FENCED_INSTANCE


def _member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember | GroupError:
    """One that speaks the classic protocol."""
    if instance_id is not None:
        holder = group.static.get(instance_id)
        if holder is None:
            return GroupError.UNKNOWN_MEMBER
        if holder != member_id:
            return GroupError.FENCED_INSTANCE
    member = group.members.get(member_id)
    return GroupError.UNKNOWN_MEMBER if member is None or member.classic is None else member


def _side(member: ConsumerMember) -> ClassicSide:
    assert member.classic is not None
    return member.classic


def _generation_error(member: ConsumerMember, generation: int) -> GroupError:
    return GroupError.NONE if member.epoch == generation else GroupError.STALE_GENERATION


def _await_join(member: ConsumerMember, now_ms: float) -> None:
    if member.join_until_ms == NEVER:
        member.join_until_ms = now_ms + member.rebalance_timeout_ms
