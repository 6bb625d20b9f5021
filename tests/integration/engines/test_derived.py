"""Derived tables as engines and people read them: from a serializer to DuckDB, PyIceberg and Spark."""

import json
import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import ForbiddenError
from support.schemas.debezium import ENVELOPE
from support.worlds.source import Node, source_node

from lakestream.cli.tables.query import connect
from lakestream.frontier.derived.deriving import Deriver

_catalogs = count()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with source_node(tmp_path_factory.mktemp("derived"), **{"stream.view_check_ms": 50}) as opened:
        yield opened


@pytest.fixture
def registry(node: Node) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": node.registry}) as client:
        yield client


def derive(node: Node) -> None:
    """What the pipeline does until nothing is due."""
    while node.move():
        pass
    assert node.lake.catalog.derived is not None  # type: ignore[attr-defined]
    deriver = Deriver(node.lake, node.topics, node.lake.catalog.derived, name="t", respect_leases=False)  # type: ignore[attr-defined]
    while (done := node.run(deriver.run())).more:
        pass
    assert not done.failures


def send(node: Node, topic: str, *pairs: tuple[bytes, bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for key, value in pairs:
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(30) == 0


def in_duckdb(node: Node, sql: str) -> list[tuple[Any, ...]]:
    with connect(node.uri) as connection:
        return connection.execute(sql).fetchall()


@pytest.mark.spark
def test_engines_read_the_latest_rows(node: Node, spark: Any) -> None:
    node.create("prices", 2, table_upsert="_key")
    want = {}
    for number in range(5):
        pairs: list[tuple[bytes, bytes | None]] = [
            (b"k%03d" % key, b"%d" % number) for key in range(number, 400, 7 * number + 1)
        ]
        pairs += [(b"k%03d" % key, None) for key in range(number, 400, 50)]
        send(node, "prices", *pairs)
        want |= dict(pairs)
        derive(node)
    rows = {key: value for key, value in want.items() if value is not None}
    catalog = RestCatalog("lake", uri=node.uri)
    table = catalog.load_table("default.prices__latest")
    assert int(table.current_snapshot().summary["total-position-deletes"]) > 0  # type: ignore[union-attr,index]
    found = table.scan(selected_fields=("_key", "_value")).to_arrow()
    assert dict(zip(found["_key"].to_pylist(), found["_value"].to_pylist(), strict=True)) == rows
    assert found.num_rows == len(rows)
    [one] = table.scan(row_filter="_offset = 0").to_arrow().to_pylist() or [None]
    assert one is None or one["_offset"] == 0
    assert dict(in_duckdb(node, "SELECT _key, _value FROM prices__latest")) == rows
    name = f"derived_{next(_catalogs)}"
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"spark.sql.catalog.{name}.type", "rest")
    spark.conf.set(f"spark.sql.catalog.{name}.uri", node.uri)
    read = spark.sql(f"SELECT _key, _value FROM {name}.default.prices__latest").collect()
    assert {bytes(row._key): bytes(row._value) for row in read} == rows
    assert len(read) == len(rows)
    some = spark.sql(f"SELECT count(*) AS n FROM {name}.default.prices__latest WHERE _key = X'6B303031'").collect()
    assert some[0].n == (1 if b"k001" in rows else 0)
    with pytest.raises(ForbiddenError, match="derived from the table of a topic"):
        table.delete("_offset >= 0")
    with pytest.raises(Exception, match="derived from the table of a topic"):
        spark.sql(f"DELETE FROM {name}.default.prices__latest WHERE _offset = 1")


def test_change_events_of_a_serializer_are_rows_of_a_table(node: Node, registry: SchemaRegistryClient) -> None:
    node.create("customers", 1, value_format="schema_id", value_transform="debezium", table_upsert="id")
    serialize = AvroSerializer(registry, json.dumps(ENVELOPE))
    place = SerializationContext("customers", MessageField.VALUE)

    def event(op: str, before: str | None, after: str | None, number: int) -> tuple[bytes, bytes | None]:
        images = [None if name is None else {"id": number, "name": name, "version": None} for name in (before, after)]
        value = {"before": images[0], "after": images[1], "source": {"lsn": 1}, "op": op, "ts_ms": 1}
        return b"%d" % number, serialize(value, place)

    send(node, "customers", event("r", None, "ann", 1), event("c", None, "bob", 2), event("c", None, "cid", 3))
    send(node, "customers", event("u", "bob", "rob", 2), event("d", "cid", None, 3), (b"3", None))
    derive(node)
    assert in_duckdb(node, "SELECT id, name FROM customers__latest ORDER BY id") == [(1, "ann"), (2, "rob")]
    assert in_duckdb(node, "SELECT count(*), count(op) FROM customers") == [(6, 5)]
    grown = json.loads(json.dumps(ENVELOPE))
    grown["fields"][0]["type"][1]["fields"].append({"name": "city", "type": ["null", "string"], "default": None})
    serialize = AvroSerializer(registry, json.dumps(grown))
    value = {"id": 4, "name": "dan", "version": 9, "city": "Bonn"}
    told = {"before": None, "after": value, "source": {"lsn": 1}, "op": "c", "ts_ms": 1}
    send(node, "customers", (b"4", serialize(told, place)), (b"1", None))
    derive(node)
    assert in_duckdb(node, "SELECT id, name, city FROM customers__latest ORDER BY id") == [
        (2, "rob", None),
        (4, "dan", "Bonn"),
    ]


def test_dead_letters_are_listed(
    node: Node, registry: SchemaRegistryClient, cli: "Callable[..., subprocess.CompletedProcess[str]]"
) -> None:
    node.create("bills", 1, value_format="schema_id")
    schema = {"type": "record", "name": "Bill", "fields": [{"name": "sum", "type": "long"}]}
    serialize = AvroSerializer(registry, json.dumps(schema))
    good = serialize({"sum": 5}, SerializationContext("bills", MessageField.VALUE))
    assert good is not None
    send(node, "bills", (b"a", good), (b"b", b"rubbish"), (b"c", good[:-1]), (b"d", None))
    derive(node)
    [listed] = [json.loads(line) for line in cli("dlq", "list", "--json", "--catalog", node.uri).stdout.splitlines()]
    assert (listed["topic"], listed["table"], listed["letters"]) == ("bills", "default.bills__dlq", 2)
    done = cli("dlq", "show", "bills", "--json", "--catalog", node.uri)
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["partition"], each["offset"], each["key"]) for each in shown] == [(0, 1, "b"), (0, 2, "c")]
    assert shown[0]["value"] == "rubbish"
    assert all(each["reason"] for each in shown)
    assert "what is wrong" in cli("dlq", "show", "bills", "--catalog", node.uri).stdout
    assert "has no dead letters" in cli("dlq", "show", "customers", "--catalog", node.uri).stderr
    assert in_duckdb(node, 'SELECT count(*), sum("sum") FROM bills') == [(4, 5)]
