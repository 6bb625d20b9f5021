"""Profiles under load, with librdkafka: switched, with stores lost, spilled, out of reach."""

import asyncio
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from support.servers.s3 import environment, make_bucket, s3_server
from support.worlds.embedded import Embedded, embedded

from lakestream import metadata
from lakestream.metadata.disks import disk_rows

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


def switch(admin: AdminClient, profile: str) -> None:
    entry = ConfigEntry("lakestream.profile", profile, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[entry])
    [done] = admin.incremental_alter_configs([resource]).values()
    done.result(30)


class Load:
    """An idempotent producer that counts up in every partition until it is left."""

    def __init__(self, brokers: Embedded) -> None:
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
            for partition in range(PARTITIONS):
                self._producer.produce(TOPIC, b"%d" % self.sent, partition=partition, on_delivery=self._delivered)
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


def check_all_there(brokers: Embedded, count: int) -> None:
    """Every partition has 0, 1, 2 … in this order, each once."""
    consumer = Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
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
    shutil.rmtree(gone)


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


def test_a_topic_is_switched_under_load(tmp_path: Path) -> None:
    with embedded(tmp_path / "data", 2, **three(tmp_path)) as brokers:
        admin = make_topic(brokers, "diskless")
        with Load(brokers) as load:
            for profile in ("disk", "diskless", "disk", "diskless", "disk"):
                load.grows()
                switch(admin, profile)
                time.sleep(0.2)
            wait_for(lambda: bool(objects_in(tmp_path / "a")))
            load.grows()
        check_all_there(brokers, load.sent)


def test_each_of_three_stores_is_lost_in_turn_and_copied_again(tmp_path: Path) -> None:
    """The last while consumers read, from a broker that was not there before."""
    with embedded(tmp_path / "data", 2, **three(tmp_path)) as brokers:
        make_topic(brokers, "disk")
        with Load(brokers) as load:
            for name in "abc":
                load.grows()
                lost = tmp_path / name
                lose(lost)
                load.grows()
                wait_for(partial(is_whole, brokers.data, lost))
        lose(tmp_path / "a")
        check_all_there(brokers, load.sent)


def test_what_was_spilled_is_read_when_the_stores_are_empty(tmp_path: Path) -> None:
    """No pipeline runs here at all."""
    with embedded(tmp_path / "data", 1, **three(tmp_path, spill_after_ms=300)) as brokers:
        make_topic(brokers, "disk")
        with Load(brokers) as load:
            load.grows(200)
        wait_for(lambda: not any(objects_in(tmp_path / name) for name in "abc"))
        assert objects_in(tmp_path / "data" / "bucket")
        for name in "abc":
            lose(tmp_path / name)
        check_all_there(brokers, load.sent)


def test_a_copy_out_of_reach_is_waited_for(tmp_path: Path) -> None:
    """All stores are away, as volumes that are not mounted: consumers are told to try again, nobody calls it lost."""
    with embedded(tmp_path / "data", 1, **three(tmp_path, keep_interval_ms=3_600_000)) as brokers:
        make_topic(brokers, "disk")
        with Load(brokers) as load:
            load.grows(100)
        for name in "abc":
            (tmp_path / name).rename(tmp_path / f"away-{name}")
            (tmp_path / name).mkdir()
        consumer = Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": "early", "fetch.wait.max.ms": 100})
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            for message in consumer.consume(10, 0.2):
                assert message.error() is not None
                assert message.error().retriable()
        consumer.close()
        for name in "abc":
            (tmp_path / name).rmdir()
            (tmp_path / f"away-{name}").rename(tmp_path / name)
        check_all_there(brokers, load.sent)


def test_stores_of_several_kinds_at_servers_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server() as one, s3_server() as other:
        for name, value in environment(one).items():
            if "ENDPOINT" not in name:
                monkeypatch.setenv(name, value)
        for address in (one, other):
            make_bucket(address, "wal")
        urls = [f"file://{tmp_path}/a", f"s3://wal?endpoint={one}", f"s3://wal/here?endpoint={other}"]
        with embedded(tmp_path / "data", 1, **three(tmp_path, stores=",".join(urls))) as brokers:
            make_topic(brokers, "disk")
            with Load(brokers) as load:
                load.grows(100)
                lose(tmp_path / "a")
                load.grows(100)
            check_all_there(brokers, load.sent)
