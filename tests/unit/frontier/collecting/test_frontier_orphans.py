"""Table files that no table names go, once no commit can name them any more; everything else stays."""

import asyncio
import shutil
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyiceberg.table.update import SetPropertiesUpdate
from support.worlds.catalogs import CATALOGS, Open, over, run
from support.worlds.memory import SETTINGS, Crash, Fuse, MemoryWorld, Producer

from lakestream import objects
from lakestream.catalog.embedded.tables import PyIcebergTables
from lakestream.errors import Unavailable
from lakestream.frontier.collecting.orphans import Orphans, Tidied
from lakestream.frontier.moving.tiles.naming import data_key, parse_file_name
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.runtime import system

FILE_ID = UUID("01234567-89ab-4cde-8f01-23456789abcd")


@pytest.fixture(params=CATALOGS)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    return over(request.param, tmp_path)


async def filled(world: MemoryWorld, name: str = "orders") -> Topic:
    """Partition 0 has three records in the table, partition 1 one."""
    topic = await world.create(name, 3)
    zero, one, _ = topic.each_partition()
    await Producer(world, f"{name}-one").append({zero: [b"a", b"b", b"c"], one: [b"x"]})
    await world.drain()
    return topic


async def put(world: MemoryWorld, topic: Topic, partition: int, start: int, file_id: UUID = FILE_ID) -> str:
    return await put_named(world, topic, data_key(partition, start, file_id))


async def put_named(world: MemoryWorld, topic: Topic, key: str) -> str:
    view = await world.catalog_on(world.store).load(topic.topic_id)
    key = f"{view.location}/{key}".removeprefix(world.objects.url + "/")
    await world.objects.put(key, [b"orphan"])
    return key


async def keys(world: MemoryWorld) -> set[str]:
    return {info.key async for info in world.objects.list("tables/") if "/_iceberg/" not in info.key}


def orphans(world: MemoryWorld, fuse: Fuse | None = None) -> Orphans:
    lake = world.pipeline(fuse)[0]._lake
    return Orphans(lake, Topics(lake.store, world.runtime))


async def tidy(world: MemoryWorld) -> Tidied:
    world.clock.ms += SETTINGS.grace_ms + 10_000
    return await orphans(world).collect()


async def test_what_lies_below_the_frontier_and_is_not_named_goes(opened: Open) -> None:
    async def scenario(world: MemoryWorld) -> None:
        topic = await filled(world)
        live = await keys(world)
        assert live
        dead = {await put(world, topic, 0, 0), await put(world, topic, 0, 2), await put(world, topic, 1, 0)}
        kept = {
            await put(world, topic, 0, 3),
            await put(world, topic, 0, 4),
            await put(world, topic, 1, 1),
            await put(world, topic, 2, 0),
            await put(world, topic, 7, 0),
        }
        tidied = await tidy(world)
        assert (tidied.deleted, tidied.undeleted, tidied.failures) == (len(dead), 0, ())
        assert tidied.examined == len(live | dead | kept)
        assert await keys(world) == live | kept
        await world.check_whole()
        assert (await tidy(world)).deleted == 0

    await run(opened, scenario)


async def test_names_of_others_are_never_judged(opened: Open) -> None:
    async def scenario(world: MemoryWorld) -> None:
        topic = await filled(world)
        ours = f"{0:05d}-{0:020d}-{FILE_ID}"
        for name in (
            f"_data/00000-0-{FILE_ID}-00001.parquet",
            f"_data/{ours}.parquet.crc",
            f"_data/{ours}-deletes.parquet",
            f"_data/x{ours}.parquet",
            f"_data/00000-{0:020d}-{FILE_ID.hex}.parquet",
            f"_data/_stream_partition=0/{ours}.parquet",
            f"{ours}.parquet",
            f"data.old/{ours}.parquet",
        ):
            await put_named(world, topic, name)
        before = await keys(world)
        assert (await tidy(world)).deleted == 0
        assert await keys(world) == before

    await run(opened, scenario)


async def test_the_young_stay_until_they_are_old(opened: Open) -> None:
    async def scenario(world: MemoryWorld) -> None:
        topic = await filled(world)
        key = await put(world, topic, 0, 0)
        if world.catalog is None:
            world.clock.ms += SETTINGS.grace_ms - 1
        assert (await orphans(world).collect()).deleted == 0
        assert key in await keys(world)
        assert (await tidy(world)).deleted == 1

    await run(opened, scenario)


async def test_a_retained_snapshot_keeps_what_it_names(tmp_path: Path) -> None:
    """The present snapshot no longer names the file; an older one does, so engines may still read it."""
    store, bucket = MemoryStore(system()), objects.open(f"file://{tmp_path}/bucket")
    catalog = PyIcebergTables(store, bucket.url, system())
    try:
        world = MemoryWorld(store=store, objects=bucket, catalog=catalog)
        world.clock.ms = system().clock.now_ms()
        topic = await filled(world)
        live = await keys(world)
        view = await catalog.load(topic.topic_id)
        view = await catalog.commit(view, add=[], remove=view.files, frontier=view.frontier)
        assert view.files == ()
        assert (await tidy(world)).deleted == 0
        assert await keys(world) == live

        dead = await put(world, topic, 0, 0)
        name = (await catalog.engines.commits.pointers.name_of(topic.topic_id)) or pytest.fail("no name")
        await catalog.engines.commit(name, [], [SetPropertiesUpdate(updates={"gc.enabled": "false"})])
        assert (await tidy(world)).deleted == 0, "the owner forbade it"
        await catalog.engines.commit(name, [], [SetPropertiesUpdate(updates={"gc.enabled": "true"})])
        assert (await tidy(world)).deleted == 1
        assert await keys(world) == live - {dead}
    finally:
        await catalog.close()


async def test_a_folder_that_is_a_link_is_not_looked_into(tmp_path: Path) -> None:
    """It may lead to the files of another table, which this one does not name."""

    async def scenario(world: MemoryWorld) -> None:
        await filled(world, "orders")
        # Farther than the other, whose files would all be below its frontier.
        copy = await filled(world, "copy")
        await Producer(world, "more").append({next(iter(copy.each_partition())): [b"d"] * 9})
        await world.drain()
        folders = {path.name.split("__")[0]: path / "_data" for path in (tmp_path / "bucket" / "tables").iterdir()}
        shutil.rmtree(folders["copy"])
        folders["copy"].symlink_to(folders["orders"])
        before = sorted(folders["orders"].iterdir())
        assert before
        assert (await tidy(world)).deleted == 0
        assert sorted(folders["orders"].iterdir()) == before

    await run(over("pyiceberg", tmp_path), scenario)


async def test_a_crashed_workers_files_go_in_the_end(opened: Open) -> None:
    async def scenario(world: MemoryWorld) -> None:
        topic = await filled(world)
        await Producer(world, "two").append({topic.each_partition()[0]: [b"d"], topic.each_partition()[2]: [b"z"]})
        live = await keys(world)

        class AtCommit(Fuse):
            async def step(self, name: str) -> None:
                if name == "before catalog.commit":
                    raise Crash(name)

        with pytest.raises(Crash):
            await world.pipeline(AtCommit())[0].tick()
        left = await keys(world) - live
        assert left
        await tidy(world)
        assert await keys(world) == live | left, "whoever wrote them might still commit them"
        await world.drain()
        assert (await tidy(world)).deleted == len(left)
        assert not await keys(world) & left
        await world.check_whole()

    await run(opened, scenario)


async def test_a_zombie_whose_files_were_collected_loses_its_commit(opened: Open) -> None:
    async def scenario(world: MemoryWorld) -> None:
        topic = await filled(world)
        await Producer(world, "two").append({topic.each_partition()[0]: [b"d"], topic.each_partition()[1]: [b"y"]})
        before = await keys(world)
        slept = []

        class Sleepy(Fuse):
            async def step(self, name: str) -> None:
                if name == "before catalog.commit" and not slept:
                    slept.extend(await keys(world) - before)
                    await world.drain()
                    assert (await tidy(world)).deleted == len(slept) > 0
                    assert not await keys(world) & set(slept)

        tick = await world.pipeline(Sleepy())[0].tick()
        assert slept
        assert (tick.record_count, tick.failures) == (0, ())
        await world.drain()
        await world.check_whole()

    await run(opened, scenario)


async def test_a_commit_between_the_steps_of_a_pass_keeps_its_files() -> None:
    """At every step of the pass a worker wakes up that was asleep with its files written."""

    async def scenario(at: int) -> Fuse:
        world = MemoryWorld()
        topic = await filled(world)
        await Producer(world, "two").append({topic.each_partition()[0]: [b"d"]})
        asleep, wake = asyncio.Event(), asyncio.Event()

        class Sleepy(Fuse):
            async def step(self, name: str) -> None:
                if name == "before catalog.commit":
                    asleep.set()
                    await wake.wait()

        sleeper = asyncio.create_task(world.pipeline(Sleepy())[0].tick())
        await asleep.wait()

        async def commit() -> None:
            wake.set()
            assert (await sleeper).record_count == 1

        fuse = Fuse(at, commit)
        world.clock.ms += SETTINGS.grace_ms
        assert (await orphans(world, fuse).collect()).deleted == 0
        wake.set()
        await sleeper
        await world.check_whole()
        return fuse

    for at in range(1, 100):
        if not (await scenario(at)).blown:
            assert at > 8
            return
    raise AssertionError("it never ended")


async def test_a_pass_is_bounded_and_all_tables_get_their_turn() -> None:
    world = MemoryWorld()
    for name in ("a", "b", "c"):
        topic = await filled(world, name)
        for number in range(5):
            await put(world, topic, 0, 0, UUID(int=number))
    world.settings = type(SETTINGS)(grace_ms=0, max_collect_tables=1, max_collect_objects=4)
    pass_ = orphans(world)
    found = [await pass_.collect() for _ in range(7)]
    assert all(0 < each.examined <= 4 for each in found)
    assert sum(each.deleted for each in found) == 15
    world.settings = type(SETTINGS)(grace_ms=0, max_collect_tables=2)
    pass_ = orphans(world)
    for name in ("a", "b", "c"):
        topic = next(each for each in world.topics.values() if each.name == name)
        await put(world, topic, 0, 0)
    assert [(await pass_.collect()).deleted for _ in range(3)] == [2, 1, 0]


async def test_a_table_that_cannot_be_read_does_not_hold_up_the_next() -> None:
    world = MemoryWorld()
    for name in ("a", "b"):
        await put(world, await filled(world, name), 0, 0)
    await world.create("none-yet", 1)
    pass_ = orphans(world)
    catalog: Any = pass_._lake.catalog
    plain = catalog.named

    async def named(topic_id: UUID) -> Any:
        if world.topics[topic_id].name == "a":
            raise Unavailable("not now")
        return await plain(topic_id)

    catalog.named = named
    world.clock.ms += SETTINGS.grace_ms
    tidied = await pass_.collect()
    assert (tidied.deleted, [name for name, _ in tidied.failures]) == (1, ["a"])
    catalog.named = plain
    assert (await pass_.collect()).deleted == 1


def test_names_say_where_their_range_starts() -> None:
    key = data_key(12, 1 << 62, FILE_ID)
    assert parse_file_name(key.removeprefix("_data/")) == (12, 1 << 62)
    assert parse_file_name(data_key(123_456, 0, FILE_ID).removeprefix("_data/")) == (123_456, 0)
    assert parse_file_name(key) is None
