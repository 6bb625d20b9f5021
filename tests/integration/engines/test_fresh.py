"""Records that were just acked, seen by real engines through the real HTTP door, without any pipeline."""

import time
import urllib.request
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import ForbiddenError
from support.worlds.doors import duck, http_door
from support.worlds.embedded import Embedded, embedded

DEADLINE_S = 20.0
"""How long a busy machine may take; what is promised is measured by the benchmark."""
_names = count()


@pytest.fixture
def topic(broker: Embedded) -> str:
    return make_topic(broker, {})


def make_topic(broker: Embedded, config: dict[str, str]) -> str:
    name = f"orders_{next(_names)}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 3, 1, config=config)])[name].result(30)
    return name


def ack(broker: Embedded, topic: str, *values: bytes) -> None:
    """Returns when all are acked; value n goes to partition n modulo 3."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 3)
    assert producer.flush(30) == 0


def until_seen(look: Callable[[], list[bytes]], expected: list[bytes]) -> float:
    """Seconds until an engine that polls sees exactly these."""
    started = time.monotonic()
    while True:
        found = sorted(look())
        if found == sorted(expected):
            return time.monotonic() - started
        assert set(found) <= set(expected)
        assert len(found) == len(set(found))
        assert time.monotonic() - started < DEADLINE_S, found
        time.sleep(0.02)


def metrics(door: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{door}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def test_pyiceberg_sees_what_was_just_acked(broker: Embedded, door: str, topic: str) -> None:
    catalog = RestCatalog("lake", uri=f"{door}/iceberg")

    def look() -> list[bytes]:
        return catalog.load_table(f"default.{topic}").scan().to_arrow()["_value"].to_pylist()  # type: ignore[no-any-return]

    assert look() == []
    for number in range(1, 4):
        values = [b"%d" % each for each in range(number * 4)]
        ack(broker, topic, *values[-4:])
        until_seen(look, values)
    files = [task.file for task in catalog.load_table(f"default.{topic}").scan().plan_files()]
    assert {file.spec_id for file in files} == {0}
    catalog.close()


def test_duckdb_sees_what_was_just_acked(broker: Embedded, door: str, topic: str) -> None:
    """With one connection, which never asks for anything to be reloaded."""
    ack(broker, topic, b"a", b"b", b"c", b"d")
    with duck(door) as connection:

        def look() -> list[bytes]:
            return [row[0] for row in connection.execute(f"SELECT _value FROM lake.default.{topic}").fetchall()]

        until_seen(look, [b"a", b"b", b"c", b"d"])
        ack(broker, topic, b"e")
        until_seen(look, [b"a", b"b", b"c", b"d", b"e"])


def test_duckdb_inside_a_transaction_keeps_the_table_it_began_with(broker: Embedded, door: str) -> None:
    topic = make_topic(broker, {"lakestream.table.freshness.ms": "0"})
    ack(broker, topic, b"a")
    with duck(door) as connection:
        select = f"SELECT count(*) FROM lake.default.{topic}"
        connection.execute("BEGIN")
        assert connection.execute(select).fetchall() == [(1,)]
        ack(broker, topic, b"b")
        time.sleep(1.1)
        assert connection.execute(select).fetchall() == [(1,)]
        connection.execute("COMMIT")
        assert connection.execute(select).fetchall() == [(2,)]


@pytest.mark.spark
def test_spark_sees_what_was_just_acked(broker: Embedded, door: str, topic: str, spark: Any) -> None:
    """A catalog without a cache sees it; one with its default cache shows that it has to be off."""
    for name, cached in (("fresh", "false"), ("cached", "true")):
        spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
        spark.conf.set(f"spark.sql.catalog.{name}.type", "rest")
        spark.conf.set(f"spark.sql.catalog.{name}.uri", f"{door}/iceberg")
        spark.conf.set(f"spark.sql.catalog.{name}.cache-enabled", cached)

    def look(name: str) -> list[bytes]:
        return [bytes(row[0]) for row in spark.sql(f"SELECT _value FROM {name}.default.{topic}").collect()]

    ack(broker, topic, b"a", b"b")
    until_seen(lambda: look("fresh"), [b"a", b"b"])
    assert sorted(look("cached")) == [b"a", b"b"]
    ack(broker, topic, b"c")
    until_seen(lambda: look("fresh"), [b"a", b"b", b"c"])
    assert sorted(look("cached")) == [b"a", b"b"]
    spark.sql(f"REFRESH TABLE cached.default.{topic}")
    until_seen(lambda: look("cached"), [b"a", b"b", b"c"])


def test_a_topic_may_do_without(broker: Embedded, door: str) -> None:
    topic = make_topic(broker, {"lakestream.table.freshness.ms": "-1"})
    ack(broker, topic, b"a")
    catalog = RestCatalog("lake", uri=f"{door}/iceberg")
    assert catalog.load_table(f"default.{topic}").scan().to_arrow().num_rows == 0
    catalog.close()


def test_metrics_tell_what_it_took(broker: Embedded, door: str, topic: str) -> None:
    before = metrics(door)
    ack(broker, topic, b"a", b"b")
    catalog = RestCatalog("lake", uri=f"{door}/iceberg")
    for _ in range(2):
        catalog.load_table(f"default.{topic}")
    catalog.close()
    after = metrics(door)
    gained = {name: after[name] - before[name] for name in before if name.startswith("lakestream_fresh_")}
    assert (gained["lakestream_fresh_loads_total"], gained["lakestream_fresh_records_total"]) == (2, 2)
    assert gained["lakestream_fresh_commits_total"] == 1
    assert gained["lakestream_fresh_fresh_total"] == 2


def test_damage_is_told_and_the_table_is_answered_all_the_same(tmp_path: Path) -> None:
    with embedded(tmp_path) as broker, http_door(tmp_path) as door:
        topic = make_topic(broker, {"lakestream.table.freshness.ms": "0"})
        catalog = RestCatalog("lake", uri=f"{door}/iceberg")
        ack(broker, topic, b"a")
        assert catalog.load_table(f"default.{topic}").scan().to_arrow().num_rows == 1
        before = set((tmp_path / "bucket" / "wal").rglob("*.wal"))
        ack(broker, topic, b"b")
        for path in set((tmp_path / "bucket" / "wal").rglob("*.wal")) - before:
            path.write_bytes(bytes(path.stat().st_size))
        table = catalog.load_table(f"default.{topic}")
        assert table.scan().to_arrow().num_rows == 1
        assert (table.properties["lakestream.freshness"], table.properties["lakestream.lag"]) == ("failed", "1")
        assert metrics(door)["lakestream_fresh_failed_total"] == 1
        catalog.close()


def test_files_are_compressed_as_the_table_asks(door: str, broker: Embedded, topic: str) -> None:
    catalog = RestCatalog("lake", uri=f"{door}/iceberg")
    ack(broker, topic, b"one")
    table = catalog.load_table(("default", topic))
    with table.transaction() as change:
        change.set_properties({"write.parquet.compression-codec": "gzip", "write.parquet.compression-level": "6"})
    ack(broker, topic, b"two")

    def later_codecs() -> set[str]:
        files = catalog.load_table(("default", topic)).inspect.files().to_pylist()
        newest = [file for file in files if file["file_path"] not in {known["file_path"] for known in before}]
        metadata = [pq.read_metadata(file["file_path"].removeprefix("file://")) for file in newest]
        return {found.row_group(0).column(0).compression for found in metadata}

    before = table.inspect.files().to_pylist()
    deadline = time.monotonic() + DEADLINE_S
    while later_codecs() != {"GZIP"}:
        assert time.monotonic() < deadline, later_codecs()
        time.sleep(0.05)
    with (
        pytest.raises(ForbiddenError, match="'lzo', and streams write zstd"),
        table.refresh().transaction() as change,
    ):
        change.set_properties({"write.parquet.compression-codec": "lzo"})
