"""Debian's kcat, whose librdkafka 2.0 reads what a broker can do off the ranges of its API versions."""

import subprocess
from collections.abc import Iterator
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition
from support.worlds.embedded import Embedded, embedded


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with embedded(tmp_path_factory.mktemp("data")) as brokers:
        yield brokers


def _stored_bytes(broker: Embedded) -> int:
    return sum(path.stat().st_size for path in broker.data.rglob("*.wal"))


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_it_compresses(kcat: str, broker: Embedded, compression: str) -> None:
    topic = f"t-{uuid4().hex[:8]}"
    lines = "".join(f"line {number} of a text that repeats itself\n" for number in range(2_000))
    before = _stored_bytes(broker)
    produce = [kcat, "-P", "-b", broker.bootstrap, "-t", topic, "-p", "0", "-X", f"compression.type={compression}"]
    sent = subprocess.run([*produce, "-X", "linger.ms=200"], input=lines, capture_output=True, text=True, timeout=30)
    assert (sent.returncode, sent.stderr) == (0, "")
    assert _stored_bytes(broker) - before < len(lines) / 3
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic})
    consumer.assign([TopicPartition(topic, 0, 0)])
    read = [message.value() for message in consumer.consume(2_000, 30)]
    consumer.close()
    assert read == lines.encode().splitlines()
