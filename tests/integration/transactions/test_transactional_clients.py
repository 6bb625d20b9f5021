"""Transactional producers and committed readers of every client."""

import asyncio
import subprocess
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from support.worlds.embedded import Embedded, embedded

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
    pytest.mark.xdist_group("transactional_clients"),
]

WAIT_S = 30.0
PARTITIONS = 3


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with embedded(tmp_path_factory.mktemp("data"), **{"kafka.transactions.sweep_interval_ms": 200}) as brokers:
        yield brokers


@pytest.fixture
def topic(broker: Embedded, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "-").replace("]", "")
    make_topic(broker, name)
    return str(name)


def make_topic(broker: Embedded, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS)])[name].result(WAIT_S)


def librdkafka(broker: Embedded, transactional_id: str, **config: Any) -> Producer:
    quiet = {"log_level": 0, "transactional.id": transactional_id}
    producer = Producer({"bootstrap.servers": broker.bootstrap, **quiet, **config})
    producer.init_transactions(WAIT_S)
    return producer


def produce(producer: Producer, topic: str, values: Sequence[bytes]) -> None:
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0


def consumed(broker: Embedded, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """All values, in order, up to the last offset that the reader is told of."""
    config = {"group.id": f"{topic}-{isolation}", "isolation.level": isolation, "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "enable.partition.eof": True, "log_level": 0} | config)
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    values, ended, deadline = [], set(), time.monotonic() + WAIT_S
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline
        message = consumer.poll(1)
        if message is None:
            continue
        error = message.error()
        if error is None:
            values.append(message.value())
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition())
    consumer.close()
    return sorted(value for value in values if value is not None)


def test_librdkafka(broker: Embedded, topic: str) -> None:
    producer = librdkafka(broker, topic)
    for kept in (True, False, True, False):
        producer.begin_transaction()
        produce(producer, topic, [f"{kept}-{number}".encode() for number in range(9)])
        if kept:
            producer.commit_transaction(WAIT_S)
        else:
            producer.abort_transaction(WAIT_S)
    committed = sorted(f"True-{number}".encode() for number in range(9) for _ in range(2))
    assert consumed(broker, topic) == committed
    assert len(consumed(broker, topic, "read_uncommitted")) == 36


def test_an_open_transaction_holds_committed_readers_back_until_its_time_is_out(broker: Embedded, topic: str) -> None:
    hanging = librdkafka(broker, f"{topic}-hangs", **{"transaction.timeout.ms": 1_000})
    hanging.begin_transaction()
    produce(hanging, topic, [b"lost"] * PARTITIONS)
    produce(Producer({"bootstrap.servers": broker.bootstrap}), topic, [b"plain"] * PARTITIONS)
    assert consumed(broker, topic) == []
    deadline = time.monotonic() + WAIT_S
    while consumed(broker, topic) != [b"plain"] * PARTITIONS:
        assert time.monotonic() < deadline
    with pytest.raises(KafkaException) as fenced:
        hanging.commit_transaction(WAIT_S)
    error: KafkaError = fenced.value.args[0]
    assert error.fatal() or error.txn_requires_abort()


def test_a_zombie_is_fenced(broker: Embedded, topic: str) -> None:
    zombie = librdkafka(broker, topic)
    zombie.begin_transaction()
    produce(zombie, topic, [b"zombie"] * PARTITIONS)
    newer = librdkafka(broker, topic)
    newer.begin_transaction()
    produce(newer, topic, [b"newer"] * PARTITIONS)
    with pytest.raises(KafkaException) as fenced:
        zombie.commit_transaction(WAIT_S)
    error: KafkaError = fenced.value.args[0]
    assert error.fatal()
    assert error.code() == KafkaError._FENCED
    newer.commit_transaction(WAIT_S)
    assert consumed(broker, topic) == [b"newer"] * PARTITIONS


def test_offsets_are_committed_with_records(broker: Embedded, topic: str) -> None:
    """Read, process, write: what is read goes on behind what was committed, and nowhere else."""
    make_topic(broker, f"{topic}-out")
    values = sorted(b"%d" % number for number in range(30))
    produce(Producer({"bootstrap.servers": broker.bootstrap}), topic, values)
    for kept in (True, False, True, True):
        _process(broker, topic, 10, kept=kept)
    assert consumed(broker, f"{topic}-out") == values


def _process(broker: Embedded, topic: str, count: int, *, kept: bool) -> None:
    config = {"group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "isolation.level": "read_committed", **config})
    consumer.subscribe([topic])
    producer = librdkafka(broker, topic)
    producer.begin_transaction()
    for _ in range(count):
        message = consumer.poll(WAIT_S)
        assert message is not None
        assert message.error() is None
        producer.produce(f"{topic}-out", message.value(), partition=0)
    places = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), WAIT_S)
    if kept:
        producer.commit_transaction(WAIT_S)
    else:
        producer.abort_transaction(WAIT_S)
    consumer.close()


async def test_aiokafka(broker: Embedded, topic: str) -> None:
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=topic)
    async with asyncio.timeout(WAIT_S):
        await producer.start()
        async with producer.transaction():
            await producer.send_and_wait(topic, b"kept", partition=0)
            await producer.send_offsets_to_transaction(
                {aiokafka.TopicPartition(topic, 1): aiokafka.structs.OffsetAndMetadata(7, "")}, f"{topic}-group"
            )
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"dropped", partition=0)
        await producer.abort_transaction()
        await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap,
            isolation_level="read_committed",
            group_id=f"{topic}-group",
            auto_offset_reset="earliest",
        )
        await consumer.start()
        consumer.assign([aiokafka.TopicPartition(topic, 0)])
        assert (await consumer.getone()).value == b"kept"
        assert await consumer.committed(aiokafka.TopicPartition(topic, 1)) == 7
        await consumer.stop()
    assert consumed(broker, topic) == [b"kept"]


def test_kafka_python(broker: Embedded, topic: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=topic)
    producer.init_transactions()
    for value in (b"kept", b"dropped"):
        producer.begin_transaction()
        producer.send(topic, value, partition=1).get(WAIT_S)
        if value == b"kept":
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close(timeout=5)
    assert consumed(broker, topic) == [b"kept"]
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=3_000,
    )
    assert [message.value for message in consumer] == [b"kept"]
    consumer.close()


def test_kcat(broker: Embedded, topic: str, kcat: str) -> None:
    produce = [kcat, "-P", "-b", broker.bootstrap, "-t", topic, "-p", "0", "-X", f"transactional.id={topic}"]
    subprocess.run(produce, input="a\nb\n", capture_output=True, text=True, timeout=WAIT_S, check=True)
    assert consumed(broker, topic) == [b"a", b"b"]


@pytest.mark.java
def test_java(broker: Embedded, topic: str, java: str, kafka_libs: str, tmp_path: Path) -> None:
    """Its producer is one of transactions' version 2; and the tool that lists and describes them."""
    quiet = tmp_path / "log4j2.properties"
    quiet.write_text("status = error\nrootLogger.level = error\n")

    def run(name: str, *arguments: str) -> str:
        command = [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={quiet}"]
        command += ["-cp", f"{kafka_libs}/*", name, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    where = ("--bootstrap-server", broker.bootstrap)
    size = ("--num-records", "2000", "--record-size", "100", "--throughput", "2000")
    in_transactions = ("--transactional-id", topic, "--transaction-duration-ms", "100")
    written = run("org.apache.kafka.tools.ProducerPerformance", *where, "--topic", topic, *size, *in_transactions)
    assert "2000 records sent" in written
    assert len(consumed(broker, topic)) == 2000
    tool = "org.apache.kafka.tools.TransactionsCommand"
    assert f"{topic}\t" in run(tool, *where, "list").replace(" ", "\t")
    assert "CompleteCommit" in run(tool, *where, "describe", "--transactional-id", topic)

    hanging = librdkafka(broker, f"{topic}-hangs")
    hanging.begin_transaction()
    place: list[int] = []
    hanging.produce(topic, b"x", partition=1, on_delivery=lambda _, message: place.append(message.offset()))
    assert hanging.flush(WAIT_S) == 0
    described = run(tool, *where, "describe", "--transactional-id", f"{topic}-hangs")
    assert "Ongoing" in described
    assert f"{topic}-1" in described
    at = ("--topic", topic, "--partition", "1")
    assert str(place[0]) in run(tool, *where, "describe-producers", *at)
    run(tool, *where, "abort", *at, "--start-offset", str(place[0]))
    assert "CompleteAbort" in run(tool, *where, "describe", "--transactional-id", f"{topic}-hangs")
    assert len(consumed(broker, topic)) == 2000
