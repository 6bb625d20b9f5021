"""Disk stores under load: brokers with three of them, a producer that counts up, and the ways to lose or fill one."""

import asyncio
import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any
from unittest.mock import patch

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from lakestream import metadata
from lakestream.metadata.disks import disk_rows
from lakestream.objects.local.files import Files
from support.worlds.embedded import Embedded

TOPIC = "profiles"
PARTITIONS = 3
DEADLINE_S = 120.0


def three(folder: Path, **more: Any) -> dict[str, Any]:
    """Settings of brokers with three disk stores, which look after them quickly. Little is kept in memory: what
    consumers read they read from stores."""
    stores = ",".join(f"file://{folder}/{name}" for name in "abc")
    return {
        "disk.stores": stores,
        "disk.check_ms": 100,
        "disk.keep_interval_ms": 200,
        "stream.tail_cache_bytes": 0,
        "stream.broker_ttl_ms": 3_000,
        **{f"disk.{name}": value for name, value in more.items()},
    }


def make_topic(brokers: Embedded, profile: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    topic = NewTopic(TOPIC, PARTITIONS, config={"lakestream.profile": profile})
    admin.create_topics([topic])[TOPIC].result(30)
    return admin


class Load:
    """An idempotent producer that counts up from `first` in every partition until it is left."""

    def __init__(self, brokers: Embedded, first: int = 0) -> None:
        self._first = first
        self._producer = Producer(
            {
                "bootstrap.servers": brokers.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "delivery.timeout.ms": 110_000,
            }
        )
        self._stop = Event()
        self._thread = Thread(target=self._run)
        self.sent = 0
        self.acked = 0
        self.errors: list[str] = []

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(DEADLINE_S) == 0
        assert self.errors == []
        assert self.acked == self.sent * PARTITIONS > 0

    def grows(self, by: int = 50) -> None:
        """Returns when so many more are acknowledged."""
        goal = self.acked + by
        wait_for(lambda: self.acked >= goal)

    def _run(self) -> None:
        while not self._stop.is_set():
            value = b"%d" % (self._first + self.sent)
            for partition in range(PARTITIONS):
                self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._delivered)
            self.sent += 1
            self._producer.poll(0.002)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            self.acked += 1


def wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def check_all_there(brokers: Embedded, count: int, topic: str = TOPIC) -> None:
    """Every partition has 0, 1, 2 … in this order, each once."""
    consumer = Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
        seen: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
        deadline = time.monotonic() + DEADLINE_S
        while sum(map(len, seen.values())) < count * PARTITIONS:
            assert time.monotonic() < deadline, {index: len(values) for index, values in seen.items()}
            for message in consumer.consume(1000, 0.5):
                if message.error() is None:
                    seen[message.partition()].append(int(message.value()))
                else:
                    assert message.error().retriable(), message.error()
        for message in consumer.consume(1000, 0.5):
            assert message.error() is not None, f"one too many: {message.value()}"
        assert seen == {index: list(range(count)) for index in range(PARTITIONS)}
    finally:
        consumer.close()


def objects_in(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*.wal")]


def lose(folder: Path) -> None:
    """At once: brokers may write there meanwhile, and make it anew."""
    gone = folder.with_name(f"{folder.name}-{time.monotonic_ns()}")
    folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def is_whole(data: Path, folder: Path) -> bool:
    """Whether the metadata store counts on it."""

    async def read() -> dict[str, str]:
        store = await metadata.open(f"sqlite://{data}/metadata.db")
        try:
            return {row.url: row.label for row in await disk_rows(store)}
        finally:
            await store.close()

    labels = [path.read_text() for path in folder.glob("lakestream/disk/*.label")]
    with asyncio.Runner() as runner:
        return runner.run(read())[f"file://{folder}"] in labels


@contextmanager
def full(*folders: Path) -> Iterator[None]:
    """No file can be written below them: their disks are full."""
    create = Files.create

    def refused(files: Files, path: str, parts: Sequence[Any]) -> None:
        if any(Path(path).is_relative_to(folder) for folder in folders):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        create(files, path, parts)

    with patch.object(Files, "create", refused):
        yield
