"""Confluent's own serializers against the registry of the HTTP door: what one process writes, another reads."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from support.worlds.processes import HOST, ProcessWorld, Running, free_ports

Start = Callable[..., Running]
Registry = Callable[..., SchemaRegistryClient]

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "amount", "type": "double"},
            {"name": "note", "type": ["null", "string"], "default": None},
        ],
    },
    indent=2,
)
JSON = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "string"}, "amount": {"type": "number"}},
        "required": ["id"],
    }
)
ORDERS: list[dict[str, Any]] = [{"id": f"o{number}", "amount": number / 4, "note": None} for number in range(50)]


@pytest.fixture
def world(start: Start, tmp_path: Path) -> ProcessWorld:
    world = ProcessWorld(tmp_path / "data", {}, start, [free_ports()])
    world.start_broker(0)
    world.start_http()
    return world


@pytest.fixture
def registry(world: ProcessWorld) -> Iterator[Registry]:
    """Makes clients of the world's registry, each with caches of its own."""
    with ExitStack() as stack:

        def client(path: str = "") -> SchemaRegistryClient:
            url = f"http://{HOST}:{world.http_port}/registry{path}"
            return stack.enter_context(SchemaRegistryClient({"url": url}))

        yield client


def produce(world: ProcessWorld, topic: str, serialize: Any, values: list[Any]) -> None:
    producer = Producer({"bootstrap.servers": world.bootstrap, "linger.ms": 1})
    failed: list[Any] = []
    for value in values:
        data = serialize(value, SerializationContext(topic, MessageField.VALUE))
        producer.produce(topic, data, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(60) == 0
    assert failed == []


def consume(world: ProcessWorld, topic: str, deserialize: Any, count: int) -> list[Any]:
    consumer = Consumer(
        {"bootstrap.servers": world.bootstrap, "group.id": f"g-{topic}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[Any] = []
    try:
        for _ in range(600):
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(deserialize(message.value(), SerializationContext(topic, MessageField.VALUE)))
            if len(found) == count:
                break
    finally:
        consumer.close()
    return found


def protobuf_classes() -> Any:
    """A file that imports another of the user's and one of Google's, as protoc would have made it."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    kinds = descriptor_pb2.FieldDescriptorProto
    address = descriptor_pb2.FileDescriptorProto(name="shop/address.proto", package="shop", syntax="proto3")
    street = address.message_type.add(name="Address").field.add(name="street", number=1)
    street.type, street.label = kinds.TYPE_STRING, kinds.LABEL_OPTIONAL
    order = descriptor_pb2.FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3")
    order.dependency.extend(["google/protobuf/timestamp.proto", "shop/address.proto"])
    order.message_type.add(name="Unused")
    message = order.message_type.add(name="Order")
    typed = [("at", ".google.protobuf.Timestamp"), ("to", ".shop.Address")]
    for number, (name, kind) in enumerate([("id", ""), ("amount", ""), *typed], 1):
        field = message.field.add(name=name, number=number, label=kinds.LABEL_OPTIONAL)
        if kind:
            field.type, field.type_name = kinds.TYPE_MESSAGE, kind
        else:
            field.type = kinds.TYPE_STRING if name == "id" else kinds.TYPE_DOUBLE
    pool.Add(address)
    pool.Add(order)
    names = ("shop.Order", "shop.Address")
    return [message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names]


def test_avro_json_and_protobuf_are_written_and_read(world: ProcessWorld, registry: Registry) -> None:
    client = registry()
    produce(world, "avro", AvroSerializer(client, AVRO), ORDERS)
    produce(world, "json", JSONSerializer(JSON, client), ORDERS)
    order, address = protobuf_classes()
    messages = [order(id=each["id"], amount=each["amount"], to=address(street="Weg 1")) for each in ORDERS]
    produce(world, "protobuf", ProtobufSerializer(order, client, {"use.deprecated.format": False}), messages)

    reader = registry()
    assert consume(world, "avro", AvroDeserializer(reader), len(ORDERS)) == ORDERS
    assert consume(world, "json", JSONDeserializer(JSON, schema_registry_client=reader), len(ORDERS)) == ORDERS
    read = ProtobufDeserializer(order, {"use.deprecated.format": False}, reader)
    assert consume(world, "protobuf", read, len(ORDERS)) == messages
    assert sorted(reader.get_subjects()) == ["avro-value", "json-value", "protobuf-value", "shop/address.proto"]
    latest = reader.get_latest_version("protobuf-value")
    assert [(each.name, each.subject) for each in latest.schema.references] == [
        ("shop/address.proto", "shop/address.proto")
    ]
    assert 'import "shop/address.proto";' in latest.schema.schema_str


def test_a_newer_schema_reads_older_records_and_an_incompatible_one_is_refused(
    world: ProcessWorld, registry: Registry
) -> None:
    client = registry()
    produce(world, "orders", AvroSerializer(client, AVRO), ORDERS[:5])
    tree = json.loads(AVRO)
    tree["fields"].append({"name": "item", "type": "string", "default": "tea"})
    newer = json.dumps(tree)
    produce(world, "orders", AvroSerializer(client, newer), [each | {"item": "milk"} for each in ORDERS[5:8]])
    found = consume(world, "orders", AvroDeserializer(registry(), newer), 8)
    assert found == [each | {"item": "tea"} for each in ORDERS[:5]] + [each | {"item": "milk"} for each in ORDERS[5:8]]
    tree["fields"].append({"name": "must", "type": "int"})
    with pytest.raises(SchemaRegistryError) as refused:
        AvroSerializer(client, json.dumps(tree))(
            ORDERS[0] | {"item": "", "must": 1}, SerializationContext("orders", MessageField.VALUE)
        )
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)
    assert "must" in str(refused.value)


def test_the_client_manages_subjects(registry: Registry) -> None:
    client = registry()
    schema = Schema(AVRO, "AVRO")
    id = client.register_schema("orders-value", schema)
    assert client.register_schema("orders-value", schema, normalize_schemas=True) in (id, id + 1)
    assert client.get_schema(id).schema_type == "AVRO"
    assert client.lookup_schema("orders-value", schema).schema_id == id
    assert client.test_compatibility("orders-value", schema)
    assert client.set_compatibility("orders-value", "FULL") == {"compatibility": "FULL"}
    assert client.get_compatibility("orders-value") == "FULL"
    assert client.get_versions("orders-value")[0] == 1
    holder = json.dumps({"type": "record", "name": "Box", "fields": [{"name": "order", "type": "shop.Order"}]})
    reference = SchemaReference("shop.Order", "orders-value", 1)
    boxed = client.register_schema("box-value", Schema(holder, "AVRO", [reference]))
    assert client.get_schema(boxed).references == [reference]
    with pytest.raises(SchemaRegistryError, match="refer"):
        client.delete_version("orders-value", 1)
    with pytest.raises(SchemaRegistryError, match="not deleted first"):
        client.delete_subject("box-value", permanent=True)
    client.delete_subject("box-value")
    client.delete_subject("box-value", permanent=True)
    assert client.delete_version("orders-value", 1) == 1
    if client.get_versions("orders-value", deleted=True) != [1]:
        client.delete_subject("orders-value")
    client.delete_subject("orders-value", permanent=True)
    with pytest.raises(SchemaRegistryError) as refused:
        client.get_versions("orders-value")
    assert refused.value.error_code == 40401
    elsewhere = registry("/contexts/.staging")
    assert elsewhere.register_schema("orders-value", schema) == 1
    assert registry().get_subjects() == [":.staging:orders-value"]


def test_schemas_outlive_the_door(world: ProcessWorld, registry: Registry) -> None:
    id = registry().register_schema("orders-value", Schema(AVRO, "AVRO"))
    assert world.http is not None
    world.http.kill()
    world.start_http()
    assert json.loads(registry().get_schema(id).schema_str) == json.loads(AVRO)
    assert registry().register_schema("orders-value", Schema(AVRO, "AVRO")) == id
    assert registry().register_schema("other-value", Schema('"string"', "AVRO")) == id + 1
