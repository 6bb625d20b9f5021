"""Dead WAL objects go, living ones stay, and neither clocks nor faults decide which is which."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from support.worlds.memory import SETTINGS, Crash, MemoryWorld, Producer

from lakestream.bucket.found import FoundWal, find_wal
from lakestream.errors import Unavailable, UnknownStream
from lakestream.frontier.collecting.collector import Collected, Collector
from lakestream.frontier.moving.receipts import is_of_table
from lakestream.frontier.moving.tiles.tile import Tile, TileOutcome
from lakestream.metadata.counters import cluster_id, current_generation, raise_generation
from lakestream.metadata.log.partition import delete_log, read_head
from lakestream.metadata.topics.list import Topic
from lakestream.runtime import Runtime
from lakestream.wal import WAL_PREFIX, Placed, Receipt, SectionReceipt, build, object_key, parse_key, session_name


async def dead_world(count: int = 1) -> tuple[MemoryWorld, Topic, Producer]:
    """`count` objects that are in the table, and old, and the table's receipts of them, in one object."""
    world = MemoryWorld()
    topic = await world.create("orders", 2)
    producer = Producer(world, "one")
    for number in range(count):
        await producer.append({topic.each_partition()[0]: [b"%d" % number]})
    await world.drain()
    return world, topic, producer


async def later(world: MemoryWorld, collector: Collector, passes: int = 1) -> Collected:
    for _ in range(passes):
        world.clock.ms += 1_000
        found = await collector.collect()
    return found


async def test_an_object_is_safe_for_three_generations_and_then_gone() -> None:
    world, topic, _ = await dead_world()
    _, collector = world.pipeline()
    born = await current_generation(world.store)
    for age in (1, 2):
        found = await later(world, collector)
        assert (found.generation, found.deleted) == (born + age, 0)
        assert len(await world.wal_keys()) == 2
    assert (await later(world, collector)).deleted == 2
    head = await read_head(world.store, topic.each_partition()[0])
    assert head is not None
    assert head.head.fence == born + 1
    assert head.head.sessions == {}


async def test_generations_go_on_if_the_clock_is_set_back() -> None:
    world, _, _ = await dead_world()
    _, collector = world.pipeline()
    raised = (await later(world, collector)).generation
    world.clock.ms -= 3_600_000
    assert (await later(world, collector)).generation == raised + 1
    assert (await collector.collect()).generation == raised + 1


async def test_an_object_that_one_extent_names_stays() -> None:
    world = MemoryWorld()
    topic = await world.create("orders", 2)
    one, two = topic.each_partition()
    await Producer(world, "one").append({one: [b"a"], two: [b"b"]})
    _, collector = world.pipeline()
    await later(world, collector, 8)
    assert len(await world.wal_keys()) == 1
    await world.drain()
    await world.check_whole()
    await later(world, collector, 2)
    assert await world.wal_keys() == []


async def test_a_deleted_partition_counts_as_fenced() -> None:
    world = MemoryWorld()
    topic = await world.create("orders", 1)
    await Producer(world, "one").append({topic.each_partition()[0]: [b"a"]})
    await delete_log(world.store, topic.each_partition()[0])
    _, collector = world.pipeline()
    await later(world, collector, 4)
    assert await world.wal_keys() == []


async def test_a_sleeper_over_a_deleted_topics_collected_objects_raises_no_alarm() -> None:
    """Its table is still bound: whoever deletes the topic is asleep too, between its logs and its table."""
    world = MemoryWorld()
    topic = await world.create("orders", 1)
    await Producer(world, "one").append({topic.each_partition()[0]: [b"a"]})

    async def run(tiles: Sequence[Tile]) -> list[TileOutcome]:
        await delete_log(world.store, topic.each_partition()[0])
        await later(world, world.pipeline()[1], 4)
        assert await world.wal_keys() == []
        return await plain(tiles)

    worker, _ = world.pipeline()
    runner: Any = worker._lake.runner
    plain, runner.run = runner.run, run
    [failure] = (await worker.tick()).failures
    assert isinstance(failure.error, UnknownStream), failure


async def test_readers_get_their_grace() -> None:
    world, _, _ = await dead_world()
    generation = await current_generation(world.store)
    for raised in range(generation, generation + 5):
        await raise_generation(world.store, raised)
    _, collector = world.pipeline()
    assert (await collector.collect()).deleted == 0
    world.clock.ms += SETTINGS.grace_ms
    assert (await collector.collect()).deleted == 2


async def test_a_receipt_is_kept_as_long_as_its_object() -> None:
    world = MemoryWorld()
    topic = await world.create("orders", 1)
    [partition] = topic.each_partition()
    producer = Producer(world, "one")
    await producer.append({partition: [b"a"]})
    [data_key] = await world.wal_keys()
    receipt = Receipt(data_key, (SectionReceipt(partition, (Placed(0, 1, 0, 1),)),))
    built = build([], [receipt], session="one", flush=99, generation=1)
    await world.objects.put(object_key(1, "one", 99), built.parts)
    _, collector = world.pipeline()
    await later(world, collector, 6)
    assert len(await world.wal_keys()) == 2
    await world.drain()
    await later(world, collector, 2)
    assert await world.wal_keys() == []


async def told_in(world: MemoryWorld) -> FoundWal:
    return await find_wal(world.objects, [await cluster_id(world.store, world.runtime)], lambda _: None)


async def drain_but(world: MemoryWorld, stuck: Topic) -> None:
    """All tables but this one get what is theirs."""
    worker, _ = world.pipeline()

    async def listed() -> list[Topic]:
        return [topic for topic in world.topics.values() if topic != stuck]

    worker._topics.list = listed  # type: ignore[method-assign]
    await worker.tick()


async def test_what_a_dead_object_tells_of_a_living_one_outlives_it() -> None:
    """The broker's next object, which has the receipt, is in its table long before the topic that is stuck."""
    world = MemoryWorld()
    stuck, other = await world.create("stuck", 1), await world.create("other", 1)
    [partition] = stuck.each_partition()
    producer = Producer(world, "one")
    for topic in (stuck, other, other):
        await producer.append({topic.each_partition()[0]: [b"a"]})
    [first, _, third] = await world.wal_keys()
    told = (await told_in(world)).fates[partition][first]
    assert [place.base_offset for place in told.placed] == [0]
    await drain_but(world, stuck)
    _, collector = world.pipeline()
    await later(world, collector, 6)
    assert first in await world.wal_keys()
    assert third not in await world.wal_keys()
    found = await told_in(world)
    assert found.fates[partition] == {first: told}
    assert sum(map(len, found.sections.values())) == 1
    await world.drain()
    await later(world, collector, 3)
    assert await world.wal_keys() == []


async def test_no_object_is_left_without_its_receipt_by_deletes_that_do_not_all_take_place() -> None:
    world, _, _ = await dead_world(3)
    [first, second, _, _] = await world.wal_keys()
    _, collector = world.pipeline()
    delete = world.objects.delete

    async def dies(keys: Sequence[str]) -> None:
        await delete([key for key in keys if key == second])
        raise Crash

    world.objects.delete = dies  # type: ignore[method-assign]
    with pytest.raises(Crash):
        await later(world, collector, 4)
    assert first in await world.wal_keys()
    assert second not in await world.wal_keys()
    found = await told_in(world)
    [fates] = found.fates.values()
    assert fates[first].whole
    world.objects.delete = delete  # type: ignore[method-assign]
    await later(world, world.pipeline()[1], 3)
    assert await world.wal_keys() == []


async def test_objects_of_another_cluster_in_the_bucket_are_left_alone() -> None:
    """Its log is in a metadata store of its own: nothing here says whether they live."""
    world, other = MemoryWorld(), MemoryWorld()
    other.objects, other.runtime = world.objects, Runtime(other.clock, random.Random(6))
    ours, theirs = [await cluster_id(each.store, each.runtime) for each in (world, other)]
    for each, cluster in ((world, ours), (other, theirs)):
        [partition] = (await each.create("orders", 1)).each_partition()
        await Producer(each, session_name(each.runtime.new_id(), cluster)).append({partition: [b"a"]})
    await world.drain()
    _, collector = world.pipeline()
    assert (await later(world, collector, 8)).corrupt == ()
    assert [parse_key(key).session.endswith(f"_{theirs}") for key in await world.wal_keys()] == [True]


async def test_damage_is_reported_and_never_deleted() -> None:
    world, _, _ = await dead_world(2)
    [first, second, receipts] = await world.wal_keys()
    assert is_of_table(parse_key(receipts).session)
    await world.objects.put(first, [b"garbage"], overwrite=True)
    await world.objects.put(f"{WAL_PREFIX}0000000001/what", [b"x"])
    _, collector = world.pipeline()
    found = await later(world, collector, 5)
    assert [text.startswith((first, "'wal/0000000001/what'")) for text in found.corrupt] == [True, True]
    keys = await world.wal_keys()
    assert first in keys
    assert second not in keys


class _Throttled:
    """An object store that refuses some deletes, and counts footer reads."""

    def __init__(self, target: Any, refuse: int) -> None:
        self._target, self._refuse = target, refuse
        self.tails = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    async def get_tail(self, key: str, length: int) -> bytes:
        self.tails += length > 1
        data: bytes = await self._target.get_tail(key, length)
        return data

    async def delete(self, keys: Sequence[str]) -> None:
        if self._refuse:
            self._refuse -= 1
            raise Unavailable("slow down")
        await self._target.delete(keys)


async def test_a_throttled_delete_is_tried_again_later_without_reading_footers_twice() -> None:
    world, _, _ = await dead_world(3)
    throttled = _Throttled(world.objects, refuse=2)
    world.objects = throttled  # type: ignore[assignment]
    _, collector = world.pipeline()
    found = await later(world, collector, 3)
    assert (found.deleted, found.undeleted) == (0, 4)
    assert (await later(world, collector)).deleted == 0
    assert len(await world.wal_keys()) == 5, "receipts must not go before what they speak of"
    assert (await later(world, collector)).deleted == 5
    assert throttled.tails == 5
    assert await world.wal_keys() == []


async def test_a_pass_is_bounded_and_the_next_goes_on_behind_it() -> None:
    world, topic, producer = await dead_world(2)
    await producer.append({topic.each_partition()[1]: [b"alive"]})
    world.settings = type(SETTINGS)(max_collect_objects=1, generation_interval_ms=1_000, grace_ms=0)
    _, collector = world.pipeline()
    await later(world, collector, 3)
    for _ in range(4):
        assert (await later(world, collector)).examined <= 1
    assert len(await world.wal_keys()) == 1


async def test_without_objects_the_generation_rests() -> None:
    world = MemoryWorld()
    _, collector = world.pipeline()
    before = await current_generation(world.store)
    await later(world, collector, 5)
    assert await current_generation(world.store) == before


async def test_two_collectors_do_not_raise_it_twice_as_fast() -> None:
    world, _, _ = await dead_world()
    one, two = world.pipeline()[1], world.pipeline()[1]
    before = await current_generation(world.store)
    world.clock.ms += 1_000
    await asyncio.gather(one.collect(), two.collect())
    assert await current_generation(world.store) <= before + 2


async def test_collection_keeps_up_with_brokers_that_write_fast() -> None:
    """A hundredth of what a broker with the disk profile writes, and of what a pass takes: 10 objects a second, 20 a
    pass, a pass every ten seconds unless there is more. At last nothing is left that could have gone."""
    world = MemoryWorld(
        settings=msgspec.structs.replace(
            SETTINGS, max_collect_objects=20, generation_interval_ms=10_000, grace_ms=1_000, collect_interval_ms=10_000
        )
    )
    topic = await world.create("orders", 1)
    producer = Producer(world, "one")
    worker, collector = world.pipeline()
    found = Collected(0)
    left = []
    for second in range(120):
        world.clock.ms += 1_000
        for number in range(10):
            await producer.append({topic.each_partition()[0]: [b"%d-%d" % (second, number)]})
        await worker.tick()
        if found.more or second % 10 == 0:
            found = await collector.collect()
            assert found.examined <= 20
        left.append(len(await world.wal_keys()))
    kept_s = 10 * 4 + 10
    assert max(left[60:]) < 2 * 10 * kept_s, "three generations, what they wait for, and as many receipts"
    assert left[-1] <= max(left[60:90]), "it does not grow"
    await world.check_whole()
