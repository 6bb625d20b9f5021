"""Brokers and a catalog's door in this process, and a pipeline that moves records when it is told to."""

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.tiles.local import LocalTiles
from lakestream.frontier.moving.worker import Worker
from lakestream.frontier.settings import PipelineSettings
from lakestream.metadata.topics.list import Topics
from lakestream.node.http import run_http
from lakestream.node.storage.backends import open_backends
from lakestream.node.storage.tables import open_catalog
from lakestream.settings import Settings, load
from support.worlds.embedded import embedded
from support.worlds.processes import HOST, free_ports

STALE = {"lakestream.table.freshness.ms": "-1"}
"""Of topics whose tables move only when a test says so."""


class FileWorld:
    def __init__(self, settings: Settings, bootstrap: str) -> None:
        self.settings = settings
        self.bootstrap = bootstrap
        self.catalog = f"http://{HOST}:{settings.http.port}/iceberg"
        self.kafka = ("--bootstrap", bootstrap)
        self.rest = ("--catalog", self.catalog)
        self.both = (*self.kafka, *self.rest)

    def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        config = STALE | {name.replace("_", "."): value for name, value in configs.items()}
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(20)

    def topics(self) -> set[str]:
        return set(AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(timeout=20).topics)

    def groups(self) -> list[str]:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        return [group.group_id for group in admin.list_consumer_groups().result(20).valid]

    def produce(self, topic: str, values: Sequence[str], partition: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 1})
        failed: list[Any] = []
        for value in values:
            producer.produce(
                topic, value, partition=partition, on_delivery=lambda error, _: failed.append(error) if error else None
            )
        assert producer.flush(20) == 0
        assert not failed

    async def move(self) -> int:
        """What the pipeline does until nothing is due; how many records it moved."""
        return await self._move()

    async def _move(self) -> int:
        async with open_backends(self.settings) as backends, open_catalog(backends) as catalog:
            tiles = LocalTiles(backends.objects, backends.runtime)
            lake = Lake(backends.store, catalog, backends.objects, tiles, backends.runtime, PipelineSettings())
            worker = Worker(lake, Topics(backends.store, backends.runtime), name="tests")
            moved = 0
            while (tick := await worker.tick()).topics:
                assert not tick.failures, tick.failures
                moved += tick.record_count
            return moved

    def consume(self, topic: str, partitions: int = 1, offset: int = OFFSET_BEGINNING) -> list[tuple[int, int, str]]:
        """Partition, offset and value of every record to the end."""
        config = {"group.id": "tests", "enable.auto.commit": False}
        return self._read(config, [TopicPartition(topic, index, offset) for index in range(partitions)])

    def consume_as(self, group: str, topic: str, partitions: int = 1) -> list[tuple[int, int, str]]:
        """What a group reads from its committed offsets to the end, which it then commits."""
        config = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        return self._read(config, [TopicPartition(topic, index) for index in range(partitions)], commit=True)

    def _read(
        self, config: dict[str, Any], parts: list[TopicPartition], *, commit: bool = False
    ) -> list[tuple[int, int, str]]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "enable.partition.eof": True} | config)
        found: list[tuple[int, int, str]] = []
        ended: set[int | None] = set()
        try:
            consumer.assign(parts)
            while len(ended) < len(parts):
                message = consumer.poll(20)
                assert message is not None, "nothing for 20 s"
                if message.error() is None:
                    value = message.value()
                    found.append((message.partition(), message.offset(), value.decode() if value else ""))
                else:
                    assert message.error().name() == "_PARTITION_EOF", message.error()
                    ended.add(message.partition())
            reached = [part for part in consumer.position(parts) if part.offset >= 0]
            if commit and reached:
                consumer.commit(offsets=reached, asynchronous=False)
        finally:
            consumer.close()
        return sorted(found)


def lines(done: Any) -> list[Any]:
    """The JSON documents that a command printed."""
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@contextmanager
def file_world(data: Path, brokers: int = 1) -> Iterator[FileWorld]:
    settings = load(None, {}, {"data_dir": str(data), "http.port": free_ports()})
    with embedded(data, brokers) as running, _door(settings):
        yield FileWorld(settings, running.bootstrap)


@contextmanager
def _door(settings: Settings) -> Iterator[None]:
    ready = threading.Event()
    told: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        stop = asyncio.Event()
        told.set_result((asyncio.get_running_loop(), stop))
        await run_http(settings, ready.set, stop)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    loop, stop = told.result(20)
    try:
        assert ready.wait(30)
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)
