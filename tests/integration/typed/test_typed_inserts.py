"""INSERT INTO a typed topic: rows are written by the newest schema of their subject, and are values as producers send
them."""

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import Schema as ValueSchema
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType
from support.schemas import odd
from support.schemas.avro import framed
from support.schemas.typed import ORDER
from support.worlds.doors import duck
from support.worlds.embedded import Embedded

from lakestream.table.shape import KIND_RAW, KIND_TOMBSTONE, KIND_TYPED, SYSTEM_NAMES

WAIT_S = 30
LINE_FIELDS = [("item", pa.string()), ("count", pa.int64())]
NEWER: dict[str, Any] = ORDER | {
    "fields": [*ORDER["fields"], {"name": "note", "type": ["null", "string"], "default": None}]
}
_names = count()


@pytest.fixture
def registry(door: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": f"{door}/registry"}) as client:
        yield client


def make_topic(broker: Embedded, value_format: str, **more: str) -> str:
    name = f"typed_{next(_names)}"
    config = {"lakestream.table.inserts": "true", "lakestream.value.format": value_format} | more
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(WAIT_S)
    return name


def register(registry: SchemaRegistryClient, topic: str, schema: Any) -> int:
    return registry.register_schema(f"{topic}-value", ValueSchema(json.dumps(schema), "AVRO"))


def table(door: str, topic: str) -> Table:
    return RestCatalog("lake", uri=f"{door}/iceberg").load_table(("default", topic))


def rows(**columns: Any) -> pa.Table:
    length = len(next(iter(columns.values())))
    return pa.table(
        {"_stream_partition": pa.nulls(length, pa.int32()), "_offset": pa.nulls(length, pa.int64())} | columns
    )


def values(broker: Embedded, topic: str, records: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "nobody"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    for offset in range(records):
        message = consumer.poll(WAIT_S)
        assert message is not None
        assert (message.error(), message.offset()) == (None, offset)
        found.append(message.value())
    consumer.close()
    return found


def test_rows_are_written_by_the_newest_schema(broker: Embedded, door: str, registry: SchemaRegistryClient) -> None:
    topic = make_topic(broker, "schema_id")
    register(registry, topic, ORDER)
    stream = table(door, topic)
    assert not any(field.required for field in stream.schema().fields)
    ids = pa.array([1, 2, None], pa.int32())
    stream.append(rows(_key=[b"a", b"b", b"a"], id=ids, item=["x", "y", None], amount=[1.5, None, None]))
    newer = register(registry, topic, NEWER)
    with duck(door) as engine:
        engine.execute(f"INSERT INTO lake.default.{topic} (id, item, amount) VALUES (3, 'z', 2.5)")
    where = SerializationContext(topic, MessageField.VALUE)
    read = AvroDeserializer(registry)
    found = values(broker, topic, 4)
    assert [None if value is None else read(value, where) for value in found] == [
        {"id": 1, "item": "x", "amount": 1.5},
        {"id": 2, "item": "y", "amount": None},
        None,
        {"id": 3, "item": "z", "amount": 2.5, "note": None},
    ]
    assert found[3] is not None
    assert found[3][1:5] == newer.to_bytes(4, "big")
    seen = sorted(table(door, topic).scan().to_arrow().to_pylist(), key=lambda row: row["_offset"])
    assert [(row["id"], row["item"], row["_kind"], row["_value"]) for row in seen] == [
        (1, "x", KIND_TYPED, None),
        (2, "y", KIND_TYPED, None),
        (None, None, KIND_TOMBSTONE, None),
        (3, "z", KIND_TYPED, None),
    ]
    opened = table(door, topic)
    assert "note" in opened.schema().column_names
    assert not any(field.required for field in opened.schema().fields)


def test_what_the_schema_does_not_take_is_refused(broker: Embedded, door: str, registry: SchemaRegistryClient) -> None:
    topic = make_topic(broker, "schema_id")
    register(registry, topic, ORDER)
    stream = table(door, topic)
    one = pa.array([1], pa.int32())
    refused = {
        "fields that must be there are null": rows(id=one),
        "leave one of them out of the INSERT": rows(id=one, item=["x"], _value=[b"x"]),
    }
    for sentence, given in refused.items():
        with pytest.raises(ForbiddenError, match=sentence):
            stream.append(given)
    registry.set_compatibility(subject_name=f"{topic}-value", level="NONE")
    register(registry, topic, ORDER | {"fields": ORDER["fields"][:2]})
    with pytest.raises(ForbiddenError, match="what column amount holds cannot be written by the schema"):
        stream.append(rows(id=one, item=["x"], amount=[1.0]))
    stream.append(rows(id=one, item=["x"]))
    stream.append(rows(_value=[b"as it is"]))
    assert values(broker, topic, 2)[1] == b"as it is"
    kinds = {row["_offset"]: row["_kind"] for row in table(door, topic).scan().to_arrow().to_pylist()}
    assert kinds == {0: KIND_TYPED, 1: KIND_RAW}


def test_a_topic_of_text(broker: Embedded, door: str) -> None:
    topic = make_topic(broker, "string")
    table(door, topic).append(rows(value=["one", "", "three"]))
    assert values(broker, topic, 3) == [b"one", b"", b"three"]


def test_values_without_framing(broker: Embedded, door: str, registry: SchemaRegistryClient) -> None:
    topic = make_topic(broker, "latest")
    register(registry, topic, ORDER)
    table(door, topic).append(rows(id=pa.array([1], pa.int32()), item=["x"]))
    assert values(broker, topic, 1) == [b"\x02\x02x\x00"]


def test_without_a_schema_rows_may_say_their_bytes(broker: Embedded, door: str) -> None:
    topic = make_topic(broker, "schema_id")
    table(door, topic).append(rows(_value=[b"x"]))
    assert values(broker, topic, 1) == [b"x"]


def keys(broker: Embedded, topic: str, records: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "nobody"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = [consumer.poll(WAIT_S) for _ in range(records)]
    consumer.close()
    return [message.key() for message in found if message is not None]


def test_columns_are_the_key_of_rows_that_have_none(
    broker: Embedded, door: str, registry: SchemaRegistryClient
) -> None:
    one = make_topic(broker, "schema_id", **{"lakestream.key": "id"})
    two = make_topic(broker, "schema_id", **{"lakestream.key": "id,item"})
    ids = pa.array([7, 8], pa.int32())
    for topic in (one, two):
        register(registry, topic, ORDER)
        table(door, topic).append(rows(_key=[None, b"given"], id=ids, item=["x", "y"]))
    assert keys(broker, one, 2) == [b"7", b"given"]
    assert keys(broker, two, 2) == [b'["7","x"]', b"given"]


def test_a_topic_that_validates_takes_no_bytes(broker: Embedded, door: str, registry: SchemaRegistryClient) -> None:
    topic = make_topic(broker, "schema_id", **{"lakestream.schema.validation": "id"})
    register(registry, topic, ORDER)
    with pytest.raises(ForbiddenError, match="takes values of its schemas only"):
        table(door, topic).append(rows(_value=[b"x"]))
    table(door, topic).append(rows(id=pa.array([1], pa.int32()), item=["x"]))
    assert len(values(broker, topic, 1)) == 1


def test_values_in_json(broker: Embedded, door: str, registry: SchemaRegistryClient) -> None:
    """Compact, by the newest schema, behind its id. What is null is left out, unless every value has it."""
    topic = make_topic(broker, "schema_id")
    line = {"type": "object", "properties": {"item": {"type": "string"}, "count": {"type": "integer"}}}
    nullable = {"type": ["string", "null"]}
    fields = {"id": {"type": "integer"}, "note": nullable, "the lines": {"type": "array", "items": line}, "x": nullable}
    schema = {"type": "object", "properties": fields, "required": ["id", "note"]}
    schema_id = registry.register_schema(f"{topic}-value", ValueSchema(json.dumps(schema), "JSON"))
    lines = pa.array([[{"item": 'a "b"', "count": None}], []], pa.list_(pa.struct(LINE_FIELDS)))
    table(door, topic).append(rows(id=[1, 2], note=["é", None], the_lines=lines))
    table(door, topic).append(rows(_value=[b'{"id": 3}']))
    with duck(door) as engine:
        engine.execute(f"INSERT INTO lake.default.{topic} (id, note) VALUES (4, 'n')")
        seen = engine.execute(f"SELECT id, note, x, _kind FROM lake.default.{topic} ORDER BY _offset").fetchall()
    frame = framed(schema_id, b"")
    said = ['{"id":1,"note":"é","the lines":[{"item":"a \\"b\\""}]}', '{"id":2,"note":null,"the lines":[]}']
    assert values(broker, topic, 4) == [
        *(frame + each.encode() for each in said),
        b'{"id": 3}',
        frame + b'{"id":4,"note":"n"}',
    ]
    typed = KIND_TYPED
    assert seen == [(1, "é", None, typed), (2, None, None, typed), (None, None, None, KIND_RAW), (4, "n", None, typed)]
    with pytest.raises(ForbiddenError, match="_format is the log's to give"):
        table(door, topic).append(rows(id=[1], _format=["x"]))


def test_a_stream_of_json_that_begins_as_a_table_takes_rows(broker: Embedded, door: str) -> None:
    topic = f"first_{next(_names)}"
    properties = {"lakestream.stream": "true", "lakestream.table.inserts": "true", "lakestream.value.format": "json"}
    with http_catalog(door) as catalog:
        columns = Schema(NestedField(1, "id", LongType()), NestedField(2, "ts", TimestamptzType()))
        catalog.create_table(f"default.{topic}", columns, properties=properties)
    at = pa.array([1_700_000_000_250_000, None], pa.timestamp("us", tz="UTC"))
    table(door, topic).append(rows(id=[1, 2], ts=at))
    assert values(broker, topic, 2) == [b'{"id":1,"ts":"2023-11-14T22:13:20.250Z"}', b'{"id":2}']


def test_values_in_protobuf(broker: Embedded, door: str, registry: SchemaRegistryClient) -> None:
    """By the first message of the file, in a serializer's framing. A field that is left out and cannot be is its
    default."""
    topic = make_topic(broker, "schema_id")
    text = (
        'syntax = "proto3"; message Order { int64 id = 1; optional string item = 2; repeated Line lines = 3; }'
        " message Line { string item = 1; int32 count = 2; }"
    )
    schema_id = registry.register_schema(f"{topic}-value", ValueSchema(text, "PROTOBUF"))
    line = pa.struct([("item", pa.string()), ("count", pa.int32())])
    lines = pa.array([[{"item": "tea", "count": 2}], []], pa.list_(line))
    table(door, topic).append(rows(id=[1, 0], item=["x", None], lines=lines))
    with duck(door) as engine:
        engine.execute(f"INSERT INTO lake.default.{topic} (item) VALUES ('y')")
        engine.execute(f"INSERT INTO lake.default.{topic} (_key) VALUES ('gone')")
        query = f"SELECT id, item, lines, _kind FROM lake.default.{topic} ORDER BY _offset"
        seen = engine.execute(query).fetchall()
    frame = framed(schema_id, b"\0")
    said = [b"\x08\x01\x12\x01x\x1a\x07\x0a\x03tea\x10\x02", b"", b"\x12\x01y"]
    assert values(broker, topic, 4) == [*(frame + each for each in said), None]
    assert seen == [
        (1, "x", [{"item": "tea", "count": 2}], KIND_TYPED),
        (0, None, [], KIND_TYPED),
        (0, "y", [], KIND_TYPED),
        (None, None, None, KIND_TOMBSTONE),
    ]


def test_values_in_json_without_a_schema_are_a_text(broker: Embedded, door: str) -> None:
    topic = make_topic(broker, "json")
    table(door, topic).append(rows(value=['{"a":  1}', "[1]", None]))
    with duck(door) as engine:
        engine.execute(f"INSERT INTO lake.default.{topic} (value) VALUES ('null')")
    assert values(broker, topic, 4) == [b'{"a":  1}', b"[1]", None, b"null"]
    with pytest.raises(ForbiddenError, match="cannot be written by the schema"):
        table(door, topic).append(rows(value=["no json"]))


def test_a_stream_that_begins_as_a_table_takes_rows(
    broker: Embedded, door: str, registry: SchemaRegistryClient
) -> None:
    topic = f"first_{next(_names)}"
    columns = (
        NestedField(1, "id", LongType()),
        NestedField(2, "item", StringType()),
        NestedField(3, "ts", TimestamptzType()),
    )
    properties = {
        "lakestream.stream": "true",
        "lakestream.partitions": "1",
        "lakestream.key": "id",
        "lakestream.table.inserts": "true",
    }
    by_day = PartitionSpec(PartitionField(3, 1000, DayTransform(), "ts_day"))
    with http_catalog(door) as catalog:
        catalog.create_table(f"default.{topic}", Schema(*columns), partition_spec=by_day, properties=properties)
    at = pa.array([1_700_000_000_000_000, 1_800_000_000_000_000], pa.timestamp("us", tz="UTC"))
    table(door, topic).append(rows(id=[1, 2], item=["x", None], ts=at))
    with duck(door) as engine:
        engine.execute(f"INSERT INTO lake.default.{topic} (id, item) VALUES (3, 'z')")
    read, where = AvroDeserializer(registry), SerializationContext(topic, MessageField.VALUE)
    found: list[Any] = [read(value, where) for value in values(broker, topic, 3) if value is not None]
    assert sorted((each["id"], each["item"]) for each in found) == [(1, "x"), (2, None), (3, "z")]
    assert sorted(keys(broker, topic, 3), key=str) == [b"1", b"2", b"3"]
    assert table(door, topic).scan().to_arrow().num_rows == 3


@contextmanager
def http_catalog(door: str) -> Iterator[RestCatalog]:
    catalog = RestCatalog("lake", uri=f"{door}/iceberg")
    yield catalog
    catalog.close()


def test_rows_of_another_stream_are_the_same_values(
    broker: Embedded, door: str, registry: SchemaRegistryClient
) -> None:
    """INSERT INTO … SELECT, of all that is unusual."""
    source, copy = make_topic(broker, "schema_id"), make_topic(broker, "schema_id")
    write = AvroSerializer(registry, json.dumps(odd.schema(plain=30)))
    register(registry, copy, odd.schema(plain=30))
    dice = random.Random(4)
    sent = [write(odd.value(dice, plain=30), SerializationContext(source, MessageField.VALUE)) for _ in range(20)]
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in sent:
        producer.produce(source, value)
    assert producer.flush(WAIT_S) == 0
    with duck(door) as engine:
        engine.execute(f"SELECT * FROM lake.default.{source} LIMIT 0")
        names = ", ".join(f'"{column[0]}"' for column in engine.description if column[0] not in SYSTEM_NAMES)
        engine.execute(f"INSERT INTO lake.default.{copy} ({names}) SELECT {names} FROM lake.default.{source}")
    assert sorted(values(broker, copy, 20)) == sorted(sent)  # type: ignore[type-var]
