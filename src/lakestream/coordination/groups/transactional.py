"""Offsets that members commit in transactions: they are pending until the transaction ends.

As in Kafka: whoever names a member or a generation must be of this generation; whoever names none is taken, also while
the group has members, for older clients do not know how to say it; a rebalance that is under way refuses nobody.
"""

from typing import Final

from lakestream.coordination.groups.commits import FindPending
from lakestream.coordination.groups.converting import Machine
from lakestream.coordination.groups.leases import GroupLeases
from lakestream.coordination.groups.model import GroupError
from lakestream.coordination.groups.settling import check, now_ms
from lakestream.coordination.groups.share.group import ShareGroup
from lakestream.errors import NotCoordinator
from lakestream.metadata.groups import StaleGeneration

_TOLD: Final = {
    GroupError.REBALANCING: GroupError.NONE,
    # Clients know one word for it in transactions.
    GroupError.STALE_EPOCH: GroupError.STALE_GENERATION,
}


class TransactionalCommits:
    def __init__(self, leases: GroupLeases) -> None:
        self._leases = leases

    async def commit(
        self, group: str, member_id: str, instance_id: str | None, generation: int, find: FindPending
    ) -> GroupError:
        """Stores the offsets as pending, if this member may commit now. Raises what `find` raises."""
        if not group:
            return GroupError.INVALID_NAME
        held = await self._leases.open(group)
        async with held.lock:
            check(held)
            error = _error(held.machine, member_id, instance_id, generation)
            if error is not GroupError.NONE:
                return error
            stored = held.commits.add(find)
        try:
            await stored
        except StaleGeneration:
            return GroupError.STALE_GENERATION
        except NotCoordinator:
            self._leases.drop(held)
            raise
        return GroupError.NONE


def _error(machine: Machine, member_id: str, instance_id: str | None, generation: int) -> GroupError:
    if isinstance(machine, ShareGroup):
        return GroupError.UNKNOWN_GROUP
    is_nobody = not member_id and instance_id is None
    if generation < 0 and (is_nobody or not machine.members):
        return GroupError.NONE
    if not machine.generation and not machine.members:
        return GroupError.STALE_GENERATION
    error = machine.commit_error(member_id, instance_id, generation, now_ms())
    return _TOLD.get(error, error)
