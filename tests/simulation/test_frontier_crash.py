"""The chain from WAL to table under every fault at every step: no record lost, none twice, no live object deleted.

The same code as in production, in this process. A fault hits one step; then a new process, which knows nothing,
finishes the work, and what was acked is compared with what the tables hold.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from support.worlds.memory import Crash, Fuse, MemoryWorld, Producer, never_back

from lakestream.errors import Unavailable
from lakestream.metadata.log.committer import Committed, UploadAgain
from lakestream.model import StreamPartition

LAST_STEP = 2_000
"""More steps than any scenario has."""


def values(name: str, count: int, size: int = 20) -> list[bytes]:
    return [f"{name}-{number}".encode().ljust(size, b".") for number in range(count)]


async def filled() -> MemoryWorld:
    """Two topics; partitions with much, little and nothing; several objects, shared by both topics."""
    world = MemoryWorld()
    orders, users = await world.create("orders", 3), await world.create("users", 1)
    one, two = Producer(world, "one"), Producer(world, "two")
    for round_ in range(3):
        await one.append(
            {
                StreamPartition(orders.topic_id, 0): values(f"a{round_}", 9),
                StreamPartition(orders.topic_id, 2): values(f"b{round_}", 2),
                StreamPartition(users.topic_id, 0): values(f"u{round_}", 1),
            }
        )
        await two.append({StreamPartition(orders.topic_id, 0): values(f"c{round_}", 4)})
    return world


async def work(world: MemoryWorld, fuse: Fuse | None, *, collect: bool = True) -> None:
    """One process: two ticks, and collections between which everything becomes old."""
    worker, collector = world.pipeline(fuse)
    await worker.tick()
    await worker.tick()
    if collect:
        for _ in range(4):
            world.clock.ms += 1_000
            await collector.collect()


async def finish(world: MemoryWorld) -> None:
    before = await world.frontiers()
    await world.drain()
    await world.check_whole()
    await world.collect_all()
    await world.check_whole()
    never_back(before, await world.frontiers())
    assert await world.wal_keys() == [], "dead objects stay for ever"


async def at_every_step(scenario: Callable[[int], Awaitable[Fuse]]) -> None:
    """Runs the scenario with its fault at step 1, 2, … until the fault no longer comes to pass."""
    for at in range(1, LAST_STEP):
        fuse = await scenario(at)
        if not fuse.blown:
            assert at > 40, f"only {at} steps: {fuse.trail}"
            return
    raise AssertionError("it never ended")


async def test_a_crash_at_any_step() -> None:
    async def scenario(at: int) -> Fuse:
        world, fuse = await filled(), Fuse(at)
        before = await world.frontiers()
        try:
            await work(world, fuse)
        except Crash:
            never_back(before, await world.frontiers())
        await finish(world)
        return fuse

    await at_every_step(scenario)


async def test_a_lost_reply_at_any_step() -> None:
    async def scenario(at: int) -> Fuse:
        async def lose() -> None:
            raise Unavailable("the reply was lost")

        world, fuse = await filled(), Fuse(at, lose)
        with suppress(Unavailable):
            await work(world, fuse)
        await finish(world)
        return fuse

    await at_every_step(scenario)


async def test_a_sleeper_wakes_up_after_another_has_finished() -> None:
    """At every step one worker falls asleep; another does all there is to do, new records included, and collects; then
    the sleeper goes on where it was."""

    async def scenario(at: int) -> Fuse:
        world = await filled()

        async def sleep() -> None:
            partition = next(iter(world.topics.values())).each_partition()[0]
            await world.drain()
            await world.collect_all()
            await Producer(world, "late").append({partition: values("late", 3)})
            await world.drain()
            await world.collect_all()
            await Producer(world, "later").append({partition: values("later", 3)})

        fuse = Fuse(at, sleep)
        await work(world, fuse)
        await finish(world)
        return fuse

    await at_every_step(scenario)


@pytest.mark.parametrize("seed", range(12))
async def test_two_workers_at_once(seed: int) -> None:
    """Interleaved at random, both without leases, while records keep coming."""
    world, dice = await filled(), random.Random(seed)
    running = True

    class Slow(Fuse):
        async def step(self, name: str) -> None:
            for _ in range(dice.randrange(6)):
                await asyncio.sleep(0)

    async def produce() -> None:
        producer = Producer(world, "busy")
        partitions = [p for topic in world.topics.values() for p in topic.each_partition()]
        while running:
            for _ in range(dice.randrange(60)):
                await asyncio.sleep(0)
            await producer.append({dice.choice(partitions): values("busy", dice.randrange(1, 5))})

    async def pipeline() -> None:
        worker, collector = world.pipeline(Slow())
        for _ in range(6):
            await worker.tick()
            world.clock.ms += 400
            await collector.collect()

    producing = asyncio.create_task(produce())
    await asyncio.gather(pipeline(), pipeline(), pipeline())
    running = False
    await producing
    await finish(world)


async def test_a_broker_asleep_between_put_and_commit_is_fenced_or_in_time() -> None:
    """Whatever step of the collection its commit falls on: either the object stays, or the commit is refused."""
    seen = set()

    async def scenario(at: int) -> Fuse:
        world = await filled()
        [partition, *_] = next(iter(world.topics.values())).each_partition()
        sleepy = Producer(world, "sleepy")
        upload = await sleepy.upload({partition: values("sleepy", 3)})

        async def wake() -> None:
            [verdict] = (await sleepy.commit(upload)).values()
            seen.add(type(verdict))
            if isinstance(verdict, UploadAgain):
                await sleepy.append({partition: values("sleepy", 3)})

        fuse = Fuse(at, wake)
        await work(world, fuse)
        await finish(world)
        return fuse

    await at_every_step(scenario)
    assert seen == {Committed, UploadAgain}
