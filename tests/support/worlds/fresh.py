"""A topic, its producer, and the door that brings its table up to date, in made-up time."""

import asyncio
import io
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec
import pyarrow.parquet as pq
from simulator.loop import SimulatedLoop

from lakestream.errors import Unavailable
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.fresh import Freshener, Freshness
from lakestream.frontier.moving.tiles.local import LocalTiles
from lakestream.frontier.moving.tiles.tile import Tile, TileOutcome
from lakestream.frontier.settings import FreshSettings
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.model import DataFile, WrittenFile
from lakestream.table.parquet.metrics import file_metrics
from lakestream.table.shape import RAW
from support.worlds.memory import SETTINGS, Fuse, Fused, MemoryWorld, Producer

FRESH = FreshSettings(wait_ms=2_000, max_bytes=1 << 20, tile_bytes=1 << 20, backoff_ms=400)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    loop = SimulatedLoop()
    try:
        loop.run_until_complete(scenario())  # type: ignore[arg-type]
    finally:
        loop.close()


@dataclass
class Slow:
    """Tiles that take their time."""

    runner: LocalTiles
    seconds: float = 0.0
    error: str = ""
    runs: int = 0
    parallelism: int = 1

    async def run(self, tiles: Sequence[Tile]) -> list[TileOutcome]:
        self.runs += 1
        await asyncio.sleep(self.seconds)
        if self.error:
            raise Unavailable(self.error)
        return await self.runner.run(tiles)


@dataclass
class FreshWorld:
    """A topic, its producer and a door."""

    world: MemoryWorld
    topic: Topic
    producer: Producer
    door: Freshener
    runner: Slow
    acked_at: list[float] = field(default_factory=list)

    async def ack(self, *indexes: int) -> None:
        partitions = self.topic.each_partition()
        await self.producer.append({partitions[index]: [b"v"] for index in indexes or (0,)})
        self.acked_at.append(asyncio.get_running_loop().time())

    async def load(self) -> tuple[Freshness, int]:
        """What the engine is told, and how many rows it gets."""
        told = await self.door.freshen(self.topic.topic_id)
        view = await self.world.catalog_on(self.world.store).load(self.topic.topic_id)
        return told, sum(file.record_count for file in view.files)


def make_door(world: MemoryWorld, runner: Any, fresh: FreshSettings, fuse: Fuse | None = None) -> Freshener:
    store: Any = Fused(world.store, fuse, "store") if fuse else world.store
    objects: Any = Fused(world.objects, fuse, "objects") if fuse else world.objects
    catalog: Any = world.catalog_on(store)
    if fuse:
        catalog, runner = Fused(catalog, fuse, "catalog"), LocalTiles(objects, world.runtime)
    chain = msgspec.structs.replace(fresh.pipeline(), own_file_bytes=SETTINGS.own_file_bytes)
    lake = Lake(store, catalog, objects, runner, world.runtime, chain)
    return Freshener(lake, Topics(store, world.runtime), fresh)


async def fresh_world(
    freshness_ms: int | None = None, fresh: FreshSettings = FRESH, *, partitions: int = 3
) -> FreshWorld:
    world = MemoryWorld()
    options = {} if freshness_ms is None else {"lakestream.table.freshness.ms": str(freshness_ms)}
    topic = await Topics(world.store, world.runtime).create("orders", partitions, options)
    world.topics[topic.topic_id] = topic
    world.objects.partitions += topic.each_partition()  # type: ignore[attr-defined]
    runner = Slow(LocalTiles(world.objects, world.runtime))
    return FreshWorld(world, topic, Producer(world, "one"), make_door(world, runner, fresh), runner)


async def delete_one_row(world: MemoryWorld, topic: Topic, random: Random) -> list[tuple[int, int]]:
    """As an engine does it that copies on write: the file without the row takes the place of the file."""
    catalog = world.catalog_on(world.store)
    view = await catalog.load(topic.topic_id)
    if not view.files:
        return []
    taken = view.files[0]
    prefix = world.objects.url + "/"
    table = pq.read_table(io.BytesIO(await world.objects.get(taken.path.removeprefix(prefix))), use_threads=False)
    lost = random.randrange(table.num_rows)
    kept = table.filter([number != lost for number in range(table.num_rows)])
    add = [await store_rows(world, taken, kept, world.runtime.new_id().hex)] if kept.num_rows else []
    await catalog.commit(view, add=add, remove=[taken], frontier=view.frontier)
    return [(table["_stream_partition"][lost].as_py(), table["_offset"][lost].as_py())]


async def store_rows(world: MemoryWorld, taken: DataFile, rows: Any, name: str) -> WrittenFile:
    sink = io.BytesIO()
    pq.write_table(rows, sink)
    path = f"{taken.path.rsplit('/', 1)[0]}/engine-{name}.parquet"
    await world.objects.put(path.removeprefix(world.objects.url + "/"), [sink.getvalue()])
    partitions, offsets = rows["_stream_partition"].to_pylist(), rows["_offset"].to_pylist()
    size_bytes = len(sink.getvalue())
    metrics = file_metrics(pq.read_metadata(sink), RAW)
    places = (min(partitions), max(partitions), min(offsets), max(offsets))
    return WrittenFile(path, 0, size_bytes, rows.num_rows, *places, 0, metrics)
