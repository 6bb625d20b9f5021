"""Clusters that share an external catalog and a bucket, and want the same table."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from lakestream.errors import StorageError
from lakestream.metadata.names.rows import TableName
from lakestream.metadata.topics.list import Topic
from lakestream.runtime import system
from lakestream.table.schema import CLUSTER_PROPERTY, iceberg_schema
from lakestream.table.shape import RAW
from support.servers.catalogs import Place
from support.worlds.lake import LakeWorld, external_lake_world

COLUMNS = iceberg_schema(RAW)

ALIAS = {"lakestream.table.name": "sales.orders"}
NAME = TableName(("sales",), "orders")
IDENTIFIER = ("sales", "orders")
KINDS = pytest.mark.parametrize("kind", ["made by an engine", "left by a stream"])


class Scene:
    """A place, what any engine sees of it, and clusters on it."""

    def __init__(self, place: Place, clusters: AsyncExitStack) -> None:
        self.place = place
        self.outsider: Catalog = place.outsider()
        self._clusters = clusters

    async def cluster(self) -> LakeWorld:
        return await self._clusters.enter_async_context(external_lake_world(self.place))

    def engine_table(self, schema: Schema = COLUMNS, **more: Any) -> Table:
        self.outsider.create_namespace_if_not_exists("sales")
        more = {"location": f"{self.place.bucket_url}/engine/{system().new_id()}", **more}
        return self.outsider.create_table(IDENTIFIER, schema, **more)

    def table(self) -> Table:
        return self.outsider.load_table(IDENTIFIER)

    def let_go(self) -> None:
        """What its owner has to do before another cluster may have the table."""
        with self.table().transaction() as change:
            change.remove_properties(CLUSTER_PROPERTY)

    def rows(self) -> list[tuple[int, int, bytes]]:
        """As an engine reads them: a row that is there twice is twice in the list."""
        found = self.table().scan().to_arrow().to_pylist()
        return sorted((row["_stream_partition"], row["_offset"], row["_value"]) for row in found)


Run = Callable[[Callable[[Scene], Awaitable[None]]], Awaitable[None]]


async def on(place: Place, test: Callable[[Scene], Awaitable[None]]) -> None:
    async with AsyncExitStack() as clusters:
        scene = Scene(place, clusters)
        try:
            await test(scene)
        finally:
            scene.outsider.close()


async def failure(house: LakeWorld) -> str:
    tick = await house.tick()
    assert tick.record_count == 0
    [failed] = tick.failures
    assert isinstance(failed.error, StorageError)
    return str(failed.error)


async def former(scene: Scene) -> tuple[LakeWorld, Topic]:
    """A cluster whose stream has three records in the table, and its topic."""
    house = await scene.cluster()
    topic = await house.streams.create_topic("orders", 2, ALIAS)
    await house.produce(topic, 0, b"a", b"b")
    await house.produce(topic, 1, b"c")
    assert (await house.tick()).record_count == 3
    return house, topic


OLD_ROWS = [(0, 0, b"a"), (0, 1, b"b"), (1, 0, b"c")]
