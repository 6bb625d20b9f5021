"""Real clients against a whole broker: what goes in comes out, in order, to the byte."""

import asyncio
import time
import warnings
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import aiokafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from support.worlds.embedded import Embedded, embedded

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with embedded(tmp_path_factory.mktemp("data"), **{"kafka.num_partitions": 3}) as brokers:
        yield brokers


@pytest.fixture
def topic() -> str:
    return f"t-{uuid4().hex[:8]}"


def _produce(broker: Embedded, topic: str, count: int, **config: Any) -> list[tuple[int, int]]:
    """Where each record landed: (partition, offset)."""
    placed: list[tuple[int, int]] = []

    def delivered(error: KafkaError | None, message: Any) -> None:
        assert error is None, error
        placed.append((message.partition(), message.offset()))

    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 2} | config)
    for number in range(count):
        producer.produce(topic, b"v%d" % number, key=b"k%d" % (number % 7), on_delivery=delivered)
    assert producer.flush(30) == 0
    return placed


def _consume(broker: Embedded, topic: str, count: int, **config: Any) -> list[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"g-{uuid4().hex[:8]}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        | config
    )
    consumer.subscribe([topic])
    messages: list[Any] = []
    deadline = time.monotonic() + 30
    try:
        while len(messages) < count and time.monotonic() < deadline:
            for message in consumer.consume(count - len(messages), 0.2):
                assert message.error() is None, message.error()
                messages.append(message)
        if messages and config.get("group.id"):
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return messages


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_librdkafka_every_compression(broker: Embedded, topic: str, compression: str) -> None:
    placed = _produce(broker, topic, 500, **{"compression.type": compression})
    assert len(set(placed)) == 500
    messages = _consume(broker, topic, 500)
    assert {(message.partition(), message.offset()) for message in messages} == set(placed)
    per_partition: dict[int, list[Any]] = {}
    for message in messages:
        per_partition.setdefault(message.partition(), []).append(message)
    for run in per_partition.values():
        assert [message.offset() for message in run] == list(range(len(run)))
        numbers = [int(message.value()[1:]) for message in run]
        assert numbers == sorted(numbers)


def test_librdkafka_idempotent(broker: Embedded, topic: str) -> None:
    placed = _produce(broker, topic, 2_000, **{"enable.idempotence": True, "batch.num.messages": 50})
    assert len(set(placed)) == 2_000
    values = sorted(int(message.value()[1:]) for message in _consume(broker, topic, 2_000))
    assert values == list(range(2_000))


def test_bytes_headers_and_timestamps_are_kept(broker: Embedded, topic: str) -> None:
    config = {"message.timestamp.after.max.ms": str((1 << 63) - 1)}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, config=config)])[topic].result(20)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    records: list[dict[str, Any]] = [
        {"value": bytes(range(256)), "key": b"\x00\xff", "headers": [("a", b"\x80"), ("a", None)], "timestamp": 12_345},
        {"value": None, "key": b"tombstone", "timestamp": 1_700_000_000_000},
        {"value": b"", "key": None, "timestamp": 253_402_300_799_999},
    ]
    for record in records:
        producer.produce(topic, partition=0, **record)
    assert producer.flush(20) == 0
    for message, record in zip(_consume(broker, topic, 3), records, strict=True):
        assert (message.value(), message.key()) == (record["value"], record["key"])
        assert (message.headers() or []) == record.get("headers", [])
        assert message.timestamp()[1] == record["timestamp"]


def test_kafka_python(broker: Embedded, topic: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap)
    sent = [producer.send(topic, b"v%d" % number, key=b"k", headers=[("h", b"x")]) for number in range(200)]
    producer.flush(20)
    assert sorted(future.get(1).offset for future in sent) == list(range(200))
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=f"g-{topic}",
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )
    values = []
    for message in consumer:
        values.append(message.value)
        assert message.headers == [("h", b"x")]
        if len(values) == 200:
            break
    consumer.close()
    assert values == [b"v%d" % number for number in range(200)]


async def test_aiokafka(broker: Embedded, topic: str) -> None:
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True)
    await producer.start()
    futures = [await producer.send(topic, b"v%d" % number, partition=1) for number in range(200)]
    placed = [await future for future in futures]
    await producer.stop()
    assert [each.offset for each in placed] == list(range(200))
    consumer = aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=broker.bootstrap, group_id=f"g-{topic}", auto_offset_reset="earliest"
    )
    await consumer.start()
    values = []
    async with asyncio.timeout(20):
        while len(values) < 200:
            values.append((await consumer.getone()).value)
    await consumer.commit()
    await consumer.stop()
    assert values == [b"v%d" % number for number in range(200)]


def test_admin(broker: Embedded, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 4, 1, config={"retention.ms": "1000"})])[topic].result(10)
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(10)
    assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    assert len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 4
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    configs = admin.describe_configs([resource])[resource].result(10)
    assert configs["retention.ms"].value == "1000"
    assert len(admin.describe_cluster().result(10).nodes) == 1
    admin.delete_topics([topic])[topic].result(10)
    assert topic not in admin.list_topics(timeout=10).topics


def test_a_deleted_topic_that_comes_back_is_empty(broker: Embedded, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for expected in (5, 3):
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(10)
        _produce(broker, topic, expected)
        messages = _consume(broker, topic, expected)
        assert [message.offset() for message in messages] == list(range(expected))
        admin.delete_topics([topic])[topic].result(10)


def test_offsets_by_time(broker: Embedded, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        producer.produce(topic, b"v", partition=0, timestamp=1_000_000 + number * 1_000)
        producer.flush(10)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "times"})
    [found] = consumer.offsets_for_times([TopicPartition(topic, 0, 1_004_500)], timeout=10)
    assert found.offset == 5
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (0, 10)
    consumer.close()


def test_a_record_that_is_too_large_is_refused_and_the_next_one_is_not(broker: Embedded, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.max.bytes": 20_000_000})
    errors: list[KafkaError | None] = []
    for value in (bytes(9_000_000), b"small"):
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
        producer.flush(20)
    assert errors[0] is not None
    assert errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert errors[1] is None


def test_a_long_poll_ends_as_soon_as_there_is_something(broker: Embedded, topic: str) -> None:
    # One partition: of several librdkafka may ask for some only, and for the others when that long poll is over.
    ((partition, offset),) = _produce(broker, topic, 1)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"g-{topic}",
            "auto.offset.reset": "latest",
            "fetch.wait.max.ms": 10_000,
        }
    )
    consumer.assign([TopicPartition(topic, partition, offset + 1)])
    assert consumer.poll(0.5) is None
    started = time.monotonic()
    _produce(broker, topic, 1)
    message = consumer.poll(10)
    assert message is not None
    assert time.monotonic() - started < 3
    consumer.close()
