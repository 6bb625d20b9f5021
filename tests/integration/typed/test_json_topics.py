"""Topics whose values are JSON by a schema: Confluent's serializer, the registry that is there, every door behind
them."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from support.schemas.typed import TypedTopic, typed_topic
from support.worlds.doors import duck
from support.worlds.source import Node, source_node

from lakestream.table.shape import KIND_RAW, KIND_TOMBSTONE, KIND_TYPED, KIND_TYPED_AND_RAW

LINE = {"type": "object", "properties": {"item": {"type": "string"}, "count": {"type": "integer"}}}
ORDER: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "lines": {"type": "array", "items": LINE},
        "price": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
        "tags": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["id"],
    "additionalProperties": False,
}
WIDER = ORDER | {"properties": ORDER["properties"] | {"note": {"type": ["string", "null"]}}}
LINES = [{"item": "Käse", "count": 2}, {"item": 'a "b"\\', "count": 0}]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with source_node(tmp_path_factory.mktemp("json"), **{"stream.view_check_ms": 50}) as opened:
        yield opened


def order(number: int) -> dict[str, Any]:
    at = f"2024-05-01T10:11:{number % 60:02}.5Z"
    return {"id": number, "lines": LINES, "price": number / 4, "at": at, "tags": {"k": "v"}}


def serializer(topic: TypedTopic, schema: Any, **conf: Any) -> Callable[[Any], bytes]:
    """Registers the schema with its first value."""
    write = JSONSerializer(json.dumps(schema), topic.registry, conf=conf)
    return lambda value: write(value, SerializationContext(topic.name, MessageField.VALUE))


def test_values_of_a_serializer_are_columns_and_come_back_to_the_byte(node: Node) -> None:
    with typed_topic(node, "orders") as topic:
        write = serializer(topic, ORDER)
        topic.produce([write(order(n)) for n in range(20)])
        assert topic.move() == 20
        assert topic.view().shape.codec == "json-schema-id-1"
        rows = topic.rows()
        assert {(row["_kind"], row["_value"]) for row in rows.values()} == {(KIND_TYPED, None)}
        expected = {"id": 7, "lines": LINES, "price": 1.75, "tags": [("k", "v")]}
        assert {name: rows[7][name] for name in expected} == expected
        assert rows[7]["at"] == datetime(2024, 5, 1, 10, 11, 7, 500_000, UTC)
        with duck(node.uri.removesuffix("/iceberg")) as engine:
            query = "SELECT sum(id), sum(lines[1].count), sum(price), any_value(tags['k']) FROM lake.default.orders"
            assert engine.execute(query).fetchall() == [(190, 40, 47.5, "v")]
        topic.check_fetched()


def test_a_property_may_come_in_the_middle_of_a_batch(node: Node) -> None:
    with typed_topic(node, "changing") as topic:
        write = serializer(topic, ORDER)
        topic.produce([write(order(n)) for n in range(3)])
        assert topic.move() == 3
        write_wider = serializer(topic, WIDER)
        noted = [write_wider(order(n) | {"note": note}) for n, note in ((4, "n"), (6, None))]
        topic.produce([write(order(3)), noted[0], write(order(5)), noted[1], write_wider(order(7))])
        assert topic.move() == 5
        assert [column.name for column in topic.view().shape.value_columns][:6] == [*ORDER["properties"], "note"]
        assert topic.column("id") == [*range(8)]
        assert topic.column("note") == [None] * 4 + ["n"] + [None] * 3
        assert len(set(topic.column("_schema_id"))) == 2
        assert topic.column("_kind") == [KIND_TYPED] * 8
        topic.check_fetched()
        other = ORDER | {"properties": ORDER["properties"] | {"id": {"type": "string"}}}
        with pytest.raises(SchemaRegistryError, match="incompatible"):
            serializer(topic, other)(order(8) | {"id": "8"})


def test_a_property_that_the_schema_does_not_have_keeps_the_bytes_beside(node: Node) -> None:
    with typed_topic(node, "more") as topic:
        write = serializer(topic, ORDER, validate=False)
        more = [order(1) | {"coupon": {"code": "x"}}, order(2) | {"lines": [LINES[0] | {"size": 3}]}]
        topic.produce([write(order(0)), *map(write, more), write(order(3))])
        assert topic.move() == 4
        assert topic.column("_kind") == [KIND_TYPED, KIND_TYPED_AND_RAW, KIND_TYPED_AND_RAW, KIND_TYPED]
        assert topic.column("id") == [*range(4)]
        assert topic.column("lines")[2] == LINES[:1]
        assert topic.column("_value") == [None, topic.sent[1], topic.sent[2], None]
        topic.check_fetched()


def test_what_is_no_json_is_a_dead_letter_and_blocks_nothing(node: Node) -> None:
    with typed_topic(node, "letters") as topic:
        good = serializer(topic, ORDER)(order(1))
        frame = good[:5]
        bad = [frame + b"no json", good[:-1], frame, good[5:], frame + b'{"id": "one"}', b"", b"\0\0\0\0\1"]
        topic.produce([good, *bad, None, good])
        assert topic.move() == 10
        assert topic.column("_kind") == [KIND_TYPED] + [KIND_RAW] * 7 + [KIND_TOMBSTONE, KIND_TYPED]
        assert topic.column("id") == [1] + [None] * 8 + [1]
        topic.produce([good])
        assert topic.move() == 1
        assert topic.column("_value") == [None, *bad, None, None, None]
        topic.check_fetched()


def test_values_without_framing(node: Node) -> None:
    """In the styles of json.dumps; each is by the schema that was the latest when it was written."""
    with typed_topic(node, "plain", value_format="json") as topic:
        topic.registry.register_schema("plain-value", Schema(json.dumps(ORDER), "JSON"))
        styles: list[dict[str, Any]] = [{}, {"separators": (",", ":")}, {"indent": 2}, {"ensure_ascii": False}]
        topic.produce([json.dumps(order(n), **styles[n % 4]).encode() for n in range(12)])
        assert topic.move() == 12
        assert topic.view().shape.codec == "json-plain-1"
        topic.registry.register_schema("plain-value", Schema(json.dumps(WIDER), "JSON"))
        later = [json.dumps(order(12) | {"note": "n"}), json.dumps(order(13) | {"more": 1}), '{"id": 1', "[1]"]
        topic.produce([text.encode() for text in later])
        assert topic.move() == 4
        assert topic.column("id") == [*range(14), None, None]
        assert topic.column("note")[12:] == ["n", None, None, None]
        assert topic.column("_kind") == [KIND_TYPED] * 13 + [KIND_TYPED_AND_RAW, KIND_RAW, KIND_RAW]
        topic.check_fetched()
