"""Tables brought up to date for engines that load them. Time is made up, so every figure here is exact."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples
from support.worlds.fresh import FRESH, Slow, delete_one_row, fresh_world, make_door, run
from support.worlds.memory import Crash, Fuse

from lakestream.errors import Conflict
from lakestream.frontier.moving.fresh import Freshness
from lakestream.frontier.moving.tiles.local import LocalTiles
from lakestream.frontier.moving.worker import Worker
from lakestream.metadata.topics.list import Topics
from lakestream.table.schema import UNPARTITIONED


def test_what_was_acked_is_in_one_file_of_all_partitions() -> None:
    async def scenario() -> None:
        found = await fresh_world()
        await found.ack(0, 1, 2)
        await found.ack(2)
        assert await found.load() == (Freshness.FRESH, 4)
        [file] = (await found.world.catalog_on(found.world.store).load(found.topic.topic_id)).files
        assert (file.spec_id, file.partition_min, file.partition_max) == (UNPARTITIONED.spec_id, 0, 2)
        await found.world.check_whole()

    run(scenario)


def test_a_cut_is_used_again_for_half_the_time_that_a_table_may_be_old() -> None:
    async def scenario() -> None:
        found = await fresh_world()
        await found.ack()
        await found.load()
        await found.ack()
        await asyncio.sleep(0.499)
        assert await found.load() == (Freshness.FRESH, 1)
        await asyncio.sleep(0.001)
        assert await found.load() == (Freshness.FRESH, 2)
        assert (found.door.counts.loads, found.door.counts.reused, found.door.counts.commits) == (3, 1, 2)

    run(scenario)


def test_a_table_that_is_up_to_date_is_not_committed() -> None:
    async def scenario() -> None:
        found = await fresh_world(0)
        await found.ack()
        await found.load()
        pointer = await found.world.catalog_on(found.world.store).pointer(found.topic.topic_id)
        assert await found.load() == (Freshness.FRESH, 1)
        assert await found.world.catalog_on(found.world.store).pointer(found.topic.topic_id) == pointer
        assert (found.door.counts.cuts, found.door.counts.commits) == (2, 1)

    run(scenario)


def test_a_topic_may_do_without() -> None:
    async def scenario() -> None:
        found = await fresh_world(-1)
        await found.world.pipeline()[0].tick()
        await found.ack()
        assert await found.load() == (Freshness.OFF, 0)
        other = await found.door.freshen(found.world.runtime.new_id())
        assert other is Freshness.OFF

    run(scenario)


def test_loads_share_one_commit_and_those_that_come_too_late_for_it_the_next() -> None:
    async def scenario() -> None:
        found = await fresh_world(0)
        found.runner.seconds = 0.1
        await found.ack()
        first = [asyncio.ensure_future(found.load()) for _ in range(5)]
        await asyncio.sleep(0.05)
        await found.ack()
        second = [asyncio.ensure_future(found.load()) for _ in range(5)]
        await asyncio.sleep(0.01)
        second.append(asyncio.ensure_future(found.load()))
        assert {told for told, _ in await asyncio.gather(*first)} == {Freshness.FRESH}
        assert set(await asyncio.gather(*second)) == {(Freshness.FRESH, 2)}
        assert (found.runner.runs, found.door.counts.cuts, found.door.counts.commits) == (2, 2, 2)

    run(scenario)


@examples(60)
@given(
    freshness_ms=st.sampled_from([0, 100, 1_000]),
    commit_s=st.sampled_from([0.0, 0.03, 0.3]),
    seed=st.integers(0, 1 << 30),
)
def test_an_engine_gets_what_was_acked_half_the_time_before_it_asked(
    freshness_ms: int, commit_s: float, seed: int
) -> None:
    """Which leaves the other half for the commit."""

    async def scenario() -> None:
        random = Random(seed)
        found = await fresh_world(freshness_ms)
        await found.door.make_missing()
        found.runner.seconds = commit_s

        async def produce() -> None:
            for _ in range(12):
                await asyncio.sleep(random.uniform(0, 0.2))
                await found.ack(random.randrange(3))

        async def poll() -> None:
            for _ in range(8):
                await asyncio.sleep(random.uniform(0, 0.3))
                arrived_s = asyncio.get_running_loop().time()
                told, rows = await found.load()
                assert told is Freshness.FRESH
                limit_s = arrived_s - freshness_ms / 2000
                assert rows >= sum(acked_s <= limit_s for acked_s in found.acked_at)

        await asyncio.gather(produce(), poll(), poll(), poll())
        await asyncio.sleep(1)
        await found.load()
        await found.world.check_whole()

    run(scenario)


def test_a_load_never_fails_because_freshness_did() -> None:
    async def scenario() -> None:
        found = await fresh_world(0)
        await found.ack()
        await found.load()
        await found.ack()
        found.runner.error = "no"
        assert await found.load() == (Freshness.FAILED, 1)
        found.runner.error = ""
        await asyncio.sleep(0.399)
        assert await found.load() == (Freshness.FAILED, 1)
        assert found.runner.runs == 2
        await asyncio.sleep(0.002)
        assert await found.load() == (Freshness.FRESH, 2)
        assert found.door.counts.told[Freshness.FAILED] == 2
        await found.world.check_whole()

    run(scenario)


def test_a_load_waits_no_longer_than_it_may() -> None:
    async def scenario() -> None:
        found = await fresh_world()
        await found.world.pipeline()[0].tick()
        await found.ack()
        found.runner.seconds = 3.0
        started_s = asyncio.get_running_loop().time()
        assert await found.load() == (Freshness.LATE, 0)
        assert asyncio.get_running_loop().time() - started_s == pytest.approx(2.0)
        await asyncio.sleep(1.1)
        found.runner.seconds = 0
        assert await found.load() == (Freshness.FRESH, 1)
        assert found.runner.runs == 1

    run(scenario)


def test_what_is_too_much_for_a_load_is_left_to_the_pipeline() -> None:
    async def scenario() -> None:
        found = await fresh_world(0, msgspec.structs.replace(FRESH, max_bytes=300))
        for _ in range(9):
            await found.ack(0, 1)
        told, rows = await found.load()
        assert told is Freshness.PARTIAL
        assert 2 <= rows < 18
        await found.world.drain()
        await found.world.check_whole()
        assert await found.load() == (Freshness.FRESH, 18)

    run(scenario)


def test_a_table_is_made_for_an_engine_that_comes_before_the_pipeline() -> None:
    async def scenario() -> None:
        found = await fresh_world()
        await found.door.make_missing()
        assert await found.load() == (Freshness.FRESH, 0)
        await found.ack()
        await asyncio.sleep(1)
        assert await found.load() == (Freshness.FRESH, 1)

    run(scenario)


def test_a_cut_under_way_can_be_cut_off() -> None:
    async def scenario() -> None:
        found = await fresh_world(0)
        found.runner.seconds = 1.0
        await found.ack()
        waiting = asyncio.ensure_future(found.load())
        await asyncio.sleep(0.1)
        behind = asyncio.ensure_future(found.door.freshen(found.topic.topic_id))
        await asyncio.sleep(0.1)
        await found.door.close()
        assert await behind is Freshness.FAILED
        assert (await waiting)[0] is Freshness.FAILED
        await found.world.drain()
        await found.world.check_whole()

    run(scenario)


def steps_of_a_load() -> int:
    fuse = Fuse()

    async def scenario() -> None:
        found = await fresh_world()
        await found.ack(0, 1)
        assert await make_door(found.world, None, FRESH, fuse).freshen(found.topic.topic_id) is Freshness.FRESH
        await asyncio.sleep(1)

    run(scenario)
    return fuse.steps


@pytest.mark.parametrize("at", range(1, steps_of_a_load() + 1))
def test_a_crash_at_any_step_is_finished_by_anybody(at: int) -> None:
    async def scenario() -> None:
        found = await fresh_world()
        await found.ack(0, 1)
        fuse = Fuse(at)
        crashing = make_door(found.world, None, FRESH, fuse)
        with suppress(Crash):
            await crashing.freshen(found.topic.topic_id)
            await asyncio.gather(*(stream.advancing for stream in crashing._streams.values() if stream.advancing))
        assert fuse.blown
        await found.ack(1, 2)
        if at % 2:
            assert await found.load() == (Freshness.FRESH, 4)
        else:
            await found.world.drain()
        await found.world.check_whole()

    run(scenario)


@examples(8)
@given(seed=st.integers(0, 1 << 30), freshness_ms=st.sampled_from([200, 1_000]), deletes=st.booleans())
def test_engines_that_poll_do_not_starve_the_pipeline(seed: int, freshness_ms: int, deletes: bool) -> None:
    """A load every 50 ms, ticks that take their time, a producer, an engine that deletes rows: every offset is there
    once, what was deleted stays so, and the pipeline's own commits land."""

    async def scenario() -> None:
        random = Random(seed)
        found = await fresh_world(freshness_ms)
        await found.door.make_missing()
        world, until_s = found.world, asyncio.get_running_loop().time() + 4
        found.runner.seconds = 0.02
        landed, gone = 0, set[tuple[int, int]]()

        def going() -> bool:
            return asyncio.get_running_loop().time() < until_s

        async def poll() -> None:
            while going():
                assert (await found.load())[0] is Freshness.FRESH
                await asyncio.sleep(0.05)

        async def produce() -> None:
            while going():
                await found.ack(*random.sample(range(3), random.randint(1, 3)))
                await asyncio.sleep(random.uniform(0.005, 0.05))

        async def tick() -> None:
            nonlocal landed
            lake = world.pipeline()[0]._lake
            slow = Slow(LocalTiles(world.objects, world.runtime), seconds=0.05)
            worker = Worker(
                replace(lake, runner=slow), Topics(world.store, world.runtime), name="slow", respect_leases=False
            )
            while going():
                done = await worker.tick()
                assert not done.failures
                landed += done.record_count > 0
                await asyncio.sleep(random.uniform(0.05, 0.2))

        async def delete() -> None:
            while deletes and going():
                await asyncio.sleep(random.uniform(0.05, 0.3))
                with suppress(Conflict):
                    gone.update(await delete_one_row(world, found.topic, random))

        await asyncio.gather(poll(), produce(), tick(), delete())
        await world.drain()
        rows = [(row.partition, row.offset) for row in await world.rows()]
        expected = {(row.partition, row.offset) for row in world.acked} - gone
        assert sorted(rows) == sorted(expected)
        assert bool(gone) == deletes
        assert landed >= 3
        assert found.door.counts.commits >= 5

    run(scenario)
