"""Bad input to typed topics, case by case: each has a clear outcome and loses nothing. A consumer gets the producer's
bytes from below the frontier, the pipeline goes on, other topics are unharmed."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.schema_registry import Schema
from support.schemas.avro import framed, written
from support.schemas.typed import ORDER, TypedTopic, order, typed_topic
from support.worlds.source import Node, source_node

from lakestream.table.shape import KIND_RAW, KIND_TYPED, KIND_TYPED_AND_RAW

LARGE_BYTES = 20 * 1024 * 1024
JSON = {"type": "object", "properties": {"id": {"type": "integer"}, "n": {"type": "number"}, "deep": {}}}

PROTOBUF = 'syntax = "proto3";\nmessage Order {\n  int64 id = 1;\n  string item = 2;\n}\n'


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    overrides = {"stream.view_check_ms": 50, "stream.max_batch_bytes": 2 * LARGE_BYTES}
    with source_node(tmp_path_factory.mktemp("bad"), **overrides) as opened:
        opened.create("bystander", 1)
        yield opened


def registered(topic: TypedTopic, schema: Any, kind: str = "AVRO", subject: str = "") -> int:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    found: int = topic.registry.register_schema(subject or f"{topic.name}-value", Schema(text, kind))
    return found


def kinds(topic: TypedTopic, values: list[bytes | None]) -> list[int]:
    """Of the rows, once all of it is in the table and has come back to the byte; a neighbour's record is there, too."""
    producer = Producer({"bootstrap.servers": topic.node.bootstrap, "message.max.bytes": 2 * LARGE_BYTES})
    for value in values:
        topic.sent[len(topic.sent)] = value
        producer.produce(topic.name, value, partition=0)
        assert producer.flush(60) == 0
    topic.node.produce("bystander", 1)
    assert topic.move() == len(values) + 1
    topic.check_fetched()
    return topic.column("_kind")


def refused(topic: TypedTopic, values: list[bytes | None]) -> list[int]:
    """The places of those that a topic with full validation does not take, one by one."""
    name = f"{topic.name}_full"
    topic.node.create(name, 1, schema_validation="full", value_subject=f"{topic.name}-value")
    producer = Producer(
        {"bootstrap.servers": topic.node.bootstrap, "batch.num.messages": 1, "message.max.bytes": 2 * LARGE_BYTES}
    )
    told: dict[int, Any] = {}
    for number, value in enumerate(values):
        producer.produce(
            name, value, partition=0, on_delivery=lambda error, _, number=number: told.__setitem__(number, error)
        )
    assert producer.flush(60) == 0
    assert {error.code() for error in told.values() if error} <= {KafkaError.INVALID_RECORD}
    topic.node.move()
    return [number for number in range(len(values)) if told[number]]


def test_an_unknown_id_truncation_and_no_frame_are_rows_with_their_bytes(node: Node) -> None:
    with typed_topic(node, "damaged") as topic:
        good = topic.avro(ORDER)(order(1))
        values = [good, framed(999_999, good[5:]), good, good[:-1], good[5:], b"", good[:5], b"\1" + good[1:], good]
        expected = [KIND_RAW] * 9
        for place in (0, 2, 8):
            expected[place] = KIND_TYPED
        assert kinds(topic, [*values]) == expected
        assert refused(topic, [*values]) == [1, 3, 4, 5, 6, 7]


def test_half_of_the_records_without_their_magic_byte(node: Node) -> None:
    with typed_topic(node, "half") as topic:
        write = topic.avro(ORDER)
        values: list[bytes | None] = [write(order(n))[5 if n % 2 else 0 :] for n in range(200)]
        assert kinds(topic, values) == [KIND_TYPED, KIND_RAW] * 100
        assert topic.column("id")[::2] == list(range(0, 200, 2))
        assert refused(topic, values) == list(range(1, 200, 2))


def test_a_schema_of_another_subject_is_one_all_the_same(node: Node) -> None:
    """Whoever reads decodes by the id, so the table does; where the topic wants its subject, it is refused."""
    with typed_topic(node, "foreign") as topic:
        other = {"type": "record", "name": "Other", "fields": [{"name": "other", "type": "string"}]}
        theirs = framed(registered(topic, other, subject="elsewhere-value"), b"\4ab")
        values: list[bytes | None] = [topic.avro(ORDER)(order(1)), theirs]
        assert kinds(topic, values) == [KIND_TYPED, KIND_TYPED]
        assert topic.column("other") == [None, "ab"]
        assert refused(topic, values) == [1]


@pytest.mark.parametrize(
    ("name", "text", "is_json"),
    [
        ("twice", b'{"id": 1, "id": 2}', True),
        ("nan", b'{"id": 1, "n": NaN}', False),
        ("infinite", b'{"id": 1, "n": 1e999}', True),
        ("deep", b'{"id": 1, "deep": ' + b"[" * 200 + b"]" * 200 + b"}", True),
        ("cut", b'{"id": 1, "n": ', False),
        ("surrogate", b'{"id": 1, "deep": "\\ud800"}', True),
        ("not_utf8", b'{"id": 1, "deep": "\xff"}', False),
        ("null", b"null", True),
        ("wrong", b'{"id": "one"}', True),
    ],
)
def test_odd_json(node: Node, name: str, text: bytes, is_json: bool) -> None:
    with typed_topic(node, f"json_{name}") as topic:
        schema_id = registered(topic, JSON, "JSON")
        good = framed(schema_id, b'{"id": 7, "n": 1.5}')
        found = kinds(topic, [good, framed(schema_id, text), good])
        assert [found[0], found[2]] == [KIND_TYPED] * 2
        assert found[1] in (KIND_RAW, KIND_TYPED_AND_RAW, KIND_TYPED)
        assert topic.column("id")[::2] == [7, 7]
        if not is_json:
            assert found[1] == KIND_RAW
            assert refused(topic, [good, framed(schema_id, text)]) == [1]


def test_two_thousand_columns(node: Node) -> None:
    with typed_topic(node, "wide") as topic:
        fields = [{"name": f"c{number}", "type": ["null", "long"]} for number in range(2_000)]
        schema_id = registered(topic, {"type": "record", "name": "Wide", "fields": fields})
        value = framed(schema_id, b"\2\4" * 1_000 + b"\0" * 1_000)
        assert kinds(topic, [value, value[:-1], value]) == [KIND_TYPED, KIND_RAW, KIND_TYPED]
        row = topic.rows()[2]
        assert [row["c0"], row["c999"], row["c1000"], row["c1999"]] == [2, 2, None, None]
        assert refused(topic, [value, value[:-1]]) == [1]


def test_values_of_twenty_megabytes(node: Node) -> None:
    with typed_topic(node, "large") as topic:
        blob = {
            "type": "record",
            "name": "Blob",
            "fields": [{"name": "id", "type": "int"}, {"name": "b", "type": "bytes"}],
        }
        schema_id = registered(topic, blob)
        values: list[bytes | None] = [
            framed(schema_id, written(blob, {"id": number, "b": bytes([number]) * LARGE_BYTES})) for number in range(2)
        ]
        values.append(values[0][:-1] if values[0] else None)
        assert kinds(topic, values) == [KIND_TYPED, KIND_TYPED, KIND_RAW]
        assert refused(topic, values[1:]) == [1]


def test_a_schema_of_nearly_a_megabyte_has_no_columns_and_says_so(node: Node) -> None:
    with typed_topic(node, "schema_mb") as topic:
        fields = [{"name": f"f{number:05}", "type": "int", "doc": "d" * 400} for number in range(2_000)]
        schema_id = registered(topic, {"type": "record", "name": "Long", "fields": fields})
        value = framed(schema_id, b"\2" * 2_000)
        assert kinds(topic, [value]) == [KIND_RAW]
        [known] = [each for each in topic.view().shape.schemas if each.schema_id == schema_id]
        assert "bytes" in known.trouble
        assert refused(topic, [value]) == [0]


def test_types_that_refer_to_themselves_are_text(node: Node) -> None:
    with typed_topic(node, "cyclic") as topic:
        link: Any = {
            "type": "record",
            "name": "Link",
            "fields": [{"name": "id", "type": "int"}, {"name": "next", "type": ["null", "Link"]}],
        }
        schema_id = registered(topic, link)
        chain: Any = None
        for number in range(50):
            chain = {"id": number, "next": chain}
        good = framed(schema_id, written(link, chain))
        found = kinds(topic, [good, framed(schema_id, b"\2\2" * 5_000), good])
        assert found == [KIND_TYPED_AND_RAW, KIND_RAW, KIND_TYPED_AND_RAW]
        assert topic.column("id") == [49, None, 49]
        assert refused(topic, [good, framed(schema_id, b"\2\2" * 5_000)]) == [1]


def test_protobuf_with_fields_that_its_schema_does_not_have(node: Node) -> None:
    with typed_topic(node, "protobuf") as topic:
        schema_id = registered(topic, PROTOBUF, "PROTOBUF")
        known = b"\x08\x07\x12\x01a"
        good, more = framed(schema_id, b"\0" + known), framed(schema_id, b"\0" + known + b"\x1a\x02xy")
        cut = good[:-1]
        assert kinds(topic, [good, more, cut, good]) == [KIND_TYPED, KIND_TYPED_AND_RAW, KIND_RAW, KIND_TYPED]
        assert topic.column("item") == ["a", "a", None, "a"]
        assert refused(topic, [good, more, cut]) == [2]
