"""Two lanes: a partition is in one of them at a time, in the order of the calls."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import pytest
from support.clients.batches import batch
from support.fakes.disks import FailingObjects
from support.worlds.brokers import BrokerWorld, seeded

from lakestream.errors import InvalidSetting
from lakestream.frontier.settings import DiskSettings
from lakestream.metadata.brokers import Broker
from lakestream.metadata.counters import known_cluster
from lakestream.metadata.disks import disk_rows
from lakestream.metadata.log.partition import read_extents
from lakestream.objects import Buffer, ObjectStore
from lakestream.stream.engine import StreamEngine
from lakestream.table.reading.history import HistoryReader
from lakestream.wal import NamedDisk, WalStores

URLS = ("memory://a", "memory://b", "memory://c")


class SlowBucket(FailingObjects):
    """Puts wait for `open`."""

    def __init__(self) -> None:
        super().__init__("memory://bucket")
        self.open = asyncio.Event()

    async def put(self, key: str, parts: Sequence[Buffer], *, overwrite: bool = False) -> None:
        if key.startswith("wal/"):
            await self.open.wait()
        await super().put(key, parts, overwrite=overwrite)


Check = Callable[[StreamEngine, SlowBucket, dict[str, FailingObjects]], Awaitable[None]]


async def until(holds: Callable[[], bool]) -> None:
    while True:
        await asyncio.sleep(0.02)
        if holds():
            return


def is_back(engine: StreamEngine, objects: FailingObjects) -> bool:
    assert engine._disks is not None
    [disk] = [each for each in engine._disks.configured() if each.objects is objects]
    return disk.usable and f"lakestream/disk/{engine.cluster_id}.label" in objects.core._objects


async def with_engine(check: Check) -> None:
    bucket, disks = SlowBucket(), {url: FailingObjects(url) for url in URLS}
    cluster = BrokerWorld(objects=bucket)

    async def load() -> list[NamedDisk]:
        known = await known_cluster(cluster.store) or ""
        return [NamedDisk(row.name, row.url, known, row.label) for row in await disk_rows(cluster.store)]

    def opened(url: str) -> ObjectStore:
        return disks[url]

    engine = StreamEngine(
        Broker(1, "127.0.0.1", 9092, None, seeded().new_id().hex),
        cluster.store,
        bucket,
        cluster.tables,
        HistoryReader(bucket),
        cluster.runtime,
        cluster.settings,
        wal=WalStores(bucket, load=load, open_store=opened),
        disk=DiskSettings(stores=",".join(URLS), check_ms=20, keep_interval_ms=20),
    )
    await engine.start()
    try:
        async with asyncio.timeout(30):
            await check(engine, bucket, disks)
    finally:
        bucket.open.set()
        await engine.stop()


async def test_a_slow_bucket_does_not_hold_up_the_disk_lane() -> None:
    async def check(engine: StreamEngine, bucket: SlowBucket, disks: dict[str, FailingObjects]) -> None:
        topic = await engine.create_topic("t", 2, {})
        cheap, fast = topic.each_partition()
        slow = engine.append(cheap, batch(b"1"))
        assert (await engine.append(fast, batch(b"1"), disk=True)).base_offset == 0
        assert not slow.done()
        bucket.open.set()
        assert (await slow).base_offset == 0
        [extent] = await read_extents(engine.store, fast)
        assert len(extent.stores) >= 2
        assert set(extent.stores) <= {"disk0001", "disk0002", "disk0003"}
        [extent] = await read_extents(engine.store, cheap)
        assert extent.stores == ("main",)

    await with_engine(check)


async def test_a_switch_does_not_overtake_even_if_callers_have_gone() -> None:
    async def check(engine: StreamEngine, bucket: SlowBucket, disks: dict[str, FailingObjects]) -> None:
        topic = await engine.create_topic("t", 1, {})
        [partition] = topic.each_partition()
        first = engine.append(partition, batch(b"1"))
        second = engine.append(partition, batch(b"2"), disk=True)
        third = engine.append(partition, batch(b"3"), disk=True)
        fourth = engine.append(partition, batch(b"4"))
        await asyncio.sleep(0.05)
        assert not second.done()
        first.cancel()
        await asyncio.sleep(0.05)
        assert not second.done()
        bucket.open.set()
        assert [(await each).base_offset for each in (second, third, fourth)] == [1, 2, 3]
        kinds = [extent.stores == ("main",) for extent in await read_extents(engine.store, partition)]
        assert kinds[0]
        assert kinds[-1]
        assert not all(kinds)

    await with_engine(check)


async def test_a_lost_store_is_copied_again_and_another_may_be_lost_then() -> None:
    async def check(engine: StreamEngine, bucket: SlowBucket, disks: dict[str, FailingObjects]) -> None:
        topic = await engine.create_topic("t", 1, {"lakestream.profile": "disk"})
        [partition] = topic.each_partition()

        async def append(count: int) -> None:
            for _ in range(count):
                await engine.append(partition, batch(b"x"), disk=True)

        await append(5)
        for url in URLS:
            disks[url].empty()
            await append(5)
            await until(partial(is_back, engine, disks[url]))
        extents = await read_extents(engine.store, partition)
        assert extents[-1].end_offset == 20
        for extent in extents:
            held = [url for url in URLS if extent.object_key in disks[url].core._objects]
            assert len(held) >= 2

    await with_engine(check)


@pytest.mark.parametrize("lost", [1, 3])
async def test_a_store_is_not_whole_while_an_answer_of_another_is_missing(lost: int) -> None:
    """A list or a read that gets no answer says nothing about what is there."""

    async def check(engine: StreamEngine, bucket: SlowBucket, disks: dict[str, FailingObjects]) -> None:
        topic = await engine.create_topic("t", 1, {"lakestream.profile": "disk"})
        [partition] = topic.each_partition()
        await until(lambda: all(is_back(engine, each) for each in disks.values()))
        for _ in range(5):
            await engine.append(partition, batch(b"x"), disk=True)
        first, *others = disks.values()
        [flushed, *_] = await read_extents(engine.store, partition)
        uncommitted = flushed.object_key.replace("wal/0000000001/", "wal/0000000009/")
        for other in others:
            await other.put(uncommitted, [await other.get(flushed.object_key)])
            other.lost = lost
        first.empty()
        await until(partial(is_back, engine, first))
        assert uncommitted in first.core._objects
        for extent in await read_extents(engine.store, partition):
            if "disk0001" in extent.stores:
                assert extent.object_key in first.core._objects

    await with_engine(check)


async def test_what_the_pipeline_leaves_is_spilled_and_read_from_the_bucket() -> None:
    async def check(engine: StreamEngine, bucket: SlowBucket, disks: dict[str, FailingObjects]) -> None:
        bucket.open.set()
        topic = await engine.create_topic("t", 1, {"lakestream.profile": "disk"})
        [partition] = topic.each_partition()
        await engine.append(partition, batch(b"x"), disk=True)
        [extent] = await read_extents(engine.store, partition)
        assert engine._disks is not None
        engine._disks._spiller._after_ms = 0
        await until(lambda: not any(extent.object_key in each.core._objects for each in disks.values()))
        assert extent.object_key in bucket.core._objects
        data = await engine._cache.read(partition, extent)
        assert data.base_offset == 0

    await with_engine(check)


async def test_a_profile_that_brokers_do_not_have_is_refused() -> None:
    async with BrokerWorld().brokers(1) as [engine]:
        with pytest.raises(InvalidSetting, match=r"no disk stores. Name some"):
            await engine.create_topic("t", 1, {"lakestream.profile": "disk"})
        with pytest.raises(InvalidSetting, match="it takes one of diskless, disk"):
            await engine.create_topic("t", 1, {"lakestream.profile": "tape"})
        await engine.create_topic("t", 1, {"lakestream.profile": "diskless"})
