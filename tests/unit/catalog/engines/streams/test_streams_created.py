"""CREATE TABLE of a stream: what is made, what is refused, and what is left when it stops half-way."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from support.fakes.authorizers import OnlyTopics
from support.fakes.stopping import Stopping
from support.tables.streams import COLUMNS, ORDERS, STREAM, Streams

from lakestream.access import ANONYMOUS
from lakestream.catalog.engines.tables import NewTable
from lakestream.errors import (
    InvalidSchema,
    InvalidSetting,
    NotAuthorized,
    RegistryRefused,
    RequestError,
    TableExists,
    Unavailable,
    UnknownTable,
)
from lakestream.metadata.names.pointers import Pointer, TableName
from lakestream.metadata.topics.list import Begun
from lakestream.schemas.registry.model import Schema as RegistrySchema
from lakestream.schemas.registry.model import SchemaType, parse_subject
from lakestream.table.schema import shape_of
from lakestream.table.shape import SYSTEM_COLUMNS

DAYS = PartitionSpec(
    PartitionField(3, 1000, DayTransform(), "ts_day"), PartitionField(1, 1001, BucketTransform(8), "b")
)


@pytest.fixture
async def streams(tmp_path: Path) -> AsyncIterator[Streams]:
    opened = Streams(tmp_path)
    yield opened
    await opened.close()


async def test_topic_subject_and_table_are_made(streams: Streams) -> None:
    order = SortOrder(SortField(2, IdentityTransform()))
    current = await streams.create(
        spec=DAYS, order=order, lakestream_partitions="6", lakestream_key="id", retention_ms="60000", note="mine"
    )
    topic = await streams.topic()
    assert topic is not None
    assert (topic.partitions, topic.topic_id) == (6, current.table_id)
    assert (topic.options.retention_ms, topic.options.key, topic.options.value_format) == (60000, ("id",), "schema_id")
    [version] = await streams.versions()
    assert [each["name"] for each in json.loads(version.schema.text)["fields"]] == ["id", "item", "ts"]

    metadata = await streams.metadata()
    names = [field.name for field in metadata.schema().fields]
    assert names == ["id", "item", "ts", *(column.name for column in SYSTEM_COLUMNS)]
    shape = shape_of(metadata.properties)
    assert [each.schema_id for each in shape.schemas] == [version.id]
    view = await streams.tables.load(topic.topic_id)
    assert (view.shape, view.frontier) == (shape, (0,) * 6)
    assert [(str(field.transform), field.name) for field in metadata.spec().fields] == [
        ("day", "ts_day"),
        ("bucket[8]", "b"),
        ("identity", "_stream_partition"),
        ("truncate[1048576]", "_offset_window"),
    ]
    by_id = {field.field_id: field.name for field in metadata.schema().fields}
    assert [by_id[field.source_id] for field in metadata.spec().fields] == ["ts", "id", "_stream_partition", "_offset"]
    assert len({field.field_id for spec in metadata.partition_specs for field in spec.fields}) == 4
    assert [by_id[field.source_id] for field in metadata.sort_order().fields] == ["item"]
    assert metadata.properties["note"] == "mine"
    assert "retention.ms" not in metadata.properties


EVERY: dict[str, IcebergType] = {
    "b": BooleanType(),
    "i": IntegerType(),
    "l": LongType(),
    "f": FloatType(),
    "d": DoubleType(),
    "day": DateType(),
    "at": TimestampType(),
    "tz": TimestamptzType(),
    "s": StringType(),
    "bin": BinaryType(),
    "dec": DecimalType(38, 9),
    "list": ListType(50, ListType(51, StringType(), False), False),
    "map": MapType(52, StringType(), 53, DoubleType(), False),
    "struct": StructType(
        NestedField(54, "x", LongType()), NestedField(55, "in", StructType(NestedField(56, "y", DateType())))
    ),
}


async def test_every_type_that_a_stream_can_have(streams: Streams) -> None:
    schema = Schema(*(NestedField(n, name, kind) for n, (name, kind) in enumerate(EVERY.items(), 1)))
    metadata = (await streams.create(schema=schema)).metadata
    found = {field.name: field.field_type for field in metadata.schema().fields}
    for name, kind in EVERY.items():
        assert plain(found[name]) == plain(kind), name


def plain(kind: IcebergType) -> Any:
    dumped = kind.model_dump()

    def without_ids(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: without_ids(each) for key, each in value.items() if not key.endswith("id")}
        return [without_ids(each) for each in value] if isinstance(value, list | tuple) else value

    return without_ids(dumped)


@pytest.mark.parametrize(
    ("field", "why"),
    [
        (NestedField(1, "t", TimeType()), "use long"),
        (NestedField(1, "u", UUIDType()), "use string"),
        (NestedField(1, "f", FixedType(4)), "use binary"),
        (NestedField(1, "n", LongType(), required=True), "NOT NULL"),
        (NestedField(1, "_offset", LongType()), "the log's own"),
        (NestedField(1, "größe", LongType()), "letters, digits"),
        (NestedField(1, "m", MapType(2, LongType(), 3, LongType(), False)), "keys of a map are text"),
    ],
)
async def test_a_column_that_no_stream_has_is_refused(streams: Streams, field: NestedField, why: str) -> None:
    with pytest.raises(InvalidSchema, match=why):
        await streams.create(schema=Schema(field))
    assert await streams.topic() is None
    assert await streams.versions() == []


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"retention_ms": "soon"}, "whole number"),
        ({"lakestream_partitions": "many"}, "whole number"),
        ({"lakestream_partitions": "0"}, "partitions"),
        ({"lakestream_colour": "red"}, "lakestream.colour is nothing"),
        ({"lakestream_table_name": "other"}, "leave lakestream.table.name out"),
        ({"lakestream_value_format": "raw"}, "schema_id"),
        ({"lakestream_value_schema": "xml"}, "avro"),
        ({"lakestream_key": "id,no"}, "names no"),
        ({"lakestream_topic": "a b"}, "no topic name|not a topic name"),
        ({"format-version": "3"}, "format version 2"),
        ({"write.parquet.compression-codec": "lzo"}, "lzo"),
    ],
)
async def test_a_property_that_cannot_be_is_refused(streams: Streams, properties: dict[str, str], why: str) -> None:
    with pytest.raises(RequestError, match=why):
        await streams.create(**properties)
    assert await streams.topic() is None
    with pytest.raises(UnknownTable):
        await streams.metadata()


async def test_names(streams: Streams) -> None:
    await streams.catalog.create_namespace(ANONYMOUS, ("sales",), {})
    await streams.create(TableName(("sales",), "orders"))
    topic = await streams.topic("sales.orders")
    assert topic is not None
    assert topic.options.table_name == "sales.orders"
    await streams.create(TableName(("sales",), "returns"), lakestream_topic="Returns")
    assert (await streams.topic("Returns")) is not None
    with pytest.raises(RequestError, match="lower case"):
        await streams.create(TableName(("sales",), "Orders"))
    await streams.topics.create("taken", 1, {})
    with pytest.raises(TableExists, match="Table already exists"):
        await streams.create(TableName(("default",), "taken"))
    with pytest.raises(TableExists, match="name another topic"):
        await streams.create(TableName(("sales",), "free"), lakestream_topic="taken")
    plain = NewTable(TableName(("sales",), "plain"), COLUMNS, None, None, None, {})
    await streams.catalog.create(ANONYMOUS, plain)
    with pytest.raises(TableExists):
        await streams.create(TableName(("sales",), "plain"))


async def test_a_namespace_may_say_it_for_its_tables(streams: Streams) -> None:
    space = {"lakestream.stream": "true", "lakestream.partitions": "3", "retention.ms": "9", "owner": "me"}
    await streams.catalog.create_namespace(ANONYMOUS, ("live",), space)
    made = NewTable(TableName(("live",), "a"), COLUMNS, None, None, None, {"retention.ms": "10"})
    await streams.catalog.create(ANONYMOUS, made)
    topic = await streams.topic("live.a")
    assert topic is not None
    assert (topic.partitions, topic.options.retention_ms) == (3, 10)
    plain = NewTable(TableName(("live",), "b"), COLUMNS, None, None, None, {"lakestream.stream": "false"})
    await streams.catalog.create(ANONYMOUS, plain)
    assert await streams.topic("live.b") is None


async def test_a_subject_with_other_versions_is_not_overruled(streams: Streams) -> None:
    text = '{"type":"record","name":"o","fields":[{"name":"id","type":"string"}]}'
    await streams.registry.register(ANONYMOUS, parse_subject("orders-value"), RegistrySchema(SchemaType.AVRO, text))
    with pytest.raises(RegistryRefused, match="delete the subject"):
        await streams.create()
    assert await streams.topic() is None
    await streams.create(lakestream_value_subject="other")
    assert len(await streams.versions("other")) == 1


async def test_who_may_not_create_the_topic_makes_nothing(tmp_path: Path) -> None:
    streams = Streams(tmp_path, authorizer=OnlyTopics("else"))
    try:
        with pytest.raises(NotAuthorized):
            await streams.create()
        assert await streams.topic() is None
    finally:
        await streams.close()


async def test_two_at_once_make_one(streams: Streams) -> None:
    other = streams.again()
    try:
        outcomes = await asyncio.gather(
            *(each.create(lakestream_partitions="2") for each in (streams, other) * 3), return_exceptions=True
        )
    finally:
        await other.close()
    made = [each for each in outcomes if not isinstance(each, BaseException)]
    assert len(made) == 1
    assert {type(each) for each in outcomes if isinstance(each, BaseException)} == {TableExists}
    topic = await streams.topic()
    assert topic is not None
    assert topic.topic_id == made[0].table_id == (await streams.metadata()).table_uuid
    assert len(await streams.versions()) == 1
    rows = [row async for row in streams.tables.commits.pointers.every()]
    assert [table_id for table_id, _ in rows] == [topic.topic_id]


@pytest.mark.parametrize("applies", [False, True])
async def test_whoever_stops_anywhere_leaves_what_anybody_finishes(tmp_path: Path, applies: bool) -> None:
    """Whichever call to the store is the last of a process: the next CREATE TABLE finds the stream, or makes it."""
    at = done = 0
    while not done:
        at += 1
        store = Stopping(at, applies=applies)
        streams = Streams(tmp_path / str(at), store)
        try:
            await streams.create(lakestream_partitions="2")
            done = at
        except Unavailable:
            pass
        store.counting = False
        after = streams.again()
        listed = await after.topic()
        try:
            current = await after.create(lakestream_partitions="2")
            assert listed is None, "a topic that is listed has its table"
        except TableExists:
            assert listed is not None
            current = await after.tables.engines.load(ORDERS)
        topic = await after.topic()
        assert topic is not None
        assert (topic.topic_id, topic.partitions) == (current.table_id, 2)
        view = await after.tables.load(topic.topic_id)
        assert [column.name for column in view.shape.value_columns] == ["id", "item", "ts"]
        assert [each.id for each in await after.versions()] == [view.shape.schemas[0].schema_id]
        await after.close()
        await streams.close()
    assert at > 20


async def test_a_name_that_is_taken_in_the_last_moment(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    creating = streams.topics.create

    async def with_another(name: str, partitions: int, configs: dict[str, str], *, begun: Begun | None = None) -> Any:
        topic = await creating(name, partitions, configs, begun=begun)
        other = streams.runtime.new_id()
        await streams.tables.commits.pointers.add(other, Pointer("elsewhere"))
        await streams.tables.commits.pointers.bind(other, ORDERS, make_namespace=True)
        return topic

    monkeypatch.setattr(streams.topics, "create", with_another)
    with pytest.raises(TableExists, match=r"its table is default\.orders_"):
        await streams.create()
    topic = await streams.topic()
    assert topic is not None
    assert (await streams.tables.load(topic.topic_id)).table == f"default.orders_{topic.topic_id.hex[:8]}"


async def test_a_place_of_the_engines_choice(streams: Streams) -> None:
    place = f"{streams.tables.engines.bucket_url}/warehouse/default/orders-1"
    metadata = (await streams.create(location=place)).metadata
    assert (metadata.location, metadata.properties["write.metadata.path"]) == (place, f"{place}/_iceberg")
    with pytest.raises(RequestError):
        await streams.create(TableName(("default",), "b"), location=place)
    with pytest.raises(RequestError, match="leave LOCATION out"):
        await streams.create(TableName(("default",), "c"), location="file:///elsewhere")
    assert await streams.topic("b") is None


async def test_stage_changes_nothing(streams: Streams) -> None:
    await streams.create(TableName(("default",), "first"))
    asked = NewTable(ORDERS, COLUMNS, DAYS, None, None, STREAM)
    staged = await streams.catalog.stage(ANONYMOUS, asked)
    assert [field.name for field in staged.schema().fields] == ["id", "item", "ts"]
    assert await streams.topic() is None
    assert await streams.versions() == []
    with pytest.raises(InvalidSetting):
        await streams.catalog.stage(
            ANONYMOUS, NewTable(ORDERS, COLUMNS, None, None, None, STREAM | {"lakestream.x": ""})
        )
