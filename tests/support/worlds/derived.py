"""A lake with tables that are derived from those of streams, read as an engine reads them."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from pyiceberg.table import StaticTable

from lakestream import objects
from lakestream.catalog.derived.port import DerivedTables, DerivedView
from lakestream.frontier.derived.deriving import Derived, Deriver
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.tiles.local import LocalTiles
from lakestream.frontier.settings import PipelineSettings
from lakestream.frontier.upkeep.maintenance import Maintained, Maintenance
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.model import StreamPartition
from support.clients.batches import keyed
from support.worlds.lake import LakeWorld, lake_world
from support.worlds.memory import Fuse, Fused

SETTINGS = PipelineSettings(small_file_bytes=1 << 20, min_merge_files=2)


@dataclass
class DerivedWorld:
    house: LakeWorld

    async def topic(self, name: str = "orders", partitions: int = 2, **configs: str) -> Topic:
        given = {name.replace("__", "."): value for name, value in configs.items()}
        return await self.house.streams.create_topic(name, partitions, given)

    async def configure(self, topic: Topic, **configs: str) -> Topic:
        changed = {name.replace("__", "."): value for name, value in configs.items()}
        return await self.topics().alter(topic.name, lambda present: {**present, **changed})

    async def put(self, topic: Topic, partition: int, *pairs: tuple[bytes | None, bytes | None]) -> None:
        await self.house.streams.append(StreamPartition(topic.topic_id, partition), keyed(*pairs))

    def lake(self, fuse: Fuse | None = None, **settings: int) -> Lake:
        """Of a fresh process."""
        cluster = self.house.cluster
        store: Any = Fused(cluster.store, fuse, "store") if fuse else cluster.store
        bucket: Any = Fused(cluster.objects, fuse, "objects") if fuse else cluster.objects
        tiles = LocalTiles(bucket, cluster.runtime)
        chosen = msgspec.structs.replace(SETTINGS, **settings)
        return Lake(store, self.house.catalog, bucket, tiles, cluster.runtime, chosen, None, self.tables)

    def deriver(self, fuse: Fuse | None = None, *, respect_leases: bool = False, **settings: int) -> Deriver:
        """A fresh process: it knows nothing of earlier ones."""
        lake = self.lake(fuse, **settings)
        tables: Any = Fused(self.tables, fuse, "derived") if fuse else self.tables
        name = f"deriver-{lake.runtime.new_id()}"
        return Deriver(lake, self.topics(), tables, name=name, respect_leases=respect_leases)

    @property
    def tables(self) -> DerivedTables:
        return self.house.catalog.derived  # type: ignore[union-attr, return-value]

    def topics(self) -> Topics:
        return Topics(self.house.cluster.store, self.house.cluster.runtime)

    async def derive(self, **settings: int) -> Derived:
        done = await self.deriver(**settings).run()
        for _, error in done.failures:
            raise error
        return done

    async def settle(self, **settings: int) -> None:
        """Until everything is in every table."""
        await self.house.tick()
        while (await self.derive(**settings)).more:
            pass

    async def maintain(self) -> Maintained:
        return await Maintenance(self.lake(), self.topics(), name="maintenance", respect_leases=False).run()

    async def view(self, kind: str = "latest") -> DerivedView | None:
        for row in await self.tables.every():
            if row.kind == kind:
                return await self.tables.load(row)
        return None

    async def rows(self, kind: str = "latest") -> list[dict[str, Any]]:
        """As PyIceberg reads the table."""
        found = await self.view(kind)
        assert found is not None
        table = StaticTable.from_metadata(found.view.metadata_location)
        return table.scan().to_arrow().to_pylist()  # type: ignore[no-any-return]

    async def latest(self) -> Mapping[bytes, bytes]:
        """Of a raw topic, key and value; no key stands twice."""
        rows = await self.rows()
        found = {row["_key"]: row["_value"] for row in rows}
        assert len(found) == len(rows), "a key stands twice"
        return found


@asynccontextmanager
async def derived_world(folder: Path, seed: int = 1) -> AsyncIterator[DerivedWorld]:
    async with lake_world(objects.open(f"file://{folder}/bucket"), seed) as house:
        yield DerivedWorld(house)
