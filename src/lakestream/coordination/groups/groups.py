"""Consumer groups, for callers: what every front door calls, with the caller's principal.

As in Kafka: members need to read the group, whoever looks at it to describe it. A refusal says the same whether the
group is there or not. Methods raise `NotAuthorized` and what those of the coordinator raise.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from lakestream.access import CLUSTER_NAME, Authorizer, Operation, Principal, ResourceKind, allowed, check
from lakestream.coordination.groups.commits import FindPending, Offsets
from lakestream.coordination.groups.consumer.model import Beat, Beaten
from lakestream.coordination.groups.consumer.topics import KnownTopics
from lakestream.coordination.groups.converting import Machine
from lakestream.coordination.groups.coordinator import GroupCoordinator, Listed
from lakestream.coordination.groups.model import GroupError, Join, Joined, Sync, Synced
from lakestream.coordination.settings import GroupSettings
from lakestream.metadata.brokers import Broker
from lakestream.metadata.groups import CommittedOffset
from lakestream.metadata.groups.settings import Named
from lakestream.model import StreamPartition
from lakestream.runtime import Clock


class Groups:
    def __init__(self, coordinator: GroupCoordinator, authorizer: Authorizer, clock: Clock) -> None:
        self._coordinator = coordinator
        self._authorizer = authorizer
        self._clock = clock

    async def start(self) -> None:
        await self._coordinator.start()

    async def stop(self) -> None:
        """Answers everyone who waits and gives the leases back."""
        await self._coordinator.stop()

    def allowed(self, principal: Principal, group: str) -> Sequence[Operation]:
        """What the caller may do with a group of that name."""
        return allowed(self._authorizer, principal, ResourceKind.GROUP, group)

    def check(self, principal: Principal, operation: Operation, group: str) -> None:
        """Whether the caller may do that with a group of that name."""
        self._check(principal, operation, group)

    async def find(self, principal: Principal, group: str) -> Broker:
        """The broker to ask."""
        self._check(principal, Operation.DESCRIBE, group)
        return await self._coordinator.find(group)

    async def describe(self, principal: Principal, group: str) -> Machine | None:
        """The group as it stands, for reading only; None if nobody ever used it."""
        self._check(principal, Operation.DESCRIBE, group)
        return await self._coordinator.describe(group)

    async def listed(self, principal: Principal) -> list[Listed]:
        """Those for which this broker is the one to ask and that the caller may describe: who may describe the cluster
        may describe them all."""
        allows = self._authorizer.allows
        groups = await self._coordinator.listed()
        if allows(principal, Operation.DESCRIBE, ResourceKind.CLUSTER, CLUSTER_NAME):
            return groups
        return [each for each in groups if allows(principal, Operation.DESCRIBE, ResourceKind.GROUP, each.name)]

    async def join(self, principal: Principal, group: str, request: Join) -> Joined:
        self._check(principal, Operation.READ, group)
        return await self._coordinator.join(group, request)

    async def sync(self, principal: Principal, group: str, request: Sync) -> Synced:
        self._check(principal, Operation.READ, group)
        return await self._coordinator.sync(group, request)

    async def heartbeat(
        self, principal: Principal, group: str, member_id: str, instance_id: str | None, generation: int
    ) -> GroupError:
        self._check(principal, Operation.READ, group)
        return await self._coordinator.heartbeat(group, member_id, instance_id, generation)

    async def beat(self, principal: Principal, group: str, heartbeat: Beat) -> Beaten:
        """A heartbeat of the newer protocol. Topics that are named must be such that the caller may describe them; a
        pattern finds no others."""
        self._check(principal, Operation.READ, group)
        for name in heartbeat.topics or ():
            check(self._authorizer, principal, Operation.DESCRIBE, ResourceKind.TOPIC, name)
        allows = self._authorizer.allows
        visible = replace(
            heartbeat,
            may_describe=lambda name: allows(principal, Operation.DESCRIBE, ResourceKind.TOPIC, name),
        )
        return await self._coordinator.beat(group, visible)

    async def share_beat(self, principal: Principal, group: str, heartbeat: Beat) -> Beaten:
        """The same of a member of a share group."""
        self._check(principal, Operation.READ, group)
        for name in heartbeat.topics or ():
            check(self._authorizer, principal, Operation.DESCRIBE, ResourceKind.TOPIC, name)
        return await self._coordinator.beat(group, heartbeat, shares=True)

    async def described(self, principal: Principal, group: str) -> tuple[Machine, KnownTopics] | None:
        """A group and the topics that it may speak of by their ids; None if nobody ever used it."""
        machine = await self.describe(principal, group)
        return None if machine is None else (machine, await self._coordinator.described_topics(machine))

    async def fetch_error(self, principal: Principal, group: str, member_id: str | None, epoch: int) -> GroupError:
        """Whether who asks for offsets as a member of a group of the newer protocol is one."""
        self._check(principal, Operation.DESCRIBE, group)
        return await self._coordinator.fetch_error(group, member_id, epoch)

    async def leave(
        self, principal: Principal, group: str, members: Sequence[tuple[str, str | None]]
    ) -> list[GroupError]:
        """Each member by its id, its instance id, or both; their results in the same order."""
        self._check(principal, Operation.READ, group)
        return await self._coordinator.leave(group, members)

    async def commit(
        self,
        principal: Principal,
        group: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        find: Callable[[int], Awaitable[Offsets]],
    ) -> GroupError:
        """Stores offsets if this member may commit now. Commits of a group land in the order of the calls. `find` is
        given the time and says what they are: of topics that the caller may read."""
        self._check(principal, Operation.READ, group)
        return await self._coordinator.commit_found(
            group, member_id, instance_id, generation, lambda: find(self._clock.now_ms())
        )

    async def commit_in_transaction(
        self,
        principal: Principal,
        group: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        find: FindPending,
    ) -> GroupError:
        """Stores offsets as pending in a transaction, if this member may commit now. `find` asks the transaction and
        says what they are: of topics that the caller may read."""
        self._check(principal, Operation.READ, group)
        return await self._coordinator.transactional.commit(group, member_id, instance_id, generation, find)

    async def pending(self, principal: Principal, group: str) -> frozenset[StreamPartition]:
        """Partitions whose offsets a transaction may be about to change. To be asked before the offsets."""
        self._check(principal, Operation.DESCRIBE, group)
        return await self._coordinator.pending(group)

    async def offsets(self, principal: Principal, group: str) -> dict[StreamPartition, CommittedOffset]:
        """Everything the group has committed. Of which topics the caller may know is for the caller of this to ask."""
        self._check(principal, Operation.DESCRIBE, group)
        return await self._coordinator.offsets(group)

    async def delete_offsets(
        self, principal: Principal, group: str, wanted: Mapping[StreamPartition, str]
    ) -> tuple[GroupError, frozenset[StreamPartition]]:
        """Forgets what was committed for these partitions, each with the name of its topic; those whose topic a member
        subscribes to are returned and stay. Of which topics the caller may read is for the caller of this to ask."""
        self._check(principal, Operation.DELETE, group)
        return await self._coordinator.delete_offsets(group, wanted)

    async def settings(self, principal: Principal, group: str) -> tuple[GroupSettings, Named]:
        """What holds for the group, and what of it is its own."""
        self._check(principal, Operation.DESCRIBE_CONFIGS, group)
        named = (await self._coordinator.configured.named()).get(group, {})
        return await self._coordinator.configured.of(group), named

    async def configured(self, principal: Principal) -> Sequence[str]:
        """The groups that have settings of their own, for those who may see the cluster's."""
        check(self._authorizer, principal, Operation.DESCRIBE_CONFIGS, ResourceKind.CLUSTER, CLUSTER_NAME)
        return sorted(await self._coordinator.configured.named())

    async def alter(self, principal: Principal, group: str, change: Callable[[Named], Named], *, dry_run: bool) -> None:
        """Gives the group the settings that `change` makes of its present ones. Raises `InvalidSetting`, and what
        `change` raises."""
        self._check(principal, Operation.ALTER_CONFIGS, group)
        await self._coordinator.configured.change(group, change, dry_run=dry_run)

    async def delete(self, principal: Principal, group: str) -> GroupError:
        """Forgets a group that has no members, with its offsets."""
        self._check(principal, Operation.DELETE, group)
        return await self._coordinator.delete(group)

    def _check(self, principal: Principal, operation: Operation, group: str) -> None:
        check(self._authorizer, principal, operation, ResourceKind.GROUP, group)
