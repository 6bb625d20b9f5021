"""JSON Schemas to columns: version 1, which no later release may change under a table."""

import json
from typing import Any

import msgspec
import pytest
from support.schemas.json import framed, shape_of
from support.schemas.values import Values, rows_of, values_of

from lakestream.errors import InvalidSchema
from lakestream.schemas.codecs import install
from lakestream.schemas.codecs.json.codec import CODEC, JsonCodec
from lakestream.schemas.json import parse_json_schema
from lakestream.schemas.mapping import RESERVED_NAMES
from lakestream.schemas.shapes import with_schema
from lakestream.table.shape import KIND_TYPED, RAW, TableColumn, ValueSchema, parse_shape, shape_text

install()


def told(column: TableColumn) -> Any:
    """A column as text, and what is below it."""
    name = f"{column.kind}:{column.content}" if column.content else column.kind
    if column.kind == "struct":
        return {each.name: told(each) for each in column.below}
    return (name, *map(told, column.below)) if column.below else name


def columns(schema: Any, references: dict[str, Any] | None = None) -> dict[str, Any]:
    texts = tuple((name, json.dumps(other)) for name, other in (references or {}).items())
    found = ValueSchema(1, json.dumps(schema), texts, format="JSON")
    shape = with_schema(msgspec.structs.replace(RAW, codec=CODEC), found)
    assert not shape.schemas[0].trouble
    assert shape.value_columns[-1].name == "_format"
    return {column.name: told(column) for column in shape.value_columns[:-1]}


def of(schema: Any) -> Any:
    return columns({"type": "object", "properties": {"x": schema}})["x"]


TEXT = {"type": "string"}
NUMBER = {"type": "integer"}


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        ({"type": "string"}, "string"),
        ({"type": "string", "format": "uuid"}, "string"),
        ({"type": "string", "format": "time"}, "string"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "date-time"}, "timestamptz"),
        ({"type": "integer"}, "long"),
        ({"type": "number"}, "double"),
        ({"type": ["integer", "number"]}, "double"),
        ({"type": "boolean"}, "boolean"),
        ({"type": ["null", "boolean"]}, "boolean"),
        ({"enum": ["a", "b", None]}, "string"),
        ({"enum": [1, 2]}, "long"),
        ({"enum": [1, "a"]}, "string:json"),
        ({"const": "a"}, "string"),
        ({"const": True}, "boolean"),
        ({"type": "null"}, "string:json"),
        ({}, "string:json"),
        (True, "string:json"),
        (False, "string:json"),
        ({"type": ["integer", "string"]}, "string:json"),
        ({"anyOf": [TEXT, {"type": "null"}]}, "string"),
        ({"oneOf": [{"type": "null"}, {"type": "array", "items": TEXT}]}, ("list", "string")),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "double"),
        ({"oneOf": [TEXT, {"type": "integer"}]}, "string:json"),
        ({"oneOf": [TEXT, {"type": "string", "maxLength": 5}]}, "string"),
        ({"type": "object", "properties": {"a": TEXT}, "anyOf": [{"required": ["a"]}]}, {"a": "string"}),
        ({"type": "object", "properties": {"a": TEXT}, "oneOf": [{"properties": {"b": TEXT}}]}, "string:json"),
        ({"allOf": [{"properties": {"a": TEXT}}, {"properties": {"b": NUMBER}}]}, {"a": "string", "b": "long"}),
        ({"type": "object", "properties": {"a": TEXT}, "allOf": [{"required": ["a"]}]}, {"a": "string"}),
        ({"allOf": [{"properties": {"a": TEXT}}, {"properties": {"a": NUMBER}}]}, {"a": "string:json"}),
        ({"allOf": [TEXT, NUMBER]}, "string:json"),
        ({"type": "array", "items": {"type": "array", "items": NUMBER}}, ("list", ("list", "long"))),
        ({"type": "array"}, "string:json"),
        ({"type": "array", "items": [TEXT, NUMBER]}, "string:json"),
        ({"type": "object", "additionalProperties": NUMBER}, ("map", "string", "long")),
        ({"type": "object", "additionalProperties": {}}, ("map", "string", "string:json")),
        ({"type": "object", "additionalProperties": True}, "string:json"),
        ({"type": "object", "additionalProperties": NUMBER, "patternProperties": {"^a": TEXT}}, "string:json"),
        ({"type": "object", "properties": {"a": TEXT}, "additionalProperties": NUMBER}, {"a": "string"}),
        ({"type": "object"}, "string:json"),
    ],
)
def test_a_field_is_a_column(schema: Any, column: Any) -> None:
    assert of(schema) == column


@pytest.mark.parametrize(
    "draft",
    [
        "http://json-schema.org/draft-03/schema#",
        "http://json-schema.org/draft-04/schema#",
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    ],
)
def test_drafts(draft: str) -> None:
    schema = {"$schema": draft, "type": "object", "properties": {"a": NUMBER, "b": {"type": "array", "items": TEXT}}}
    assert columns(schema) == {"a": "long", "b": ("list", "string")}


def test_references_are_followed() -> None:
    schema = {
        "type": "object",
        "properties": {"own": {"$ref": "#/$defs/line"}, "other": {"$ref": "other.json#/definitions/price"}},
        "$defs": {"line": {"type": "object", "properties": {"sku": TEXT, "price": {"$ref": "other.json"}}}},
    }
    other = {"definitions": {"price": {"type": "number"}}, "type": "object", "properties": {"a": NUMBER}}
    assert columns(schema, {"other.json": other}) == {
        "own": {"sku": "string", "price": {"a": "long"}},
        "other": "double",
    }


def test_what_refers_to_itself_is_text_and_comes_back() -> None:
    node = {"type": "object", "properties": {"v": NUMBER, "next": {"$ref": "#"}, "all": {"type": "array"}}}
    assert columns(node) == {"v": "long", "next": "string:json", "all": "string:json"}
    looped = {"$ref": "#/definitions/a", "definitions": {"a": {"allOf": [{"$ref": "#/definitions/a"}]}}}
    assert columns(looped) == {"value": "string:json"}
    shape = shape_of(node)
    values: Values = [framed('{"v":1,"next":{"v":2,"next":null},"all":[ 1 ,{}]}')]
    rows = rows_of(values, shape)
    assert rows["next"].to_pylist() == ['{"v":2,"next":null}']
    assert rows["_kind"].to_pylist() == [KIND_TYPED]
    assert values_of(rows, shape) == values


def test_deep_schemas_are_text_from_some_level_on() -> None:
    schema: Any = NUMBER
    for _ in range(40):
        schema = {"type": "object", "properties": {"a": schema}}
    found = columns(schema)
    levels = 0
    while isinstance(found, dict):
        found, levels = found["a"], levels + 1
    assert (found, levels) == ("string:json", 12)
    value: Any = 5
    for _ in range(40):
        value = {"a": value}
    values: Values = [framed(json.dumps(value))]
    assert rows_of(values, shape_of(schema))["_kind"].to_pylist() == [KIND_TYPED]


@pytest.mark.parametrize("schema", [{"type": "array", "items": NUMBER}, {"type": "number"}, {}, {"type": "object"}])
def test_what_is_no_object_with_fields_is_one_column(schema: Any) -> None:
    assert [*columns(schema)] == ["value"]
    shape = shape_of(schema)
    text = {"array": "[1, 2]", "number": "1.5", "object": '{"value" : {}}'}.get(schema.get("type", ""), "[ null ]")
    values: Values = [framed(text), framed("null")]
    rows = rows_of(values, shape)
    assert rows["_kind"].to_pylist() == [KIND_TYPED] * 2
    assert values_of(rows, shape) == values


def test_names_that_columns_cannot_have() -> None:
    names = ["_offset", "_format", "_value", "a b", "a_b", "A_B", "x.y", "é", "value", "1st", ""]
    schema = {"type": "object", "properties": dict.fromkeys(names, NUMBER)}
    shape = shape_of(schema)
    found = [column.name for column in shape.value_columns]
    assert found[-1] == "_format"
    assert len({name.lower() for name in found}) == len(found) == len(names)
    assert not set(found[:-1]) & RESERVED_NAMES
    assert parse_shape(shape_text(shape)) == shape
    values: Values = [framed(json.dumps({name: place for place, name in enumerate(names) if name}))]
    rows = rows_of(values, shape)
    assert [rows[name].to_pylist() for name in found[:-1]] == [[place] for place in range(len(names) - 1)]
    assert rows["_kind"].to_pylist() == [KIND_TYPED]
    assert values_of(rows, shape) == values


def test_columns_keep_their_ids_as_schemas_come() -> None:
    first = {"type": "object", "properties": {"a": NUMBER, "o": {"type": "object", "properties": {"x": TEXT}}}}
    second = {
        "type": "object",
        "properties": {
            "b": TEXT,
            "_format": TEXT,
            "o": {"type": "object", "properties": {"y": NUMBER, "x": TEXT}},
            "a": NUMBER,
        },
    }
    one, two = shape_of(first), shape_of(first, second)
    ids = {column.name: column.field_id for column in two.columns}
    assert ids["_format"] == one.field_id("_format")
    assert all(ids[column.name] == column.field_id for column in one.columns)
    assert len(set(ids.values())) == len(ids)
    assert min(ids["b"], ids["value_format"]) > max(column.field_id for column in one.columns)


def test_a_field_of_another_type_is_a_trouble_of_its_schema() -> None:
    shape = shape_of(
        {"type": "object", "properties": {"a": NUMBER}}, {"type": "object", "properties": {"a": {"type": "number"}}}
    )
    assert shape.schemas[1].trouble == "a is long in the table and double in the schema"
    value = b"\0\0\0\0\2" + b'{"a":1.5}'
    assert rows_of([value], shape)["_kind"].to_pylist() == [0]
    assert "a is long in the table" in JsonCodec().explain(value, shape)


@pytest.mark.parametrize(
    "text", ["", "5", '{"type":"nothing"}', '{"$ref":"elsewhere"}', '{"$schema":"http://example.com"}', "[" * 10_000]
)
def test_what_is_no_schema_is_a_trouble(text: str) -> None:
    with pytest.raises(InvalidSchema):
        parse_json_schema(text, {})
    shape = with_schema(msgspec.structs.replace(RAW, codec=CODEC), ValueSchema(1, text, format="JSON"))
    assert shape.schemas[0].trouble
    assert rows_of([framed("{}")], shape)["_kind"].to_pylist() == [0]


def test_schemas_of_too_many_fields_are_a_trouble() -> None:
    wide = {"type": "object", "properties": {f"c{number}": NUMBER for number in range(5000)}}
    with pytest.raises(InvalidSchema, match="more than 4000"):
        parse_json_schema(json.dumps(wide), {})
    many: Any = NUMBER
    for _ in range(6):
        many = {"type": "object", "properties": {f"c{number}": many for number in range(8)}}
    shape = with_schema(msgspec.structs.replace(RAW, codec=CODEC), ValueSchema(1, json.dumps(many), format="JSON"))
    assert shape.schemas[0].trouble


def test_the_format_is_found_under_any_name() -> None:
    """The table's owner may have used it."""
    shape = shape_of({"type": "object", "properties": {"a": NUMBER}})
    renamed = msgspec.structs.replace(
        shape,
        columns=tuple(
            msgspec.structs.replace(column, name="_format_2") if column.name == "_format" else column
            for column in shape.columns
        ),
    )
    values: Values = [framed('{ "a":1 }')]
    rows = rows_of(values, renamed)
    assert rows["_kind"].to_pylist() == [KIND_TYPED]
    assert values_of(rows, renamed) == values
