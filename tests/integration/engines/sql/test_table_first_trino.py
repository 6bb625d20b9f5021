"""Streams that Trino makes, alters, fills and drops; it gives no property a meaning of ours, so the namespace does."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from conftest import need
from support.servers.trino import Trino, trino, trino_archive
from support.worlds.doors import http_door
from support.worlds.embedded import Embedded, embedded

pytestmark = pytest.mark.slow

WAIT_S = 30


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Embedded, str, Trino]]:
    archive = need(trino_archive(), "Trino (LAKESTREAM_TRINO_JARS)")
    data: Path = tmp_path_factory.mktemp("trino")
    with embedded(data) as broker, http_door(data) as door, trino(archive, data / "engine", f"{door}/iceberg") as found:
        said = {"lakestream.stream": "true", "lakestream.partitions": "1", "lakestream.table.inserts": "true"}
        answer = httpx.post(f"{door}/iceberg/v1/namespaces", json={"namespace": ["shop"], "properties": said})
        assert answer.status_code == 200, answer.text
        yield broker, door, found


def values_of(broker: Embedded, door: str, topic: str, count: int) -> list[Any]:
    """What a consumer reads, by Confluent's deserializer."""
    with SchemaRegistryClient({"url": f"{door}/registry"}) as registry:
        read = AvroDeserializer(registry)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "nobody"})
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = [consumer.poll(WAIT_S) for _ in range(count)]
        consumer.close()
        where = SerializationContext(topic, MessageField.VALUE)
        return [read(message.value(), where) for message in found if message is not None]


def topics(broker: Embedded) -> set[str]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "nobody"})
    try:
        return set(consumer.list_topics(timeout=WAIT_S).topics)
    finally:
        consumer.close()


def test_trino_makes_fills_alters_and_drops_a_stream(places: tuple[Embedded, str, Trino]) -> None:
    broker, door, engine = places
    engine.run(
        "CREATE TABLE shop.orders (id bigint, item varchar, price decimal(9, 2), ts timestamp(6) with time zone)"
        " WITH (partitioning = ARRAY['day(ts)'], sorted_by = ARRAY['id'])"
    )
    assert "shop.orders" in topics(broker)
    latest = f"{door}/registry/subjects/shop.orders-value/versions/latest"
    assert [field["name"] for field in httpx.get(f"{latest}/schema").json()["fields"]] == ["id", "item", "price", "ts"]
    engine.run(
        "INSERT INTO shop.orders (id, item, price, ts) VALUES (1, 'espresso', DECIMAL '2.40', TIMESTAMP '2026-01-02"
        " 03:04:05 UTC'), (2, NULL, NULL, NULL)"
    )
    # Rows of two days are in two files, in whatever order.
    found = sorted(values_of(broker, door, "shop.orders", 2), key=lambda value: int(value["id"]))
    assert [(value["id"], value["item"], str(value["price"])) for value in found] == [
        (1, "espresso", "2.40"),
        (2, None, "None"),
    ]
    engine.run("ALTER TABLE shop.orders ADD COLUMN note varchar")
    engine.run("ALTER TABLE shop.orders RENAME COLUMN item TO thing")
    names = [field["name"] for field in httpx.get(f"{latest}/schema").json()["fields"]]
    assert names == ["id", "thing", "price", "ts", "note"]
    engine.run("INSERT INTO shop.orders (id, thing, note) VALUES (3, 'tea', 'hot')")
    rows = engine.run("SELECT id, thing, note FROM shop.orders ORDER BY id")
    assert rows == [[1, "espresso", None], [2, None, None], [3, "tea", "hot"]]
    assert engine.run("SELECT _offset FROM shop.orders ORDER BY 1") == [[0], [1], [2]]
    assert values_of(broker, door, "shop.orders", 3)[2]["note"] == "hot"
    engine.run("ALTER TABLE shop.orders RENAME TO shop.sales")
    assert engine.run("SELECT count(*) FROM shop.sales") == [[3]]
    engine.run("DROP TABLE shop.sales")
    assert "shop.orders" not in topics(broker)


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("CREATE TABLE shop.filled AS SELECT BIGINT '1' AS id", "begins without rows"),
        ("CREATE TABLE shop.strict (id bigint NOT NULL)", "NOT NULL"),
        ("CREATE TABLE shop.clock (at time(6))", "time"),
    ],
)
def test_what_cannot_be_is_refused_in_words(places: tuple[Embedded, str, Trino], statement: str, why: str) -> None:
    broker, _, engine = places
    with pytest.raises(RuntimeError, match=why):
        engine.run(statement)
    assert not {"shop.filled", "shop.strict", "shop.clock"} & topics(broker)
