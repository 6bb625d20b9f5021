"""Engines rewrite the table of a running stream through the embedded catalog: its consumers must not notice."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from py4j.protocol import Py4JJavaError
from support.tables.files import open_door
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

pytestmark = pytest.mark.spark

TOPIC = "orders"
PARTITIONS = 2
TICK_S = 1.0
LOOK_S = 0.1
PAUSE_S = 0.3
SETTLES_WITHIN_S = 60
Place = tuple[int, int]
"""Partition and offset."""

EVERYTHING = ", options => map('rewrite-all', 'true')"

_names = count()


@dataclass
class Book:
    """What was acknowledged, where, and what may be missing by now. Keys that begin with `erase` may be deleted."""

    acked: dict[Place, tuple[bytes, bytes]] = field(default_factory=dict)
    erased: set[bytes] = field(default_factory=set)
    erasing: set[bytes] = field(default_factory=set)

    def check_pass(self, seen: list[Place], ends: dict[int, int]) -> None:
        """One reading from the start up to `ends`: nothing twice, nothing out of order, nothing missing."""
        for partition, end in ends.items():
            offsets = [offset for index, offset in seen if index == partition]
            assert offsets == sorted(set(offsets)), f"partition {partition}: offsets twice or out of order"
            missing = set(range(end)) - set(offsets)
            lost = [offset for offset in missing if self.acked[partition, offset][0] not in self.erasing]
            assert not lost, f"partition {partition}: {sorted(lost)[:10]} of {end} are missing"


@dataclass
class Stream:
    """A topic of a running cluster, its book, and the name of the Spark catalog on the cluster's door."""

    cluster: ProcessWorld
    book: Book
    lake: str
    spark: Any
    trouble: list[BaseException] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    passes: int = 0
    commits: int = 0

    @property
    def table(self) -> str:
        return f"{self.lake}.default.{TOPIC}"

    def sql(self, text: str) -> list[Any]:
        assert not self.trouble, self.trouble
        rows: list[Any] = self.spark.sql(text.replace("TABLE_", self.table)).collect()
        return rows

    def alter(self, change: str) -> None:
        """Spark gives up a change of the schema if anything was committed since it loaded the table: run it again."""
        for _ in range(10):
            try:
                self.sql(f"ALTER TABLE TABLE_ {change}")
            except Py4JJavaError as error:
                if "Table metadata refresh is required" not in str(error):
                    raise
            else:
                return
        raise AssertionError(f"{change}: somebody else was always faster")

    def call(self, procedure: str, arguments: str = "") -> None:
        self.sql(f"CALL {self.lake}.system.{procedure}(table => 'default.{TOPIC}'{arguments})")

    def produce(self, keys: list[bytes]) -> None:
        """Returns when all are acknowledged."""
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "linger.ms": 2})

        def written(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            self.book.acked[message.partition(), message.offset()] = (message.key(), message.value())

        for number, key in enumerate(keys):
            value = b"%s %d %d" % (key, time.monotonic_ns(), number)
            producer.produce(TOPIC, value, key, partition=number % PARTITIONS, on_delivery=written)
        assert producer.flush(30) == 0

    def read(self, ends: dict[int, int]) -> list[Place]:
        """A consumer from the start up to `ends`; every record is held against what was acknowledged."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "group.id": "none",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 50,
            }
        )
        seen: list[Place] = []
        try:
            consumer.assign([TopicPartition(TOPIC, index, 0) for index in ends])
            deadline = time.monotonic() + SETTLES_WITHIN_S
            left = {index for index, end in ends.items() if end}
            while left:
                assert time.monotonic() < deadline, f"{left} are not read to their ends {ends}: {len(seen)} records"
                message = consumer.poll(0.5)
                if message is None:
                    continue
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    left.discard(message.partition())
                    continue
                place = message.partition(), message.offset()
                if place[1] < ends[place[0]]:
                    seen.append(place)
                    assert (message.key(), message.value()) == self.book.acked[place], place
                if place[1] >= ends[place[0]] - 1:
                    left.discard(place[0])
        finally:
            consumer.close()
        return seen

    def ends(self) -> dict[int, int]:
        """Per partition, the first offset that is not known to be acknowledged."""
        known = self.book.acked
        return {
            index: next(offset for offset in count() if (index, offset) not in known) for index in range(PARTITIONS)
        }

    def check(self) -> None:
        """A fresh consumer sees everything that was not erased, and nothing that was."""
        ends = self.ends()
        seen = self.read(ends)
        self.book.check_pass(seen, ends)
        assert not {place for place in seen if self.book.acked[place][0] in self.book.erased}
        rows = self.sql("SELECT _stream_partition, _offset FROM TABLE_")
        table = [(row[0], row[1]) for row in rows]
        assert len(table) == len(set(table))
        frontier = dict(zip(range(PARTITIONS), self.frontier(), strict=True))
        assert sorted(table) == sorted(place for place in seen if place[1] < frontier[place[0]])

    def frontier(self) -> tuple[int, ...]:
        [row] = self.sql("SHOW TBLPROPERTIES TABLE_ ('lakestream.frontier')")
        return tuple(map(int, row["value"].split(",")))

    def wait_in_table(self) -> None:
        """Until the table has all that is acknowledged now."""
        ends = self.ends()
        deadline = time.monotonic() + SETTLES_WITHIN_S
        while self.frontier() < tuple(ends.values()):
            assert time.monotonic() < deadline, (self.frontier(), ends)
            time.sleep(LOOK_S)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Producers, consumers that read from the start again and again, and a pipeline, all the while."""
        work = [self._produce_on, self._consume_on, lambda: asyncio.run(self._move_on())]
        threads = [threading.Thread(target=self._guarded, args=(each,)) for each in work]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stop.set()
            for thread in threads:
                thread.join(SETTLES_WITHIN_S)
        assert not any(thread.is_alive() for thread in threads)
        assert not self.trouble, self.trouble
        assert self.passes
        assert self.commits

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.trouble.append(error)

    def _produce_on(self) -> None:
        while not self.stop.wait(0.2):
            self.produce([b"kept"] * 40)

    def _consume_on(self) -> None:
        while not self.stop.wait(PAUSE_S):
            ends = self.ends()
            self.book.check_pass(self.read(ends), ends)
            self.passes += 1

    async def _move_on(self) -> None:
        """A pipeline without Spark: the same chain of commits, at a higher rate."""
        runtime, data = system(), self.cluster.data
        store = await open_sqlite(str(data / "metadata.db"))
        bucket = objects.open(f"file://{data}/bucket")
        catalog = PyIcebergTables(store, bucket.url, runtime)
        try:
            lake = Lake(store, catalog, bucket, LocalTiles(bucket, runtime), runtime, PipelineSettings())
            worker = Worker(lake, Topics(store, runtime), name="test", respect_leases=False)
            while not self.stop.is_set():
                tick = await worker.tick()
                assert not tick.failures, tick.failures
                self.commits += tick.topics
                await asyncio.sleep(TICK_S)
        finally:
            await catalog.close()
            await store.close()


def add_catalog(spark: Any, uri: str) -> str:
    """A Spark catalog of this test's own; its name."""
    name = f"rewrite{next(_names)}"
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    for key, value in (("type", "rest"), ("uri", uri), ("cache-enabled", "false")):
        spark.conf.set(f"spark.sql.catalog.{name}.{key}", value)
    return name


@pytest.fixture
def stream(spark: Any, cluster: Callable[..., ProcessWorld]) -> Stream:
    made = cluster(2, http=True)
    admin = AdminClient({"bootstrap.servers": made.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(30)
    return Stream(made, Book(), add_catalog(spark, made.catalog), spark)


def erase(stream: Stream, key: bytes) -> None:
    stream.book.erasing.add(key)
    stream.sql(f"DELETE FROM TABLE_ WHERE _key = X'{key.hex()}'")
    stream.book.erased.add(key)


def set_mode(stream: Stream, mode: str) -> None:
    modes = ", ".join(f"'write.{kind}.mode' = '{mode}'" for kind in ("delete", "update", "merge"))
    stream.alter(f"SET TBLPROPERTIES ({modes})")


def prepare(stream: Stream) -> None:
    """Something to erase, and a column of the owner's own."""
    for key in (b"erase-1", b"erase-2"):
        stream.produce([key, b"kept", b"kept"] * 40)
    stream.wait_in_table()
    stream.alter("ADD COLUMN note string")
    set_mode(stream, "merge-on-read")


def settle(stream: Stream) -> None:
    """Until the pipeline has committed on top of what was done."""
    commits = stream.commits
    stream.wait_in_table()
    deadline = time.monotonic() + SETTLES_WITHIN_S
    while stream.commits == commits:
        assert time.monotonic() < deadline, stream.trouble
        time.sleep(LOOK_S)


def test_consumers_do_not_notice_rewrites(stream: Stream) -> None:
    with stream.running():
        prepare(stream)
        erase(stream, b"erase-1")
        stream.call("rewrite_data_files", f", strategy => 'sort', sort_order => '_value DESC'{EVERYTHING}")
        settle(stream)
    stream.check()


@pytest.mark.slow
def test_consumers_do_not_notice_anything_that_an_owner_may_do(stream: Stream) -> None:
    with stream.running():
        prepare(stream)
        set_mode(stream, "copy-on-write")
        stream.call("rewrite_data_files", EVERYTHING)
        erase(stream, b"erase-1")
        stream.sql("UPDATE TABLE_ SET note = 'seen' WHERE _offset % 7 = 0")
        stream.call("rewrite_data_files", f", strategy => 'sort', sort_order => '_value DESC'{EVERYTHING}")
        set_mode(stream, "merge-on-read")
        erase(stream, b"erase-2")
        stream.sql("UPDATE TABLE_ SET note = 'seen twice' WHERE _offset % 21 = 0")
        stream.call("rewrite_position_delete_files", EVERYTHING)
        stream.call("rewrite_manifests")
        stream.call("expire_snapshots", ", older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1")
        settle(stream)
    stream.check()
    [(noted,)] = stream.sql("SELECT count(*) FROM TABLE_ WHERE note IS NOT NULL")
    assert noted > 40


REFUSED = {
    "INSERT INTO TABLE_ SELECT * FROM TABLE_ WHERE _offset < 5": "5 rows would be appended to a stream's table .*topic",
    "MERGE INTO TABLE_ t USING (SELECT * FROM TABLE_ WHERE _offset = 3) s ON t._offset = s._offset + 1000"
    " WHEN NOT MATCHED THEN INSERT *": "1 rows would be appended",
    "INSERT OVERWRITE TABLE_ SELECT a.* FROM TABLE_ a CROSS JOIN TABLE_ b": "144 rows with only 12 offsets",
    "CREATE OR REPLACE TABLE TABLE_ AS SELECT * FROM TABLE_": "cannot be replaced, .*: DELETE the rows that shall go",
    "CREATE OR REPLACE TABLE TABLE_ AS SELECT 1 AS n": "cannot be replaced",
    "ALTER TABLE TABLE_ UNSET TBLPROPERTIES ('lakestream.topic')": "lakestream.topic says whose table this is",
    "ALTER TABLE TABLE_ DROP COLUMN _value": "column _value of a stream's table cannot be dropped",
    "ALTER TABLE TABLE_ ADD COLUMN _headers.element.more int": "column _headers of a stream's table cannot be",
    "ALTER TABLE TABLE_ RENAME COLUMN _key TO id": "column _key of a stream's table cannot be",
    "ALTER TABLE TABLE_ SET TBLPROPERTIES ('format-version' = '3')": "stays in format version 2",
    "ALTER TABLE TABLE_ DROP PARTITION FIELD _offset_window": "default partition spec of a stream's table keeps",
}


def test_spark_is_told_why(spark: Any, tmp_path: Path) -> None:
    with open_door(tmp_path) as door:
        table = f"{add_catalog(spark, door.uri)}.default.orders"
        door.create()
        door.append(12)
        before = door.load()
        for statement, sentence in REFUSED.items():
            with pytest.raises(Py4JJavaError, match=sentence):
                spark.sql(statement.replace("TABLE_", table)).collect()
            assert door.load() == before, statement
        for column in ("_key", "_headers", "_headers.element.key"):
            spark.sql(f"ALTER TABLE {table} ALTER COLUMN {column} COMMENT 'the owner knows'")
        assert door.append(2).frontier == (14,)
        spark.sql(f"ALTER TABLE {table} ADD PARTITION FIELD days(_timestamp)")
        spark.sql(f"DELETE FROM {table} WHERE _offset = 3")
        spark.sql(f"TRUNCATE TABLE {table}")
        assert door.load().files == ()
        assert door.append(2).frontier == (16,)
        assert spark.sql(f"SELECT count(*) FROM {table}").collect()[0][0] == 2
