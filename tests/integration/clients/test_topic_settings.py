"""Topic settings act: what real clients are told, and what they read from every broker, from the log and the table."""

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
)
from kio.schema.errors import ErrorCode
from pyiceberg.catalog.rest import RestCatalog
from support.clients.batches import batch
from support.clients.wire import Client, span
from support.worlds.files import STALE, FileWorld, file_world
from support.worlds.processes import HOST

from lakestream.records import walk

_CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")
INVALID_DIFFERENT_RECORD = -138
"""librdkafka's own code for records of a refused batch that were not to blame."""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FileWorld]:
    with file_world(tmp_path_factory.mktemp("data"), brokers=2) as opened:
        yield opened


@pytest.fixture
def topic() -> str:
    return f"t_{uuid4().hex[:8]}"


def _create(house: FileWorld, topic: str, **config: Any) -> None:
    admin = AdminClient({"bootstrap.servers": house.bootstrap})
    given = STALE | {name.replace("_", "."): str(value) for name, value in config.items()}
    admin.create_topics([NewTopic(topic, 1, 1, config=given)])[topic].result(20)


def _send(house: FileWorld, topic: str, records: list[dict[str, Any]], **config: Any) -> list[tuple[int | None, Any]]:
    """The error code, if any, and the message of each record, in the order in which they were sent."""
    told: dict[int, tuple[int | None, Any]] = {}
    producer = Producer({"bootstrap.servers": house.bootstrap, "linger.ms": 100} | config)

    def delivered(number: int) -> Any:
        def keep(error: KafkaError | None, message: Any) -> None:
            told[number] = (None if error is None else error.code(), message)

        return keep

    for number, record in enumerate(records):
        producer.produce(topic, partition=0, on_delivery=delivered(number), **record)
    assert producer.flush(30) == 0
    return [told[number] for number in range(len(records))]


def _read(bootstrap: str, topic: str, count: int) -> list[Any]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        messages: list[Any] = []
        while len(messages) < count:
            more = consumer.consume(count - len(messages), 20)
            assert more, f"{len(messages)} of {count}"
            messages += more
    finally:
        consumer.close()
    assert all(message.error() is None for message in messages)
    return messages


def _alter(bootstrap: str, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(20)


async def _produce_at(address: str, topic: str, records: bytes) -> Any:
    """What this very broker answers, whichever Metadata would name."""
    client = await Client.connect(int(address.split(":")[1]))
    data = {"name": topic, "partition_data": [{"index": 0, "records": records}]}
    request = {"transactional_id": None, "acks": -1, "timeout": span(10_000), "topic_data": [data]}
    try:
        return (await client.ask(0, 9, request)).responses[0].partition_responses[0]
    finally:
        await client.close()


async def _compressions(house: FileWorld, topic: str) -> set[str]:
    """Of the batches that a fetch of the whole topic brings."""

    async def ask() -> bytes:
        client = await Client.connect(int(house.bootstrap.split(",")[0].split(":")[1]))
        part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
        asked = {"topic": topic, "partitions": [part | {"log_start_offset": -1}]}
        request = {"replica_id": -1, "max_wait": span(0), "min_bytes": 0, "max_bytes": 1 << 20, "isolation_level": 0}
        request |= {"session_id": 0, "session_epoch": -1, "topics": [asked], "forgotten_topics_data": (), "rack_id": ""}
        try:
            return bytes((await client.ask(1, 11, request)).responses[0].partitions[0].records)
        finally:
            await client.close()

    return {_CODECS[info.attributes & 7] for info in walk(await ask())}


async def _until(holds: Callable[[Any], bool], address: str, topic: str, records: bytes) -> None:
    """What was changed at one broker holds at the others after their next heartbeat."""
    async with asyncio.timeout(20):
        while not holds(await _produce_at(address, topic, records)):
            await asyncio.sleep(0.1)


async def test_a_record_above_the_maximum_is_refused_by_every_broker(house: FileWorld, topic: str) -> None:
    _create(house, topic, max_message_bytes=1000)
    large = [{"value": b"x" * 5_000}]
    assert [code for code, _ in _send(house, topic, large)] == [KafkaError.MSG_SIZE_TOO_LARGE]
    assert [code for code, _ in _send(house, topic, [{"value": b"x" * 500}])] == [None]
    first, second = house.bootstrap.split(",")
    batch_of_5000 = batch(b"x" * 5_000)
    for address in (first, second):
        assert (await _produce_at(address, topic, batch_of_5000)).error_code is ErrorCode.message_too_large
    _alter(first, topic, "max.message.bytes", "10000")
    assert (await _produce_at(first, topic, batch_of_5000)).error_code is ErrorCode.none
    await _until(lambda answer: answer.error_code is ErrorCode.none, second, topic, batch_of_5000)


async def test_the_broker_gives_the_time_where_the_topic_says_so(house: FileWorld, topic: str) -> None:
    _create(house, topic, message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000)
    records = [{"value": b"v%d" % number, "timestamp": 5 + number} for number in range(20)]
    for compression in ("none", "lz4"):
        told = _send(house, topic, records, **{"compression.type": compression})
        assert all(code is None for code, _ in told)
    after_ms = int(time.time() * 1000)

    def times(bootstrap: str) -> list[tuple[int, tuple[int, int]]]:
        return [(message.offset(), message.timestamp()) for message in _read(bootstrap, topic, 40)]

    first, second = house.bootstrap.split(",")
    seen = times(first)
    assert {kind for _, (kind, _) in seen} == {TIMESTAMP_LOG_APPEND_TIME}
    assert all(before_ms <= time_ms <= after_ms for _, (_, time_ms) in seen)
    assert times(second) == seen
    await house.move()
    rows = RestCatalog("lake", uri=house.catalog).load_table(f"default.{topic}").scan().to_arrow().sort_by("_offset")
    assert rows["_timestamp_type"].to_pylist() == [1] * 40
    assert [round(each.timestamp() * 1000) for each in rows["_timestamp"].to_pylist()] == [ms for _, (_, ms) in seen]
    assert times(first) == seen
    assert times(second) == seen
    # The setting holds for what comes, not for what is there.
    _alter(first, topic, "message.timestamp.type", "CreateTime")
    await _until(lambda answer: answer.log_append_time is None, second, topic, batch(b"later", timestamp_ms=7))
    assert (await _produce_at(first, topic, batch(b"last", timestamp_ms=7))).log_append_time is None
    assert times(first) == seen


async def test_a_retry_is_told_the_time_of_the_first_attempt(house: FileWorld, topic: str) -> None:
    """By any broker, from the log and from the table."""
    _create(house, topic, message_timestamp_type="LogAppendTime")
    first, second = house.bootstrap.split(",")

    async def new_producer() -> int:
        client = await Client.connect(int(first.split(":")[1]))
        asked = {"transactional_id": None, "transaction_timeout": span(0), "producer_id": -1, "producer_epoch": -1}
        producer_id: int = (await client.ask(22, 4, asked)).producer_id
        await client.close()
        return producer_id

    producer_id = await new_producer()
    batches = [batch(b"a", b"b", producer=(producer_id, 0, sequence)) for sequence in (0, 2)]
    given = [await _produce_at(first, topic, data) for data in batches]
    times = [(answer.base_offset, answer.log_append_time) for answer in given]
    assert all(answer.error_code is ErrorCode.none for answer in given)

    async def retried() -> list[list[tuple[int, Any]]]:
        answers = [[await _produce_at(address, topic, data) for data in batches] for address in (first, second)]
        return [[(answer.base_offset, answer.log_append_time) for answer in each] for each in answers]

    assert await retried() == [times, times]
    await house.move()
    assert await retried() == [times, times]


def test_timestamps_are_kept_within_what_the_topic_takes(house: FileWorld, topic: str) -> None:
    now_ms = int(time.time() * 1000)
    _create(house, topic, message_timestamp_before_max_ms=60_000, message_timestamp_after_max_ms=600_000)
    for offset_ms, code in ((0, None), (-120_000, KafkaError.INVALID_TIMESTAMP), (120_000, None)):
        assert [code] == [got for got, _ in _send(house, topic, [{"value": b"v", "timestamp": now_ms + offset_ms}])]
    usual = f"{topic}_usual"
    _create(house, usual)
    assert _send(house, usual, [{"value": b"v", "timestamp": 1}])[0][0] is None
    two_hours = _send(house, usual, [{"value": b"v", "timestamp": now_ms + 7_200_000}])
    assert two_hours[0][0] == KafkaError.INVALID_TIMESTAMP


def test_only_the_records_to_blame_are_called_invalid(house: FileWorld, topic: str) -> None:
    _create(house, topic, cleanup_policy="compact")
    records = [{"value": b"v", "key": None if number % 10 == 3 else b"k"} for number in range(100)]
    codes = [code for code, _ in _send(house, topic, records, **{"batch.num.messages": 100, "linger.ms": 1_000})]
    blamed = [number for number, code in enumerate(codes) if code == KafkaError.INVALID_RECORD]
    assert blamed == list(range(3, 100, 10))
    assert {code for number, code in enumerate(codes) if number not in blamed} == {INVALID_DIFFERENT_RECORD}


@pytest.mark.parametrize("compression", _CODECS)
async def test_every_compression_of_a_topic_reads_the_same(house: FileWorld, topic: str, compression: str) -> None:
    _create(house, topic, compression_type=compression)
    values = [b"a text that repeats itself, number %d" % number for number in range(500)]
    for sent in ("none", "gzip", "zstd"):
        told = _send(house, topic, [{"value": value} for value in values], **{"compression.type": sent})
        assert all(code is None for code, _ in told)
    assert [message.value() for message in _read(house.bootstrap, topic, 1_500)] == values * 3
    kept = await _compressions(house, topic)
    await house.move()
    assert [message.value() for message in _read(house.bootstrap, topic, 1_500)] == values * 3
    assert kept == await _compressions(house, topic) == {compression}


@pytest.mark.java
async def test_java_reads_every_compression_of_a_table(
    house: FileWorld, topic: str, java: str, kafka_libs: str
) -> None:
    for compression in _CODECS[1:]:
        _create(house, f"{topic}_{compression}", compression_type=compression)
        house.produce(f"{topic}_{compression}", [f"{compression} {number}" for number in range(100)])
    await house.move()
    command = [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_libs}/*"]
    command += ["org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", house.bootstrap]
    command += ["--include", f"{topic}_.*", "--from-beginning", "--max-messages", "400", "--timeout-ms", "30000"]
    read = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
    expected = [f"{compression} {number}" for compression in _CODECS[1:] for number in range(100)]
    assert sorted(read.stdout.splitlines()) == sorted(expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [("no.such", "1"), ("max.message.bytes", "-1"), ("compression.type", "none"), ("remote.storage.enable", "true")],
)
def test_what_is_no_setting_makes_no_topic(house: FileWorld, topic: str, name: str, value: str) -> None:
    admin = AdminClient({"bootstrap.servers": house.bootstrap})
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic(topic, 1, 1, config={name: value})])[topic].result(20)
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
    assert name in refused.value.args[0].str()
    assert topic not in house.topics()


def test_a_topic_that_is_there_is_told_before_settings_that_cannot_be(house: FileWorld, topic: str) -> None:
    _create(house, topic)
    with pytest.raises(KafkaException) as refused:
        _create(house, topic, max_message_bytes=-5)
    assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS


def test_described_settings_say_where_they_come_from(house: FileWorld, topic: str) -> None:
    _create(house, topic, max_message_bytes=2_000_000, segment_bytes=2_000_000)
    admin = AdminClient({"bootstrap.servers": house.bootstrap})
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found = admin.describe_configs([resource])[resource].result(20)
    told = {name: (entry.value, ConfigSource(entry.source)) for name, entry in found.items()}
    assert told["max.message.bytes"] == ("2000000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert told["segment.bytes"] == ("2000000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert told["message.timestamp.after.max.ms"] == ("3600000", ConfigSource.DEFAULT_CONFIG)
    broker = ConfigResource(ConfigResource.Type.BROKER, "0")
    own = AdminClient({"bootstrap.servers": f"{HOST}:{house.bootstrap.split(',')[0].split(':')[1]}"})
    largest = own.describe_configs([broker])[broker].result(20)["message.max.bytes"]
    assert (largest.value, ConfigSource(largest.source)) == ("1048588", ConfigSource.DEFAULT_CONFIG)
