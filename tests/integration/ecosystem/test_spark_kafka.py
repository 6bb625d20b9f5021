"""Spark's own source and sink for Kafka, in batches and as streams, from the log and from the table."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.clients.committed import committed
from support.clients.java_programs import spark_kafka_jars
from support.worlds.processes import ProcessWorld

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PARTITIONS = 3
RECORDS = 1_200


@pytest.fixture
def session(spark: Any) -> Any:
    if not spark_kafka_jars():
        pytest.skip("Spark's Kafka source (LAKESTREAM_ECOSYSTEM_JARS) is missing: `make test-all` fetches it")
    return spark


@pytest.fixture
def brokers(cluster: Callable[..., ProcessWorld]) -> ProcessWorld:
    made = cluster(brokers=2)
    admin = AdminClient({"bootstrap.servers": made.bootstrap})
    for future in admin.create_topics([NewTopic(name, PARTITIONS) for name in ("in", "out")]).values():
        future.result(20)
    return made


def _produce(bootstrap: str, first: int) -> list[tuple[int, bytes, bytes]]:
    """Committed records of three kinds of transactions, one of which is aborted."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "writer", "log_level": 0})
    producer.init_transactions(20)
    rows = []
    for start in range(first, first + RECORDS, 100):
        producer.begin_transaction()
        aborted = start % 300 == 0
        for number in range(start, start + 100):
            row = (number % PARTITIONS, b"key %d" % number, b"value %d" % number)
            producer.produce("in", row[2], row[1], row[0], headers=[("n", b"%d" % number)], timestamp=10_000 + number)
            if not aborted:
                rows.append(row)
        producer.abort_transaction(20) if aborted else producer.commit_transaction(20)
    return sorted(rows)


def _source(reader: Any, bootstrap: str, **options: str) -> Any:
    settings = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": "in",
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
        **options,
    }
    return reader.format("kafka").options(**settings).load()


def _read(frame: Any) -> list[tuple[int, bytes, bytes]]:
    return sorted((row.partition, bytes(row.key), bytes(row.value)) for row in frame.collect())


def test_batches(session: Any, brokers: ProcessWorld) -> None:
    written = _produce(brokers.bootstrap, 0)
    frame = _source(session.read, brokers.bootstrap)
    assert _read(frame) == written
    assert all(row.headers[0].value == bytes(row.value)[6:] for row in frame.collect())
    late = _source(session.read, brokers.bootstrap, startingTimestamp="11100")
    assert sorted(_read(late)) == [row for row in written if int(row[2][6:]) >= 1_100]

    brokers.run_pipeline_once()
    written += _produce(brokers.bootstrap, RECORDS)
    assert _read(_source(session.read, brokers.bootstrap)) == sorted(written)
    split = _source(session.read, brokers.bootstrap, minPartitions="9")
    assert _read(split) == sorted(written)

    out = frame.selectExpr("key", "value", "headers", "partition")
    out.write.format("kafka").option("kafka.bootstrap.servers", brokers.bootstrap).option("topic", "out").save()
    copied = committed(brokers.bootstrap, "out")
    assert sorted((m.partition(), m.key(), m.value()) for m in copied) == sorted(written)
    assert all(m.headers() == [("n", m.value()[6:])] for m in copied)


def test_streams(session: Any, brokers: ProcessWorld, tmp_path: Path) -> None:
    written: list[tuple[int, bytes, bytes]] = []

    def copy() -> None:
        """What is there, in several micro-batches; it goes on where the last run has stopped."""
        stream = _source(session.readStream, brokers.bootstrap, maxOffsetsPerTrigger="700")
        copying = (
            stream.selectExpr("key", "value", "partition")
            .writeStream.format("kafka")
            .options(**{"kafka.bootstrap.servers": brokers.bootstrap, "topic": "out"})
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert copying.awaitTermination(120)

    for part in range(3):
        written += _produce(brokers.bootstrap, part * RECORDS)
        if part == 1:
            brokers.run_pipeline_once()
        if part == 2:
            brokers.brokers[1].kill()
            brokers.start_broker(1)
        copy()
        copied = sorted((m.partition(), m.key(), m.value()) for m in committed(brokers.bootstrap, "out"))
        assert copied == sorted(written)
