"""A table whose files are gone under a real broker: its consumers get an error, and the log an alarm, never silence."""

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.errors import ErrorCode
from support.clients.wire import Client
from support.worlds.processes import ProcessWorld

from lakestream import objects
from lakestream.catalog.embedded.tables import PyIcebergTables
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.tiles.local import LocalTiles
from lakestream.frontier.moving.worker import Worker
from lakestream.frontier.settings import PipelineSettings
from lakestream.metadata.stores.sqlite.store import open_sqlite
from lakestream.metadata.topics.list import Topics
from lakestream.runtime import system

RECORDS = 20


async def tick(data: Path) -> None:
    """What the pipeline does in one tick, without Spark."""
    runtime = system()
    store = await open_sqlite(str(data / "metadata.db"))
    bucket = objects.open(f"file://{data}/bucket")
    catalog = PyIcebergTables(store, bucket.url, runtime)
    try:
        lake = Lake(store, catalog, bucket, LocalTiles(bucket, runtime), runtime, PipelineSettings())
        await Worker(lake, Topics(store, runtime), name="test", respect_leases=False).tick()
    finally:
        await catalog.close()
        await store.close()


async def fetch(port: int, offset: int) -> tuple[ErrorCode, bytes | None]:
    client = await Client.connect(port)
    wanted = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }
    answer = await client.ask(
        1,
        11,
        {
            "replica_id": -1,
            "max_wait": timedelta(milliseconds=100),
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": "orders", "partitions": [wanted]}],
            "forgotten_topics_data": [],
            "rack_id": "",
        },
    )
    client.writer.close()
    [topic] = answer.responses
    [partition] = topic.partitions
    return partition.error_code, partition.records


def everything(table: Path) -> None:
    shutil.rmtree(table)


def metadata(table: Path) -> None:
    for path in table.rglob("*.metadata.json"):
        path.unlink()


def manifest_lists(table: Path) -> None:
    for path in table.rglob("snap-*.avro"):
        path.unlink()


def manifests(table: Path) -> None:
    for path in table.rglob("*.avro"):
        if not path.name.startswith("snap-"):
            path.unlink()


def rows(table: Path) -> None:
    for path in table.rglob("*.parquet"):
        path.unlink()


@pytest.mark.parametrize("restarted", [True, False])
@pytest.mark.parametrize("lose", [everything, metadata, manifest_lists, manifests, rows])
async def test_a_consumer_of_lost_files_gets_an_error(
    cluster: Callable[..., ProcessWorld], lose: Callable[[Path], None], restarted: bool
) -> None:
    made = cluster()
    admin = AdminClient({"bootstrap.servers": made.bootstrap})
    admin.create_topics([NewTopic("orders", 1)])["orders"].result(30)
    producer = Producer({"bootstrap.servers": made.bootstrap, "linger.ms": 5})
    for number in range(RECORDS):
        producer.produce("orders", f"{number}".encode())
    assert producer.flush(30) == 0
    await tick(made.data)
    [table] = (made.data / "bucket" / "tables").iterdir()
    lose(table)
    if restarted:
        assert made.brokers[0].stop() == 0
        made.start_broker(0)
    for offset in (0, RECORDS - 1):
        code, records = await fetch(made.ports[0], offset)
        assert (code, records or b"") == (ErrorCode.kafka_storage_error, b"")
    assert "cannot serve" in made.brokers[0].output
