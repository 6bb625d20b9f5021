"""Which rows a query sees: heads, extents and view put together, for those who may."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.fakes.authorizers import DenyAll, OnlyTopics
from support.tables.files import catalog_of

from lakestream.access import ALLOW_ALL, ANONYMOUS, Authorizer
from lakestream.catalog.embedded.tables import PyIcebergTables
from lakestream.errors import NotAuthorized, UnknownTable
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.stable import stable_end
from lakestream.frontier.moving.tiles.local import LocalTiles
from lakestream.frontier.settings import PipelineSettings
from lakestream.metadata.log.head import Head
from lakestream.metadata.names.rows import TableName
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.metadata.topics.list import Topics
from lakestream.objects.local.store import LocalObjects
from lakestream.query.looking import Tables
from lakestream.query.questions import NOW
from lakestream.runtime import system

ORDERS = TableName(("default",), "sales_orders")


class Place:
    """The topic `Sales.Orders` with its table, and `soon`, which has none yet."""

    def __init__(self, folder: Path) -> None:
        self.runtime = system()
        self.store = MemoryStore(self.runtime)
        self.objects = LocalObjects(str(folder / "bucket"))
        self.catalog = PyIcebergTables(self.store, self.objects.url, self.runtime)
        self.topics = Topics(self.store, self.runtime)

    def tables(self, authorizer: Authorizer) -> Tables:
        runner = LocalTiles(self.objects, self.runtime)
        lake = Lake(self.store, self.catalog, self.objects, runner, self.runtime, PipelineSettings())
        engines = catalog_of(self.catalog.engines, authorizer)
        return Tables(engines, lake, self.topics, authorizer, cut=None, io={}, key_tail_bytes=1 << 20)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(tmp_path)
    topic = await made.topics.create("Sales.Orders", 2, {})
    await made.catalog.create(topic.topic_id, topic.name, 2, table=ORDERS)
    await made.topics.create("soon", 1, {})
    yield made
    await made.catalog.close()


async def test_a_table_goes_by_its_name_and_its_topics(place: Place) -> None:
    tables = place.tables(ALLOW_ALL)
    for name in (ORDERS, TableName(("default",), "Sales.Orders")):
        found = await tables.find(ANONYMOUS, name)
        assert found.topic is not None
        assert found.topic.name == "Sales.Orders"
    soon = await tables.find(ANONYMOUS, TableName(("default",), "soon"))
    seen = await tables.at(ANONYMOUS, soon, NOW)
    assert seen.cited.offsets == (0,), "its table is made on the way"
    with pytest.raises(UnknownTable):
        await tables.find(ANONYMOUS, TableName(("default",), "nothing"))


async def test_who_may_not_read_learns_nothing(place: Place) -> None:
    tables = place.tables(DenyAll())
    told = set()
    for name in ("sales_orders", "Sales.Orders", "soon", "nothing"):
        with pytest.raises(NotAuthorized) as refused:
            await tables.find(ANONYMOUS, TableName(("default",), name))
        told.add(str(refused.value).replace(name, "…"))
    assert len(told) == 1
    allowed = place.tables(OnlyTopics("Sales.Orders"))
    assert (await allowed.find(ANONYMOUS, ORDERS)).topic is not None
    with pytest.raises(NotAuthorized):
        await allowed.find(ANONYMOUS, TableName(("default",), "soon"))


def test_nothing_of_an_open_transaction_is_seen() -> None:
    assert stable_end(Head(next_offset=9)) == 9
    assert stable_end(Head(next_offset=9, first_open=4)) == 4
