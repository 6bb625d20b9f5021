"""The last pass of a pipeline that stops: what was acked is in its table, or it is told what is not.

In this process, on threads of its caller: nothing waits for Spark to start, and its JVM may have got the signal to
stop as well.
"""

import asyncio
from dataclasses import dataclass

import msgspec

from lakestream.catalog.port import TableCatalog
from lakestream.errors import LakestreamError
from lakestream.frontier.lag import read_lag
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.tiles.local import RunBlocking, ThreadTiles
from lakestream.frontier.moving.worker import Worker
from lakestream.frontier.settings import FreshSettings, PipelineSettings
from lakestream.metadata.store import Store
from lakestream.metadata.topics.list import Topics
from lakestream.objects import ObjectStore
from lakestream.runtime import Runtime
from lakestream.schemas.source import NO_SCHEMAS, SchemaSource
from lakestream.wal import WalStores


@dataclass(frozen=True, slots=True)
class Drained:
    """`left`: how many records of each topic are not in its table. None: that cannot be told."""

    record_count: int
    left: dict[str, int | None]

    @property
    def summary(self) -> str:
        return ", ".join(
            f"{'some' if count is None else f'{count:,}'} of {topic}" for topic, count in self.left.items()
        )


async def drain(
    store: Store,
    catalog: TableCatalog,
    objects: ObjectStore,
    runtime: Runtime,
    settings: PipelineSettings,
    run_blocking: RunBlocking,
    disks: WalStores | None = None,
    schemas: SchemaSource = NO_SCHEMAS,
) -> Drained:
    """Ends within `settings.drain_ms` and a commit's time. Cut off at any point it leaves nothing half done. Leases are
    not waited for: the table's commit is the fence."""
    small = FreshSettings()
    tiles = ThreadTiles(run_blocking, runtime, parallelism=small.threads)
    limits = msgspec.structs.replace(
        settings, max_tick_bytes=small.max_bytes, min_tile_bytes=small.tile_bytes, target_tile_bytes=small.tile_bytes
    )
    lake = Lake(store, catalog, objects, tiles, runtime, limits, disks, schemas=schemas)
    topics = Topics(store, runtime)
    worker = Worker(lake, topics, name=f"drain-{runtime.new_id()}", respect_leases=False, keeps_intervals=False)
    moved = 0
    try:
        async with asyncio.timeout(settings.drain_ms / 1000):
            while (tick := await worker.tick()).topics:
                moved += tick.record_count
    except (TimeoutError, LakestreamError):
        # What is left is told below, whatever kept it.
        pass
    return Drained(moved, await _left(store, topics, runtime))


async def _left(store: Store, topics: Topics, runtime: Runtime) -> dict[str, int | None]:
    try:
        behind = await read_lag(store, topics, runtime.clock.now_ms())
    except LakestreamError:
        return {"all topics": None}
    return {lag.topic: lag.records for lag in behind if lag.records}
