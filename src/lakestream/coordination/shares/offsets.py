"""How far share groups are, looked at and set by operators. Only a group without members can be set."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from lakestream.access import Authorizer, Operation, Principal, ResourceKind, check
from lakestream.coordination.groups import GroupCoordinator, GroupError
from lakestream.coordination.shares.model import GroupPartition, ShareRules
from lakestream.coordination.shares.ranges import lapsed, open_records
from lakestream.errors import LakestreamError
from lakestream.metadata.shares import (
    SharePartitionKey,
    ShareState,
    forget_shares,
    read_shares,
    share_partitions,
    write_of,
)
from lakestream.metadata.store import Applied
from lakestream.model import StreamPartition
from lakestream.stream import LATEST
from lakestream.stream.engine import StreamEngine


class ShareOffsets:
    """Of which topics the caller may know is for the caller of this to ask."""

    def __init__(self, engine: StreamEngine, authorizer: Authorizer, coordinator: GroupCoordinator) -> None:
        self._engine = engine
        self._authorizer = authorizer
        self._coordinator = coordinator

    async def topics(self, principal: Principal, group: str) -> list[UUID]:
        """Those in which the group has begun."""
        check(self._authorizer, principal, Operation.DESCRIBE, ResourceKind.GROUP, group)
        await self._coordinator.describe(group)
        begun = await share_partitions(self._engine.store, group)
        return list(dict.fromkeys(topic_id for topic_id, _ in begun))

    async def describe(
        self, principal: Principal, group: str, partitions: Sequence[StreamPartition]
    ) -> list[GroupPartition]:
        check(self._authorizer, principal, Operation.DESCRIBE, ResourceKind.GROUP, group)
        rules = ShareRules.of(await self._coordinator.configured.of(group))
        rows = await read_shares(self._engine.store, [SharePartitionKey(group, each) for each in partitions])
        now_ms = self._engine.runtime.clock.now_ms()

        async def described(partition: StreamPartition, state: ShareState | None) -> GroupPartition:
            if state is None:
                return GroupPartition(partition, None)
            state = lapsed(state, rules, now_ms)
            try:
                end_offset = (await self._engine.list_offset(partition, LATEST)).offset
            except LakestreamError:
                return GroupPartition(partition, state.start)
            return GroupPartition(partition, state.start, open_records(state, end_offset))

        return await asyncio.gather(*(described(each, row.state) for each, row in zip(partitions, rows, strict=True)))

    async def alter(self, principal: Principal, group: str, offsets: Mapping[StreamPartition, int]) -> GroupError:
        """The group goes on there, whatever it has had."""
        check(self._authorizer, principal, Operation.READ, ResourceKind.GROUP, group)

        async def set_all() -> None:
            await asyncio.gather(*(self._set(SharePartitionKey(group, each), at) for each, at in offsets.items()))

        return await self._coordinator.while_empty(group, set_all, creates=True)

    async def delete(
        self, principal: Principal, group: str, topic_ids: Collection[UUID]
    ) -> tuple[GroupError, Collection[UUID]]:
        """The group begins anew in these topics. With those in which it had begun."""
        check(self._authorizer, principal, Operation.DELETE, ResourceKind.GROUP, group)
        gone: list[StreamPartition] = []

        async def forget() -> None:
            begun = await share_partitions(self._engine.store, group)
            gone.extend(each for each in begun if each.topic_id in topic_ids)
            await forget_shares(self._engine.store, group, gone)

        error = await self._coordinator.while_empty(group, forget)
        return error, {each.topic_id for each in gone}

    async def _set(self, key: SharePartitionKey, offset: int) -> None:
        while True:
            [row] = await read_shares(self._engine.store, [key])
            [outcome] = await self._engine.store.transact([write_of(key, row.version, ShareState(offset))])
            if isinstance(outcome, Applied):
                return
