"""Topics that ask to be committed seldom: one file for what came in their interval, and no endless WAL."""

from collections.abc import Mapping
from typing import Any

from support.worlds.memory import Fuse, MemoryWorld, Producer

from lakestream.errors import Unavailable
from lakestream.frontier.moving.schedule import MIN_PACE_MS
from lakestream.frontier.moving.worker import Worker
from lakestream.frontier.settings import PipelineSettings
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.table.view import View

INTERVAL = "lakestream.table.commit.interval.ms"


async def create(world: MemoryWorld, name: str, configs: Mapping[str, str]) -> Topic:
    topic = await Topics(world.store, world.runtime).create(name, 2, dict(configs))
    world.topics[topic.topic_id] = topic
    return topic


async def write(world: MemoryWorld, producer: Producer, topic: Topic, size_bytes: int = 10) -> None:
    await producer.append({partition: [bytes(size_bytes)] for partition in topic.each_partition()})


async def test_a_topic_waits_for_its_interval_while_others_go_on() -> None:
    world = MemoryWorld(settings=PipelineSettings(interval_ms=5_000, lease_ms=1))
    slow, plain = await create(world, "slow", {INTERVAL: "60000"}), await create(world, "plain", {})
    worker, _ = world.pipeline()
    assert (await worker.tick()).pace_ms == 5_000
    producer, moved = Producer(world, "one"), []
    for _ in range(24):
        world.clock.ms += 5_000
        await write(world, producer, slow)
        await write(world, producer, plain)
        tick = await worker.tick()
        assert not tick.failures
        moved.append([done.topic for done in tick.commits])
    # Nothing is ever older than its minute: the look at 55 s is the last that can see to it.
    expected = [["plain"]] * 10 + [["plain", "slow"]] + [["plain"]] * 10 + [["plain", "slow"]] + [["plain"]] * 2
    assert [sorted(names) for names in moved] == expected
    view = await world.catalog_on(world.store).load(slow.topic_id)
    assert (len(view.files), view.frontier) == (2, (22, 22))


async def test_a_topic_does_not_wait_for_a_clock_that_was_set_back() -> None:
    world = MemoryWorld()
    topic = await create(world, "slow", {INTERVAL: "60000"})
    worker, _ = world.pipeline()
    await worker.tick()
    producer = Producer(world, "one")
    await write(world, producer, topic)
    assert not (await worker.tick()).commits
    world.clock.ms -= 3_600_000
    assert (await worker.tick()).commits


async def test_a_topic_in_quarantine_does_not_wait_for_a_clock_that_was_set_back() -> None:
    world = MemoryWorld(settings=PipelineSettings(backoff_ms=100, max_backoff_ms=300))
    topic = await create(world, "a", {})
    await write(world, Producer(world, "one"), topic)
    worker, _ = world.pipeline()

    async def run(tiles: object) -> Any:
        raise Unavailable("no cluster")

    worker._lake.runner.run = run  # type: ignore[method-assign]
    [failure] = (await worker.tick()).failures
    assert not (await worker.tick()).failures
    world.clock.ms -= 3_600_000
    assert (await worker.tick()).failures
    assert not (await worker.tick()).failures
    world.clock.ms += 2 * failure.retry_in_ms
    assert (await worker.tick()).failures


async def test_what_waits_is_moved_when_there_is_too_much_of_it() -> None:
    world = MemoryWorld(settings=PipelineSettings(max_tail_bytes=3_000))
    topic = await create(world, "slow", {INTERVAL: "600000"})
    fuse = Fuse()
    worker, _ = world.pipeline(fuse)
    await worker.tick()
    producer, moved = Producer(world, "one"), []
    for _ in range(6):
        world.clock.ms += 1_000
        await write(world, producer, topic, 500)
        moved.append((await worker.tick()).record_count)
    assert moved == [0, 0, 6, 0, 0, 6]
    fuse.trail.clear()
    await worker.tick()
    assert fuse.trail.count("after store.range") == 0, "what was counted is not read again"


async def test_a_worker_that_starts_or_runs_once_lets_nobody_wait() -> None:
    world = MemoryWorld()
    topic = await create(world, "slow", {INTERVAL: "600000"})
    producer = Producer(world, "one")
    await write(world, producer, topic)
    assert (await world.pipeline()[0].tick()).record_count == 2
    lake = world.pipeline()[0]._lake
    once = Worker(lake, Topics(world.store, world.runtime), name="once", respect_leases=False, keeps_intervals=False)
    for _ in range(2):
        await write(world, producer, topic)
        assert (await once.tick()).record_count == 2
    await world.check_whole()


async def test_looks_are_as_close_as_the_most_impatient_topic_asks() -> None:
    world = MemoryWorld(settings=PipelineSettings(interval_ms=5_000))
    worker, _ = world.pipeline()
    await create(world, "slow", {INTERVAL: "60000"})
    assert (await worker.tick()).pace_ms == 5_000
    quick = await create(world, "quick", {INTERVAL: "1000"})
    plain = await create(world, "plain", {})
    assert (await worker.tick()).pace_ms == 1_000
    producer, moved = Producer(world, "one"), []
    for _ in range(10):
        world.clock.ms += 1_000
        await write(world, producer, quick)
        await write(world, producer, plain)
        moved.append({done.topic for done in (await worker.tick()).commits})
    assert [len(names) for names in moved] == [1, 1, 1, 2, 1, 1, 1, 2, 1, 1]
    assert all("quick" in names for names in moved)
    await create(world, "now", {INTERVAL: "1"})
    assert (await worker.tick()).pace_ms == MIN_PACE_MS


async def test_more_than_a_tick_takes_goes_on_at_once() -> None:
    world = MemoryWorld(settings=PipelineSettings(max_tick_bytes=150))
    topic = await create(world, "slow", {INTERVAL: "600000"})
    producer = Producer(world, "one")
    for _ in range(4):
        await write(world, producer, topic)
    worker, _ = world.pipeline()
    assert (await worker.tick()).more
    await world.drain()
    for _ in range(6):
        await worker.tick()
    await world.check_whole()


async def test_a_topic_without_table_is_not_taken_for_one_that_is_caught_up() -> None:
    world = MemoryWorld(settings=PipelineSettings(backoff_ms=0))
    topic = await create(world, "slow", {INTERVAL: "600000"})
    await write(world, Producer(world, "one"), topic)
    worker, _ = world.pipeline()
    catalog = worker._lake.catalog
    make = catalog.create

    async def fail(*args: object, **kwargs: object) -> View:
        raise Unavailable("no catalog")

    catalog.create = fail  # type: ignore[method-assign]
    assert (await worker.tick()).failures
    catalog.create = make  # type: ignore[method-assign]
    assert (await worker.tick()).record_count == 2
