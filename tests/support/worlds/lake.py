"""One cluster without front doors: a broker and a pipeline without Spark, on a catalog of its own or on one that
clusters share."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from lakestream import objects
from lakestream.catalog.embedded.tables import PyIcebergTables
from lakestream.catalog.external.tables import ExternalTables
from lakestream.frontier.collecting.collector import Collector
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.tiles.local import LocalTiles
from lakestream.frontier.moving.worker import Tick, Worker
from lakestream.frontier.settings import PipelineSettings
from lakestream.metadata.store import Store
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.model import StreamPartition
from lakestream.objects import ObjectStore
from lakestream.runtime import Runtime, system
from lakestream.stream import FetchPartition
from lakestream.stream.engine import StreamEngine
from support.clients.batches import batch
from support.clients.records import parse
from support.servers.catalogs import Place
from support.worlds.brokers import BrokerWorld

_OLD = PipelineSettings(generation_interval_ms=0, grace_ms=0)


@dataclass
class LakeWorld:
    """`catalog` is the pipeline's."""

    cluster: BrokerWorld
    catalog: PyIcebergTables | ExternalTables
    streams: StreamEngine

    async def produce(self, topic: Topic, partition: int, *values: bytes) -> int:
        done = await self.streams.append(StreamPartition(topic.topic_id, partition), batch(*values))
        return done.base_offset

    async def consume(self, topic: Topic, partition: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        position = 0
        while True:
            wanted = FetchPartition(StreamPartition(topic.topic_id, partition), position, 1 << 20)
            [fetched] = await self.streams.fetch([wanted], min_bytes=0, max_bytes=1 << 20, max_wait_ms=0)
            if fetched.error is not None:
                raise fetched.error
            more = [(each.offset, each.value) for each in parse(fetched.parts) if each.offset >= position]
            if not more:
                return found
            found += more
            position = more[-1][0] + 1

    async def tick(self) -> Tick:
        topics = Topics(self.cluster.store, self.cluster.runtime)
        return await Worker(self._lake(PipelineSettings()), topics, name="worker").tick()

    async def collect(self) -> None:
        """Until everything is gone that this cluster takes for dead."""
        for _ in range(8):
            await Collector(self._lake(_OLD)).collect()

    def _lake(self, settings: PipelineSettings) -> Lake:
        cluster = self.cluster
        tiles = LocalTiles(cluster.objects, cluster.runtime)
        return Lake(cluster.store, self.catalog, cluster.objects, tiles, cluster.runtime, settings)


@asynccontextmanager
async def lake_world(bucket: ObjectStore, seed: int = 1) -> AsyncIterator[LakeWorld]:
    """On the embedded catalog."""
    runtime = Runtime(system().clock, random.Random(seed))
    store = MemoryStore(runtime)
    catalog = PyIcebergTables(store, bucket.url, runtime)
    cluster = BrokerWorld(runtime, store, bucket, catalog)
    try:
        async with cluster.brokers(1) as [streams]:
            yield LakeWorld(cluster, catalog, streams)
    finally:
        await catalog.close()


@asynccontextmanager
async def external_lake_world(
    place: Place, store: Store | None = None, catalog: ExternalTables | None = None
) -> AsyncIterator[LakeWorld]:
    """On an external catalog, whose bucket others may use too. `store`: a cluster that was there before."""
    runtime = system()
    store = MemoryStore(runtime) if store is None else store
    bucket = objects.open(place.bucket_url)
    catalog = place.tables(store, runtime) if catalog is None else catalog
    cluster = BrokerWorld(runtime, store, bucket, catalog.broker_views())  # type: ignore[arg-type]
    try:
        async with cluster.brokers(1) as [streams]:
            yield LakeWorld(cluster, catalog, streams)
    finally:
        await catalog.close()
