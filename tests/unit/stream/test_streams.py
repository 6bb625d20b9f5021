"""Append and fetch through the streams of one or several brokers."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest
from support.clients.batches import batch
from support.clients.records import parse
from support.worlds.brokers import BrokerWorld

from lakestream.errors import (
    CorruptRecords,
    ObjectMissing,
    OffsetOutOfRange,
    PredecessorAwaited,
    StorageError,
    StreamExists,
    Unavailable,
    UnknownStream,
)
from lakestream.metadata.counters import current_generation, raise_generation
from lakestream.metadata.log.partition import advance_frontier, raise_fence, read_extents, read_head
from lakestream.metadata.store import Outcome, Transaction
from lakestream.model import StreamPartition
from lakestream.objects import MemoryObjects
from lakestream.objects.store import Buffer
from lakestream.runtime import system
from lakestream.stream import EARLIEST, LATEST, MAX_TIMESTAMP, Fetched, FetchPartition, OffsetAt, StreamSettings
from lakestream.stream.engine import StreamEngine
from lakestream.wal import WAL_PREFIX, Placed, SectionReceipt, read_footer

MIB = 1 << 20


async def topic(streams: StreamEngine, partitions: int = 1, name: str = "orders") -> list[StreamPartition]:
    return (await streams.create_topic(name, partitions, {})).each_partition()


async def fetch(
    streams: StreamEngine, partition: StreamPartition, offset: int, *, max_bytes: int = MIB, wait_ms: int = 0
) -> Fetched:
    [fetched] = await streams.fetch(
        [FetchPartition(partition, offset, max_bytes)], min_bytes=1, max_bytes=max_bytes, max_wait_ms=wait_ms
    )
    return fetched


class SlowObjects(MemoryObjects):
    """Counts puts; holds them back until released; fails the next `failing` of them."""

    def __init__(self) -> None:
        super().__init__(system().clock)
        self.puts = 0
        self.failing = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def put(self, key: str, parts: Sequence[Buffer], *, overwrite: bool = False) -> None:
        self.puts += 1
        await self.gate.wait()
        if self.failing:
            self.failing -= 1
            raise Unavailable("no answer")
        await super().put(key, parts, overwrite=overwrite)


async def test_what_one_broker_acknowledged_every_broker_serves() -> None:
    async with BrokerWorld().brokers(3) as brokers:
        [partition] = await topic(brokers[0])
        for number, streams in enumerate(brokers * 3):
            appended = await streams.append(partition, batch(b"%d" % number, b"x"))
            assert appended.base_offset == number * 2
            for reader in brokers:
                records = parse((await fetch(reader, partition, number * 2)).parts)
                assert [(record.offset, record.value) for record in records] == [
                    (number * 2, b"%d" % number),
                    (number * 2 + 1, b"x"),
                ]
        for reader in brokers:
            fetched = await fetch(reader, partition, 0)
            assert [record.offset for record in parse(fetched.parts)] == list(range(18))
            assert fetched.high_watermark == 18


async def test_a_long_poll_on_another_broker_wakes() -> None:
    async with BrokerWorld().brokers(2) as (one, two):
        [partition] = await topic(one)
        poll = asyncio.create_task(fetch(two, partition, 0, wait_ms=30_000))
        await asyncio.sleep(0.05)
        assert not poll.done()
        await one.append(partition, batch(b"hello"))
        assert [record.value for record in parse((await asyncio.wait_for(poll, 5)).parts)] == [b"hello"]
        assert (await fetch(two, partition, 1, wait_ms=10)).parts == []


async def test_appends_in_flight_share_a_flush_and_keep_their_order() -> None:
    objects = SlowObjects()
    async with BrokerWorld(objects=objects).brokers(1) as [streams]:
        first, second = await topic(streams, 2)
        futures = [streams.append(first, batch(b"%d" % number)) for number in range(5)]
        futures += [streams.append(second, batch(b"other"))]
        assert [(await future).base_offset for future in futures] == [0, 1, 2, 3, 4, 0]
        assert objects.puts == 1
        assert len(await read_extents(streams.store, first)) == 1


async def test_nothing_is_acknowledged_or_visible_before_it_is_durable() -> None:
    objects = SlowObjects()
    async with BrokerWorld(objects=objects).brokers(1) as [streams]:
        [partition] = await topic(streams)
        objects.gate.clear()
        future = streams.append(partition, batch(b"a"))
        await asyncio.sleep(0.05)
        assert not future.done()
        assert (await fetch(streams, partition, 0)).high_watermark == 0
        objects.gate.set()
        assert (await future).base_offset == 0


async def test_an_upload_that_fails_is_tried_again_under_a_fresh_name() -> None:
    objects = SlowObjects()
    async with BrokerWorld(objects=objects).brokers(1) as [streams]:
        [partition] = await topic(streams)
        objects.failing = 2
        assert (await streams.append(partition, batch(b"a"))).base_offset == 0
        assert objects.puts == 3


async def test_a_store_that_stays_away_fails_the_append_and_writes_nothing() -> None:
    objects = SlowObjects()
    cluster = BrokerWorld(objects=objects, settings=StreamSettings(upload_deadline_ms=30))
    async with cluster.brokers(1) as [streams]:
        [partition] = await topic(streams)
        objects.failing = 1000
        with pytest.raises(Unavailable):
            await streams.append(partition, batch(b"a"))
        objects.failing = 0
        assert (await streams.append(partition, batch(b"b"))).base_offset == 0


async def test_a_commit_whose_reply_is_lost_is_acknowledged_once() -> None:
    cluster = BrokerWorld()
    async with cluster.brokers(1) as [streams]:
        [partition] = await topic(streams)
        real = cluster.store.transact
        losses = 1

        async def transact(transactions: Sequence[Transaction]) -> list[Outcome]:
            nonlocal losses
            outcomes = await real(transactions)
            if losses:
                losses -= 1
                raise Unavailable("the reply is lost")
            return outcomes

        cluster.store.transact = transact  # type: ignore[method-assign]
        assert (await streams.append(partition, batch(b"a", b"b"))).base_offset == 0
        assert (await streams.append(partition, batch(b"c"))).base_offset == 2
        assert [record.value for record in parse((await fetch(streams, partition, 0)).parts)] == [b"a", b"b", b"c"]


async def test_a_broker_paused_between_upload_and_commit_finds_itself_fenced_and_uploads_again() -> None:
    objects = SlowObjects()
    cluster = BrokerWorld(objects=objects)
    async with cluster.brokers(1) as [streams]:
        [partition] = await topic(streams)
        objects.gate.clear()
        future = streams.append(partition, batch(b"late"))
        await asyncio.sleep(0.03)
        for generation in range(1, 5):
            await raise_generation(cluster.store, generation)
        fence = await current_generation(cluster.store) - 2
        await raise_fence(cluster.store, partition, fence)
        objects.gate.set()
        assert (await future).base_offset == 0
        [extent] = await read_extents(cluster.store, partition)
        assert (await read_footer(objects, extent.object_key)).generation >= fence
        assert objects.puts == 2


async def test_idempotent_retries_get_the_original_offset_on_any_broker() -> None:
    async with BrokerWorld().brokers(2) as (one, two):
        [partition] = await topic(one)
        producer_id, epoch = await one.new_producer()
        first = batch(b"a", b"b", producer=(producer_id, epoch, 0))
        assert (await one.append(partition, first)).base_offset == 0
        assert (await two.append(partition, first)).base_offset == 0
        assert (await two.append(partition, batch(b"c", producer=(producer_id, epoch, 2)))).base_offset == 2
        with pytest.raises(PredecessorAwaited):
            await one.append(partition, batch(b"e", producer=(producer_id, epoch, 9)))
        assert (await fetch(one, partition, 0)).high_watermark == 3
        assert (await two.new_producer())[0] != producer_id


async def test_budgets_are_per_request_and_one_batch_always_comes() -> None:
    async with BrokerWorld().brokers(1) as [streams]:
        partitions = await topic(streams, 6)
        for partition in partitions:
            for _ in range(3):
                await streams.append(partition, batch(b"x" * 1000))
        size = len(batch(b"x" * 1000))
        requests = [FetchPartition(partition, 0, MIB) for partition in partitions]
        results = await streams.fetch(requests, min_bytes=1, max_bytes=1, max_wait_ms=0)
        assert [len(parse(result.parts)) for result in results] == [1, 0, 0, 0, 0, 0]
        results = await streams.fetch(requests, min_bytes=1, max_bytes=size * 5, max_wait_ms=0)
        assert [len(parse(result.parts)) for result in results] == [3, 2, 0, 0, 0, 0]
        requests = [FetchPartition(partition, 1, size * 2) for partition in reversed(partitions)]
        results = await streams.fetch(requests, min_bytes=1, max_bytes=MIB, max_wait_ms=0)
        assert [[record.offset for record in parse(result.parts)] for result in results] == [[1, 2]] * 6


async def test_offsets_outside_the_log_and_unknown_streams() -> None:
    async with BrokerWorld().brokers(2) as (one, two):
        [partition] = await topic(one)
        assert isinstance((await fetch(one, partition, 1)).error, OffsetOutOfRange)
        await two.append(partition, batch(b"a"))
        assert (await fetch(one, partition, 1)).error is None
        assert isinstance((await fetch(one, partition, 2)).error, OffsetOutOfRange)
        assert isinstance((await fetch(one, partition, -1)).error, OffsetOutOfRange)
        nowhere = StreamPartition(UUID(int=9), 0)
        assert isinstance((await fetch(one, nowhere, 0)).error, UnknownStream)
        with pytest.raises(UnknownStream):
            await one.append(nowhere, batch(b"a"))
        with pytest.raises(CorruptRecords):
            await one.append(partition, batch(b"a")[:-1])
        assert await one.list_offset(partition, LATEST) == OffsetAt(1, -1)


async def test_offsets_by_time() -> None:
    async with BrokerWorld().brokers(1) as [streams]:
        [partition] = await topic(streams)
        for start in (1000, 2000, 500):
            await streams.append(partition, batch(b"a", b"b", timestamp_ms=start))
        assert await streams.list_offset(partition, EARLIEST) == OffsetAt(0, -1)
        assert await streams.list_offset(partition, LATEST) == OffsetAt(6, -1)
        assert await streams.list_offset(partition, 1001) == OffsetAt(1, 1001)
        assert await streams.list_offset(partition, 1002) == OffsetAt(2, 2000)
        assert await streams.list_offset(partition, 2002) == OffsetAt(-1, -1)
        assert await streams.list_offset(partition, MAX_TIMESTAMP) == OffsetAt(3, 2001)


async def test_deleting_and_creating_again_never_mixes() -> None:
    async with BrokerWorld().brokers(2) as (one, two):
        [old] = await topic(one)
        await one.append(old, batch(b"old"))
        await fetch(two, old, 0)
        with pytest.raises(StreamExists):
            await topic(two)
        await two.delete_topic(old.topic_id)
        with pytest.raises(UnknownStream):
            await one.append(old, batch(b"late"))
        [new] = await topic(one)
        assert new.topic_id != old.topic_id
        assert (await one.append(new, batch(b"new"))).base_offset == 0
        assert [record.value for record in parse((await fetch(two, new, 0)).parts)] == [b"new"]
        assert isinstance((await fetch(two, old, 1)).error, UnknownStream)
        with pytest.raises(UnknownStream):
            await one.delete_topic(old.topic_id)


async def test_data_that_is_nowhere_is_an_alarm_and_never_a_skip() -> None:
    cluster = BrokerWorld()
    async with cluster.brokers(1) as [streams]:
        [partition] = await topic(streams)
        await streams.append(partition, batch(b"a"))
    async with cluster.brokers(1) as [streams]:
        keys = [info.key async for info in cluster.objects.list(WAL_PREFIX)]
        await cluster.objects.delete(keys)
        assert isinstance((await fetch(streams, partition, 0)).error, ObjectMissing)
        # A frontier that no table carries: extents are gone and the view has nothing.
        await advance_frontier(cluster.store, partition, 1)
        await streams.append(partition, batch(b"b"))
    async with cluster.brokers(1) as [streams]:
        error = (await fetch(streams, partition, 0)).error
        assert isinstance(error, StorageError)
        assert "neither in the table nor in the WAL" in str(error)


async def test_an_idle_or_stopping_broker_leaves_receipts_for_all_it_committed() -> None:
    cluster = BrokerWorld(settings=StreamSettings(receipt_idle_ms=20))
    async with cluster.brokers(1) as [streams]:
        [partition] = await topic(streams)
        for _ in range(3):
            await streams.append(partition, batch(b"a", b"b"))
        await asyncio.sleep(0.1)
        await streams.append(partition, batch(b"c"))
    objects = [info.key async for info in cluster.objects.list(WAL_PREFIX)]
    footers = [await read_footer(cluster.objects, key) for key in objects]
    told = {receipt.object_key: receipt.sections for footer in footers for receipt in footer.receipts}
    head = await read_head(cluster.store, partition)
    assert head is not None
    extents = await read_extents(cluster.store, partition)
    assert told == {
        extent.object_key: (
            SectionReceipt(
                partition,
                (
                    Placed(
                        extent.base_offset,
                        extent.end_offset - extent.base_offset,
                        extent.position,
                        extent.length,
                    ),
                ),
            ),
        )
        for extent in extents
    }


async def test_memory_budget_lets_one_over_and_then_waits() -> None:
    async with BrokerWorld(settings=StreamSettings(memory_budget_bytes=200)).brokers(1) as [streams]:
        streams.budget.reserve(250)
        assert streams.budget.exhausted
        waiter = asyncio.create_task(streams.budget.wait())
        await asyncio.sleep(0)
        assert not waiter.done()
        streams.budget.release(250)
        await asyncio.wait_for(waiter, 5)


async def test_a_reader_of_the_tail_is_served_from_memory() -> None:
    objects = CountedReads(system().clock)
    settings = StreamSettings(flush_interval_ms=4)
    async with BrokerWorld(objects=objects, settings=settings).brokers(2) as [streams, other]:
        [partition] = await topic(streams)
        for offset in range(6):
            await streams.append(partition, batch(b"after"))
            assert len(parse((await fetch(streams, partition, offset)).parts)) == 1
        assert objects.reads == 0
        for _ in range(2):
            assert len(parse((await fetch(other, partition, 0)).parts)) == 6
        assert objects.reads == 6


class CountedReads(MemoryObjects):
    reads = 0

    async def get_range(self, key: str, start: int, length: int, *, once: bool = False) -> bytes:
        self.reads += 1
        return await super().get_range(key, start, length)
