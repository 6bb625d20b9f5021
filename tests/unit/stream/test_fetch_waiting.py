"""A fetch that waits for `min_bytes` reads what was appended once, however often the log grows meanwhile."""

import asyncio
from collections.abc import Mapping, Sequence

from support.clients.batches import batch
from support.clients.records import parse
from support.worlds.brokers import BrokerWorld, seeded

from lakestream.errors import OffsetOutOfRange
from lakestream.metadata.log.partition import advance_log_start
from lakestream.metadata.store import Address, Entry
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.model import StreamPartition
from lakestream.objects import MemoryObjects
from lakestream.objects.store import Buffer
from lakestream.runtime import system
from lakestream.stream import Fetched, FetchPartition, StreamSettings
from lakestream.stream.engine import StreamEngine

MIB = 1 << 20


class CountedStore(MemoryStore):
    def __init__(self) -> None:
        super().__init__(seeded())
        self.reads = self.watches = 0

    async def get(self, addresses: Sequence[Address]) -> list[Entry | None]:
        self.reads += 1
        return await super().get(addresses)

    async def range(self, shard: str, start: str, end: str, *, limit: int | None = None) -> list[Entry]:
        self.reads += 1
        return await super().range(shard, start, end, limit=limit)

    async def watch(self, seen: Mapping[Address, int], *, timeout_ms: int) -> bool:
        self.watches += 1
        return await super().watch(seen, timeout_ms=timeout_ms)


class CountedObjects(MemoryObjects):
    def __init__(self) -> None:
        super().__init__(system().clock)
        self.reads = 0

    async def get_range(self, key: str, start: int, length: int, *, once: bool = False) -> Buffer:
        self.reads += 1
        return await super().get_range(key, start, length)


async def fetch(
    streams: StreamEngine, partitions: Sequence[StreamPartition], *, min_bytes: int, wait_ms: int
) -> list[Fetched]:
    return await streams.fetch(
        [FetchPartition(partition, 0, MIB) for partition in partitions],
        min_bytes=min_bytes,
        max_bytes=8 * MIB,
        max_wait_ms=wait_ms,
    )


async def test_each_append_costs_a_waiting_fetch_two_reads_and_no_object() -> None:
    """One of the heads, one of the extents that another broker added; the objects are read when there is enough."""
    store, objects = CountedStore(), CountedObjects()
    settings = StreamSettings(flush_interval_ms=4)
    async with BrokerWorld(store=store, objects=objects, settings=settings).brokers(2) as (writer, reader):
        partitions = (await writer.create_topic("orders", 3, {})).each_partition()
        one = batch(bytes(100))
        for partition in partitions:
            await writer.append(partition, one)
        polling = asyncio.create_task(fetch(reader, partitions, min_bytes=20 * len(one), wait_ms=30_000))
        await asyncio.sleep(0.05)
        for number in range(16):
            before = store.reads, store.watches, objects.reads
            await writer.append(partitions[number % 3], one)
            await asyncio.sleep(0.02)
            assert (store.reads - before[0], store.watches - before[1], objects.reads - before[2]) == (2, 1, 0)
            assert not polling.done()
        await writer.append(partitions[0], one)
        fetched = await asyncio.wait_for(polling, 5)
        assert sum(len(parse(each.parts)) for each in fetched) == 20
        assert objects.reads == 20


async def test_nobody_reads_while_nothing_is_appended() -> None:
    """What is there and is not enough is no reason to look again."""
    store = CountedStore()
    async with BrokerWorld(store=store).brokers(1) as [streams]:
        [partition] = (await streams.create_topic("orders", 1, {})).each_partition()
        await streams.append(partition, batch(b"v"))
        polling = asyncio.create_task(fetch(streams, [partition], min_bytes=MIB, wait_ms=600))
        await asyncio.sleep(0.1)
        before = store.reads, store.watches
        await asyncio.sleep(0.3)
        assert (store.reads, store.watches) == before
        [fetched] = await polling
        assert len(parse(fetched.parts)) == 1


async def test_what_came_too_late_to_be_enough_is_served_when_time_is_out() -> None:
    async with BrokerWorld().brokers(2) as (writer, reader):
        partitions = (await writer.create_topic("orders", 2, {})).each_partition()
        polling = asyncio.create_task(fetch(reader, partitions, min_bytes=MIB, wait_ms=400))
        await asyncio.sleep(0.1)
        await writer.append(partitions[1], batch(b"v"))
        fetched = await asyncio.wait_for(polling, 5)
        assert [len(parse(each.parts)) for each in fetched] == [0, 1]


async def test_a_waiting_fetch_is_told_when_its_offset_leaves_the_log() -> None:
    store = CountedStore()
    async with BrokerWorld(store=store).brokers(1) as [streams]:
        [partition] = (await streams.create_topic("orders", 1, {})).each_partition()
        await streams.append(partition, batch(b"v", b"w"))
        polling = asyncio.create_task(fetch(streams, [partition], min_bytes=MIB, wait_ms=30_000))
        await asyncio.sleep(0.05)
        await advance_log_start(store, partition, 1, in_tail=True)
        [fetched] = await asyncio.wait_for(polling, 5)
        assert isinstance(fetched.error, OffsetOutOfRange)


async def test_more_than_a_client_takes_is_never_waited_for() -> None:
    async with BrokerWorld().brokers(1) as [streams]:
        [partition] = (await streams.create_topic("orders", 1, {})).each_partition()
        await streams.append(partition, batch(bytes(1000)))
        fetched = await asyncio.wait_for(
            streams.fetch([FetchPartition(partition, 0, MIB)], min_bytes=MIB, max_bytes=500, max_wait_ms=30_000),
            5,
        )
        assert len(parse(fetched[0].parts)) == 1
