"""A registry of the user's own, in a process of its own: used by brokers and tables, missed within bounds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import RESTError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from support.clients.producers import stored
from support.schemas.avro import framed
from support.schemas.typed import ORDER, order, typed_topic
from support.worlds.doors import http_door
from support.worlds.processes import HOST, ProcessWorld, Running, free_ports
from support.worlds.source import source_node

from lakestream.table.shape import KIND_TYPED

Start = Callable[..., Running]


def send(bootstrap: str, topic: str, values: list[bytes | None], **config: Any) -> set[int | None]:
    told: set[int | None] = set()
    producer = Producer({"bootstrap.servers": bootstrap, "error_cb": lambda error: None} | config)
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: told.add(error and error.code()))
    assert producer.flush(30) == 0
    return told


def test_its_outage_stops_neither_log_nor_tables(start: Start, tmp_path: Path) -> None:
    peer = ProcessWorld(tmp_path / "peer", {}, start, [free_ports()])
    peer.start_http()
    theirs = f"http://{HOST}:{peer.http_port}/registry"
    settings = {"schemas.registry_url": theirs, "schemas.timeout_ms": 1_000, "stream.view_check_ms": 50}
    with (
        source_node(tmp_path / "data", **settings) as node,
        typed_topic(node, "orders", schema_validation="id") as topic,
    ):
        node.create("plain", 1)
        with SchemaRegistryClient({"url": theirs}) as registry:
            topic.registry = registry
            write = topic.avro(ORDER)
            topic.produce([write(order(number)) for number in range(10)])
            assert topic.move() == 10
            assert topic.column("_kind") == [KIND_TYPED] * 10
            assert send(node.bootstrap, "orders", [framed(999, b"")]) == {KafkaError.INVALID_RECORD}
            assert peer.http is not None
            peer.http.kill()
            topic.produce([write(order(number)) for number in range(10, 20)])
            unknown = framed(998, b"x")
            assert send(node.bootstrap, "orders", [unknown], **{"message.timeout.ms": 2_500}) == {
                KafkaError._MSG_TIMED_OUT
            }
            assert send(node.bootstrap, "plain", [unknown]) == {None}
            assert topic.move() == 11
            assert topic.column("_kind") == [KIND_TYPED] * 20
            topic.check_fetched()
            peer.start_http()
            told = send(node.bootstrap, "orders", [unknown], **{"message.timeout.ms": 20_000})
            assert told == {KafkaError.INVALID_RECORD}, "it is asked again"
            wider = ORDER | {"fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": ""}]}
            topic.produce([topic.avro(wider)(order(20) | {"note": "n"})])
            assert topic.move() == 1
            assert topic.column("note")[-1] == "n"
        assert stored(node, "orders") == list(topic.sent.values())


def test_engines_are_told_to_register_there(tmp_path: Path) -> None:
    columns = Schema(NestedField(1, "id", LongType()))
    stream = {"lakestream.stream": "true"}
    with http_door(tmp_path) as door:
        RestCatalog("lake", uri=f"{door}/iceberg").create_table("default.orders", columns, properties=stream)
    nobody = f"http://{HOST}:{free_ports(1)}"
    with (
        http_door(tmp_path, **{"schemas.registry_url": nobody}) as door,
        SchemaRegistryClient({"url": f"{door}/registry"}) as ours,
    ):
        lake = RestCatalog("lake", uri=f"{door}/iceberg")
        with pytest.raises(
            RESTError, match=r"a registry of the owner's\. Make the topic and register the schema there"
        ):
            lake.create_table("default.others", columns, properties=stream)
        with (
            pytest.raises(RESTError, match="register the next version of the subject"),
            lake.load_table("default.orders").update_schema() as change,
        ):
            change.add_column("note", LongType())
        assert ours.get_subjects() == ["orders-value"]
        assert ours.get_versions("orders-value") == [1]
        assert lake.list_tables("default") == [("default", "orders")]
        assert "note" not in lake.load_table("default.orders").schema().column_names
        lake.create_table("default.plain", columns)
