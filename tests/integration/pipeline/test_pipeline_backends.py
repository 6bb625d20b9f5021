"""The chain on the backends that ship: SQLite, a directory, Iceberg metadata through PyIceberg."""

import asyncio
from pathlib import Path

import pytest
from support.worlds.directory import directory_world
from support.worlds.memory import Crash, Fuse, MemoryWorld, Producer, never_back

from lakestream.model import StreamPartition


async def fill(world: MemoryWorld) -> StreamPartition:
    topic = await world.create("orders", 2)
    producer = Producer(world, "one")
    for number in range(4):
        await producer.append(
            {
                StreamPartition(topic.topic_id, 0): [b"a%d-%d" % (number, n) for n in range(40)],
                StreamPartition(topic.topic_id, 1): [b"b%d" % number],
            }
        )
    return topic.each_partition()[0]


@pytest.mark.parametrize("at", [0, 9, 17, 22, 25, 28, 31, 34, 37, 40])
async def test_a_crash_and_a_new_start(tmp_path: Path, at: int) -> None:
    """At a few of the steps; every one of them is tried on the simulated backends."""
    async with directory_world(tmp_path) as world:
        partition = await fill(world)
        before = await world.frontiers()
        fuse = Fuse(at)
        worker, _ = world.pipeline(fuse)
        try:
            await worker.tick()
            assert at == 0
        except Crash:
            assert fuse.blown
        await Producer(world, "two").append({partition: [b"late"]})
        await world.drain()
        await world.check_whole()
        never_back(before, await world.frontiers())


async def test_two_workers_race_for_the_same_records(tmp_path: Path) -> None:
    async with directory_world(tmp_path) as world:
        await fill(world)
        workers = [world.pipeline()[0] for _ in range(3)]
        ticks = await asyncio.gather(*(worker.tick() for worker in workers))
        assert sum(tick.record_count for tick in ticks) == len(world.acked)
        await world.drain()
        await world.check_whole()
