"""A topic that gets more partitions: whoever crashes, races or asks again, a listed partition has its head."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from support.clients.batches import batch
from support.worlds.brokers import BrokerWorld, seeded
from support.worlds.memory import Crash, Fuse, Fused, MemoryWorld, Producer

from lakestream.access import ALLOW_ALL, ANONYMOUS
from lakestream.errors import InvalidPartitions, LakestreamError, UnknownStream
from lakestream.metadata.log.partition import read_head
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.metadata.topics.growing import grow
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.model import StreamPartition
from lakestream.stream import ProducedBatch, Streams
from lakestream.stream.requests import FetchRequest, OffsetQuery


async def heads(store: MemoryStore, topic: Topic) -> list[bool]:
    return [await read_head(store, partition) is not None for partition in topic.each_partition()]


async def shards(store: MemoryStore) -> list[str]:
    return await store.shards("log/", "log0")


async def test_more_partitions_have_heads_and_everybody_hears_of_them() -> None:
    store = MemoryStore(seeded())
    here, there = Topics(store, seeded()), Topics(store, seeded(2))
    made = await here.create("t", 2, {"retention.ms": "5"})
    assert [each.partitions for each in await there.list()] == [2]
    await there.follow()
    grown = await grow(store, here, "t", 5)
    assert (grown.topic_id, grown.partitions, grown.configs) == (made.topic_id, 5, made.configs)
    assert await heads(store, grown) == [True] * 5
    assert here.cached_name("t") == grown
    assert [each.partitions for each in await there.list()] == [5]
    assert (await there.by_ids([made.topic_id]))[made.topic_id].partitions == 5


@pytest.mark.parametrize("count", [-1, 0, 1, 2, 10_001])
async def test_a_count_that_is_no_growth_is_refused(count: int) -> None:
    store = MemoryStore(seeded())
    topics = Topics(store, seeded())
    await topics.create("t", 2, {})
    with pytest.raises(InvalidPartitions):
        await grow(store, topics, "t", count)
    with pytest.raises(UnknownStream):
        await grow(store, topics, "another", 3)
    assert len(await shards(store)) == 2


async def test_a_dry_run_changes_nothing() -> None:
    store = MemoryStore(seeded())
    topics = Topics(store, seeded())
    await topics.create("t", 2, {})
    assert (await grow(store, topics, "t", 4, dry_run=True)).partitions == 4
    assert [each.partitions for each in await topics.list()] == [2]
    assert len(await shards(store)) == 2


async def _steps(work: Callable[[Any, Fuse], Any]) -> int:
    fuse = Fuse()
    store = MemoryStore(seeded())
    await Topics(store, seeded()).create("t", 2, {})
    await work(store, fuse)
    return fuse.steps


async def _grow(store: Any, fuse: Fuse, count: int = 4) -> Topic:
    fused: Any = Fused(store, fuse, "store")
    return await grow(fused, Topics(fused, seeded()), "t", count)


async def test_a_crash_at_any_step_leaves_no_listed_partition_without_its_head() -> None:
    for step in range(1, await _steps(_grow) + 1):
        store = MemoryStore(seeded())
        topics = Topics(store, seeded())
        await topics.create("t", 2, {})
        with pytest.raises(Crash):
            await _grow(store, Fuse(step))
        [topic] = await topics.list()
        assert all(await heads(store, topic)), step
        # Whoever asks again gets there, or is told that it is done.
        try:
            topic = await grow(store, topics, "t", 4)
        except InvalidPartitions:
            [topic] = await topics.list()
        assert topic.partitions == 4
        assert await heads(store, topic) == [True] * 4, step
        # What somebody began and never finished goes with the topic.
        gone = await topics.delete(topic.topic_id)
        await topics.drop_logs(gone)
        assert await shards(store) == [], step


async def test_what_a_crash_left_goes_with_a_topic_that_never_grew() -> None:
    for step in range(1, await _steps(_grow) + 1):
        store = MemoryStore(seeded())
        topics = Topics(store, seeded())
        made = await topics.create("t", 2, {})
        with pytest.raises(Crash):
            await _grow(store, Fuse(step))
        await topics.drop_logs(await topics.delete(made.topic_id))
        assert await shards(store) == [], step


async def test_two_who_grow_a_topic_at_once_at_any_step_of_the_first() -> None:
    for mine, theirs in ((4, 6), (6, 4), (4, 4)):
        for step in range(1, await _steps(_grow) + 1):
            store = MemoryStore(seeded())
            other = Topics(store, seeded())
            await other.create("t", 2, {})

            async def meanwhile(store: Any = store, other: Topics = other, theirs: int = theirs) -> None:
                # Before, between or after: then it may have been outrun.
                try:
                    await grow(store, other, "t", theirs)
                except InvalidPartitions:
                    return

            try:
                await _grow(store, Fuse(step, meanwhile), mine)
            except InvalidPartitions:
                assert theirs >= mine
            [topic] = await Topics(store, seeded()).list()
            assert topic.partitions == max(mine, theirs)
            assert await heads(store, topic) == [True] * topic.partitions


async def test_a_delete_at_any_step_leaves_nothing_behind() -> None:
    for step in range(1, await _steps(_grow) + 1):
        store = MemoryStore(seeded())
        topics = Topics(store, seeded())
        made = await topics.create("t", 2, {})

        async def meanwhile(topics: Topics = topics, made: Topic = made) -> None:
            gone = await topics.delete(made.topic_id)
            await topics.drop_logs(gone)
            await topics.finish_delete(gone)
            again = await topics.create("t", 1, {})
            assert again.topic_id != made.topic_id

        try:
            grown = await _grow(store, Fuse(step, meanwhile))
        except UnknownStream:
            grown = None
        [topic] = await Topics(store, seeded()).list()
        assert topic.topic_id != made.topic_id
        # One that looked the name up only after the delete has grown the successor.
        assert topic.partitions == (4 if grown is not None and grown.topic_id == topic.topic_id else 1)
        assert len(await shards(store)) == topic.partitions, step


async def test_a_topic_that_grows_while_it_is_deleted_is_gone_with_all_its_logs() -> None:
    async def delete(store: Any, fuse: Fuse) -> None:
        fused: Any = Fused(store, fuse, "store")
        topics = Topics(fused, seeded())
        [topic] = (await topics.by_names(["t"])).values()
        gone = await topics.delete(topic.topic_id)
        await topics.drop_logs(gone)

    for step in range(1, await _steps(delete) + 1):
        store = MemoryStore(seeded())
        topics = Topics(store, seeded())
        await topics.create("t", 2, {})

        async def meanwhile(store: Any = store, topics: Topics = topics) -> None:
            try:
                await grow(store, topics, "t", 4)
            except UnknownStream:
                return

        await delete(store, Fuse(step, meanwhile))
        assert await Topics(store, seeded()).list() == []
        assert await shards(store) == [], step


async def test_other_brokers_take_and_serve_new_partitions_at_once() -> None:
    async with BrokerWorld().brokers(2) as (one, two):
        made = await one.create_topic("t", 1, {})
        doors = [Streams(each, ALLOW_ALL) for each in (one, two)]
        for door in doors:
            assert not isinstance((await door.list_offsets(ANONYMOUS, [OffsetQuery("t", 0, -1)]))[0], LakestreamError)
        await doors[0].topics.grow(ANONYMOUS, "t", 3)
        # The other broker has the topic of one partition in its cache.
        assert two.topics.cached_name("t") == made
        taken = doors[1].append(ANONYMOUS, [ProducedBatch("t", 2, batch(b"v"))])
        [outcome] = taken if isinstance(taken, list) else await taken
        assert not isinstance(outcome, LakestreamError)
        assert (await outcome).base_offset == 0
        for door in doors:
            [fetched] = await door.fetch(
                ANONYMOUS, [FetchRequest("t", 2, 0, 1000)], min_bytes=0, max_bytes=1000, max_wait_ms=0
            )
            assert not isinstance(fetched, LakestreamError)
            assert fetched.parts
        [unknown] = await doors[1].list_offsets(ANONYMOUS, [OffsetQuery("t", 3, -1)])
        assert isinstance(unknown, UnknownStream)


async def test_the_table_grows_with_its_topic() -> None:
    world = MemoryWorld()
    topic = await world.create("t", 2)
    producer = Producer(world, "s")
    await producer.append({StreamPartition(topic.topic_id, 0): [b"a"]})
    worker, _ = world.pipeline()
    await worker.tick()
    grown = await grow(world.store, Topics(world.store, world.runtime), "t", 5)
    world.topics[topic.topic_id] = grown
    await producer.append(
        {StreamPartition(topic.topic_id, 4): [b"b", b"c"], StreamPartition(topic.topic_id, 0): [b"d"]}
    )
    # The same worker, which has known the topic with two partitions.
    await worker.tick()
    view = await world.catalog_on(world.store).load(topic.topic_id)
    assert view.frontier == (2, 0, 0, 0, 2)
    await world.drain()
    await world.check_whole()
    await world.collect_all()
    assert await world.wal_keys() == []


async def test_two_grow_beside_each_other() -> None:
    store = MemoryStore(seeded())
    topics = [Topics(store, seeded(seed)) for seed in range(8)]
    await topics[0].create("t", 1, {})
    done = await asyncio.gather(
        *(grow(store, each, "t", 2 + number) for number, each in enumerate(topics)), return_exceptions=True
    )
    assert all(isinstance(each, Topic | InvalidPartitions) for each in done)
    [topic] = await topics[0].list()
    assert topic.partitions == 9
    assert await heads(store, topic) == [True] * 9
