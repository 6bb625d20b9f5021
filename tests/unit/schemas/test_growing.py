"""Shapes that grow: which schemas they take, under which names and numbers, and what stays bytes."""

import json
from typing import Any

from support.schemas.door import record

from lakestream.schemas.growing import BY_ID, JSON, LATEST, MAX_SCHEMAS, STRING, fits, grown, settled
from lakestream.table.shape import RAW, TableShape, ValueSchema

NOBODY: frozenset[str] = frozenset()


def schema(schema_id: int, *fields: Any, format: str = "AVRO") -> ValueSchema:
    return ValueSchema(schema_id, json.dumps(record(*fields)), format=format)


def names(shape: TableShape) -> list[str]:
    return [column.name for column in shape.value_columns]


def test_a_schema_is_taken_once() -> None:
    first = grown(RAW, [schema(1, "a"), schema(1, "b")], BY_ID, 14, NOBODY)
    assert (names(first), first.codec, len(first.schemas)) == (["a"], "avro-schema-id-1", 1)
    assert grown(first, [schema(1, "a")], BY_ID, 100, NOBODY) is first


def test_new_columns_have_names_and_numbers_of_their_own() -> None:
    shape = grown(RAW, [schema(1, "Note", "item")], BY_ID, 700, frozenset({"NOTE", "note_2"}))
    assert [(column.name, column.source, column.field_id) for column in shape.value_columns] == [
        ("Note_3", "Note", 701),
        ("item", "", 702),
    ]
    again = grown(shape, [schema(2, "item", "Note", "more")], BY_ID, 702, frozenset({"NOTE", "note_2"}))
    assert names(again) == ["Note_3", "item", "more"]


def test_what_cannot_be_columns_is_known_with_its_trouble() -> None:
    shape = grown(RAW, [schema(1, ("a", "int"))], BY_ID, 14, NOBODY)
    shape = grown(shape, [schema(2, ("a", "string")), schema(3, "b", format="PROTOBUF")], BY_ID, 100, NOBODY)
    assert [(each.schema_id, bool(each.trouble), each.text == "") for each in shape.schemas] == [
        (1, False, False),
        (2, True, True),
        (3, True, True),
    ]
    assert names(shape) == ["a"]
    odd = grown(RAW, [ValueSchema(9, "", trouble="it is odd")], BY_ID, 14, NOBODY)
    assert (odd.codec, odd.schemas[0].trouble) == ("", "it is odd")


def test_a_shape_has_so_many_schemas_at_most() -> None:
    shape = grown(RAW, [ValueSchema(n, "", trouble="x") for n in range(MAX_SCHEMAS + 5)], BY_ID, 14, NOBODY)
    assert len(shape.schemas) == MAX_SCHEMAS


def test_text_needs_no_schema() -> None:
    shape = settled(RAW, None, STRING, 14, NOBODY)
    assert (names(shape), shape.codec) == (["value"], "text-1")
    assert settled(shape, schema(1, "a"), STRING, 100, NOBODY) == shape
    assert settled(RAW, None, STRING, 14, frozenset({"Value"})) == RAW
    assert settled(RAW, None, JSON, 14, NOBODY).codec == "json-text-1"
    assert settled(RAW, schema(1, "a"), JSON, 14, NOBODY).codec == "json-text-1"


def test_values_without_framing_are_of_the_latest_schema() -> None:
    assert settled(RAW, None, LATEST, 14, NOBODY) == RAW
    shape = settled(RAW, schema(4, "a"), LATEST, 14, NOBODY)
    assert (shape.codec, shape.plain_schema_id) == ("avro-plain-1", 4)
    shape = settled(shape, schema(5, "a", "b"), LATEST, 100, NOBODY)
    assert (names(shape), shape.plain_schema_id) == (["a", "b"], 5)
    shape = settled(shape, schema(6, ("a", "int")), LATEST, 101, NOBODY)
    assert (names(shape), shape.plain_schema_id) == (["a", "b"], None)
    assert settled(shape, schema(4, "a"), LATEST, 101, NOBODY).plain_schema_id == 4


def test_a_table_keeps_its_codec() -> None:
    text = settled(RAW, None, STRING, 14, NOBODY)
    for wanted in (BY_ID, LATEST, JSON):
        assert not fits(text.codec, wanted)
        assert settled(text, schema(1, "a"), wanted, 100, NOBODY) == text
        assert grown(text, [schema(1, "a")], wanted, 100, NOBODY) == text
    assert fits("json-plain-1", LATEST)
    assert fits("json-plain-1", JSON)
    assert not fits(text.codec, "raw")
    assert not fits("", STRING)
