"""A topic that goes on in a table that is there already: an engine's without rows, or one that a stream wrote."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from uuid import UUID

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.table.update import (
    AddSchemaUpdate,
    RemovePropertiesUpdate,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
)
from pyiceberg.types import BinaryType, LongType, NestedField, StringType
from support.worlds.lake import LakeWorld, lake_world

from lakestream import objects
from lakestream.catalog.engines.tables import NewTable
from lakestream.errors import InvalidSetting
from lakestream.metadata.names.rows import TableName
from lakestream.metadata.topics.list import Begun, Topic
from lakestream.table.schema import FRONTIER_PROPERTY, iceberg_schema
from lakestream.table.shape import RAW

COLUMNS = iceberg_schema(RAW)

ALIAS = {"lakestream.table.name": "sales.orders"}
NAME = TableName(("sales",), "orders")


async def rows(house: LakeWorld) -> list[tuple[int, int, bytes]]:
    """As an engine reads them."""
    table = StaticTable.from_metadata((await house.catalog.engines.load(NAME)).location)
    found = table.scan().to_arrow().to_pylist()
    return sorted((row["_stream_partition"], row["_offset"], row["_value"]) for row in found)


async def engine_table(house: LakeWorld, schema: Schema = COLUMNS, **properties: str) -> UUID:
    engines = house.catalog.engines
    await engines.commits.pointers.create_namespace(("sales",), {})
    return (await engines.create(NewTable(NAME, schema, None, None, None, properties))).table_id


def lakehouse(folder: Path, seed: int = 1) -> AbstractAsyncContextManager[LakeWorld]:
    return lake_world(objects.open(f"file://{folder}/bucket"), seed)


async def run(folder: Path, test: Callable[[LakeWorld], Awaitable[None]]) -> None:
    async with lakehouse(folder) as house:
        await test(house)


async def test_a_topic_fills_the_table_that_an_engine_made_for_it(tmp_path: Path) -> None:
    async def test(house: LakeWorld) -> None:
        table_id = await engine_table(house, **{"owner": "ann", "write.delete.mode": "merge-on-read"})
        before = await house.catalog.engines.load(NAME)
        topic = await house.streams.create_topic("orders", 2, ALIAS)
        assert topic.topic_id == table_id
        assert await house.produce(topic, 1, b"a", b"b") == 0
        assert not (await house.tick()).failures
        assert await rows(house) == [(1, 0, b"a"), (1, 1, b"b")]
        assert await house.consume(topic, 1) == [(0, b"a"), (1, b"b")]
        after = await house.catalog.engines.load(NAME)
        assert (after.metadata.table_uuid, after.metadata.location) == (table_id, before.metadata.location)
        assert after.metadata.properties["owner"] == "ann"
        assert after.metadata.properties["write.delete.mode"] == "copy-on-write", "what a stream sets holds"
        assert (await house.catalog.load(table_id)).frontier == (0, 2)

    await run(tmp_path, test)


async def test_the_stream_of_a_lost_cluster_goes_on_from_its_table(tmp_path: Path) -> None:
    async with lakehouse(tmp_path) as old:
        topic = await old.streams.create_topic("orders", 2, ALIAS)
        await old.produce(topic, 0, b"a", b"b")
        await old.produce(topic, 1, b"c")
        await old.tick()
        left = (await old.catalog.load(topic.topic_id)).metadata_location
    async with lakehouse(tmp_path, seed=2) as new:
        await new.catalog.commits.pointers.create_namespace(("sales",), {})
        await new.catalog.engines.register(NAME, left)
        again = await new.streams.create_topic("orders", 2, ALIAS)
        assert await new.consume(again, 0) == [(0, b"a"), (1, b"b")], "before any pipeline ran"
        assert await new.produce(again, 0, b"d") == 2
        assert await new.produce(again, 1, b"e") == 1
        assert await new.consume(again, 0) == [(0, b"a"), (1, b"b"), (2, b"d")]
        assert not (await new.tick()).failures
        assert await rows(new) == [(0, 0, b"a"), (0, 1, b"b"), (0, 2, b"d"), (1, 0, b"c"), (1, 1, b"e")]
        assert await new.consume(again, 1) == [(0, b"c"), (1, b"e")]


async def test_what_the_creation_left_undone_the_pipeline_does(tmp_path: Path) -> None:
    async def test(house: LakeWorld) -> None:
        table_id = await engine_table(house)
        topic = await house.streams.topics.create("orders", 1, ALIAS, begun=Begun(table_id, (0,)))
        await house.produce(topic, 0, b"a")
        assert not (await house.tick()).failures
        assert await rows(house) == [(0, 0, b"a")]

    await run(tmp_path, test)


async def test_a_table_that_changed_meanwhile_is_reported_and_nothing_is_lost(tmp_path: Path) -> None:
    async def test(house: LakeWorld) -> None:
        table_id = await engine_table(house)
        topic = await house.streams.topics.create("orders", 1, ALIAS, begun=Begun(table_id, (0,)))
        other = Schema(NestedField(1, "_value", BinaryType()), NestedField(2, "amount", LongType()), schema_id=7)
        changes = (AddSchemaUpdate(schema_=other), SetCurrentSchemaUpdate(schema_id=-1))
        await house.catalog.engines.commit(NAME, (), changes)
        await house.produce(topic, 0, b"a")
        [failure] = (await house.tick()).failures
        assert "its column amount is none that a stream fills" in str(failure.error)
        assert await house.consume(topic, 0) == [(0, b"a")]

    await run(tmp_path, test)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (Schema(NestedField(1, "amount", LongType())), "its column amount is none that a stream fills"),
        (
            Schema(NestedField(1, "_value", StringType())),
            "its column _value is string, and a stream writes binary",
        ),
    ],
)
async def test_columns_that_no_stream_fills_are_named(tmp_path: Path, schema: Schema, reason: str) -> None:
    async def test(house: LakeWorld) -> None:
        await engine_table(house, schema)
        with pytest.raises(InvalidSetting, match=reason):
            await house.streams.create_topic("orders", 1, ALIAS)
        assert await house.streams.topics.list() == []

    await run(tmp_path, test)


async def test_partitions_must_be_as_many_as_the_stream_had_and_rows_must_be_of_a_stream(tmp_path: Path) -> None:
    async with lakehouse(tmp_path) as old:
        topic = await old.streams.create_topic("orders", 2, ALIAS)
        await old.produce(topic, 0, b"a")
        await old.tick()
        left = (await old.catalog.load(topic.topic_id)).metadata_location
    async with lakehouse(tmp_path, seed=2) as new:
        await new.catalog.commits.pointers.create_namespace(("sales",), {})
        await new.catalog.engines.register(NAME, left)
        with pytest.raises(InvalidSetting, match="its stream has 2 partitions: create the topic with as many"):
            await new.streams.create_topic("orders", 3, ALIAS)
        for change, reason in (
            (SetPropertiesUpdate(updates={FRONTIER_PROPERTY: "0,0"}), "has offset 0, which the log has not given"),
            (RemovePropertiesUpdate(removals=[FRONTIER_PROPERTY]), "it has rows that no stream wrote"),
        ):
            await new.catalog.engines.commit(NAME, (), [change])
            with pytest.raises(InvalidSetting, match=reason):
                await new.streams.create_topic("orders", 2, ALIAS)
        assert await new.streams.topics.list() == []


async def test_no_topic_gets_the_id_of_one_that_was_deleted(tmp_path: Path) -> None:
    """Whatever is still under way against the dead one's log would meet the new one's."""

    async def test(house: LakeWorld) -> None:
        topic = await house.streams.create_topic("orders", 1, ALIAS)
        await house.produce(topic, 0, b"a")
        await house.tick()
        await house.streams.delete_topic(topic.topic_id)
        engines = house.catalog.engines
        kept = TableName(("sales",), f"orders__{topic.topic_id.hex[:8]}")
        location = (await engines.load(kept)).location
        await engines.drop(kept, purge=False)
        await engines.register(NAME, location)
        with pytest.raises(InvalidSetting, match="is or was the table of another topic of this cluster"):
            await house.streams.create_topic("orders", 1, ALIAS)

    await run(tmp_path, test)


async def test_of_two_topics_made_on_one_table_one_has_it(tmp_path: Path) -> None:
    async def test(house: LakeWorld) -> None:
        table_id = await engine_table(house)
        made = await asyncio.gather(
            *(house.streams.create_topic(name, 1, ALIAS) for name in ("a", "b")), return_exceptions=True
        )
        [topic] = [each for each in made if isinstance(each, Topic)]
        [error] = [each for each in made if isinstance(each, InvalidSetting)]
        assert topic.topic_id == table_id, error
        assert await house.produce(topic, 0, b"a") == 0
        await house.tick()
        assert await rows(house) == [(0, 0, b"a")]

    await run(tmp_path, test)


async def test_of_two_topics_of_one_name_made_on_one_table_one_is_there_whole(tmp_path: Path) -> None:
    async def test(house: LakeWorld) -> None:
        await engine_table(house)
        made = await asyncio.gather(
            *(house.streams.create_topic("a", 1, ALIAS) for _ in range(2)), return_exceptions=True
        )
        [topic] = [each for each in made if isinstance(each, Topic)]
        assert await house.produce(topic, 0, b"a") == 0
        await house.tick()
        assert await rows(house) == [(0, 0, b"a")]
        assert (await house.catalog.engines.load(NAME)).metadata.properties[FRONTIER_PROPERTY] == "1"

    await run(tmp_path, test)
