"""One busy topic among thousands of idle ones: a broker's word is enough, nobody goes through them all."""

import asyncio
from pathlib import Path
from typing import Any

from support.clients.batches import batch
from support.tables.simulated import SimulatedTables

from lakestream import metadata
from lakestream.frontier.lag import LagReader, read_lag
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.tiles.local import LocalTiles
from lakestream.frontier.moving.worker import Worker
from lakestream.frontier.settings import PipelineSettings
from lakestream.metadata import codec
from lakestream.metadata.brokers import Broker, Brokers
from lakestream.metadata.feed import Feed
from lakestream.metadata.log.head import HEAD, Head
from lakestream.metadata.log.partition import head_address
from lakestream.metadata.store import Store, Transaction
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.objects.memory import MemoryObjects
from lakestream.runtime import system
from lakestream.stream import StreamSettings
from lakestream.stream.engine import StreamEngine

IDLE = 2_000
WAIT_S = 60.0


async def create_idle(store: Store) -> None:
    runtime = system()
    topics = [Topic(f"idle-{number:05d}", runtime.new_id(), 2, {}, 0) for number in range(IDLE)]
    addresses = [head_address(partition) for topic in topics for partition in topic.each_partition()]
    await store.transact([Transaction(each.shard, {}, {HEAD: codec.encode(Head(), each)}) for each in addresses])
    listed = Topics(store, runtime)
    await asyncio.gather(*(listed.restore(topic) for topic in topics))


async def test_a_record_among_thousands_of_idle_topics_is_in_its_table_with_the_next_ticks(tmp_path: Path) -> None:
    runtime = system()
    store = await metadata.open(f"sqlite://{tmp_path}/metadata.db")
    await create_idle(store)
    objects = MemoryObjects(runtime.clock, "simulated:/")
    tables: Any = SimulatedTables(store, {})
    broker = Broker(1, "127.0.0.1", 1, None, runtime.new_id().hex)
    engine = StreamEngine(broker, store, objects, tables, tables, runtime, StreamSettings())
    await engine.start()
    try:
        settings = PipelineSettings(interval_ms=50, sweep_ms=86_400_000)
        lake = Lake(store, tables, objects, LocalTiles(objects, runtime), runtime, settings)
        topics, sessions = Topics(store, runtime), Brokers(store).sessions
        worker = Worker(lake, topics, name="w", feed=Feed(store, sessions))
        lags = LagReader(store, topics, Feed(store, sessions), sweep_ms=86_400_000)
        busy = await engine.create_topic("busy", 2, {})
        while (await worker.tick()).more:
            pass
        assert len(await lags.read(runtime.clock.now_ms())) == IDLE + 1
        ticks = []
        for number in range(3):
            await engine.append(busy.each_partition()[1], batch(b"v"))
            moved = 0
            async with asyncio.timeout(WAIT_S):
                while not moved:
                    ticks.append(await worker.tick())
                    assert not ticks[-1].failures
                    moved = ticks[-1].record_count
                    await asyncio.sleep(0.05)
            found = {lag.topic: lag for lag in await lags.read(runtime.clock.now_ms())}
            assert found["busy"].end == (0, number + 1)
            assert found["busy"].frontier == (0, number + 1)
        assert max(tick.looked_at for tick in ticks) <= 3, "of two thousand"
        assert (await read_lag(store, topics, runtime.clock.now_ms()))[0].topic == "busy"
    finally:
        await engine.stop()
        await store.close()
