"""Hundreds of topics through librdkafka: created, written to and deleted at once, again under the same names."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.worlds.embedded import embedded

TOPICS = 400


def _wait(futures: dict[str, Any]) -> None:
    failed = {name: future.exception() for name, future in futures.items() if future.exception() is not None}
    assert failed == {}


def _produce(bootstrap: str, names: list[str]) -> list[KafkaError | None]:
    outcomes: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0})
    for name in names:
        producer.produce(name, b"v", on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(30) == 0
    return outcomes


@pytest.mark.parametrize("brokers", [1, 3])
def test_hundreds_of_topics_come_and_go(tmp_path: Path, caplog: pytest.LogCaptureFixture, brokers: int) -> None:
    names = [f"topic-{number}" for number in range(TOPICS)]
    with embedded(tmp_path, brokers) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for _ in range(2):
            _wait(admin.create_topics([NewTopic(name, 1, 1) for name in names], operation_timeout=30))
            assert _produce(cluster.bootstrap, names) == [None] * TOPICS
            _wait(admin.delete_topics(names, operation_timeout=30))
            assert admin.list_topics(timeout=10).topics == {}
    assert [record.getMessage() for record in caplog.records if "cleared away" in record.message] == []
