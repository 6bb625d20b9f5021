"""Random histories, then the metadata store is gone and is rebuilt from the bucket: every acknowledged record is there
once, at its offset and to the byte, and producers go on with their sequences.

Several brokers, producers that send again what was not answered (at another broker too), replies and requests to
the store that get lost, tables that move on, rows saved at some point or never, WAL collected. RECOVER_SEEDS says how
many histories are played."""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.clients.batches import batch
from support.clients.records import parse
from support.worlds.brokers import BrokerWorld

from lakestream import objects
from lakestream.bucket.identity import check_identity
from lakestream.bucket.recover import recover
from lakestream.bucket.saved import Saver
from lakestream.catalog.embedded.tables import PyIcebergTables
from lakestream.errors import DuplicateSequence, LakestreamError, Unavailable
from lakestream.frontier.collecting.collector import Collector
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.tiles.local import LocalTiles
from lakestream.frontier.moving.worker import Worker
from lakestream.frontier.settings import PipelineSettings
from lakestream.metadata.log.partition import read_head
from lakestream.metadata.store import Outcome, Transaction
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.model import StreamPartition
from lakestream.runtime import Runtime, system
from lakestream.stream import Appended, FetchPartition
from lakestream.stream.engine import StreamEngine
from lakestream.stream.settings import StreamSettings

pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option")

SEEDS = int(os.environ.get("RECOVER_SEEDS", "12"))
PARTITIONS = 2
EAGER = PipelineSettings(generation_interval_ms=0, grace_ms=0)


class Flaky(MemoryStore):
    """Loses a commit's request or its reply now and then, while it is told to."""

    chance: random.Random | None = None

    async def transact(self, transactions: Sequence[Transaction]) -> list[Outcome]:
        fault = self.chance.random() if self.chance is not None else 1.0
        if fault < 0.05:
            raise Unavailable("the request was lost")
        done = await super().transact(transactions)
        if fault < 0.12:
            raise Unavailable("the reply was lost")
        return done


@dataclass
class Writer:
    """One producer of one partition; without an id it is not idempotent and never sends twice."""

    name: str
    partition: StreamPartition
    producer_id: int
    sequence: int = 0
    acked: dict[int, bytes] = field(default_factory=dict)
    sent: list[bytes] = field(default_factory=list)
    pending: list[bytes] = field(default_factory=list)

    def _data(self, values: Sequence[bytes]) -> bytes:
        producer = (self.producer_id, 0, self.sequence) if self.producer_id >= 0 else (-1, -1, -1)
        return batch(*values, producer=producer)

    def begin(self, streams: StreamEngine) -> "asyncio.Future[Appended]":
        """The batch that waits for its answer, or a new one."""
        if self.pending and self.producer_id < 0:
            self.pending = []
        if not self.pending:
            first = len(self.sent)
            self.pending = [b"%s %d" % (self.name.encode(), first + index) for index in range(1 + first % 3)]
            self.sent += self.pending
        answer = streams.append(self.partition, self._data(self.pending))
        answer.add_done_callback(lambda done: done.exception())
        return answer

    async def send(self, streams: StreamEngine) -> None:
        answer = self.begin(streams)
        values = self.pending
        await asyncio.wait({answer}, timeout=5)
        try:
            if not answer.done():
                return
            done = answer.result()
        except DuplicateSequence:
            pass
        except LakestreamError:
            return
        else:
            self.acked |= {done.base_offset + index: value for index, value in enumerate(values)}
        self.sequence += len(values)
        self.pending = []


async def play(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    runtime = Runtime(system().clock, random.Random(seed))
    bucket = objects.open(f"file://{folder}/bucket")
    store = Flaky(runtime)
    await check_identity(store, bucket, runtime, "")
    catalog = PyIcebergTables(store, bucket.url, runtime)
    cluster = BrokerWorld(runtime, store, bucket, catalog, StreamSettings(flush_interval_ms=2, receipt_idle_ms=30))
    lake = Lake(store, catalog, bucket, LocalTiles(bucket, runtime), runtime, EAGER)
    saver = Saver(store, bucket, runtime)
    async with cluster.brokers(chance.choice((1, 1, 2, 3))) as brokers:
        topic = await brokers[0].create_topic("orders", PARTITIONS, {"retention.ms": "-1"})
        writers = [
            Writer(
                f"w{number}",
                StreamPartition(topic.topic_id, number % PARTITIONS),
                (await brokers[0].new_producer())[0] if number < 4 else -1,
            )
            for number in range(6)
        ]
        if chance.random() < 0.8:
            await saver.save()

        async def write(writer: Writer) -> None:
            while not lost.is_set():
                await writer.send(chance.choice(brokers))
                await asyncio.sleep(chance.random() * 0.02)

        async def upkeep() -> None:
            worker = Worker(lake, Topics(store, runtime), name="worker", respect_leases=False)
            collector = Collector(lake)
            while not lost.is_set():
                with suppress(LakestreamError):
                    act = chance.random()
                    if act < 0.5:
                        await worker.tick()
                    elif act < 0.7:
                        await collector.collect()
                    elif act < 0.8:
                        await saver.save()
                await asyncio.sleep(chance.random() * 0.05)

        # A thread that deletes cannot be cut off as the death of its process would.
        lost = asyncio.Event()
        store.chance = random.Random(seed)
        tasks = [asyncio.create_task(write(writer)) for writer in writers]
        kept = asyncio.create_task(upkeep() if chance.random() < 0.85 else asyncio.sleep(0))
        await asyncio.sleep(0.2 + chance.random())
        lost.set()
        await kept
        await asyncio.wait(tasks)
        if chance.random() < 0.4:
            with suppress(LakestreamError):
                await saver.save()
        for writer in writers:
            if chance.random() < 0.5:
                writer.begin(chance.choice(brokers))
        await asyncio.sleep(chance.random() * 0.01)
        # What happens from here on is after the loss: brokers are neither stopped nor do they write receipts.
        rebuilt = MemoryStore(runtime)
        done = await recover(rebuilt, bucket, runtime, "", tell=lambda _: None)
        store.chance = None
        await judge(rebuilt, bucket, runtime, topic, writers, moved=done.appended)
    await catalog.close()


async def judge(
    store: MemoryStore,
    bucket: objects.ObjectStore,
    runtime: Runtime,
    topic: Topic,
    writers: list[Writer],
    *,
    moved: int,
) -> None:
    await check_identity(store, bucket, runtime, "")
    catalog = PyIcebergTables(store, bucket.url, runtime)
    try:
        cluster = BrokerWorld(runtime, store, bucket, catalog)
        async with cluster.brokers(2) as brokers:
            found = {index: await read(brokers[0], topic, index) for index in range(PARTITIONS)}
            elsewhere = 0
            for writer in writers:
                log = found[writer.partition.index]
                counted = Counter(log.values())
                for offset, value in writer.acked.items():
                    assert counted[value] == 1, (value, counted[value])
                    elsewhere += log.get(offset) != value
                assert all(counted[value] <= 1 for value in writer.sent), counted
            assert elsewhere <= moved
            for writer in writers:
                await go_on(writer, brokers)
            after = {index: await read(brokers[1], topic, index) for index in range(PARTITIONS)}
            for index, log in found.items():
                assert log.items() <= after[index].items()
                assert all(count == 1 for count in Counter(after[index].values()).values())
            lake = Lake(store, catalog, bucket, LocalTiles(bucket, runtime), runtime, EAGER)
            tick = await Worker(lake, Topics(store, runtime), name="after").tick()
            assert not tick.failures
            assert {index: await read(brokers[0], topic, index) for index in range(PARTITIONS)} == after
            for partition in topic.each_partition():
                head = await read_head(store, partition)
                assert head is not None
                assert head.head.frontier == head.head.next_offset == len(after[partition.index])
    finally:
        await catalog.close()


async def go_on(writer: Writer, brokers: list[StreamEngine]) -> None:
    """A producer that lived on: what it still waits for, then more."""
    for _ in range(3):
        before = len(writer.acked)
        await writer.send(brokers[1])
        assert not writer.pending
        assert len(writer.acked) > before or writer.producer_id >= 0


async def read(streams: StreamEngine, topic: Topic, index: int) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    position = 0
    while True:
        wanted = FetchPartition(StreamPartition(topic.topic_id, index), position, 1 << 20)
        [fetched] = await streams.fetch([wanted], min_bytes=0, max_bytes=1 << 20, max_wait_ms=0)
        if fetched.error is not None:
            raise fetched.error
        more = {each.offset: each.value for each in parse(fetched.parts) if each.offset >= position}
        if not more:
            return found
        assert min(more) == position, "a gap"
        found |= more
        position = max(more) + 1


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
async def test_what_was_acked_is_there_once_after_the_loss_of_the_store(tmp_path: Path, seed: int) -> None:
    await play(tmp_path, seed)
