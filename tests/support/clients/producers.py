"""Idempotent producers of both kinds, buckets with bad days, and what must hold afterwards."""

import asyncio
import json
import logging
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from lakestream.errors import Unavailable
from lakestream.metadata.log.producers import expire_producers
from lakestream.metadata.stores.sqlite.store import open_sqlite
from lakestream.metadata.topics.list import Topics
from lakestream.objects.local.store import LocalObjects
from lakestream.runtime import system
from support.worlds.embedded import Embedded


@contextmanager
def failing_puts(share: float) -> Iterator[list[str]]:
    """The bucket refuses this share of all objects; what it refuses, it names and does not keep."""
    real, chance, refused = LocalObjects.put, random.Random(5), list[str]()

    async def put(self: LocalObjects, key: str, parts: Sequence[Any], **more: Any) -> None:
        if chance.random() < share:
            refused.append(key)
            raise Unavailable("the bucket has a bad day")
        await real(self, key, parts, **more)

    with patch.object(LocalObjects, "put", put):
        yield refused


@contextmanager
def first_put_fails(begun: threading.Event) -> Iterator[None]:
    """The next object is refused after a while; those behind it are taken at once."""
    real, lock = LocalObjects.put, threading.Lock()

    async def put(self: LocalObjects, key: str, parts: Sequence[Any], **more: Any) -> None:
        if not begun.is_set():
            with lock:
                is_first = not begun.is_set()
                begun.set()
            if is_first:
                await asyncio.sleep(0.5)
                raise Unavailable("the bucket has a bad moment")
        await real(self, key, parts, **more)

    with patch.object(LocalObjects, "put", put):
        yield


@contextmanager
def slow_puts(delay_s: float) -> Iterator[None]:
    """The bucket takes every object, long after the client's patience has ended."""
    real = LocalObjects.put

    async def put(self: LocalObjects, key: str, parts: Sequence[Any], **more: Any) -> None:
        await asyncio.sleep(delay_s)
        await real(self, key, parts, **more)

    with patch.object(LocalObjects, "put", put):
        yield


class Sender:
    """A librdkafka producer that remembers how each of its values ended."""

    def __init__(self, brokers: Embedded, topic: str, **config: Any) -> None:
        self.acked: list[bytes] = []
        self.offsets: dict[bytes, int | None] = {}
        self.failed: dict[bytes, KafkaError] = {}
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": brokers.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "batch.num.messages": 3,
                "message.timeout.ms": 60_000,
                "retry.backoff.ms": 20,
                "logger": _quiet(),
                "error_cb": lambda error: None,
                **config,
            }
        )

    def send(self, *values: bytes) -> None:
        for value in values:
            try:
                self._producer.produce(self._topic, value, partition=0, on_delivery=self._delivered)
            except KafkaException as error:
                self.failed[value] = error.args[0]
            with suppress(KafkaException, SystemError):
                self._producer.poll(0)

    def flush(self, timeout_s: float = 60) -> None:
        deadline = time.monotonic() + timeout_s
        while len(self._producer) and time.monotonic() < deadline:
            # The Python client raises a fatal error out of whatever it does, as it likes.
            with suppress(KafkaException, SystemError):
                self._producer.flush(1)

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.acked.append(message.value())
            self.offsets[message.value()] = message.offset()
        else:
            self.failed[message.value()] = error


def _quiet() -> logging.Logger:
    logger = logging.getLogger("quiet-librdkafka")
    logger.setLevel(logging.CRITICAL + 1)
    return logger


def create(brokers: Embedded, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(20)


def recreate(brokers: Embedded, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    admin.delete_topics([topic])[topic].result(20)
    # A producer that asks for it may be faster.
    with suppress(KafkaException):
        create(brokers, topic)


def stored(brokers: Embedded, topic: str) -> list[bytes]:
    """Everything in the topic's only partition."""
    consumer = Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": "g", "enable.auto.commit": False})
    at = TopicPartition(topic, 0, 0)
    found: list[bytes] = []
    try:
        _, end = consumer.get_watermark_offsets(at, timeout=20)
        consumer.assign([at])
        deadline = time.monotonic() + 30
        while len(found) < end and time.monotonic() < deadline:
            for message in consumer.consume(1000, 0.2):
                assert message.error() is None, message.error()
                assert message.offset() == len(found)
                found.append(message.value())
        assert len(found) == end
    finally:
        consumer.close()
    return found


def check(found: list[bytes], acked: Sequence[bytes], offsets: Mapping[bytes, int | None]) -> None:
    """Acked means kept, once, in order, and at the offset that was told."""
    counts = Counter(found)
    assert not [value for value, count in counts.items() if count > 1]
    assert not [value for value in acked if value not in counts]
    numbers = [int(value.rsplit(b".", 1)[-1]) for value in found]
    assert numbers == sorted(numbers)
    for value, offset in offsets.items():
        assert offset is None or offset < 0 or found[offset] == value, (value, offset)


class VerifiableProducer:
    """Kafka's own, which tells the end of each send."""

    def __init__(self, java: str, kafka_libs: str, folder: Path, bootstrap: str, topic: str, count: int) -> None:
        quiet = folder / "log4j2.properties"
        quiet.write_text("status = error\nrootLogger.level = off\n")
        config = folder / "producer.properties"
        config.write_text(
            "enable.idempotence=true\nretries=2147483647\nlinger.ms=0\nbatch.size=64\nretry.backoff.ms=20\nretry.backoff.max.ms=100\n"
            "delivery.timeout.ms=60000\nrequest.timeout.ms=1500\n"
        )
        command = [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={quiet}"]
        command += ["-cp", f"{kafka_libs}/*", "org.apache.kafka.tools.VerifiableProducer"]
        command += ["--bootstrap-server", bootstrap, "--topic", topic, "--max-messages", str(count)]
        command += ["--throughput", "150", "--acks", "-1", "--command-config", str(config)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.events: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self.events.append(json.loads(line))

    def wait_for(self, acks: int) -> None:
        deadline = time.monotonic() + 60
        while len(self.named("producer_send_success")) < acks and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(self.named("producer_send_success")) >= acks, self.events[-5:]

    def named(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["name"] == name]

    def finish(self) -> None:
        self._process.wait(90)
        self._reader.join(10)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join(10)
        assert self._process.stdout is not None
        self._process.stdout.close()


def ends(producer: VerifiableProducer, after: int = 0) -> tuple[list[bytes], dict[bytes, int]]:
    """The values of successful sends, and their offsets."""
    told = producer.named("producer_send_success")[after:]
    return [b"%d" % int(event["value"]) for event in told], {
        b"%d" % int(event["value"]): event["offset"] for event in told
    }


async def forget_producers(brokers: Embedded) -> int:
    """As the pipeline does a day later."""
    store = await open_sqlite(str(brokers.data / "metadata.db"))
    try:
        later_ms = system().clock.now_ms() + 86_400_000
        expired = [
            await expire_producers(store, partition, now_ms=later_ms, expiration_ms=86_400_000)
            for topic in await Topics(store, system()).list()
            for partition in topic.each_partition()
        ]
        return sum(each.gone for each in expired)
    finally:
        await store.close()
