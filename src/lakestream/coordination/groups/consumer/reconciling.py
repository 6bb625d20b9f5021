"""How a member is brought from what it has to what it is to have. Pure.

    STABLE ──new target──► REVOKING ──it gave them up──► WAITING ──others gave theirs up──► STABLE

It stays in its epoch until it has said that it gave up what it must; only then is that free for others. It hears of a
partition when nobody else has it.
"""

from collections.abc import Callable
from uuid import UUID

from lakestream.coordination.groups.consumer.members import ConsumerMember, MemberState, each_of, gathered
from lakestream.coordination.groups.consumer.model import NOTHING, Partitions

IsFree = Callable[[UUID, int], bool]
"""Whether nobody but this member has the partition."""


def reconcile(member: ConsumerMember, target_epoch: int, owned: Partitions | None, is_free: IsFree) -> bool:
    """`owned`: what the member says it has; None if it has not said so. True: something has changed."""
    if member.state is MemberState.STABLE and member.epoch == target_epoch:
        return False
    if member.state is MemberState.REVOKING:
        if _still_owns(owned, member.revoking):
            return False
        # What it gave up is free from here on, whatever comes next.
        _advance(member, min(member.epoch + 1, target_epoch), target_epoch, owned, is_free)
        return True
    before = (member.state, member.epoch, member.assigned, member.revoking)
    _advance(member, member.epoch, target_epoch, owned, is_free)
    return before != (member.state, member.epoch, member.assigned, member.revoking)


def _advance(member: ConsumerMember, epoch: int, target_epoch: int, owned: Partitions | None, is_free: IsFree) -> None:
    kept = gathered(pair for pair in each_of(member.assigned) if pair[1] in member.target.get(pair[0], ()))
    gives_up = gathered(pair for pair in each_of(member.assigned) if pair[1] not in kept.get(pair[0], ()))
    wanted = [pair for pair in each_of(member.target) if pair[1] not in kept.get(pair[0], ())]
    if gives_up and _still_owns(owned, gives_up):
        member.move_to(epoch)
        member.state, member.assigned, member.revoking = MemberState.REVOKING, kept, gives_up
        return
    free = [pair for pair in wanted if is_free(*pair)]
    member.move_to(target_epoch)
    member.assigned = gathered(iter([*each_of(kept), *free]))
    member.revoking = NOTHING
    member.state = MemberState.STABLE if len(free) == len(wanted) else MemberState.WAITING


def _still_owns(owned: Partitions | None, given_up: Partitions) -> bool:
    """Who does not say what it has may have all of it."""
    if owned is None:
        return True
    return any(not indexes.isdisjoint(owned.get(topic_id, frozenset())) for topic_id, indexes in given_up.items())
