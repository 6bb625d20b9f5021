"""Transactions, for callers: what every front door calls, with the caller's principal.

As in Kafka: whoever writes under a transactional id needs to write it, whoever looks at it to describe it; offsets in a
transaction need the group to be read, too. A refusal says the same whether the id is there or not. Of which topics the
caller may do what is for the caller of these methods to ask. They raise `NotAuthorized` and what those of the
coordinator raise.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from uuid import UUID

from lakestream.access import CLUSTER_NAME, Authorizer, Operation, Principal, ResourceKind, check
from lakestream.coordination.groups.commits import FindPending
from lakestream.coordination.settings import TransactionSettings
from lakestream.coordination.transactions.coordinator import TransactionCoordinator
from lakestream.coordination.transactions.deciding import Producer
from lakestream.coordination.transactions.looking import describe, end_hanging, list_transactions
from lakestream.coordination.transactions.model import TransactionFilter
from lakestream.coordination.transactions.sweeping import TransactionSweeper
from lakestream.errors import InvalidTransactionState, LakestreamError, NotCoordinator, Unavailable
from lakestream.metadata.brokers import Broker, rendezvous
from lakestream.metadata.groups import CommittedOffset, PendingOffsets
from lakestream.metadata.transactions import TransactionState
from lakestream.model import StreamPartition
from lakestream.stream.engine import StreamEngine

_ID = ResourceKind.TRANSACTIONAL_ID


class Transactions:
    def __init__(
        self,
        engine: StreamEngine,
        coordinator: TransactionCoordinator,
        authorizer: Authorizer,
        settings: TransactionSettings,
    ) -> None:
        self._engine = engine
        self._coordinator = coordinator
        self._authorizer = authorizer
        self._clock = engine.runtime.clock
        self.sweeper = TransactionSweeper(
            engine.store, self._clock, settings, coordinator, engine.broker, engine.brokers.live
        )
        self._sweeping: asyncio.Task[None] | None = None
        self._is_withdrawn = False

    async def start(self) -> None:
        self._sweeping = asyncio.create_task(self.sweeper.sweep_forever())

    async def stop(self) -> None:
        """Sends producers to other brokers from now on. What is being ended here comes to an end."""
        self._is_withdrawn = True
        if self._sweeping is not None:
            self._sweeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._sweeping
        await self._coordinator.ender.stop()

    async def find(self, principal: Principal, transactional_id: str) -> Broker:
        """The broker to ask. Any will do, and this one answers."""
        check(self._authorizer, principal, Operation.DESCRIBE, _ID, transactional_id)
        if not self._is_withdrawn:
            return self._engine.broker
        others = [each for each in await self._engine.brokers.live() if each != self._engine.broker]
        if not others:
            raise Unavailable("this broker is stopping, and there is no other")
        return rendezvous(f"txn/{transactional_id}", others)

    async def begin(
        self, principal: Principal, transactional_id: str, timeout_ms: int, expected: Producer | None
    ) -> Producer:
        """Who writes under this id from now on; whoever did before is fenced."""
        self.check(principal, transactional_id)
        return await self._coordinator.begin(transactional_id, timeout_ms, expected)

    def check(self, principal: Principal, transactional_id: str) -> None:
        """Whether the caller may write under the id, here."""
        check(self._authorizer, principal, Operation.WRITE, _ID, transactional_id)
        self._check_here()

    def check_broker(self, principal: Principal) -> None:
        """Whether the caller may do what brokers do."""
        check(self._authorizer, principal, Operation.CLUSTER_ACTION, ResourceKind.CLUSTER)
        self._check_here()

    async def add_partitions(
        self,
        principal: Principal,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[StreamPartition],
    ) -> None:
        """Adds them to the producer's transaction, or begins one."""
        self.check(principal, transactional_id)
        await self._coordinator.add(transactional_id, producer, partitions)

    async def add_for_broker(
        self, principal: Principal, transactional_id: str, producer: Producer, partitions: Collection[StreamPartition]
    ) -> None:
        self.check_broker(principal)
        await self._coordinator.add(transactional_id, producer, partitions)

    async def verify_for_broker(
        self, principal: Principal, transactional_id: str, producer: Producer, partitions: Sequence[StreamPartition]
    ) -> list[bool]:
        """Which of these the producer's transaction has."""
        self.check_broker(principal)
        try:
            return (await self._coordinator.look(transactional_id, producer, partitions))[1]
        except InvalidTransactionState:
            return [False for _ in partitions]

    async def add_group(self, principal: Principal, transactional_id: str, producer: Producer, group: str) -> None:
        """Adds the group to the producer's transaction, or begins one: offsets may follow."""
        self.check(principal, transactional_id)
        check(self._authorizer, principal, Operation.READ, ResourceKind.GROUP, group)
        await self._coordinator.add(transactional_id, producer, (), (group,))

    def offsets(
        self,
        principal: Principal,
        transactional_id: str,
        producer: Producer,
        group: str,
        offsets: Mapping[StreamPartition, CommittedOffset],
        *,
        implicit: bool,
    ) -> FindPending:
        """What the group's coordinator asks before it stores them as pending. `implicit`: the group is added by that,
        else it has to be in the transaction already."""
        check(self._authorizer, principal, Operation.WRITE, _ID, transactional_id)

        async def find() -> PendingOffsets:
            if implicit:
                number = await self._coordinator.add(transactional_id, producer, (), (group,))
            else:
                number, [is_in] = await self._coordinator.look(transactional_id, producer, (), (group,))
                if not is_in:
                    raise InvalidTransactionState(f"group {group} was not added to the transaction")
            return PendingOffsets(producer.producer_id, number, offsets)

        return find

    async def end(
        self, principal: Principal, transactional_id: str, producer: Producer, *, committed: bool, bumps: bool
    ) -> Producer:
        """Ends the producer's transaction; as whom it goes on. `bumps`: in its next epoch."""
        self.check(principal, transactional_id)
        return await self._coordinator.end(transactional_id, producer, committed=committed, bumps=bumps)

    async def end_hanging(
        self,
        principal: Principal,
        producer: Producer,
        partitions: Collection[StreamPartition],
        *,
        committed: bool,
    ) -> list[LakestreamError | None]:
        """Ends what the producer has open in these partitions; for operators."""
        self.check_operator(principal)
        return await end_hanging(
            self._engine.store, self._clock, self._coordinator, producer, partitions, committed=committed
        )

    def check_operator(self, principal: Principal) -> None:
        """Whether the caller may end transactions of others."""
        if not self._authorizer.allows(principal, Operation.CLUSTER_ACTION, ResourceKind.CLUSTER, CLUSTER_NAME):
            check(self._authorizer, principal, Operation.ALTER, ResourceKind.CLUSTER)

    async def describe(
        self, principal: Principal, transactional_id: str
    ) -> tuple[TransactionState, Mapping[UUID, Sequence[int]]] | None:
        """The state, and the partitions of the transaction that is open, by topic. None: nobody uses the id."""
        check(self._authorizer, principal, Operation.DESCRIBE, _ID, transactional_id)
        return await describe(self._engine.store, transactional_id)

    async def listed(self, principal: Principal, wanted: TransactionFilter) -> list[TransactionState]:
        """Those of which this broker tells, and that the caller may describe."""
        brokers = await self._engine.brokers.live() or [self._engine.broker]
        found = await list_transactions(self._engine.store, self._clock, wanted, self._engine.broker, brokers)
        allows = self._authorizer.allows
        return [each for each in found if allows(principal, Operation.DESCRIBE, _ID, each.transactional_id)]

    def _check_here(self) -> None:
        if self._is_withdrawn:
            raise NotCoordinator("this broker is stopping: ask another")
