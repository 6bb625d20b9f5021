"""INSERT INTO the table of a topic: the rows are records, which a Kafka client reads in their order."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table
from support.worlds.doors import duck, http_door
from support.worlds.embedded import Embedded, embedded

INSERTS = {"lakestream.table.inserts": "true"}
WAIT_S = 30
_names = count()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("insert")


@pytest.fixture(scope="module")
def broker(data: Path) -> Iterator[Embedded]:
    with embedded(data) as brokers:
        yield brokers


@pytest.fixture(scope="module")
def door(data: Path, broker: Embedded) -> Iterator[str]:
    with http_door(data) as address:
        yield address


def make_topic(broker: Embedded, partitions: int = 3, **config: str) -> str:
    name = f"orders_{next(_names)}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1, config=INSERTS | config)])[name].result(WAIT_S)
    return name


def table(door: str, topic: str) -> Table:
    return RestCatalog("lake", uri=f"{door}/iceberg").load_table(("default", topic))


def rows(**columns: Any) -> pa.Table:
    """With nulls in the columns by which the table is partitioned, unless they are given: PyIceberg wants them."""
    length = len(next(iter(columns.values())))
    nowhere = {
        "_stream_partition": pa.array([None] * length, pa.int32()),
        "_offset": pa.array([None] * length, pa.int64()),
    }
    return pa.table(nowhere | columns)


def consume(broker: Embedded, topic: str, records: int, partitions: int = 3) -> list[list[tuple[Any, ...]]]:
    """By partition (offset, key, value); exactly so many records are there."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "nobody",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found: list[list[tuple[Any, ...]]] = [[] for _ in range(partitions)]
    ended: set[int] = set()
    while len(ended) < partitions or sum(map(len, found)) < records:
        message = consumer.poll(WAIT_S)
        assert message is not None, found
        if message.error() is not None:
            ended.add(message.partition())
            continue
        found[message.partition()].append((message.offset(), message.key(), message.value()))
    consumer.close()
    assert sum(map(len, found)) == records
    return found


def test_pyiceberg_appends_records(broker: Embedded, door: str) -> None:
    topic = make_topic(broker, 1)
    stream = table(door, topic)
    stream.append(rows(_key=[b"a", b"b", None], _value=[b"1", None, b"3"]))
    stream.append(rows(_value=[b"4"]))
    assert consume(broker, topic, 4, 1) == [[(0, b"a", b"1"), (1, b"b", None), (2, None, b"3"), (3, None, b"4")]]
    found = table(door, topic).scan().to_arrow()
    assert sorted(zip(found["_offset"].to_pylist(), found["_value"].to_pylist(), strict=True)) == [
        (0, b"1"),
        (1, None),
        (2, b"3"),
        (3, b"4"),
    ]


def test_duckdb_inserts_records(broker: Embedded, door: str) -> None:
    topic = make_topic(broker, 1)
    with duck(door) as engine:
        engine.execute(f"INSERT INTO lake.default.{topic} (_key, _value) VALUES ('a', '1'), ('b', '2')")
        engine.execute(f"INSERT INTO lake.default.{topic} (_value) SELECT (i::VARCHAR)::BLOB FROM range(3) t(i)")
        seen = engine.execute(f"SELECT _offset, decode(_value) FROM lake.default.{topic} ORDER BY 1").fetchall()
    expected = [(0, b"a", b"1"), (1, b"b", b"2"), (2, None, b"0"), (3, None, b"1"), (4, None, b"2")]
    assert consume(broker, topic, 5, 1) == [expected]
    assert seen == [(offset, value.decode()) for offset, _, value in expected]
