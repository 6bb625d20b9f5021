"""ALTER TABLE of a stream's columns: the next version of the subject and the table's shape follow; old records stay."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.update import AddSchemaUpdate, AssertCurrentSchemaId, SetCurrentSchemaUpdate, SetPropertiesUpdate
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)
from support.schemas.avro import framed
from support.schemas.avro import written as written_avro
from support.tables.streams import ORDERS, Streams

from lakestream.access import ANONYMOUS
from lakestream.errors import Conflict, InvalidSchema, RegistryRefused, RequestError, TableRefused
from lakestream.records import Binary
from lakestream.schemas.codecs import install
from lakestream.schemas.registry.model import Level, SchemaType, SubjectConfig, parse_subject
from lakestream.schemas.registry.model import Schema as RegistrySchema
from lakestream.table.parquet.arrow import canonical
from lakestream.table.parquet.codec import decoded, encoded
from lakestream.table.schema import shape_of
from lakestream.table.shape import SYSTEM_NAMES, TableShape

COLUMNS = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "count", IntegerType()),
    NestedField(3, "price", DecimalType(9, 2)),
    NestedField(
        4, "s", StructType(NestedField(5, "a", IntegerType()), NestedField(6, "l", ListType(7, StringType(), False)))
    ),
)
Change = Callable[[list[NestedField], int], list[NestedField]]


@pytest.fixture
async def streams(tmp_path: Path) -> AsyncIterator[Streams]:
    install()
    opened = Streams(tmp_path)
    await opened.create(schema=COLUMNS, lakestream_key="id")
    yield opened
    await opened.close()


async def alter(streams: Streams, change: Change, **properties: str) -> None:
    """As engines do: the whole new schema, and that the one before is the present one."""
    metadata = await streams.metadata()
    fields = change(list(metadata.schema().fields), metadata.last_column_id + 1)
    updates: list[Any] = [
        AddSchemaUpdate.model_validate({"schema": Schema(*fields, schema_id=99)}),
        SetCurrentSchemaUpdate.model_validate({"schema-id": -1}),
    ]
    if properties:
        updates.append(SetPropertiesUpdate(updates={key.replace("_", "."): value for key, value in properties.items()}))
    held = AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id})
    await streams.catalog.commit(ANONYMOUS, ORDERS, (held,), updates)


def adding(name: str, kind: IcebergType, at: int = 0, **more: Any) -> Change:
    return lambda fields, free: [*fields[:at], NestedField(free, name, kind, **more), *fields[at:]]


def changing(column: str, /, **changes: Any) -> Change:
    return lambda fields, _: [field.model_copy(update=changes) if field.name == column else field for field in fields]


def dropping(name: str) -> Change:
    return lambda fields, _: [field for field in fields if field.name != name]


async def fields_of(streams: Streams) -> dict[str, Any]:
    """Of the latest version."""
    return {field["name"]: field for field in json.loads((await streams.versions())[-1].schema.text)["fields"]}


async def shape(streams: Streams) -> TableShape:
    found = shape_of((await streams.metadata()).properties)
    topic = await streams.topic()
    assert topic is not None
    assert (await streams.tables.load(topic.topic_id)).shape == found
    return found


async def names(streams: Streams) -> list[str]:
    return [field.name for field in (await streams.metadata()).schema().fields if field.name not in SYSTEM_NAMES]


async def test_a_column_more_is_a_version_more(streams: Streams) -> None:
    await alter(streams, adding("note", StringType(), 1, doc="why"))
    assert [each.version for each in await streams.versions()] == [1, 2]
    assert list(await fields_of(streams)) == ["id", "note", "count", "price", "s"]
    assert await names(streams) == ["id", "note", "count", "price", "s"]
    assert (await streams.metadata()).schema().find_field("note").doc == "why"
    assert [each.schema_id for each in (await shape(streams)).schemas] == [each.id for each in await streams.versions()]


async def test_wider_types(streams: Streams) -> None:
    await alter(streams, changing("count", field_type=LongType()))
    await alter(streams, changing("price", field_type=DecimalType(12, 2)))
    found = await fields_of(streams)
    assert found["count"]["type"] == ["null", "long"]
    assert found["price"]["type"][1]["precision"] == 12
    kinds = {column.name: (column.kind, column.precision) for column in (await shape(streams)).value_columns}
    assert (kinds["count"], kinds["price"]) == (("long", 0), ("decimal", 12))


async def test_a_rename_keeps_the_field_id(streams: Streams) -> None:
    before = (await streams.metadata()).schema().find_field("id").field_id
    await alter(streams, changing("id", name="order_id"))
    assert (await streams.metadata()).schema().find_field("order_id").field_id == before
    assert (await fields_of(streams))["order_id"]["aliases"] == ["id"]
    topic = await streams.topic()
    assert topic is not None
    assert topic.options.key == ("order_id",), "the setting follows"
    await alter(streams, changing("order_id", name="id"))
    assert await names(streams) == ["id", "count", "price", "s"]
    assert next(column.former for column in (await shape(streams)).value_columns) == ("order_id",)


async def test_a_dropped_column_leaves_the_schema_and_stays_in_the_table(streams: Streams) -> None:
    await alter(streams, dropping("count"))
    assert list(await fields_of(streams)) == ["id", "price", "s"]
    assert await names(streams) == ["id", "price", "s", "count"]
    await alter(streams, adding("more", StringType()))
    assert list(await fields_of(streams)) == ["more", "id", "price", "s"], "it does not come back by itself"


async def test_another_order(streams: Streams) -> None:
    await alter(streams, lambda fields, _: [fields[2], fields[0], fields[1], *fields[3:]])
    assert list(await fields_of(streams)) == ["price", "id", "count", "s"]
    assert await names(streams) == ["price", "id", "count", "s"]


async def test_inside_of_structs(streams: Streams) -> None:
    def deeper(fields: list[NestedField], free: int) -> list[NestedField]:
        inner = fields[3].field_type
        assert isinstance(inner, StructType)
        a, texts = inner.fields
        wider = a.model_copy(update={"field_type": LongType()})
        struct = StructType(wider, texts, NestedField(free, "b", TimestamptzType()))
        return [*fields[:3], fields[3].model_copy(update={"field_type": struct}), *fields[4:]]

    await alter(streams, deeper)
    record = (await fields_of(streams))["s"]["type"][1]
    assert [field["name"] for field in record["fields"]] == ["a", "l", "b"]
    assert record["fields"][0]["type"] == ["null", "long"]
    [struct] = [column for column in (await shape(streams)).value_columns if column.name == "s"]
    assert [(column.name, column.kind) for column in struct.below] == [
        ("a", "long"),
        ("l", "list"),
        ("b", "timestamptz"),
    ]


REFUSED: list[tuple[Change, str]] = [
    (adding("n", LongType(), required=True), "NOT NULL"),
    (adding("Count", LongType()), "tells upper from lower|two columns"),
    (changing("id", required=True), "NOT NULL"),
    (changing("count", field_type=StringType()), "cannot change|cannot be changed|Cannot"),
    (changing("_offset", name="o"), "cannot be dropped, renamed"),
    (dropping("_key"), "cannot be dropped"),
    (
        changing("s", field_type=StructType(NestedField(105, "x", IntegerType()))),
        "keep name and place|others keep|cannot",
    ),
    (lambda fields, _: fields[4:], "needs a column|no column|lacks|columns"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
async def test_what_cannot_be_is_refused_before_anything_changes(streams: Streams, number: int) -> None:
    change, why = REFUSED[number]
    before = await streams.metadata()
    with pytest.raises((RequestError, InvalidSchema), match=why):
        await alter(streams, change)
    assert await streams.metadata() == before
    assert len(await streams.versions()) == 1


async def test_an_incompatible_version_is_refused(streams: Streams) -> None:
    subject = parse_subject("orders-value")
    await streams.registry.set_config(ANONYMOUS, subject, SubjectConfig(Level.FULL))
    before = await streams.metadata()
    with pytest.raises(RegistryRefused, match="would not get along with earlier ones"):
        await alter(streams, changing("count", field_type=LongType()), note="x")
    assert await streams.metadata() == before


async def test_a_name_of_older_records_is_not_given_again(streams: Streams) -> None:
    await alter(streams, changing("id", name="order_id"))
    with pytest.raises(InvalidSchema, match="older records"):
        await alter(streams, adding("id", StringType()))
    text = (await streams.versions())[-1].schema.text
    source = json.loads(text)
    source["fields"].append({"name": "id", "type": ["null", "long"], "default": None})
    await streams.registry.register(
        ANONYMOUS, parse_subject("orders-value"), RegistrySchema(SchemaType.AVRO, json.dumps(source))
    )
    with pytest.raises(TableRefused, match="one column"):
        await alter(streams, adding("more", StringType()))


async def test_versions_that_the_table_has_not_met_are_built_on(streams: Streams) -> None:
    source = json.loads((await streams.versions())[-1].schema.text)
    source["doc"] = "kept"
    source["fields"].append({"name": "by_registry", "type": ["null", "string"], "default": None})
    text = json.dumps(source)
    await streams.registry.register(ANONYMOUS, parse_subject("orders-value"), RegistrySchema(SchemaType.AVRO, text))
    await alter(streams, adding("by_engine", DoubleType(), 4))
    latest = json.loads((await streams.versions())[-1].schema.text)
    assert latest["doc"] == "kept"
    assert [field["name"] for field in latest["fields"]] == ["id", "count", "price", "s", "by_engine", "by_registry"]
    assert set(await names(streams)) == {"id", "count", "price", "s", "by_engine", "by_registry"}


async def test_a_table_that_grew_meanwhile_is_not_set_back(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    committing = streams.tables.engines.commit

    async def after_another(*args: Any, **more: Any) -> Any:
        monkeypatch.setattr(streams.tables.engines, "commit", committing)
        other = streams.again()
        await alter(other, adding("first", StringType()))
        await other.close()
        return await committing(*args, **more)

    monkeypatch.setattr(streams.tables.engines, "commit", after_another)
    with pytest.raises(Conflict):
        await alter(streams, adding("second", StringType()))
    # Its version was registered before, and the other has built on it.
    assert {"first", "second"} <= set(await names(streams))


async def test_old_and_new_records_come_back(streams: Streams) -> None:
    """Rows of every version, in files as they were written, give the producers' bytes by the newest shape."""
    written: list[tuple[pa.Table, list[bytes]]] = []

    async def write(value: dict[str, Any]) -> None:
        latest = (await streams.versions())[-1]
        values = [framed(latest.id, written_avro(json.loads(latest.schema.text), value))]
        found = decoded(await shape(streams), pa.array(values, pa.binary()))
        assert found is not None
        assert found.is_exact.all()
        columns = {"_schema_id": found.schema_ids, **found.columns}
        written.append((pa.table(dict(columns)), values))

    await write({"id": 1, "count": 2, "price": None, "s": {"a": 1, "l": ["x", None]}})
    await alter(streams, changing("id", name="order_id"))
    await alter(streams, changing("count", field_type=LongType()))
    await write({"order_id": 2, "count": 1 << 40, "price": None, "s": None})
    await alter(streams, adding("note", StringType()))
    await alter(streams, dropping("count"))
    await alter(streams, changing("order_id", name="number"))
    await write({"note": "n", "number": 3, "price": None, "s": None})
    now = await shape(streams)
    wanted = [column.name for column in now.value_columns]
    for table, values in written:
        rows = canonical(table, wanted, now)
        ids = np.array(table["_schema_id"].to_pylist(), np.int64)
        raw = Binary(np.zeros(len(ids) + 1, np.int32), np.empty(0, np.uint8), np.zeros(len(ids), np.uint8))
        again = encoded(now, {name: rows[name].chunk(0) for name in wanted}, ids, raw)
        assert again.data[: again.offsets[-1]].tobytes() == b"".join(values)


async def test_float_stays_float(streams: Streams) -> None:
    await alter(streams, adding("f", FloatType()))
    with pytest.raises(InvalidSchema, match="register the next version"):
        await alter(streams, changing("f", field_type=DoubleType()))
