"""What a request of either protocol does to a group of either protocol. Whoever calls holds the group's lock."""

from collections.abc import Callable

from lakestream.coordination.groups.classic.state import Group
from lakestream.coordination.groups.consumer import classic
from lakestream.coordination.groups.consumer.group import ConsumerGroup
from lakestream.coordination.groups.consumer.model import JOINS, Beat, Beaten
from lakestream.coordination.groups.consumer.topics import KnownTopics
from lakestream.coordination.groups.converting import (
    empty_classic_group,
    empty_consumer_group,
    new_share_group,
    upgraded,
)
from lakestream.coordination.groups.leases import Held
from lakestream.coordination.groups.model import Answer, GroupError, Join, Joined, Sync, SyncAnswer, Synced
from lakestream.coordination.groups.share.group import ShareGroup
from lakestream.coordination.settings import GroupSettings


def beat(held: Held, heartbeat: Beat, topics: KnownTopics, settings: GroupSettings, now_ms: float) -> Beaten:
    """A heartbeat of the newer protocol. A group of the classic one goes over to it if it may, and only if the new
    member is let in."""
    before = held.machine
    machine: ConsumerGroup | None = None
    if isinstance(before, ConsumerGroup):
        machine = before
        machine.settings = settings
    elif isinstance(before, Group) and heartbeat.epoch == JOINS and not before.pending:
        if before.members:
            machine = upgraded(before, settings, topics, now_ms)
        else:
            machine = empty_consumer_group(before.generation, settings)
    if machine is None:
        return Beaten(GroupError.UNKNOWN_GROUP, message=f"group {held.name} is none of the newer protocol")
    beaten = machine.heartbeat(heartbeat, topics, now_ms)
    if machine is not before and beaten.error is GroupError.NONE:
        before.dismiss_all(GroupError.REBALANCING)
        held.machine = machine
    return beaten


def share_beat(
    held: Held, heartbeat: Beat, topics: KnownTopics, settings: GroupSettings, now_ms: float, *, is_free: bool
) -> Beaten:
    """A heartbeat of a member of a share group. `is_free`: nobody has committed offsets under that name."""
    machine = held.machine
    if not isinstance(machine, ShareGroup):
        found = new_share_group(machine, settings) if is_free and heartbeat.epoch == JOINS else None
        if found is None:
            return Beaten(GroupError.UNKNOWN_GROUP, message=f"group {held.name} is no share group")
        machine = found
    machine.settings = settings
    beaten = machine.heartbeat(heartbeat, topics, now_ms)
    if beaten.error is GroupError.NONE:
        held.machine = machine
    return beaten


def join(
    held: Held,
    request: Join,
    answer: Answer,
    new_id: Callable[[], str],
    topics: KnownTopics,
    settings: GroupSettings,
    now_ms: float,
) -> None:
    machine = held.machine
    if isinstance(machine, ConsumerGroup) and not machine.members:
        machine = held.machine = empty_classic_group(machine.epoch, settings)
    if isinstance(machine, ShareGroup):
        answer(Joined(GroupError.INCONSISTENT_PROTOCOL, request.member_id))
    elif isinstance(machine, Group):
        machine.join(request, answer, new_id, now_ms)
    else:
        answer(classic.join(machine, request, topics, new_id, lambda _: True, now_ms))


def sync(held: Held, request: Sync, answer: SyncAnswer, topics: KnownTopics, now_ms: float) -> None:
    if isinstance(held.machine, Group):
        held.machine.sync(request, answer, now_ms)
    elif isinstance(held.machine, ShareGroup):
        answer(Synced(GroupError.UNKNOWN_MEMBER))
    else:
        answer(classic.sync(held.machine, request, topics, now_ms))


def heartbeat(held: Held, member_id: str, instance_id: str | None, generation: int, now_ms: float) -> GroupError:
    if isinstance(held.machine, Group):
        return held.machine.heartbeat(member_id, instance_id, generation, now_ms)
    if isinstance(held.machine, ShareGroup):
        return GroupError.UNKNOWN_MEMBER
    return classic.heartbeat(held.machine, member_id, instance_id, generation, now_ms)


def leave(held: Held, member_id: str, instance_id: str | None, now_ms: float) -> GroupError:
    if isinstance(held.machine, Group):
        return held.machine.leave(member_id, instance_id, now_ms)
    if isinstance(held.machine, ShareGroup):
        return GroupError.UNKNOWN_MEMBER
    return classic.leave(held.machine, member_id, instance_id)
