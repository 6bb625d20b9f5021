"""A worker's ticks: many topics, some of which fail, belong to somebody else or disappear."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

import msgspec
import pytest
from support.worlds.memory import SETTINGS, Crash, Fuse, MemoryWorld, Producer

from lakestream.errors import Conflict, StorageError, Unavailable, UnknownStream
from lakestream.frontier.moving.advance import ensure_table
from lakestream.frontier.moving.tiles.tile import Tile, TileOutcome
from lakestream.frontier.moving.worker import Worker
from lakestream.frontier.settings import PipelineSettings
from lakestream.metadata import codec
from lakestream.metadata.log.partition import create_head, read_head
from lakestream.metadata.names.pointers import Pointer, Pointers, TableName
from lakestream.metadata.store import Address, Transaction
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.model import StreamPartition
from lakestream.table.view import View


async def world_with(*names: str, records: int = 3, partitions: int = 1) -> tuple[MemoryWorld, list[Topic]]:
    world = MemoryWorld()
    topics = [await world.create(name, partitions) for name in names]
    producer = Producer(world, "one")
    for topic in topics:
        await producer.append({topic.each_partition()[0]: [b"%d" % n for n in range(records)]})
    return world, topics


async def test_one_tick_moves_all_topics_in_one_run() -> None:
    world, _ = await world_with("a", "b", "c")
    worker, _ = world.pipeline()
    tick = await worker.tick()
    assert (tick.topics, tick.record_count, tick.failures) == (3, 9, ())
    await world.check_whole()
    assert (await worker.tick()).topics == 0


async def test_an_idle_tick_only_looks() -> None:
    world, _ = await world_with("a", "b")
    fuse = Fuse()
    worker, _ = world.pipeline(fuse)
    await worker.tick()
    fuse.trail.clear()
    await worker.tick()
    assert [name for name in fuse.trail if name.startswith("after")] == ["after store.get", "after store.get"]


async def test_a_topic_without_records_is_a_table_too() -> None:
    world = MemoryWorld()
    topic = await world.create("empty", 2)
    worker, _ = world.pipeline()
    await worker.tick()
    assert (await world.catalog_on(world.store).load(topic.topic_id)).frontier == (0, 0)


async def test_a_failing_topic_is_quarantined_and_the_others_go_on() -> None:
    world, [bad, _] = await world_with("bad", "good")
    world.settings = PipelineSettings(backoff_ms=100, max_backoff_ms=300)
    [key] = [key for key in await world.wal_keys() if key.endswith("1.wal")]
    data = bytearray(await world.objects.get(key))
    data[30] ^= 1
    await world.objects.put(key, [data], overwrite=True)
    worker, _ = world.pipeline()
    waits = []
    for _ in range(4):
        tick = await worker.tick()
        [failure] = tick.failures
        assert failure.topic == "bad"
        assert worker.failing == ("bad",)
        assert isinstance(failure.error, StorageError)
        waits.append(failure.retry_in_ms)
        assert not (await worker.tick()).failures
        world.clock.ms += failure.retry_in_ms
    assert waits == [100, 200, 300, 300]
    assert [row.topic for row in await world.rows()] == ["good"] * 3
    head = await read_head(world.store, bad.each_partition()[0])
    assert head is not None
    assert head.head.frontier == 0

    data[30] ^= 1
    await world.objects.put(key, [data], overwrite=True)
    assert not (await worker.tick()).failures
    assert worker.failing == ()
    await world.check_whole()


async def test_a_runner_that_fails_quarantines_its_topics() -> None:
    world, _ = await world_with("a")
    worker, _ = world.pipeline()

    async def run(tiles: object) -> Any:
        raise Unavailable("no cluster")

    worker._lake.runner.run = run  # type: ignore[method-assign]
    [failure] = (await worker.tick()).failures
    assert (failure.topic, str(failure.error)) == ("a", "no cluster")
    await world.drain()
    await world.check_whole()


async def test_a_topic_that_kills_its_worker_does_not_take_the_others_along() -> None:
    world, _ = await world_with("a", "poison", "z")
    worker, _ = world.pipeline()
    runner = worker._lake.runner
    plain = runner.run

    async def run(tiles: Sequence[Tile]) -> list[TileOutcome]:
        if any(tile.topic == "poison" for tile in tiles):
            raise Unavailable("a worker died")
        return await plain(tiles)

    runner.run = run  # type: ignore[method-assign]
    tick = await worker.tick()
    assert [failure.topic for failure in tick.failures] == ["poison"]
    assert [row.topic for row in await world.rows()] == ["a"] * 3 + ["z"] * 3


async def test_a_leased_topic_is_left_alone_until_it_is_released() -> None:
    world, [topic] = await world_with("a")
    one, two = world.pipeline(leases=True)[0], world.pipeline(leases=True)[0]
    assert (await one.tick()).record_count == 3
    await Producer(world, "more").append({topic.each_partition()[0]: [b"x"]})
    assert (await two.tick()).topics == 0
    await one.release()
    assert (await two.tick()).record_count == 1
    await Producer(world, "again").append({topic.each_partition()[0]: [b"y"]})
    assert (await one.tick()).topics == 0
    world.clock.ms += SETTINGS.lease_ms
    assert (await one.tick()).record_count == 1


async def test_a_big_tail_takes_several_ticks_and_says_so() -> None:
    world = MemoryWorld()
    topic = await world.create("a", 2)
    producer = Producer(world, "one")
    for number in range(6):
        await producer.append({partition: [b"%d" % number] for partition in topic.each_partition()})
    world.settings = PipelineSettings(max_tick_bytes=150)
    worker, _ = world.pipeline()
    ticks = [await worker.tick()]
    while ticks[-1].more:
        ticks.append(await worker.tick())
    assert len(ticks) > 2
    assert all(tick.record_count >= 2 for tick in ticks)
    await world.check_whole()


async def test_a_table_behind_the_log_is_an_alarm() -> None:
    world, [topic] = await world_with("a")
    await world.drain()
    world.tables.update({place: _emptied(view) for place, view in world.tables.items()})
    await Producer(world, "more").append({topic.each_partition()[0]: [b"x"]})
    [failure] = (await world.pipeline()[0].tick()).failures
    assert isinstance(failure.error, StorageError)
    assert "replaced or rolled back" in str(failure.error)


async def test_a_hole_in_the_log_is_an_alarm() -> None:
    world, [topic] = await world_with("a")
    await Producer(world, "more").append({topic.each_partition()[0]: [b"x"]})
    shard = f"log/{topic.topic_id.hex}/00000000"
    [first, _] = await world.store.range(shard, "x/", "x0")
    await world.store.transact([Transaction(shard, {}, {}, deletes=[first.key])])
    [failure] = (await world.pipeline()[0].tick()).failures
    assert "neither in the table nor in the WAL" in str(failure.error)
    assert await world.rows() == []


async def test_a_deleted_topic_leaves_no_table_behind() -> None:
    world, [topic] = await world_with("a")
    catalog = world.catalog_on(world.store)

    class Late(Topics):
        """Still lists the topic when somebody has deleted it."""

        async def list(self) -> list[Topic]:
            found = await super().list()
            await Topics(world.store, world.runtime).delete(topic.topic_id)
            return found

    lake = world.pipeline()[0]._lake
    worker = Worker(lake, Late(world.store, world.runtime), name="w")
    [failure] = (await worker.tick()).failures
    assert "was deleted" in str(failure.error)
    assert await catalog.pointer(topic.topic_id) is None
    fresh = await world.create("a", 1)
    await catalog.create(fresh.topic_id, "a", 1)


async def test_a_crash_while_a_deleted_topics_table_is_put_away_blocks_no_successor() -> None:
    """At every step: the table of the dead topic may have its name, be bound or half detached."""

    async def scenario(at: int) -> Fuse:
        world, [topic] = await world_with("a")
        fuse = Fuse(at)

        class Late(Topics):
            async def list(self) -> list[Topic]:
                found = await super().list()
                plain = Topics(world.store, world.runtime)
                await plain.delete(topic.topic_id)
                await plain.finish_delete(topic)
                return found

        lake = world.pipeline(fuse)[0]._lake
        with suppress(Crash):
            await Worker(lake, Late(lake.store, world.runtime), name="w", respect_leases=False).tick()
        if topic.topic_id in await Topics(world.store, world.runtime).by_ids([topic.topic_id]):
            return fuse
        del world.topics[topic.topic_id]
        fresh = await world.create("a", 1)
        [crashed, other] = world.pipeline(Fuse(at // 2)), world.pipeline()
        with suppress(Crash):
            await crashed[0].tick()
        tick = await other[0].tick()
        assert tick.failures == (), fuse.trail
        catalog = world.catalog_on(world.store)
        assert (await catalog.load(fresh.topic_id)).table == "default.a"
        named = await Pointers(world.store).name_of(topic.topic_id)
        assert named is None or (named.name != "a" and await catalog.pointer(topic.topic_id) is None)
        return fuse

    for at in range(1, 200):
        if not (await scenario(at)).blown:
            assert at > 15
            return
    raise AssertionError("it never ended")


async def test_a_table_that_is_no_dead_topics_is_never_put_away() -> None:
    world, [topic] = await world_with("a")
    await world.drain()
    catalog = world.catalog_on(world.store)
    view = await catalog.load(topic.topic_id)
    impostor = Topic("a", UUID(int=9), 1, {}, 0)
    topics = Topics(world.store, world.runtime)
    lake = world.pipeline()[0]._lake
    with pytest.raises(UnknownStream):
        await ensure_table(lake, topics, impostor)
    assert await catalog.load(topic.topic_id) == view

    pointers, engines = Pointers(world.store), UUID(int=10)
    await pointers.add(engines, Pointer("somewhere"))
    await pointers.bind(engines, TableName(("default",), "b"))
    fresh = await world.create("b", 1)
    await ensure_table(lake, topics, fresh)
    assert (await catalog.load(fresh.topic_id)).table == f"default.b_{fresh.topic_id.hex[:8]}"
    assert await pointers.resolve(TableName(("default",), "b")) == engines

    # What its user gave a plain name, after its topic was gone, is the user's.
    await topics.delete(topic.topic_id)
    await catalog.detach(topic.topic_id)
    await pointers.rename(topic.topic_id, TableName(("default",), "a"))
    again = await world.create("a", 1)
    await ensure_table(lake, topics, again)
    assert (await catalog.load(again.topic_id)).table == f"default.a_{again.topic_id.hex[:8]}"

    named = Topic("c", UUID(int=11), 1, {"lakestream.table.name": "b"}, 0)
    with pytest.raises(Conflict, match=r"default\.b is not topic .*: rename or drop it first"):
        await ensure_table(lake, topics, named)
    assert await pointers.resolve(TableName(("default",), "a")) == topic.topic_id


async def test_a_deleted_log_under_a_commit_is_no_failure() -> None:
    world, [topic] = await world_with("a")

    async def delete() -> None:
        await Topics(world.store, world.runtime).drop_logs(topic)

    probe = Fuse()
    other, _ = await world_with("a")
    await other.pipeline(probe)[0].tick()
    fuse = Fuse(probe.trail.index("after catalog.commit") + 1, delete)
    tick = await world.pipeline(fuse)[0].tick()
    assert fuse.blown
    assert tick.failures == ()


@pytest.mark.parametrize("rewrites", [1, 3])
async def test_a_commit_rides_out_rewrites_by_other_engines(rewrites: int) -> None:
    world, [topic] = await world_with("a")
    await world.drain()
    await Producer(world, "more").append({topic.each_partition()[0]: [b"x"]})
    worker, _ = world.pipeline()
    catalog = worker._lake.catalog
    plain, left = catalog.commit, [rewrites]

    async def commit(view: Any, **change: Any) -> Any:
        if left[0]:
            left[0] -= 1
            now = await catalog.load(topic.topic_id)
            await plain(now, add=[], remove=[], frontier=now.frontier)
        return await plain(view, **change)

    catalog.commit = commit  # type: ignore[method-assign]
    tick = await worker.tick()
    assert (tick.record_count, tick.failures) == (1, ())
    await world.check_whole()


async def test_endless_rewrites_end_in_a_conflict_and_no_orphans() -> None:
    world, _ = await world_with("a")
    worker, _ = world.pipeline()

    async def commit(view: Any, **change: Any) -> Any:
        raise Conflict("somebody else")

    worker._lake.catalog.commit = commit  # type: ignore[method-assign]
    [failure] = (await worker.tick()).failures
    assert isinstance(failure.error, Conflict)
    assert [info.key async for info in world.objects.list("tables/")] == []
    await world.drain()
    await world.check_whole()


async def test_partitions_that_were_added_later_enter_the_frontier() -> None:
    world, [topic] = await world_with("a")
    await world.drain()
    grown = Topic(topic.name, topic.topic_id, 3, {}, 0)
    for partition in grown.each_partition():
        await create_head(world.store, partition)
    await world.store.transact(
        [Transaction("topics", {}, {"name/a": codec.encode(grown, Address("topics", "name/a"))})]
    )
    await Producer(world, "more").append({StreamPartition(topic.topic_id, 2): [b"new"]})
    await world.drain()
    assert (await world.frontiers())["table a"] == (3, 0, 1)
    assert await world.rows() == sorted(world.acked)


def _emptied(view: View) -> View:
    return replace(view, frontier=(0,), files=())


def test_settings_are_text() -> None:
    settings = PipelineSettings(interval_ms=7)
    assert msgspec.json.decode(msgspec.json.encode(settings), type=PipelineSettings) == settings
