"""What engines do to the table of a stream, and what becomes of its topic: settings, rename, drop."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate
from pyiceberg.types import NestedField, StringType
from support.fakes.authorizers import DenyAll
from support.tables.streams import ORDERS, Streams

from lakestream.access import ANONYMOUS
from lakestream.catalog.engines.tables import NewTable
from lakestream.catalog.engines.transactions import TableChange
from lakestream.errors import (
    InvalidPartitions,
    InvalidSetting,
    NotAuthorized,
    RequestError,
    TableExists,
    TableRefused,
    UnknownTable,
)
from lakestream.metadata.log.partition import read_head
from lakestream.metadata.names.pointers import TableName
from lakestream.metadata.topics.list import Topic

SALES = TableName(("default",), "sales")


@pytest.fixture
async def streams(tmp_path: Path) -> AsyncIterator[Streams]:
    opened = Streams(tmp_path)
    await opened.create(lakestream_partitions="2", retention_ms="1000")
    yield opened
    await opened.close()


async def set_properties(streams: Streams, *removed: str, **given: str) -> None:
    said = {key.replace("_", "."): value for key, value in given.items()}
    updates = [SetPropertiesUpdate(updates=said), RemovePropertiesUpdate(removals=list(removed))]
    await streams.catalog.commit(ANONYMOUS, ORDERS, (), updates)


async def topic_of(streams: Streams, name: str = "orders") -> Topic:
    topic = await streams.topic(name)
    assert topic is not None
    return topic


async def test_properties_that_are_settings_are_the_topics(streams: Streams) -> None:
    before = await streams.metadata()
    await set_properties(streams, retention_ms="5000", cleanup_policy="compact,delete")
    assert (await topic_of(streams)).options.retention_ms == 5000
    assert await streams.metadata() == before, "the table stores none of them"
    await set_properties(streams, "retention.ms", note="mine", compression_type="lz4")
    assert (await topic_of(streams)).options.retention_ms == -1
    metadata = await streams.metadata()
    assert metadata.properties["note"] == "mine"
    assert "compression.type" not in metadata.properties
    told = await streams.catalog.told(await streams.tables.engines.load(ORDERS))
    assert (told["lakestream.stream"], told["lakestream.partitions"]) == ("true", "2")
    assert (told["compression.type"], told["cleanup.policy"]) == ("lz4", "compact,delete")


async def test_a_setting_that_cannot_be_changes_nothing(streams: Streams) -> None:
    for wrong in ({"retention_ms": "soon"}, {"lakestream_table_name": "x"}, {"lakestream_value_schema": "json"}):
        with pytest.raises(InvalidSetting):
            await set_properties(streams, note="mine", **wrong)
    with pytest.raises(InvalidPartitions):
        await set_properties(streams, lakestream_partitions="1")
    assert (await topic_of(streams)).options.retention_ms == 1000
    assert "note" not in (await streams.metadata()).properties


async def test_more_partitions(streams: Streams) -> None:
    await set_properties(streams, lakestream_partitions="5")
    topic = await topic_of(streams)
    assert topic.partitions == 5
    assert all([await read_head(streams.store, each) is not None for each in topic.each_partition()])
    await set_properties(streams, lakestream_partitions="5")


async def test_settings_in_a_commit_to_several_tables(streams: Streams) -> None:
    other = NewTable(SALES, Schema(NestedField(1, "s", StringType())), None, None, None, {})
    await streams.catalog.create(ANONYMOUS, other)
    said = SetPropertiesUpdate(updates={"retention.ms": "7", "note": "both"})
    changes = [TableChange(ORDERS, (), [said]), TableChange(SALES, (), [said])]
    await streams.catalog.commit_all(ANONYMOUS, changes)
    assert (await topic_of(streams)).options.retention_ms == 7
    assert (await streams.metadata(SALES)).properties == {"retention.ms": "7", "note": "both"}
    properties = (await streams.metadata()).properties
    assert (properties["note"], "retention.ms" in properties) == ("both", False)


async def test_who_may_not_alter_the_topic_sets_nothing(streams: Streams) -> None:
    denied = Streams(streams.folder, streams.store, streams.objects, streams.runtime, DenyAll())
    try:
        with pytest.raises(NotAuthorized):
            await set_properties(denied, retention_ms="5000")
        with pytest.raises(NotAuthorized):
            await denied.catalog.drop(ANONYMOUS, ORDERS, purge=True)
    finally:
        await denied.close()
    assert (await topic_of(streams)).options.retention_ms == 1000


async def test_rename(streams: Streams) -> None:
    await streams.catalog.create_namespace(ANONYMOUS, ("live",), {})
    to = TableName(("live",), "orders")
    await streams.catalog.rename(ANONYMOUS, ORDERS, to)
    topic = await topic_of(streams)
    assert topic.options.table_name == "live.orders"
    assert (await streams.tables.load(topic.topic_id)).table == "live.orders"
    with pytest.raises(UnknownTable):
        await streams.metadata()
    with pytest.raises(RequestError, match="lower case"):
        await streams.catalog.rename(ANONYMOUS, to, TableName(("live",), "Orders"))
    await streams.catalog.rename(ANONYMOUS, to, ORDERS)
    assert (await topic_of(streams)).options.table_name == ""
    await streams.create(SALES)
    with pytest.raises(TableExists):
        await streams.catalog.rename(ANONYMOUS, ORDERS, SALES)


async def test_drop_takes_the_topic_and_hides_the_subject(streams: Streams) -> None:
    topic = await topic_of(streams)
    await streams.catalog.drop(ANONYMOUS, ORDERS, purge=False)
    assert await streams.topic() is None
    assert await streams.versions() == []
    assert all([await read_head(streams.store, each) is None for each in topic.each_partition()])
    left = TableName(("default",), f"orders__{topic.topic_id.hex[:8]}")
    assert (await streams.metadata(left)).table_uuid == topic.topic_id
    assert await streams.topics.gone() == []
    made = await streams.create(schema=Schema(NestedField(1, "id", StringType())))
    assert made.table_id != topic.topic_id
    assert [each.version for each in await streams.versions()] == [2]


async def test_drop_with_purge_leaves_no_table(streams: Streams) -> None:
    location = (await streams.metadata()).location.removeprefix("file://")
    await streams.catalog.drop(ANONYMOUS, ORDERS, purge=True)
    assert await streams.catalog.tables(ANONYMOUS, ("default",)) == []
    assert [path for path in Path(location).rglob("*") if path.is_file()] == []


async def test_purge_respects_who_else_has_the_files(streams: Streams) -> None:
    await set_properties(streams, **{"gc.enabled": "false"})
    with pytest.raises(TableRefused, match=r"gc\.enabled"):
        await streams.catalog.drop(ANONYMOUS, ORDERS, purge=True)
    assert await streams.topic() is not None


async def test_a_topic_that_came_first_is_not_an_engines_to_drop(streams: Streams) -> None:
    topic = await streams.topics.create("clicks", 1, {})
    await streams.tables.create(topic.topic_id, "clicks", 1)
    clicks = TableName(("default",), "clicks")
    with pytest.raises(TableRefused, match="delete the topic clicks"):
        await streams.catalog.drop(ANONYMOUS, clicks, purge=False)
    with pytest.raises(TableRefused, match="delete the topic clicks"):
        await streams.catalog.rename(ANONYMOUS, clicks, SALES)
    said = SetPropertiesUpdate(updates={"lakestream.stream": "true", "retention.ms": "3"})
    await streams.catalog.commit(ANONYMOUS, clicks, (), [said])
    assert (await topic_of(streams, "clicks")).options.retention_ms == 3
    await streams.catalog.drop(ANONYMOUS, clicks, purge=False)
    assert await streams.topic("clicks") is None
