"""Which columns a schema's values become, and how a table's columns follow its schemas."""

import json
from typing import Any

import msgspec
import pytest

from lakestream.errors import InvalidSchema
from lakestream.schemas.avro import parse_avro
from lakestream.schemas.codecs.avro.codec import CODEC
from lakestream.schemas.mapping import MAX_COLUMNS, RESERVED_NAMES
from lakestream.schemas.mapping.avro import columns_of
from lakestream.schemas.shapes import MAX_SCHEMA_BYTES, with_schema
from lakestream.table.parquet.arrow import arrow_schema
from lakestream.table.schema import iceberg_schema
from lakestream.table.shape import (
    KEY_COLUMN,
    RAW,
    SYSTEM_COLUMNS,
    SYSTEM_NAMES,
    TableColumn,
    TableShape,
    ValueSchema,
    parse_shape,
    shape_text,
)

EMPTY = msgspec.structs.replace(RAW, codec=CODEC)


def record(*fields: tuple[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": each, "type": kind} for each, kind in fields]}


def shaped(*schemas: Any, shape: TableShape = EMPTY) -> TableShape:
    for number, schema in enumerate(schemas, 1):
        shape = with_schema(shape, ValueSchema(number, json.dumps(schema)))
    return shape


def told(column: TableColumn) -> str:
    below = ", ".join(f"{each.name} {told(each)}" for each in column.below)
    digits = f"({column.precision},{column.scale})" if column.kind == "decimal" else ""
    return f"{column.kind}{digits}{f'<{below}>' if below else ''}{f' {column.content}' if column.content else ''}"


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        ("boolean", "boolean"),
        ("int", "int"),
        ("long", "long"),
        ("float", "float"),
        ("double", "double"),
        ("bytes", "binary"),
        ("string", "string"),
        ({"type": "fixed", "name": "F", "size": 3}, "binary"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "string enum"),
        ({"type": "int", "logicalType": "date"}, "date"),
        ({"type": "int", "logicalType": "time-millis"}, "long"),
        ({"type": "long", "logicalType": "time-micros"}, "long"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "timestamptz"),
        ({"type": "long", "logicalType": "timestamp-micros"}, "timestamptz"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "long"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, "timestamp"),
        ({"type": "string", "logicalType": "uuid"}, "string uuid"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "decimal(9,2)"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 39, "scale": 2}, "binary"),
        ({"type": "string", "logicalType": "decimal", "precision": 9}, "string"),
        (["null", "int"], "int"),
        (["int"], "int"),
        (["null"], "string"),
        (["int", "string", "null"], "struct<int int, string string>"),
        ({"type": "array", "items": ["null", "int"]}, "list<element int>"),
        ({"type": "map", "values": "long"}, "map<key string, value long>"),
        (record(name="S"), "string json"),
        ({"type": "array", "items": record(("x", "int"), name="S")}, "list<element struct<x int>>"),
    ],
)
def test_each_type_has_its_column(schema: Any, column: str) -> None:
    shape = shaped(record(("f", schema)))
    [found] = shape.value_columns
    assert (found.name, told(found)) == ("f", column)
    assert iceberg_schema(shape).find_field("f").field_type is not None
    assert arrow_schema(shape).field("f").nullable


def test_a_value_that_is_no_record_is_one_column() -> None:
    [found] = shaped("string").value_columns
    assert (found.name, told(found)) == ("value", "string")


def test_value_columns_come_first_and_the_log_keeps_its_own() -> None:
    shape = shaped(record(("a", "int"), ("b", {"type": "map", "values": "int"})))
    assert shape.columns[-len(SYSTEM_COLUMNS) :] == SYSTEM_COLUMNS
    assert shape.names[:2] == ("a", "b")
    ids = [100, 103, 101, 102]
    assert [column.field_id for column in (*shape.columns[:2], *shape.columns[1].below)] == ids
    assert parse_shape(shape_text(shape)) == shape


def test_names_that_are_taken_are_others() -> None:
    """Iceberg's, the log's, and those that differ in case alone."""
    shape = shaped(
        record(("_offset", "int"), ("_partition", "int"), ("id", "int"), ("ID", "int"), ("value_offset", "int"))
    )
    names = [column.name for column in shape.value_columns]
    assert names == ["value_offset", "value_partition", "id", "ID_2", "value_offset_2"]
    assert len({name.lower() for name in shape.names}) == len(shape.names)
    assert not {*names} & {*RESERVED_NAMES}
    assert {*SYSTEM_NAMES} - {KEY_COLUMN} <= {*shape.names}


def test_evolution_keeps_ids_and_widens() -> None:
    first = record(("id", "int"), ("who", record(("name", "string"), name="W")))
    second = record(
        ("who", ["null", record(("age", "int"), ("name", "string"), name="W")]), ("id", "long"), ("new", "double")
    )
    before, after = shaped(first), shaped(first, second)
    ids = {column.name: column.field_id for column in after.value_columns}
    assert {column.name: column.field_id for column in before.value_columns}.items() <= ids.items()
    assert [told(column) for column in after.value_columns] == ["long", "struct<name string, age int>", "double"]
    assert len(set(ids.values())) == 3
    assert shaped(second, first).schemas[1].trouble == ""


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("int", "string"),
        ("long", "double"),
        ("string", {"type": "enum", "name": "E", "symbols": ["A"]}),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "bytes"),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "string"}),
    ],
)
def test_a_schema_that_does_not_fit_is_known_with_the_reason(first: Any, second: Any) -> None:
    shape = shaped(record(("f", first)), record(("f", second)))
    assert shape.columns == shaped(record(("f", first))).columns
    assert "f" in shape.schemas[1].trouble
    assert shape.schemas[1].text == ""


def test_ids_that_an_engine_took_are_left_alone() -> None:
    shape = with_schema(EMPTY, ValueSchema(1, json.dumps(record(("a", "int")))), last_id=250)
    assert [column.field_id for column in shape.value_columns] == [251]


def test_too_much_is_refused() -> None:
    def nested(levels: int) -> Any:
        kind: Any = "int"
        for level in range(levels):
            kind = record(("a", kind), ("b", kind if level == 0 else f"R{level - 1}"), name=f"R{level}")
        return kind

    with pytest.raises(InvalidSchema, match=str(MAX_COLUMNS)):
        columns_of(parse_avro(json.dumps(nested(12))))
    large = record(("a", {"type": "enum", "name": "E", "symbols": [f"S{n}" for n in range(60_000)]}))
    assert len(json.dumps(large)) > MAX_SCHEMA_BYTES
    assert "bytes" in shaped(large).schemas[0].trouble


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "7",
        "[]",
        '{"type": "nothing"}',
        '{"type": "record", "name": "R"}',
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]}',
        '{"type": "record", "name": "R", "fields": [{"name": "a b", "type": "int"}]}',
        '["int", "int"]',
        '["int", ["null"]]',
        '{"type": "fixed", "name": "F", "size": -1}',
        '{"type": "enum", "name": "E", "symbols": ["A", "A"]}',
        '{"type": "array"}',
        "[" * 5000 + "]" * 5000,
        '{"type":' * 500 + '"int"' + "}" * 500,
    ],
)
def test_what_is_no_schema_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(InvalidSchema):
        parse_avro(text)


def test_references_and_namespaces() -> None:
    other = record(("x", "int"), name="a.b.Other")
    schema = parse_avro(
        json.dumps(
            {
                "type": "record",
                "name": "Main",
                "namespace": "a.b",
                "fields": [
                    {"name": "one", "type": "Other"},
                    {"name": "two", "type": {"type": "array", "items": "a.b.Other"}},
                    {"name": "when", "type": "long", "logicalType": "timestamp-millis"},
                ],
            }
        ),
        {"other": json.dumps(other)},
    )
    assert [told(column) for column in columns_of(schema)] == [
        "struct<x int>",
        "list<element struct<x int>>",
        "timestamptz",
    ]
