"""The chain on an external catalog (PyIceberg's SQL): crashes around each call to store, bucket, catalog; a race."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.servers.catalogs import Place, sql_place, step_by_step
from support.worlds.memory import Crash, Fuse, Fused, MemoryWorld, Producer, never_back

from lakestream import objects
from lakestream.catalog.embedded.tables import PyIcebergTables
from lakestream.metadata.store import Store
from lakestream.metadata.stores.sqlite.store import open_sqlite
from lakestream.model import StreamPartition
from lakestream.runtime import system


class Deployment(MemoryWorld):
    """Each pipeline has a catalog of its own, whose every call is a step of its fuse."""

    def __init__(self, place: Place, store: Store) -> None:
        self._place = place
        self.opened: list[PyIcebergTables] = []
        super().__init__(store=store, objects=objects.open(place.bucket_url))

    def catalog_on(self, store: Store) -> PyIcebergTables:
        if store is self.store and self.opened:
            return self.opened[0]
        tables = self._place.tables(store, system())
        if isinstance(store, Fused):
            step_by_step(tables, store._fuse)
        self.opened.append(tables)
        return tables


@asynccontextmanager
async def deployment(folder: Path) -> AsyncIterator[Deployment]:
    store = await open_sqlite(str(folder / "metadata.db"))
    world = Deployment(sql_place(folder), store)
    world.catalog_on(store)
    try:
        yield world
    finally:
        for tables in world.opened:
            await tables.close()
        await store.close()


async def fill(world: MemoryWorld) -> StreamPartition:
    topic = await world.create("orders", 2)
    first, second = topic.each_partition()
    producer = Producer(world, "one")
    for number in range(3):
        await producer.append({first: [b"a%d-%d" % (number, n) for n in range(20)], second: [b"b%d" % number]})
    return first


@pytest.mark.parametrize("at", [*range(4, 76, 8), pytest.param(0, id="none")])
async def test_a_crash_and_a_new_start(tmp_path: Path, at: int) -> None:
    await check_crash(tmp_path, at)


@pytest.mark.slow
@pytest.mark.parametrize("at", [step for step in range(1, 118) if step % 8 != 4])
async def test_a_crash_at_any_other_step(tmp_path: Path, at: int) -> None:
    await check_crash(tmp_path, at)


async def check_crash(folder: Path, at: int) -> None:
    async with deployment(folder) as world:
        partition = await fill(world)
        before = await world.frontiers()
        fuse = Fuse(at)
        worker, _ = world.pipeline(fuse)
        try:
            await worker.tick()
            assert at == 0 or fuse.steps < at
        except Crash:
            assert fuse.blown
        if at == 0:
            assert 76 <= fuse.steps < 118, fuse.steps
        await Producer(world, "two").append({partition: [b"late"]})
        await world.drain()
        await world.check_whole()
        never_back(before, await world.frontiers())


async def test_workers_race_for_the_same_records(tmp_path: Path) -> None:
    async with deployment(tmp_path) as world:
        await fill(world)
        ticks = await asyncio.gather(*(world.pipeline()[0].tick() for _ in range(3)))
        assert sum(tick.record_count for tick in ticks) == len(world.acked)
        await world.drain()
        await world.check_whole()
        await world.collect_all()
        await world.check_whole()
