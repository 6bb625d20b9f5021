"""Damage on disk under a real broker: its consumers hear of it, nobody gets other bytes, everything else goes on."""

import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from support.clients.outsider import Outsider
from support.worlds.processes import ProcessWorld

from lakestream import objects
from lakestream.catalog.embedded.tables import PyIcebergTables
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.tiles.local import LocalTiles
from lakestream.frontier.moving.worker import Tick, Worker
from lakestream.frontier.settings import PipelineSettings
from lakestream.metadata.log.head import Extent, shard_of
from lakestream.metadata.log.partition import read_extents, read_head
from lakestream.metadata.stores.sqlite.store import open_sqlite
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.model import WrittenFile
from lakestream.runtime import system
from lakestream.table.parquet.metrics import file_metrics
from lakestream.table.shape import RAW

WAL, FILE, FOREIGN, VALUE, WELL = TOPICS = ("in-wal", "in-file", "in-foreign-file", "in-value", "well")
RECORDS = 20


def produce(bootstrap: str, *topics: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    failed: list[KafkaError] = []
    for number in range(RECORDS):
        for topic in topics:
            value = f"{topic} {number}".encode()
            producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(30) == 0
    assert not failed


def consume(bootstrap: str, done: Callable[[dict[str, list[bytes]], dict[str, set[int]]], bool]) -> None:
    """Reads every topic from its start until `done` with what came of each topic: values, error codes."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    values: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}
    errors: dict[str, set[int]] = {topic: set() for topic in TOPICS}
    try:
        consumer.assign([TopicPartition(topic, 0, 0) for topic in TOPICS])
        deadline = time.monotonic() + 30
        while not done(values, errors):
            assert time.monotonic() < deadline, (values, errors)
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                values[message.topic()].append(message.value())
            elif message.topic():
                errors[message.topic()].add(error.code())
    finally:
        consumer.close()


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


async def tick(data: Path) -> Tick:
    """What the pipeline does in one tick, without Spark."""
    runtime = system()
    store = await open_sqlite(str(data / "metadata.db"))
    bucket = objects.open(f"file://{data}/bucket")
    catalog = PyIcebergTables(store, bucket.url, runtime)
    try:
        lake = Lake(store, catalog, bucket, LocalTiles(bucket, runtime), runtime, PipelineSettings())
        return await Worker(lake, Topics(store, runtime), name="test", respect_leases=False).tick()
    finally:
        await catalog.close()
        await store.close()


async def look(data: Path, name: str) -> tuple[Topic, list[Extent], int]:
    """The topic, the extents of its partition, and the frontier."""
    store = await open_sqlite(str(data / "metadata.db"))
    try:
        topic = (await Topics(store, system()).by_names([name]))[name]
        [partition] = topic.each_partition()
        head = await read_head(store, partition)
        assert head is not None
        return topic, await read_extents(store, partition), head.head.frontier
    finally:
        await store.close()


async def make_foreign(data: Path, name: str) -> Path:
    """Puts a copy of the topic's file into its table instead, under a name that carries no checksum."""
    store = await open_sqlite(str(data / "metadata.db"))
    catalog = PyIcebergTables(store, f"file://{data}/bucket", system())
    try:
        topic = (await Topics(store, system()).by_names([name]))[name]
        view = await catalog.load(topic.topic_id)
        [file] = view.files
        assert None not in (file.partition_min, file.partition_max, file.offset_min, file.offset_max)
        path = Path(file.path.removeprefix("file://"))
        copy = path.with_name("of-another-engine.parquet")
        shutil.copy(path, copy)
        written = WrittenFile(
            path=f"file://{copy}",
            spec_id=file.spec_id,
            size_bytes=file.size_bytes,
            record_count=file.record_count,
            partition_min=file.partition_min or 0,
            partition_max=file.partition_max or 0,
            offset_min=file.offset_min or 0,
            offset_max=file.offset_max or 0,
            timestamp_max_ms=file.timestamp_max_ms,
            metrics=file_metrics(pq.read_metadata(copy), RAW),
        )
        await Outsider(catalog, topic.topic_id, view).commit(add=[written], remove=[file])
        return copy
    finally:
        await catalog.close()
        await store.close()


def damage_footer(path: Path) -> None:
    """One bit: bytes become floats. Arrow ends the process that asks for that column."""
    data = path.read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    at = data.index(b"\x15\x0c\x19", start) + 1
    path.write_bytes(data[:at] + b"\x08" + data[at + 1 :])


def damage_value(data: Path, topic: Topic) -> None:
    [partition] = topic.each_partition()
    connection = sqlite3.connect(data / "metadata.db")
    where = (shard_of(partition), "head")
    [(value,)] = connection.execute("SELECT value FROM kv WHERE shard = ? AND key = ?", where).fetchall()
    damaged = bytearray(value)
    damaged[len(value) // 2] ^= 0x10
    connection.execute("UPDATE kv SET value = ? WHERE shard = ? AND key = ?", (bytes(damaged), *where))
    connection.commit()
    connection.close()


async def test_damage_is_an_error_of_its_partition_and_of_nobody_else(cluster: Callable[..., ProcessWorld]) -> None:
    made = cluster(1)
    data = made.data
    admin = AdminClient({"bootstrap.servers": made.bootstrap})
    for created in admin.create_topics([NewTopic(topic, 1) for topic in TOPICS]).values():
        created.result(30)
    produce(made.bootstrap, FILE, FOREIGN, WELL)
    assert (await tick(data)).record_count == 3 * RECORDS
    produce(made.bootstrap, WAL, VALUE, WELL)
    assert made.brokers[0].stop() == 0

    _, (extent, *_), _ = await look(data, WAL)
    flip(data / "bucket" / extent.object_key, extent.position + extent.length // 2)
    [file] = data.glob(f"bucket/tables/{FILE}__*/_data/*.parquet")
    group = pq.read_metadata(file).row_group(0)
    [values] = [chunk for chunk in map(group.column, range(group.num_columns)) if chunk.path_in_schema == "_value"]
    flip(file, values.data_page_offset + values.total_compressed_size // 2)
    foreign = await make_foreign(data, FOREIGN)
    damage_footer(foreign)
    topic, _, _ = await look(data, VALUE)
    damage_value(data, topic)

    made.start_broker(0)
    corrupt = {KafkaError.INVALID_MSG}

    def all_heard(values: dict[str, list[bytes]], errors: dict[str, set[int]]) -> bool:
        assert not any(values[topic] for topic in (WAL, FILE, FOREIGN, VALUE)), values
        assert not errors[WELL]
        assert all(errors[topic] <= corrupt for topic in TOPICS), errors
        return len(values[WELL]) == 2 * RECORDS and all(errors[topic] for topic in TOPICS if topic != WELL)

    consume(made.bootstrap, all_heard)
    log = made.brokers[0].output
    assert f"object {extent.object_key}: the {extent.length} bytes at {extent.position}, offsets 0 to" in log
    assert file.name in log
    assert f"{foreign.name} is damaged: it makes the process that reads it crash" in log
    assert f"offsets 0 to {RECORDS - 1}" in log
    assert f"'head' of 'log/{topic.topic_id.hex}/00000000' (Head)" in log
    assert "Traceback" not in log
    assert made.brokers[0].process.poll() is None

    done = await tick(data)
    assert {failure.topic for failure in done.failures} == {WAL, VALUE}
    told = {failure.topic: str(failure.error) for failure in done.failures}
    assert extent.object_key in told[WAL]
    assert "offsets 0 to" in told[WAL]
    assert done.record_count == RECORDS  # the other half of what is well
    assert (await look(data, WAL))[2] == 0
    produce(made.bootstrap, WELL)
    assert made.brokers[0].process.poll() is None
