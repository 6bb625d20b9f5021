"""Topics whose values are Protobuf: Confluent's serializer, the registry that is there, every door behind them."""

import base64
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.schema_registry import Schema
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import Message
from support.schemas.protobuf import message_class
from support.schemas.typed import TypedTopic, typed_topic
from support.worlds.source import Node, source_node

from lakestream.schemas.descriptors import compiled_descriptors
from lakestream.table.shape import KIND_RAW, KIND_TYPED, KIND_TYPED_AND_RAW

HEAD = 'syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";'
LINE = "message Line { string item = 1; int32 count = 2; }"
ORDER = f"{HEAD} {LINE} message Order {{ int32 id = 1; repeated Line lines = 2; google.protobuf.Timestamp at = 3; }}"
WIDER = (
    f"{HEAD} {LINE} message Order {{ int64 id = 1; repeated Line positions = 2; google.protobuf.Timestamp at = 3;"
    " optional string note = 4; }"
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with source_node(tmp_path_factory.mktemp("protobuf"), **{"stream.view_check_ms": 50}) as opened:
        yield opened


def order_class(text: str, name: str) -> Any:
    """As protoc would generate it from a file of that name."""
    files = FileDescriptorSet.FromString(base64.b64decode(compiled_descriptors(text, ())))
    files.file[-1].name = name
    return message_class(files, "shop.Order")


def serializer(topic: TypedTopic, kind: type[Message]) -> Callable[[Message], bytes]:
    write = ProtobufSerializer(kind, topic.registry, {"use.deprecated.format": False})
    return lambda message: write(message, SerializationContext(topic.name, MessageField.VALUE))


def test_values_of_a_serializer_are_columns_and_come_back_to_the_byte(node: Node) -> None:
    """The message is the second of its file. A renamed field is the same column, a wider one has room."""
    with typed_topic(node, "orders") as topic:
        first, second = order_class(ORDER, "order.proto"), order_class(WIDER, "order.proto")
        write = serializer(topic, first)
        lines = [{"item": "tea", "count": 2}, {"item": "milk", "count": 0}]
        topic.produce([write(first(id=n, lines=lines, at={"seconds": n, "nanos": 5000})) for n in range(20)])
        assert topic.move() == 20
        assert topic.view().shape.codec == "protobuf-schema-id-1"
        write_wider = serializer(topic, second)
        wide = [write_wider(second(id=1 << 40, positions=lines, note="n")), write(first(id=21))]
        topic.produce([*wide, wide[0] + b"\xa0\x06\x01", b"\0\0\0\0\x01", b"garbage", None])
        assert topic.move() == 6
        assert [column.name for column in topic.view().shape.value_columns] == ["id", "lines", "at", "note"]
        assert topic.column("id") == [*range(20), 1 << 40, 21, 1 << 40, None, None, None]
        assert topic.column("lines")[19:22] == [lines, lines, []]
        assert topic.column("at")[1] == datetime(1970, 1, 1, 0, 0, 1, 5, UTC)
        assert topic.column("note")[20:22] == ["n", None]
        kinds = topic.column("_kind")
        assert kinds[:25] == [KIND_TYPED] * 22 + [KIND_TYPED_AND_RAW, KIND_RAW, KIND_RAW]
        topic.check_fetched()


def test_values_without_framing_are_of_the_latest_version(node: Node) -> None:
    with typed_topic(node, "plain", value_format="latest") as topic:
        first, second = order_class(ORDER, "order.proto"), order_class(WIDER, "order.proto")
        topic.registry.register_schema("plain-value", Schema(ORDER, "PROTOBUF"))
        topic.produce([first(id=n).SerializeToString() for n in range(5)])
        assert topic.move() == 5
        assert topic.view().shape.codec == "protobuf-plain-1"
        topic.registry.register_schema("plain-value", Schema(WIDER, "PROTOBUF"))
        topic.produce([second(id=1 << 40, note="n").SerializeToString(), b"\xff"])
        assert topic.move() == 2
        assert topic.column("id") == [*range(5), 1 << 40, None]
        assert topic.column("note") == [None] * 5 + ["n", None]
        assert topic.column("_kind") == [KIND_TYPED] * 6 + [KIND_RAW]
        topic.check_fetched()


def test_a_message_that_the_topic_names(node: Node) -> None:
    """Of a file with several it need not be the first."""
    text = (
        f"{HEAD} message Note {{ string text = 1; }} {LINE} message Order {{ int32 id = 1; repeated Line lines = 2; }}"
    )
    with typed_topic(node, "named", value_format="latest", value_message="shop.Order") as topic:
        topic.registry.register_schema("named-value", Schema(text, "PROTOBUF"))
        kind = order_class(text, "order.proto")
        topic.produce([kind(id=n, lines=[{"item": "tea"}]).SerializeToString() for n in range(3)])
        assert topic.move() == 3
        assert [column.name for column in topic.view().shape.value_columns] == ["id", "lines", "Note"]
        assert topic.column("id") == [0, 1, 2]
        assert topic.column("_kind") == [KIND_TYPED] * 3
        topic.registry.register_schema(
            "named-value", Schema(text.replace("id = 1;", "id = 1; string by = 3;"), "PROTOBUF")
        )
        topic.produce([kind(id=3).SerializeToString()])
        topic.move()
        assert [column.name for column in topic.view().shape.value_columns] == ["id", "lines", "Note", "by"]
        assert topic.column("id") == [0, 1, 2, 3]
        topic.check_fetched()
        with pytest.raises(KafkaException, match="for good"):
            topic.alter("value.message", "shop.Note")
    with typed_topic(node, "misnamed", value_format="latest", value_message="shop.Line") as topic:
        topic.registry.register_schema("misnamed-value", Schema(ORDER.replace("Line", "Row"), "PROTOBUF"))
        topic.produce([b"\x08\x01"])
        assert topic.move() == 1
        assert topic.column("_kind") == [KIND_RAW]
        [known] = topic.view().shape.schemas
        assert "no message shop.Line at its top: there are shop.Row, shop.Order" in known.trouble
        topic.check_fetched()
    with pytest.raises(KafkaException, match="without framing"):
        node.create("framed", value_format="schema_id", value_message="shop.Order")
