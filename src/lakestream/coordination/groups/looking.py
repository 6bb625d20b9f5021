"""Consumer groups for those who only look, with the caller's principal: as they are stored, whoever coordinates them.

Nobody hears of a generation, a member or an assignment before it is stored, so this is what members know. Methods raise
`NotAuthorized`, which says the same whether the group is there or not.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from lakestream.access import CLUSTER_NAME, Authorizer, Operation, Principal, ResourceKind, check
from lakestream.coordination.groups.classic.state import State
from lakestream.coordination.groups.consumer.embedded import MalformedMetadata, assignment_of
from lakestream.coordination.groups.consumer.group import ConsumerState
from lakestream.coordination.groups.keeping import state_of
from lakestream.coordination.groups.share.group import ShareGroupState
from lakestream.metadata.brokers import Brokers, rendezvous
from lakestream.metadata.groups import (
    CommittedOffset,
    Kind,
    StoredGroup,
    committed_offsets,
    is_stored,
    lease_holder,
    stored_group,
    stored_groups,
)
from lakestream.metadata.store import Store
from lakestream.model import StreamPartition
from lakestream.stream import TopicKey


@dataclass(frozen=True, slots=True)
class SeenMember:
    """`assigned`: partitions by topic, which the classic protocol names and the newer one gives by its id."""

    member_id: str
    instance_id: str | None
    client_id: str
    assigned: Mapping[TopicKey, frozenset[int]]
    is_classic: bool


@dataclass(frozen=True, slots=True)
class SeenGroup:
    """`coordinator`: the broker that has it; None: it is in nobody's hands."""

    name: str
    kind: Kind
    protocol_type: str
    assignor: str
    state: State | ConsumerState | ShareGroupState
    members: tuple[SeenMember, ...]
    coordinator: int | None


class GroupViews:
    def __init__(self, store: Store, authorizer: Authorizer) -> None:
        self._store = store
        self._authorizer = authorizer
        self._brokers = Brokers(store)

    def check(self, principal: Principal, operation: Operation, group: str) -> None:
        """Whether the caller may do that with a group of that name."""
        check(self._authorizer, principal, operation, ResourceKind.GROUP, group)

    async def names(self, principal: Principal) -> list[str]:
        """Those that the caller may describe: who may describe the cluster may describe them all."""
        allows = self._authorizer.allows
        every = allows(principal, Operation.DESCRIBE, ResourceKind.CLUSTER, CLUSTER_NAME)
        found = sorted(await stored_groups(self._store))
        return [each for each in found if every or allows(principal, Operation.DESCRIBE, ResourceKind.GROUP, each)]

    async def seen(self, principal: Principal, group: str) -> SeenGroup | None:
        """None: nobody uses it."""
        self.check(principal, Operation.DESCRIBE, group)
        kept, known = await asyncio.gather(stored_group(self._store, group), is_stored(self._store, group))
        if not known:
            return None
        return SeenGroup(
            group,
            kept.state.kind,
            kept.state.protocol_type,
            kept.state.protocol or "",
            state_of(kept.state),
            _members(kept),
            await self._coordinator(group),
        )

    async def offsets(self, principal: Principal, group: str) -> dict[StreamPartition, CommittedOffset]:
        """Everything the group has committed. Of which topics the caller may know is for the caller of this to ask."""
        self.check(principal, Operation.DESCRIBE, group)
        return await committed_offsets(self._store, group)

    async def _coordinator(self, group: str) -> int | None:
        lease, living = await asyncio.gather(lease_holder(self._store, group), self._brokers.live())
        if lease is not None:
            return int(lease.holder.partition("/")[0])
        return rendezvous(f"group/{group}", living).broker_id if living else None


def _members(kept: StoredGroup) -> tuple[SeenMember, ...]:
    """Assignments of a classic group are its members' own affair: those that cannot be read are none."""
    found = []
    for classic in kept.members:
        try:
            named: dict[TopicKey, frozenset[int]] = dict(assignment_of(classic.assignment).items())
        except MalformedMetadata:
            named = {}
        found.append(SeenMember(classic.member_id, classic.instance_id, classic.client_id, named, True))
    for newer in kept.consumers:
        assigned: dict[TopicKey, frozenset[int]] = {topic: frozenset(indexes) for topic, indexes in newer.assigned}
        found.append(
            SeenMember(newer.member_id, newer.instance_id, newer.client_id, assigned, newer.classic is not None)
        )
    return tuple(found)
