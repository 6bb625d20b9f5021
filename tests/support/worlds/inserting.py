"""A topic that takes inserts, an engine that has written rows, and doors that make records of them."""

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakestream.catalog.engines.unplaced import Unplaced
from lakestream.errors import LakestreamError
from lakestream.frontier.moving.advance import ensure_table
from lakestream.frontier.moving.evolving import latest_schema
from lakestream.frontier.settings import FreshSettings
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.stream.inserting.inserter import Around, Inserter
from lakestream.table.parquet.unplaced import UnplacedFile, UnplacedReader
from support.worlds.fresh import make_door
from support.worlds.memory import Fuse, Fused, MemoryWorld, Row

FRESH = FreshSettings(wait_ms=2_000, max_bytes=1 << 20, tile_bytes=1 << 20, backoff_ms=0)


@dataclass
class InsertWorld:
    world: MemoryWorld
    topic: Topic
    location: str
    _numbers: Any = field(default_factory=lambda: count(1))

    async def written(self, *files: pa.Table) -> Unplaced:
        """What an engine has made for a commit, before it sends it."""
        snapshot_id = next(self._numbers)
        found = []
        for number, rows in enumerate(files):
            sink = io.BytesIO()
            pq.write_table(rows, sink, row_group_size=7)
            path = f"{self.location}/_data/engine-{snapshot_id}-{number}.parquet"
            await self.world.objects.put(self._key(path), [sink.getvalue()])
            found.append(UnplacedFile(path, rows.num_rows))
        manifest = f"{self.location}/_iceberg/engine-{snapshot_id}.avro"
        await self.world.objects.put(self._key(manifest), [b"a manifest"])
        made = (*(file.path for file in found), manifest)
        return Unplaced(self.topic.topic_id, snapshot_id, tuple(found), made)

    async def left(self, rows: Unplaced) -> list[str]:
        """Of the engine's files."""
        there = {info.key async for info in self.world.objects.list("")}
        return [path for path in rows.made if self._key(path) in there]

    def door(self, fuse: Fuse | None = None) -> Inserter:
        """A fresh process: it knows nothing of earlier ones."""
        world = self.world
        store: Any = Fused(world.store, fuse, "store") if fuse else world.store
        objects: Any = Fused(world.objects, fuse, "objects") if fuse else world.objects
        runner: Any = world.pipeline(fuse)[0]._lake.runner
        cuts = make_door(world, runner, FRESH, fuse)
        return Inserter(
            store,
            objects,
            Topics(store, world.runtime),
            UnplacedReader(objects),
            world.runtime,
            Around(cuts.cut, cuts._lake.catalog.named, partial(latest_schema, cuts._lake), max_batch_bytes=1 << 20),
        )

    async def send(self, door: Inserter, rows: Unplaced) -> LakestreamError | None:
        """As the catalog does it; how the engine is answered."""
        try:
            if not await door.is_taken(rows.topic_id, rows.snapshot_id):
                await door.take(rows)
        except LakestreamError as error:
            return error
        return None

    async def found(self) -> list[Row]:
        """After a drain: every row of the table."""
        await self.world.drain()
        return await self.world.rows()

    def _key(self, path: str) -> str:
        return path.removeprefix(self.world.objects.url + "/")


async def insert_world(partitions: int = 3, **configs: str) -> InsertWorld:
    world = MemoryWorld()
    topic = await world.create("orders", partitions, {"lakestream.table.inserts": "true"} | configs)
    lake = world.pipeline()[0]._lake
    await ensure_table(lake, Topics(world.store, world.runtime), topic)
    return InsertWorld(world, topic, (await lake.catalog.load(topic.topic_id)).location)


def keyless(*values: bytes) -> pa.Table:
    return pa.table({"_value": pa.array(values, pa.binary())})


def placed(partition: int, values: Sequence[bytes]) -> pa.Table:
    return pa.table({"_stream_partition": pa.array([partition] * len(values), pa.int32()), "_value": list(values)})
