"""Topics whose keys are columns, too: real serializers, and the bytes stay."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import duckdb
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.schema_registry import Schema
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from support.schemas.avro import framed, written
from support.schemas.typed import ORDER, TypedTopic, order, typed_topic
from support.worlds.source import Node, source_node

from lakestream.table.shape import KIND_RAW, KIND_TYPED, key_shape

KEY: dict[str, Any] = {
    "type": "record",
    "name": "OrderKey",
    "fields": [{"name": "id", "type": "int"}, {"name": "shop", "type": "string"}],
}
WIDER: dict[str, Any] = KEY | {
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "shop", "type": "string"},
        {"name": "till", "type": ["null", "int"], "default": None},
    ]
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with source_node(tmp_path_factory.mktemp("keys"), **{"stream.view_check_ms": 50}) as opened:
        yield opened


def writer(topic: TypedTopic, schema: Any) -> Callable[[Any], bytes]:
    serializer = AvroSerializer(topic.registry, json.dumps(schema))
    where = SerializationContext(topic.name, MessageField.KEY)
    return lambda key: serializer(key, where)


def produce(topic: TypedTopic, records: Sequence[tuple[bytes | None, bytes | None]]) -> list[KafkaError | None]:
    """What became of each."""
    told: dict[int, KafkaError | None] = {}
    producer = Producer({"bootstrap.servers": topic.node.bootstrap, "linger.ms": 50})
    for number, (key, value) in enumerate(records):

        def heard(error: KafkaError | None, _: Any, number: int = number) -> None:
            told[number] = error

        producer.produce(topic.name, value, key, partition=0, on_delivery=heard)
    assert producer.flush(60) == 0
    return [told[number] for number in range(len(records))]


def fetched(topic: TypedTopic, count: int) -> list[tuple[bytes | None, bytes | None]]:
    consumer = Consumer({"bootstrap.servers": topic.node.bootstrap, "group.id": "g", "enable.auto.commit": False})
    found = []
    try:
        consumer.assign([TopicPartition(topic.name, 0, 0)])
        while len(found) < count:
            message = consumer.poll(60)
            assert message is not None
            assert message.error() is None
            found.append((message.key(), message.value()))
    finally:
        consumer.close()
    return found


def key(number: int) -> dict[str, Any]:
    return {"id": number, "shop": f"shop {number % 3}"}


def test_keys_of_a_serializer_are_a_column_and_come_back_to_the_byte(node: Node) -> None:
    with typed_topic(node, "keyed", key_format="schema_id") as topic:
        write_key, write = writer(topic, KEY), topic.avro(ORDER)
        records = [(write_key(key(n)), write(order(n))) for n in range(40)]
        odd = [(b"\0\0\1\1\1\1", write(order(40))), (None, write(order(41))), (b"", write(order(42)))]
        assert produce(topic, records + odd) == [None] * 43
        assert topic.move() == 43
        assert topic.column("_typed_key") == [*map(key, range(40)), None, None, None]
        assert topic.column("_key") == [each for each, _ in records + odd]
        assert topic.column("id") == [*range(43)]
        assert topic.column("_kind") == [KIND_TYPED] * 43
        assert fetched(topic, 43) == records + odd
        assert key_shape(topic.view().shape).codec == "avro-schema-id-1"


def test_keys_grow_with_their_schemas_through_merges(node: Node) -> None:
    with typed_topic(node, "growing", key_format="schema_id", value_format="raw") as topic:
        records = [(writer(topic, KEY)(key(n)), b"v") for n in range(5)]
        produce(topic, records)
        assert topic.move() == 5
        wider = writer(topic, WIDER)
        more = [{"id": 1 << 40, "shop": "s", "till": n if n % 2 else None} for n in range(5)]
        records += [(wider(each), None) for each in more]
        produce(topic, records[5:])
        assert topic.move() == 5
        expected = [key(n) | {"till": None} for n in range(5)] + more
        assert topic.column("_typed_key") == expected
        assert topic.column("_kind")[:5] == [KIND_RAW] * 5
        files = len(topic.view().files)
        topic.merge()
        assert len(topic.view().files) < files
        assert topic.column("_typed_key") == expected
        assert fetched(topic, 10) == records
        rows = duckdb.connect()
        rows.execute("INSTALL iceberg; LOAD iceberg; INSTALL httpfs; LOAD httpfs")
        rows.execute(f"ATTACH '' AS lake (TYPE iceberg, ENDPOINT '{node.uri}', AUTHORIZATION_TYPE 'none')")
        asked = "SELECT sum(_typed_key.id), max(_typed_key.till) FROM lake.default.growing WHERE _typed_key.id > 3"
        assert rows.execute(asked).fetchall() == [(4 + 5 * (1 << 40), 3)]


@pytest.mark.parametrize(
    ("wanted", "codec", "columns"),
    [
        ("string", "text-1", ["a", '{"n":  1}', None, None]),
        ("json", "json-text-1", [None, '{"n":  1}', None, None]),
    ],
)
def test_keys_may_be_text(node: Node, wanted: str, codec: str, columns: list[str | None]) -> None:
    with typed_topic(node, f"key_{wanted}", key_format=wanted, value_format="raw") as topic:
        keys = [b"a", b'{"n":  1}', b"\xff", None]
        produce(topic, [(each, b"v") for each in keys])
        assert topic.move() == 4
        expected = [None if text is None else {"value": text} for text in columns]
        assert topic.column("_typed_key") == expected
        assert topic.column("_key") == keys


def test_json_keys_by_their_schema_and_a_topic_that_becomes_keyed(node: Node) -> None:
    with typed_topic(node, "later", value_format="raw") as topic:
        produce(topic, [(b'{"id": 1}', b"v")])
        assert topic.move() == 1
        schema = '{"type":"object","properties":{"id":{"type":"integer"},"shop":{"type":"string"}}}'
        register(topic, "later-key", schema, "JSON")
        topic.alter("key.format", "json")
        produce(topic, [(b'{"id": 2}', b"v"), (b'{"shop":"s", "id":3}', b"v"), (b"{", b"v")])
        assert topic.move() == 3
        expected = [None, {"id": 2, "shop": None}, {"id": 3, "shop": "s"}, None]
        assert topic.column("_typed_key") == expected
        topic.alter("key.format", "raw")
        produce(topic, [(b'{"id": 4}', b"v")])
        assert topic.move() == 1
        assert topic.column("_typed_key") == [*expected, None]
        with pytest.raises(KafkaException, match=r"key\.format=string cannot be"):
            topic.alter("key.format", "string")


def register(topic: TypedTopic, subject: str, text: str, kind: str) -> int:
    return topic.registry.register_schema(subject, Schema(text, kind))


@pytest.mark.parametrize("wanted", ["id", "full"])
def test_keys_are_validated(node: Node, wanted: str) -> None:
    with typed_topic(
        node, f"checked_{wanted}", key_format="schema_id", value_format="raw", key_schema_validation=wanted
    ) as topic:
        write_key = writer(topic, KEY)
        good = write_key(key(1))
        assert produce(topic, [(good, b"v"), (None, b"v")]) == [None, None]
        foreign = topic.avro(ORDER)(order(1))
        refused = {KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD}
        cut = good[:-1]
        bad = [foreign, b"bare", *([cut] if wanted == "full" else [])]
        for each in bad:
            [told] = produce(topic, [(each, b"v")])
            assert told is not None, each
            assert told.code() in refused, each
        assert produce(topic, [(writer(topic, WIDER)({"id": 1, "shop": "s", "till": 2}), b"v")]) == [None]
        assert topic.move() == 3


def test_key_settings_that_cannot_be(node: Node) -> None:
    with pytest.raises(KafkaException, match=r"key\.schema\.validation=id cannot be with lakestream\.key\.format"):
        node.create("odd", 1, key_format="string", key_schema_validation="id")


def test_a_replay_fills_keys_whose_schema_was_not_known(node: Node) -> None:
    with typed_topic(node, "filled", key_format="schema_id", value_format="raw") as topic:
        write_key = writer(topic, KEY)
        strange = [framed(7001, written(WIDER, key(n) | {"till": n})) for n in (1, 2)]
        records = [(write_key(key(0)), b"v"), *((each, b"v") for each in strange), (b"bare", b"v"), (None, b"v")]
        produce(topic, records)
        assert topic.move() == 5
        assert topic.column("_typed_key") == [key(0), None, None, None, None]
        assert topic.replay().filled == 0
        topic.register_as("filled-key", WIDER | {"doc": "of another registry"}, 7001)
        done = topic.replay()
        assert done.filled == 2
        assert any("its key" in reason for reason in done.reasons)
        expected = [key(n) | {"till": n or None} for n in range(3)]
        assert topic.column("_typed_key") == [*expected, None, None]
        assert fetched(topic, 5) == records
