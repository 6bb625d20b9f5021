"""One topic of one broker, real clients and a pipeline without Spark, which moves when it is told to. The tables are in
the embedded catalog or in an external one."""

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from lakestream import objects
from lakestream.catalog.embedded.tables import PyIcebergTables
from lakestream.catalog.external.tables import ExternalTables
from lakestream.frontier.collecting.collector import Collector
from lakestream.frontier.lag import TopicLag, read_lag
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.tiles.local import LocalTiles
from lakestream.frontier.moving.worker import Tick, Worker
from lakestream.frontier.settings import PipelineSettings
from lakestream.frontier.status import StatusBoard
from lakestream.metadata.store import Store
from lakestream.metadata.stores.sqlite.store import open_sqlite
from lakestream.metadata.topics.list import Topics
from lakestream.runtime import system
from lakestream.table.schema import iceberg_schema
from lakestream.table.shape import RAW
from support.servers.catalogs import NAME, Place, variables
from support.worlds.embedded import Embedded, embedded

TOPIC = "orders"
TABLE = ("default", "orders")
WAIT_S = 30


@dataclass
class TopicWorld:
    """On the embedded catalog."""

    brokers: Embedded
    data: Path

    @property
    def bucket_url(self) -> str:
        return f"file://{self.data}/bucket"

    def open_tables(self, store: Store) -> Any:
        return PyIcebergTables(store, self.bucket_url, system())

    def produce(self, *values: bytes) -> None:
        """All are acked."""
        producer = Producer({"bootstrap.servers": self.brokers.bootstrap, "linger.ms": 2})
        failed: list[KafkaError] = []
        for value in values:
            producer.produce(TOPIC, value, on_delivery=lambda error, _: failed.append(error) if error else None)
        assert producer.flush(WAIT_S) == 0
        assert not failed

    def read(self, first: int, last: int) -> dict[int, bytes]:
        """From an offset until the record at `last` has come; offset → value."""
        found: dict[int, bytes] = {}
        for message in self.messages(first):
            error = message.error()
            assert error is None, error
            assert message.offset() not in found
            found[message.offset()] = message.value()
            if message.offset() >= last:
                break
        return found

    def read_error(self, first: int = 0) -> int:
        """The first error that comes; nothing else may."""
        message = next(self.messages(first))
        assert message.error() is not None, message.offset()
        return int(message.error().code())

    def messages(self, first: int = 0, seconds: float = WAIT_S) -> Iterator[Message]:
        consumer = Consumer({"bootstrap.servers": self.brokers.bootstrap, "group.id": "g", "enable.auto.commit": False})
        try:
            consumer.assign([TopicPartition(TOPIC, 0, first)])
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                message = consumer.poll(0.2)
                if message is not None:
                    yield message
            assert seconds < WAIT_S, "nothing more came"
        finally:
            consumer.close()

    async def tick(self) -> Tick:
        """What a pipeline does in one tick, the report of it included."""
        ticks: list[Tick] = []

        async def work(lake: Lake, topics: Topics) -> None:
            worker = Worker(lake, topics, name="test", respect_leases=False)
            ticks.append(await worker.tick())
            board = StatusBoard(lake.store, "test", stale_after_ms=0)
            await board.post(ticks[0], worker.failing_ids, lake.runtime.clock.now_ms())

        await self.with_lake(work)
        return ticks[0]

    async def with_lake(self, work: Callable[[Lake, Topics], Awaitable[None]]) -> None:
        runtime = system()
        store = await open_sqlite(str(self.data / "metadata.db"))
        bucket, tables = objects.open(self.bucket_url), self.open_tables(store)
        settings = PipelineSettings(generation_interval_ms=0, grace_ms=0)
        lake = Lake(store, tables, bucket, LocalTiles(bucket, runtime), runtime, settings)
        try:
            await work(lake, Topics(store, runtime))
        finally:
            await tables.close()
            await store.close()


@dataclass
class ExternalWorld(TopicWorld):
    """On an external catalog. Its records are numbered: `v0`, `v1` …"""

    place: Place
    outsider: Catalog
    produced: int = 0

    @property
    def bucket_url(self) -> str:
        return self.place.bucket_url

    def open_tables(self, store: Store) -> ExternalTables:
        return self.place.tables(store, system())

    def produce_next(self, count: int) -> None:
        self.produce(*(b"v%d" % number for number in range(self.produced, self.produced + count)))
        self.produced += count

    def check_all(self, *, without: tuple[int, ...] = ()) -> None:
        """A consumer gets every record that was ever acked, but for the deleted ones."""
        expected = {offset: b"v%d" % offset for offset in range(self.produced) if offset not in without}
        assert self.read(0, max(expected)) == expected

    async def move(self, count: int) -> None:
        """The next records, all the way into the table."""
        self.produce_next(count)
        assert (await self.tick()).record_count == count

    async def check_commits_stopped(self, *words: str) -> None:
        """A tick moves nothing and says why, also to whoever asks for the lag; nothing of the WAL is collected."""
        tick = await self.tick()
        assert (tick.record_count, len(tick.failures)) == (0, 1)
        sentence = str(tick.failures[0].error)
        assert all(word in sentence for word in words), sentence
        [lag] = await self.lag()
        assert (lag.error, lag.records > 0) == (sentence, True)

        async def collect(lake: Lake, _topics: Topics) -> None:
            assert (await Collector(lake).collect()).deleted == 0

        await self.with_lake(collect)

    async def lag(self) -> list[TopicLag]:
        found: list[TopicLag] = []

        async def work(lake: Lake, topics: Topics) -> None:
            found.extend(await read_lag(lake.store, topics, lake.runtime.clock.now_ms()))

        await self.with_lake(work)
        return found

    async def topic_id(self) -> UUID:
        [lag] = await self.lag()
        return lag.topic_id

    def table(self) -> Table:
        return self.outsider.load_table(TABLE)

    def rows(self) -> list[int]:
        """The offsets that an engine finds in the table."""
        return sorted(self.table().scan(selected_fields=("_offset",)).to_arrow()["_offset"].to_pylist())

    def restart_broker(self) -> None:
        self.brokers.stop(0)
        self.brokers.start(0)

    def records(self, first: int = 0) -> dict[int, tuple[object, ...]]:
        """All that consumers know of each record from an offset to the last, which is not deleted."""
        found: dict[int, tuple[object, ...]] = {}
        for message in self.messages(first):
            assert message.error() is None, message.error()
            found[message.offset()] = (message.timestamp(), message.key(), message.value(), message.headers())
            if message.offset() >= self.produced - 1:
                break
        return found


@contextmanager
def one_topic(data: Path, **settings: Any) -> Iterator[Embedded]:
    """A broker whose only topic is `orders`, with one partition."""
    with embedded(data, 1, **({"stream.view_check_ms": 50} | settings)) as brokers:
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(WAIT_S)
        yield brokers


@contextmanager
def external_world(place: Place, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ExternalWorld]:
    for name, value in variables(place.properties).items():
        monkeypatch.setenv(name, value)
    outsider = place.outsider()
    try:
        with one_topic(folder / "data", external_catalog=NAME, bucket_url=place.bucket_url) as brokers:
            yield ExternalWorld(brokers, folder / "data", place, outsider)
    finally:
        outsider.close()


def foreign_rows(*offsets: int) -> pa.Table:
    """Rows that no producer sent."""
    empty = dict.fromkeys(field.name for field in iceberg_schema(RAW).fields)
    plain = {"_stream_partition": 0, "_timestamp_type": 0, "_kind": 0, "_value": b"foreign", "_crc": 0}
    rows = [empty | plain | {"_offset": offset} for offset in offsets]
    return pa.Table.from_pylist(rows, schema_to_pyarrow(iceberg_schema(RAW), include_field_ids=False))
