"""Flink's Kafka connector: a copy of a topic that is exactly once, by transactions that end with its checkpoints."""

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.clients.committed import committed, until
from support.clients.java_programs import JavaPrograms
from support.worlds.processes import ProcessWorld

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(420)]

QUICK = {"LAKESTREAM_STREAM_BROKER_TTL_MS": "3000", "LAKESTREAM_KAFKA_TRANSACTIONS_SWEEP_INTERVAL_MS": "500"}
WAIT_S = 120.0
A_PART = 2_000
PARTITIONS = 3
OPENED = [
    option
    for package in ("util", "lang", "time", "net", "nio", "util.concurrent", "util.concurrent.atomic")
    for option in ("--add-opens", f"java.base/java.{package}=ALL-UNNAMED")
]


def _checkpoint(folder: Path) -> str:
    """The newest that is complete, of any run."""
    done = sorted(folder.glob("*/chk-*/_metadata"), key=lambda found: found.stat().st_mtime)
    return str(done[-1].parent) if done else ""


def test_a_copy_is_exactly_once(
    cluster: Callable[..., ProcessWorld], programs: Callable[..., JavaPrograms], kafka_libs: str, tmp_path: Path
) -> None:
    brokers = cluster(brokers=2, environment=QUICK)
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    for made in admin.create_topics([NewTopic(name, PARTITIONS) for name in ("in", "out")]).values():
        made.result(20)
    producer = Producer({"bootstrap.servers": brokers.bootstrap, "enable.idempotence": True, "log_level": 0})
    written: list[str] = []

    def produce() -> None:
        for _ in range(A_PART):
            written.append(f"{len(written):06}")
            producer.produce("in", written[-1], partition=len(written) % PARTITIONS)
        assert producer.flush(60) == 0

    def copied() -> list[str]:
        return sorted(message.value().decode() for message in committed(brokers.bootstrap, "out"))

    flink = programs("*", *map(str, Path(kafka_libs).glob("log4j-*.jar")))
    flink.compile("Copy.java")
    checkpoints = tmp_path / "checkpoints"
    where = (brokers.bootstrap, checkpoints.as_uri())
    produce()
    running = flink.start("Copy", *where, options=OPENED)

    def told() -> object:
        return running.output[-5000:]

    until(lambda: copied() == written, WAIT_S, told)
    for again in range(2):
        produce()
        running.kill()
        if again:
            brokers.brokers[0].kill()
            brokers.start_broker(0)
        produce()
        running = flink.start("Copy", *where, f"file://{_checkpoint(checkpoints)}", options=OPENED)
        until(lambda: len(copied()) >= len(written), WAIT_S, told)
        assert copied() == written
