"""Old and new writers at once, in three formats, under the strictest level that lets them: every reader reads every
record, rows have the columns of all versions, and the bytes stay."""

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.json_format import MessageToDict
from support.schemas.protobuf import message_class
from support.schemas.typed import TypedTopic, typed_topic
from support.worlds.source import Node, source_node

from lakestream.schemas.descriptors import compiled_descriptors
from lakestream.table.shape import KIND_TYPED

VERSIONS = 3
Value = dict[str, Any]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with source_node(tmp_path_factory.mktemp("matrix"), **{"stream.view_check_ms": 50}) as opened:
        yield opened


def value_of(version: int, number: int) -> Value:
    """Each version has what those before have; what is optional is there in every other record."""
    found: Value = {"id": number + 1, "item": f"item {number}"}
    if version > 1 and number % 2:
        found["note"] = f"note {number}"
    if version > 2 and number % 2:
        found["place"] = {"city": "Köln", "zip": number + 1}
    return found


def known_to(version: int, value: Value) -> Value:
    names = ("id", "item", "note", "place")[: version + 1]
    return {name: value[name] for name in names if name in value}


@dataclass
class Avro:
    topic: TypedTopic
    level = "FULL_TRANSITIVE"

    def schema(self, version: int) -> str:
        place = {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]}
        place["fields"].append({"name": "zip", "type": "int"})  # type: ignore[attr-defined]
        fields: list[Value] = [{"name": "id", "type": "int"}, {"name": "item", "type": "string"}]
        fields.append({"name": "note", "type": ["null", "string"], "default": None})
        fields.append({"name": "place", "type": ["null", place], "default": None})
        return json.dumps({"type": "record", "name": "Order", "fields": fields[: version + 1]})

    def writer(self, version: int) -> Callable[[Value], bytes]:
        write = AvroSerializer(self.topic.registry, self.schema(version))
        return lambda value: write(value, context(self.topic))

    def reader(self, version: int) -> Callable[[bytes], Value]:
        read = AvroDeserializer(self.topic.registry, self.schema(version))
        return lambda data: {n: v for n, v in read(data, context(self.topic)).items() if v is not None}


@dataclass
class Json:
    topic: TypedTopic
    level = "NONE"
    """Objects that others may add to are none of Confluent's levels."""

    def schema(self, version: int) -> str:
        place = {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "integer"}}}
        fields = [("id", {"type": "integer"}), ("item", {"type": "string"})]
        fields += [("note", {"type": "string"}), ("place", place)]
        return json.dumps({"title": "Order", "type": "object", "properties": dict(fields[: version + 1])})

    def writer(self, version: int) -> Callable[[Value], bytes]:
        write = JSONSerializer(self.schema(version), self.topic.registry)
        return lambda value: write(value, context(self.topic))

    def reader(self, version: int) -> Callable[[bytes], Value]:
        read = JSONDeserializer(self.schema(version), schema_registry_client=self.topic.registry)
        return lambda data: known_to(version, read(data, context(self.topic)))


@dataclass
class Protobuf:
    topic: TypedTopic
    level = "BACKWARD_TRANSITIVE"
    """A message that is new is one that is gone, the other way round."""

    def kind(self, version: int) -> Any:
        more = ("optional string note = 3;", "Place place = 4;")[: version - 1]
        order = f"message Order {{ int32 id = 1; string item = 2; {' '.join(more)} }}"
        place = "message Place { string city = 1; int32 zip = 2; }" if version == VERSIONS else ""
        text = f'syntax = "proto3"; package shop; {order} {place}'
        files = FileDescriptorSet.FromString(base64.b64decode(compiled_descriptors(text, ())))
        files.file[-1].name = "order.proto"
        return message_class(files, "shop.Order")

    def writer(self, version: int) -> Callable[[Value], bytes]:
        kind = self.kind(version)
        write = ProtobufSerializer(kind, self.topic.registry, {"use.deprecated.format": False})
        return lambda value: write(kind(**value), context(self.topic))

    def reader(self, version: int) -> Callable[[bytes], Value]:
        read = ProtobufDeserializer(self.kind(version), {"use.deprecated.format": False})
        return lambda data: MessageToDict(read(data, context(self.topic)))


def context(topic: TypedTopic) -> SerializationContext:
    return SerializationContext(topic.name, MessageField.VALUE)


@pytest.mark.parametrize("kind", [Avro, Json, Protobuf])
def test_every_reader_reads_every_record(node: Node, kind: type[Avro | Json | Protobuf]) -> None:
    with typed_topic(node, kind.__name__.lower()) as topic:
        topic.registry.set_compatibility(f"{topic.name}-value", kind.level)
        side = kind(topic)
        made: list[tuple[int, Value]] = []
        writers = {}
        for newest in range(1, VERSIONS + 1):
            writers[newest] = side.writer(newest)
            batch = [(version, value_of(version, len(made) + n)) for n, version in enumerate([*writers] * 4)]
            topic.produce([writers[version](value) for version, value in batch])
            made += batch
            assert topic.move() == len(batch)
        for _ in range(2):
            rows = topic.rows()
            for offset, (version, value) in enumerate(made):
                wanted = {"id": None, "item": None, "note": None, "place": None} | value
                assert {name: rows[offset][name] for name in wanted} == wanted, (offset, version)
                assert rows[offset]["_kind"] == KIND_TYPED
            topic.check_fetched()
            topic.merge()
        for version in range(1, VERSIONS + 1):
            read = side.reader(version)
            for offset, (_, value) in enumerate(made):
                data = topic.sent[offset]
                assert data is not None
                assert read(data) == known_to(version, value), (version, offset)
