"""Coordinators of transactions on one store whose clock and troubles a test rules."""

from lakestream.coordination.settings import TransactionSettings
from lakestream.coordination.transactions import Enlister, Producer, TransactionCoordinator
from lakestream.coordination.transactions.sweeping import TransactionSweeper
from lakestream.metadata.log.head import MARKER_EXTENT, Marker
from lakestream.metadata.log.partition import read_extents
from lakestream.metadata.transactions import StoredTransaction, read_state
from lakestream.model import StreamPartition
from support.fakes.streams import FakeStreams
from support.groups.coordinators import CoordinatorWorld

TIMEOUT_MS = 60_000


class TransactionWorld(CoordinatorWorld):
    def __init__(self) -> None:
        super().__init__()
        self.streams = self.broker_of(1)

    def broker_of(self, broker_id: int) -> FakeStreams:
        return FakeStreams(store=self.store, runtime=self.runtime, broker_id=broker_id, port=9000 + broker_id)

    def coordinator(self, settings: TransactionSettings | None = None, first_id: int = 0) -> TransactionCoordinator:
        """Of another broker."""
        streams = self.broker_of(2)
        streams._producers = first_id or self.streams._producers + 100
        self.streams._producers = streams._producers
        return TransactionCoordinator(
            self.store,
            self.clock,
            settings or TransactionSettings(),
            Enlister(self.store, self.clock),
            streams.new_producer_id,
        )

    def sweeper(self, coordinator: TransactionCoordinator, **settings: int) -> TransactionSweeper:
        streams = self.streams
        return TransactionSweeper(
            self.store, self.clock, TransactionSettings(**settings), coordinator, streams.broker, streams.brokers.live
        )

    async def partitions(self, count: int, name: str = "orders") -> list[StreamPartition]:
        return (await self.streams.topics.create(name, count, {})).each_partition()

    async def stored(self, transactional_id: str = "t") -> StoredTransaction:
        stored = await read_state(self.store, transactional_id)
        assert stored is not None
        return stored

    async def markers(self, partition: StreamPartition) -> list[Marker]:
        found = [extent.marker for extent in await read_extents(self.store, partition) if extent.kind == MARKER_EXTENT]
        return [marker for marker in found if marker is not None]


async def begun(coordinator: TransactionCoordinator, transactional_id: str = "t") -> Producer:
    return await coordinator.begin(transactional_id, TIMEOUT_MS, None)
