"""Brokers without a front door, on shared backends."""

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from lakestream.catalog.port import TableCatalog
from lakestream.metadata.brokers import Broker
from lakestream.metadata.log.enlistment import Enlistment
from lakestream.metadata.store import Store
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.objects import MemoryObjects, ObjectStore
from lakestream.runtime import Runtime, system
from lakestream.stream import StreamSettings
from lakestream.stream.engine import StreamEngine
from lakestream.table.reading.history import HistoryReader
from support.tables.simulated import SimulatedTables


def seeded(seed: int = 1) -> Runtime:
    return Runtime(system().clock, random.Random(seed))


@dataclass
class BrokerWorld:
    """What brokers share. By default they keep nothing in memory: what is read comes from where it is stored."""

    runtime: Runtime = field(default_factory=seeded)
    store: Store = field(default_factory=lambda: MemoryStore(seeded()))
    objects: ObjectStore = field(default_factory=lambda: MemoryObjects(system().clock))
    catalog: TableCatalog | None = None
    enlistment: Enlistment | None = None
    settings: StreamSettings = field(default_factory=lambda: StreamSettings(flush_interval_ms=4, tail_cache_bytes=0))

    def __post_init__(self) -> None:
        self.tables: TableCatalog = self.catalog or SimulatedTables(self.store)

    @asynccontextmanager
    async def brokers(self, count: int) -> AsyncIterator[list[StreamEngine]]:
        async with AsyncExitStack() as stack:
            started = []
            for broker_id in range(1, count + 1):
                broker = Broker(broker_id, "127.0.0.1", 9091 + broker_id, None, self.runtime.new_id().hex)
                history = HistoryReader(self.objects)
                streams = StreamEngine(
                    broker,
                    self.store,
                    self.objects,
                    self.tables,
                    history,
                    self.runtime,
                    self.settings,
                    enlistment=self.enlistment,
                )
                await streams.start()
                stack.push_async_callback(streams.stop)
                started.append(streams)
            yield started
