"""An engine's catalog without a network, which makes streams: their tables, topics and subjects."""

import random
from dataclasses import dataclass, field
from pathlib import Path

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

from lakestream.access import ALLOW_ALL, ANONYMOUS, Authorizer
from lakestream.catalog.embedded.tables import PyIcebergTables
from lakestream.catalog.engines.catalog import EngineCatalog
from lakestream.catalog.engines.tables import NewTable
from lakestream.catalog.staging import Current
from lakestream.metadata.names.pointers import TableName
from lakestream.metadata.store import Store
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.objects import ObjectStore
from lakestream.objects.memory import MemoryObjects
from lakestream.runtime import Runtime, system
from lakestream.schemas.registry.model import Registered, parse_subject
from lakestream.schemas.registry.registry import SchemaRegistry

ORDERS = TableName(("default",), "orders")
COLUMNS = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "item", StringType()),
    NestedField(3, "ts", TimestamptzType()),
)
STREAM = {"lakestream.stream": "true"}


def _runtime() -> Runtime:
    return Runtime(system().clock, random.Random(5))


@dataclass
class Streams:
    """Closed by its owner."""

    folder: Path
    store: Store = field(default_factory=lambda: MemoryStore(_runtime()))
    objects: ObjectStore = field(default_factory=lambda: MemoryObjects(system().clock))
    runtime: Runtime = field(default_factory=_runtime)
    authorizer: Authorizer = ALLOW_ALL

    def __post_init__(self) -> None:
        self.tables = PyIcebergTables(self.store, f"file://{self.folder}/bucket", self.runtime)
        self.topics = Topics(self.store, self.runtime)
        self.registry = SchemaRegistry(self.store, self.objects, self.runtime, self.authorizer)
        self.catalog = EngineCatalog(self.tables.engines, self.topics, self.authorizer, self.registry)

    async def close(self) -> None:
        await self.tables.close()

    def again(self, store: Store | None = None) -> "Streams":
        """Another process on the same stores."""
        return Streams(self.folder, store or self.store, self.objects, self.runtime, self.authorizer)

    async def create(
        self,
        name: TableName = ORDERS,
        schema: Schema = COLUMNS,
        spec: PartitionSpec | None = None,
        order: SortOrder | None = None,
        location: str | None = None,
        **properties: str,
    ) -> Current:
        """As a stream. Underscores in the names of properties stand for dots."""
        said = {key.replace("_", "."): value for key, value in properties.items()}
        return await self.catalog.create(ANONYMOUS, NewTable(name, schema, spec, order, location, STREAM | said))

    async def metadata(self, name: TableName = ORDERS) -> TableMetadata:
        return (await self.tables.engines.load(name)).metadata

    async def topic(self, name: str = "orders") -> Topic | None:
        return (await Topics(self.store, self.runtime).by_names([name])).get(name)

    async def versions(self, subject: str = "orders-value") -> list[Registered]:
        """All that are not deleted, in order."""
        found = await self.registry.every(ANONYMOUS, None, subject, deleted=False, latest=False)
        return [each for each in found if each.subject == parse_subject(subject)]
