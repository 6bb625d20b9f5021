"""A node whose producers use the serializers of confluent-kafka, and what comes out at all its doors."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pyarrow as pa
import requests
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyiceberg.catalog.rest import RestCatalog

from lakestream.frontier.upkeep.maintenance import Maintenance
from lakestream.frontier.upkeep.replaying import Replayed, replay
from lakestream.table.view import View
from support.worlds.source import Node

_SET = AlterConfigOpType.SET
Serialize = Callable[[Any], bytes]

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "item", "type": "string"},
        {"name": "amount", "type": ["null", "double"], "default": None},
    ],
}


def order(number: int) -> dict[str, Any]:
    return {"id": number, "item": f"item {number % 3}", "amount": None if number % 5 == 4 else number / 2}


@dataclass
class TypedTopic:
    """One partition. `sent` has the values by offset."""

    node: Node
    name: str
    registry: SchemaRegistryClient
    sent: dict[int, bytes | None] = field(default_factory=dict)

    def avro(self, schema: Any) -> Serialize:
        """Registers the schema with its first value."""
        serializer = AvroSerializer(self.registry, json.dumps(schema))
        where = SerializationContext(self.name, MessageField.VALUE)
        return lambda value: serializer(value, where)

    def produce(self, values: Sequence[bytes | None]) -> None:
        producer = Producer({"bootstrap.servers": self.node.bootstrap})
        for value in values:
            offset = len(self.sent)
            self.sent[offset] = value
            producer.produce(self.name, value, b"k%d" % (offset % 7), partition=0)
        assert producer.flush(60) == 0

    def alter(self, name: str, value: str) -> None:
        """A setting below `lakestream`."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.name)
        resource.add_incremental_config(ConfigEntry(f"lakestream.{name}", value, incremental_operation=_SET))
        admin = AdminClient({"bootstrap.servers": self.node.bootstrap})
        admin.incremental_alter_configs([resource])[resource].result(30)

    def merge(self) -> None:
        """The table's files become one."""
        lake = self.node.lake
        settings = msgspec.structs.replace(lake.settings, min_merge_files=2)
        keeper = Maintenance(replace(lake, settings=settings), self.node.topics, name="t", respect_leases=False)
        self.node.run(keeper.maintain(self.node.run(self.node.topics.by_names([self.name]))[self.name]))

    def maintain(self, **settings: int) -> None:
        """Until nothing is left to merge, with files of its own for every partition."""
        lake = self.node.lake
        chosen = msgspec.structs.replace(lake.settings, min_merge_files=2, own_file_bytes=1, **settings)
        keeper = Maintenance(replace(lake, settings=chosen), self.node.topics, name="t", respect_leases=False)
        for _ in range(5):
            self.node.run(keeper.maintain(self.node.run(self.node.topics.by_names([self.name]))[self.name]))

    def replay(self, told: list[Replayed] | None = None) -> Replayed:
        node = self.node
        found = node.run(node.topics.by_names([self.name]))[self.name]
        done: Replayed = node.run(replay(node.lake, found, (told if told is not None else []).append))
        return done

    def register_as(self, subject: str, schema: Any, schema_id: int) -> None:
        """Under an id that records name already, as after a move from another registry."""
        for path, method, body in (
            (f"/mode/{subject}?force=true", "PUT", {"mode": "IMPORT"}),
            (f"/subjects/{subject}/versions", "POST", {"schema": json.dumps(schema), "id": schema_id}),
            (f"/mode/{subject}?force=true", "PUT", {"mode": "READWRITE"}),
        ):
            answer = requests.request(method, self.node.registry + path, json=body, timeout=20)
            assert answer.status_code == 200, answer.text

    def move(self) -> int:
        return self.node.move()

    def view(self) -> View:
        found = self.node.run(self.node.topics.by_names([self.name]))[self.name]
        view: View = self.node.run(self.node.lake.catalog.load(found.topic_id))
        return view

    def rows(self) -> dict[int, dict[str, Any]]:
        """As an engine sees them, by offset."""
        with closing(RestCatalog("lake", uri=self.node.uri)) as catalog:
            found: pa.Table = catalog.load_table(f"default.{self.name}").scan().to_arrow()
        rows = {row["_offset"]: row for row in found.to_pylist()}
        assert len(rows) == found.num_rows
        return rows

    def column(self, name: str) -> list[Any]:
        """In order of the offsets."""
        return [row[name] for _, row in sorted(self.rows().items())]

    def check_fetched(self) -> None:
        """Consumers get what was sent, to the byte."""
        consumer = Consumer({"bootstrap.servers": self.node.bootstrap, "group.id": "g", "enable.auto.commit": False})
        found: dict[int, bytes | None] = {}
        try:
            consumer.assign([TopicPartition(self.name, 0, min(self.sent))])
            while max(found, default=-1) < max(self.sent):
                message = consumer.poll(60)
                assert message is not None, sorted(found)[-3:]
                assert message.error() is None, message.error()
                found[message.offset()] = message.value()
        finally:
            consumer.close()
        assert found == self.sent


@contextmanager
def closing(catalog: RestCatalog) -> Iterator[RestCatalog]:
    try:
        yield catalog
    finally:
        catalog.close()


@contextmanager
def typed_topic(node: Node, name: str, **configs: str) -> Iterator[TypedTopic]:
    node.create(name, 1, **({"value_format": "schema_id"} | configs))
    with SchemaRegistryClient({"url": node.registry}) as registry:
        yield TypedTopic(node, name, registry)
