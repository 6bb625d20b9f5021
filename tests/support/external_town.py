"""A broker, real clients and a pipeline without Spark, whose tables are in an external catalog."""

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from lakestream import objects
from lakestream.catalog.external.tables import ExternalTables
from lakestream.frontier.collecting.collector import Collector
from lakestream.frontier.lag import TopicLag, read_lag
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.local import LocalTiles
from lakestream.frontier.moving.worker import Tick, Worker
from lakestream.frontier.settings import PipelineSettings
from lakestream.frontier.status import StatusBoard
from lakestream.metadata.stores.sqlite.store import open_sqlite
from lakestream.metadata.topics.list import Topics
from lakestream.runtime import system
from lakestream.table.schema import iceberg_schema
from lakestream.table.shape import RAW
from support.embedded import Embedded, embedded
from support.external import NAME, Place, variables

TOPIC = "orders"
TABLE = ("default", "orders")
WAIT_S = 30


@dataclass
class Town:
    brokers: Embedded
    data: Path
    place: Place
    outsider: Catalog
    produced: int = 0

    def produce(self, count: int) -> None:
        """The next records, `v0`, `v1` …; all are acked."""
        producer = Producer({"bootstrap.servers": self.brokers.bootstrap, "linger.ms": 2})
        failed: list[KafkaError] = []
        for number in range(self.produced, self.produced + count):
            producer.produce(
                TOPIC, b"v%d" % number, on_delivery=lambda error, _: failed.append(error) if error else None
            )
        assert producer.flush(WAIT_S) == 0
        assert not failed
        self.produced += count

    def check_all(self, *, without: tuple[int, ...] = ()) -> None:
        """A consumer gets every record that was ever acked, but for the deleted ones."""
        expected = {offset: b"v%d" % offset for offset in range(self.produced) if offset not in without}
        assert self._read(max(expected)) == expected

    async def tick(self) -> Tick:
        """What a pipeline does in one tick, the report of it included."""
        ticks: list[Tick] = []

        async def work(lake: Lake, topics: Topics) -> None:
            worker = Worker(lake, topics, name="test", respect_leases=False)
            ticks.append(await worker.tick())
            board = StatusBoard(lake.store, "test", stale_after_ms=0)
            await board.post(ticks[0], worker.failing_ids, lake.runtime.clock.now_ms())

        await self._with_lake(work)
        return ticks[0]

    async def move(self, count: int) -> None:
        """The next records, all the way into the table."""
        self.produce(count)
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

        await self._with_lake(collect)

    async def lag(self) -> list[TopicLag]:
        found: list[TopicLag] = []

        async def work(lake: Lake, topics: Topics) -> None:
            found.extend(await read_lag(lake.store, topics, lake.runtime.clock.now_ms()))

        await self._with_lake(work)
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

    def _read(self, last: int) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for message in self._messages():
            assert message.error() is None, message.error()
            assert message.offset() not in found
            found[message.offset()] = message.value()
            if message.offset() >= last:
                break
        return found

    def records(self, first: int = 0) -> dict[int, tuple[object, ...]]:
        """All that consumers know of each record from an offset to the last, which is not deleted."""
        found: dict[int, tuple[object, ...]] = {}
        for message in self._messages(first):
            assert message.error() is None, message.error()
            found[message.offset()] = (message.timestamp(), message.key(), message.value(), message.headers())
            if message.offset() >= self.produced - 1:
                break
        return found

    def read_error(self) -> int:
        """The first error that comes; nothing else may."""
        message = next(self._messages())
        assert message.error() is not None, message.offset()
        return int(message.error().code())

    def _messages(self, first: int = 0) -> Iterator[Message]:
        consumer = Consumer({"bootstrap.servers": self.brokers.bootstrap, "group.id": "g", "enable.auto.commit": False})
        try:
            consumer.assign([TopicPartition(TOPIC, 0, first)])
            deadline = time.monotonic() + WAIT_S
            while time.monotonic() < deadline:
                message = consumer.poll(0.2)
                if message is not None:
                    yield message
            raise AssertionError("nothing more came")
        finally:
            consumer.close()

    async def _with_lake(self, work: Callable[[Lake, Topics], Awaitable[None]]) -> None:
        runtime = system()
        store = await open_sqlite(str(self.data / "metadata.db"))
        bucket = objects.open(self.place.bucket_url)
        tables: ExternalTables = self.place.tables(store, runtime)
        settings = PipelineSettings(generation_interval_ms=0, grace_ms=0)
        lake = Lake(store, tables, bucket, LocalTiles(bucket, runtime), runtime, settings)
        try:
            await work(lake, Topics(store, runtime))
        finally:
            await tables.close()
            await store.close()


@contextmanager
def external_town(place: Place, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Town]:
    for name, value in variables(place.properties).items():
        monkeypatch.setenv(name, value)
    settings = {"stream.view_check_ms": 50, "external_catalog": NAME, "bucket_url": place.bucket_url}
    outsider = place.outsider()
    try:
        with embedded(folder / "data", 1, **settings) as brokers:
            admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
            admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(WAIT_S)
            yield Town(brokers, folder / "data", place, outsider)
    finally:
        outsider.close()


def foreign_rows(*offsets: int) -> pa.Table:
    """Rows that no producer sent."""
    empty = dict.fromkeys(field.name for field in iceberg_schema(RAW).fields)
    plain = {"_stream_partition": 0, "_timestamp_type": 0, "_kind": 0, "_value": b"foreign", "_crc": 0}
    rows = [empty | plain | {"_offset": offset} for offset in offsets]
    return pa.Table.from_pylist(rows, schema_to_pyarrow(iceberg_schema(RAW), include_field_ids=False))
