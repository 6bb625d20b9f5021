"""ALTER, RENAME and DROP of a stream's table that stop at any call to the store: the same statement again ends it."""

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.update import AddSchemaUpdate, AssertCurrentSchemaId, SetCurrentSchemaUpdate, SetPropertiesUpdate
from pyiceberg.types import NestedField, StringType
from support.fakes.stopping import Stopping
from support.tables.streams import ORDERS, Streams

from lakestream.access import ANONYMOUS
from lakestream.errors import Unavailable, UnknownTable
from lakestream.metadata.log.partition import read_head
from lakestream.metadata.names.pointers import TableName
from lakestream.schemas.codecs import install

Statement = Callable[[Streams], Awaitable[None]]
SALES = TableName(("default",), "sales")
BOTH = pytest.mark.parametrize("applies", [False, True])


async def stopped_everywhere(
    folder: Path, applies: bool, statement: Statement, check: Callable[[Streams], Awaitable[None]]
) -> None:
    """A process that dies in the statement, at every call in turn; then another one runs it again."""
    install()
    at = done = 0
    while not done:
        at += 1
        store = Stopping(at, applies=applies, counting=False)
        streams = Streams(folder / str(at), store)
        await streams.create(lakestream_partitions="2", lakestream_key="id")
        store.counting = True
        try:
            await statement(streams)
            done = at
        except Unavailable:
            pass
        store.counting = False
        after = streams.again()
        await statement(after)
        await check(after)
        await after.close()
        await streams.close()
    assert at > 5


Fields = list[NestedField]


async def alter(streams: Streams, change: Callable[[Fields, int], Fields]) -> None:
    """As engines do, which load the table before."""
    metadata = await streams.metadata()
    fields = change(list(metadata.schema().fields), metadata.last_column_id + 1)
    if fields == list(metadata.schema().fields):
        return
    updates: list[Any] = [
        AddSchemaUpdate.model_validate({"schema": Schema(*fields, schema_id=99)}),
        SetCurrentSchemaUpdate.model_validate({"schema-id": -1}),
    ]
    held = AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id})
    await streams.catalog.commit(ANONYMOUS, ORDERS, (held,), updates)


def changed(column: str, **changes: Any) -> Callable[[Fields, int], Fields]:
    return lambda fields, _: [each.model_copy(update=changes) if each.name == column else each for each in fields]


def with_note(fields: Fields, free: int) -> Fields:
    there = any(field.name == "note" for field in fields)
    return fields if there else [*fields, NestedField(free, "note", StringType())]


def without_item(fields: Fields, _: int) -> Fields:
    """It stays in the table, behind the others of the value."""
    names = [field.name for field in fields]
    return [field for field in fields if field.name != "item"] if names.index("item") < 2 else fields


@BOTH
@pytest.mark.parametrize(
    ("change", "names"),
    [
        (changed("id", name="order_id"), ["order_id", "item", "ts"]),
        (with_note, ["id", "item", "ts", "note"]),
        (without_item, ["id", "ts"]),
    ],
    ids=["rename", "add", "drop"],
)
async def test_columns_are_altered_once(
    tmp_path: Path, applies: bool, change: Callable[[Fields, int], Fields], names: list[str]
) -> None:
    async def check(streams: Streams) -> None:
        versions = await streams.versions()
        assert [each.version for each in versions] == [1, 2]
        assert [field["name"] for field in json.loads(versions[-1].schema.text)["fields"]] == names
        topic = await streams.topic()
        assert topic is not None
        view = await streams.tables.load(topic.topic_id)
        assert [column.name for column in view.shape.value_columns][: len(names)] == names
        assert len(view.shape.value_columns) == max(3, len(names))
        assert [each.schema_id for each in view.shape.schemas] == [each.id for each in versions]
        assert view.shape.present(topic.options.key) == (names[0],)
        await alter(streams, changed(names[0], name="o"))
        topic = await streams.topic()
        assert topic is not None
        assert topic.options.key == ("o",), "the next rename takes the setting along"

    await stopped_everywhere(tmp_path, applies, lambda streams: alter(streams, change), check)


@BOTH
async def test_properties_are_set_in_the_end(tmp_path: Path, applies: bool) -> None:
    said = {"retention.ms": "77", "lakestream.partitions": "4", "note": "mine"}

    async def set_properties(streams: Streams) -> None:
        await streams.catalog.commit(ANONYMOUS, ORDERS, (), [SetPropertiesUpdate(updates=said)])

    async def check(streams: Streams) -> None:
        topic = await streams.topic()
        assert topic is not None
        assert (topic.options.retention_ms, topic.partitions) == (77, 4)
        assert (await streams.metadata()).properties["note"] == "mine"

    await stopped_everywhere(tmp_path, applies, set_properties, check)


@BOTH
async def test_table_and_setting_have_the_new_name(tmp_path: Path, applies: bool) -> None:
    async def rename(streams: Streams) -> None:
        with suppress(UnknownTable):
            await streams.catalog.rename(ANONYMOUS, ORDERS, SALES)

    async def check(streams: Streams) -> None:
        topic = await streams.topic()
        assert topic is not None
        assert (await streams.tables.load(topic.topic_id)).table == "default.sales"
        assert topic.options.table_name == "default.sales"

    await stopped_everywhere(tmp_path, applies, rename, check)


@BOTH
@pytest.mark.parametrize("purge", [False, True])
async def test_nothing_is_left_of_a_dropped_stream(tmp_path: Path, applies: bool, purge: bool) -> None:
    seen: list[Any] = []

    async def drop(streams: Streams) -> None:
        found = await streams.topic()
        if found is not None:
            seen.append(found)
        with suppress(UnknownTable):
            await streams.catalog.drop(ANONYMOUS, ORDERS, purge=purge)

    async def check(streams: Streams) -> None:
        topic = seen[-1]
        for gone in await streams.topics.gone():
            # A broker's part, if the table had its new name already.
            assert await streams.tables.detach(gone.topic_id)
            await streams.topics.drop_logs(gone)
            await streams.topics.finish_delete(gone)
        assert await streams.topic() is None
        assert await streams.versions() == []
        assert await streams.topics.gone() == []
        assert all([await read_head(streams.store, each) is None for each in topic.each_partition()])
        left = set(await streams.catalog.tables(ANONYMOUS, ("default",)))
        assert left <= {f"orders__{topic.topic_id.hex[:8]}"}, "what a purge left half-way is its owner's to drop"
        await streams.create(schema=Schema(NestedField(1, "id", StringType())))

    await stopped_everywhere(tmp_path, applies, drop, check)
