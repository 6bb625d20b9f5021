"""Merges of small files: the same rows in fewer files, whatever else happens to the table meanwhile."""

import asyncio
import io
import random
from collections.abc import Sequence
from contextlib import suppress

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clients.records import parse
from support.properties import examples
from support.worlds.memory import SETTINGS, Crash, Fuse, MemoryWorld, Producer

from lakestream.frontier.collecting.orphans import Orphans
from lakestream.frontier.lake import Lake
from lakestream.frontier.settings import PipelineSettings
from lakestream.frontier.upkeep.maintenance import Maintenance, Step
from lakestream.frontier.upkeep.merging import plan_merges
from lakestream.frontier.upkeep.rewritten import RewriteBound, parse_rewritten, rewritten_key
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.model import DataFile
from lakestream.runtime import system
from lakestream.table.reading.history import HistoryReader
from lakestream.table.schema import OFFSET_WINDOW
from lakestream.table.view import View

FEW = msgspec.structs.replace(SETTINGS, min_merge_files=2)


def _world() -> MemoryWorld:
    return MemoryWorld(settings=FEW)


def _lake(world: MemoryWorld, fuse: Fuse | None = None) -> Lake:
    worker, _ = world.pipeline(fuse)
    return worker._lake


def _maintenance(world: MemoryWorld, fuse: Fuse | None = None) -> Maintenance:
    lake = _lake(world, fuse)
    return Maintenance(lake, Topics(lake.store, lake.runtime), name="m", respect_leases=False)


async def _view(world: MemoryWorld, topic: Topic) -> View:
    return await world.catalog_on(world.store).load(topic.topic_id)


async def _fill(world: MemoryWorld, topic: Topic, rounds: int, seed: int = 1) -> None:
    """So many commits of a few records each, to some partitions."""
    dice = random.Random(seed)
    producer = Producer(world, f"p{seed}")
    for number in range(rounds):
        chosen = dice.sample(topic.each_partition(), dice.randint(1, topic.partitions))
        await producer.append({each: [b"%d-%d" % (number, n) for n in range(dice.randint(1, 30))] for each in chosen})
        await world.drain()


async def test_small_files_become_few_with_the_same_rows_in_order() -> None:
    world = _world()
    topic = await world.create("t", 3)
    await _fill(world, topic, 20)
    before = await _view(world, topic)
    done = await _maintenance(world).run()
    assert done.failures == ()
    assert {step.action for step in done.steps} == {"merge files"}
    after = await _view(world, topic)
    assert len(after.files) < len(before.files) / 3
    assert after.frontier == before.frontier
    await world.check_whole()
    for file in after.files:
        data = await world.objects.get(file.path.removeprefix(world.objects.url + "/"))
        rows = pq.ParquetFile(io.BytesIO(data)).read(["_stream_partition", "_offset"]).to_pylist()
        places = [(row["_stream_partition"], row["_offset"]) for row in rows]
        assert places == sorted(set(places))
    history = HistoryReader(world.objects)
    for index, end in enumerate(after.frontier):
        offset, found = 0, []
        while offset < end:
            read = await history.read(after, partition=index, offset=offset, end_offset=end, max_bytes=1 << 20)
            assert read.next_offset > offset
            found += [record.offset for record in parse(read.parts)]
            offset = read.next_offset
        assert found == list(range(end)), "seals and record checksums hold"


async def test_a_dry_run_says_the_same_and_changes_nothing() -> None:
    world = _world()
    topic = await world.create("t", 1)
    await _fill(world, topic, 6)
    before = await _view(world, topic)
    planned = await _maintenance(world).maintain(topic, dry_run=True)
    assert await _view(world, topic) == before
    done = await _maintenance(world).maintain(topic)
    assert [(step.files, step.rows) for step in planned] == [(step.files, step.rows) for step in done] != []


async def test_an_owner_may_keep_merges_to_himself() -> None:
    world = _world()
    topic = await world.create("t", 1, {"lakestream.table.merge.enable": "false"})
    await _fill(world, topic, 6)
    before = await _view(world, topic)
    assert await _maintenance(world).maintain(topic, dry_run=True) == []
    assert (await _maintenance(world).run()).steps == ()
    assert await _view(world, topic) == before
    await Topics(world.store, system()).alter("t", lambda configs: {})
    assert [step.action for step in (await _maintenance(world).run()).steps] == ["merge files"]
    assert len((await _view(world, topic)).files) < len(before.files)


async def test_too_much_at_once_is_merged_in_parts() -> None:
    world = _world()
    topic = await world.create("t", 1)
    await _fill(world, topic, 8)
    lake = _lake(world)
    one = sum(file.size_bytes for file in (await _view(world, topic)).files) // 8
    small = PipelineSettings(min_merge_files=2, max_rewrite_bytes=3 * one, small_file_bytes=100 * one)
    tight = Lake(lake.store, lake.catalog, lake.objects, lake.runner, lake.runtime, small)
    maintenance = Maintenance(tight, Topics(lake.store, lake.runtime), name="m", respect_leases=False)
    for _ in range(4):
        await maintenance.maintain(topic)
    assert 1 < len((await _view(world, topic)).files) < 8
    await world.check_whole()


async def _delete_rows(world: MemoryWorld, topic: Topic, dice: random.Random) -> None:
    """An owner's DELETE, by copying: a file goes and comes back with one row less."""
    view = await _view(world, topic)
    if not view.files:
        return
    file = dice.choice(list(view.files))
    rows = [row for row in await world.rows() if row.topic == topic.name]
    catalog = world.catalog_on(world.store)
    gone = [row for row in rows if await _holds(world, file, row.partition, row.offset)]
    await catalog.commit(view, add=(), remove=[file], frontier=view.frontier)
    world.acked = [row for row in world.acked if row not in gone]


async def _holds(world: MemoryWorld, file: DataFile, partition: int, offset: int) -> bool:
    data = await world.objects.get(file.path.removeprefix(world.objects.url + "/"))
    rows = pq.ParquetFile(io.BytesIO(data)).read(["_stream_partition", "_offset"]).to_pylist()
    return {"_stream_partition": partition, "_offset": offset} in rows


@examples(30)
@given(st.integers(0, 2**32), st.integers(1, 60))
async def test_beside_pipelines_mergers_and_owners_no_row_is_lost_or_doubled(seed: int, crash_at: int) -> None:
    """Random interleavings of two pipelines, two mergers (one of which dies), a collector of orphans and an owner who
    deletes."""
    dice = random.Random(seed)
    world = _world()
    topic = await world.create("t", 2)
    await _fill(world, topic, 4, seed)
    producer = Producer(world, "more")
    for partition in topic.each_partition():
        await producer.append({partition: [b"late-%d" % n for n in range(9)]})
    fuses = [Fuse(), Fuse(), Fuse(), Fuse(crash_at), Fuse()]
    for fuse in fuses:
        fuse.step = _shuffled(fuse, dice, world)  # type: ignore[method-assign]
    world.clock.ms += 10_000
    first, second = world.pipeline(fuses[0])[0], world.pipeline(fuses[1])[0]
    lake = _lake(world, fuses[4])
    work = [
        first.tick(),
        second.tick(),
        _maintenance(world, fuses[2]).run(),
        _maintenance(world, fuses[3]).run(),
        _collect(Orphans(lake, Topics(lake.store, lake.runtime))),
    ]
    results = await asyncio.gather(*work, return_exceptions=True)
    assert all(not isinstance(result, BaseException) or isinstance(result, Crash) for result in results), results
    await world.drain()
    await world.check_whole()
    await _delete_rows(world, topic, dice)
    await _maintenance(world).run()
    assert await world.rows() == sorted(world.acked)
    for _ in range(25):
        view = await _view(world, topic)
        await world.catalog_on(world.store).commit(view, add=(), remove=(), frontier=view.frontier)
    world.clock.ms += 10_000
    await Orphans(lake, Topics(lake.store, lake.runtime)).collect()
    assert await world.rows() == sorted(world.acked), "what is live was not collected"
    live = {file.path.rsplit("/", 1)[-1] for file in (await _view(world, topic)).files}
    left = [info.key.rsplit("/", 1)[-1] async for info in world.objects.list("tables/")]
    assert {name for name in left if parse_rewritten(name)} <= live, "nothing dead stays"


async def _collect(orphans: Orphans) -> None:
    for _ in range(8):
        await orphans.collect()


def _shuffled(fuse: Fuse, dice: random.Random, world: MemoryWorld) -> object:
    """Steps that take their time: files grow old between them."""
    step = Fuse.step

    async def slow(name: str) -> None:
        world.clock.ms += dice.randint(0, 400)
        for _ in range(dice.randint(0, 3)):
            await asyncio.sleep(0)
        await step(fuse, name)

    return slow


async def test_a_rewrite_is_given_up_when_rows_of_its_files_were_deleted() -> None:
    world = _world()
    topic = await world.create("t", 1)
    await _fill(world, topic, 5)
    dice = random.Random(1)

    async def meddle() -> None:
        await _delete_rows(world, topic, dice)

    # Before the commit, after the rows were read.
    probe = Fuse()
    trial = _world()
    other = await trial.create("t", 1)
    await _fill(trial, other, 5)
    await _maintenance(trial, probe).maintain(other)
    at = probe.trail.index("before catalog.commit") + 1
    meddling = Fuse(at, meddle)
    steps = await _maintenance(world, meddling).maintain(topic)
    assert meddling.blown
    assert steps == []
    assert await world.rows() == sorted(world.acked)
    assert await _maintenance(world).maintain(topic) != []
    assert await world.rows() == sorted(world.acked)


def _file(
    low: int, size: int = 10, *, partition: int | None = 0, spec_id: int = 1, high: int | None = None
) -> DataFile:
    return DataFile(
        f"f{partition}-{low}", 1, size, partition, partition, low, low + 9 if high is None else high, 1, spec_id
    )


def _starts(runs: Sequence[Sequence[DataFile]]) -> list[list[int | None]]:
    return [[file.offset_min for file in run] for run in runs]


def test_only_neighbours_are_merged_and_a_large_first_file_is_left_alone() -> None:
    rules = PipelineSettings(min_merge_files=3, small_file_bytes=100, max_rewrite_bytes=1_000)
    small = [_file(10 * n) for n in range(4)]
    assert _starts(plan_merges(small, rules)) == [[0, 10, 20, 30]]
    large = _file(20, 100)
    assert plan_merges([*small[:2], large, *small[3:]], rules) == []
    assert _starts(plan_merges([_file(0, 90), *(_file(10 * n) for n in range(1, 5))], rules)) == [[10, 20, 30, 40]]
    others = [_file(0), _file(10, partition=1), _file(20, spec_id=7), _file(OFFSET_WINDOW), _file(30)]
    assert plan_merges(others, rules) == []
    shared = [_file(10 * n, partition=None) for n in range(3)]
    assert len(plan_merges(shared, rules)) == 1
    spanning = [_file(0, high=OFFSET_WINDOW + 1), *shared[:2]]
    assert len(plan_merges(spanning, rules)) == 1


@given(st.lists(st.integers(1, 60), min_size=1, max_size=60))
def test_merging_comes_to_rest(sizes: list[int]) -> None:
    rules = PipelineSettings(min_merge_files=3, small_file_bytes=64, max_rewrite_bytes=200)
    files = [_file(10 * n, size) for n, size in enumerate(sizes)]
    for _ in range(100):
        runs = plan_merges(files, rules)
        if not runs:
            return
        for run in runs:
            files = [file for file in files if file not in run]
            files.append(_file(run[0].offset_min or 0, sum(file.size_bytes for file in run)))
    raise AssertionError("it merges for ever")


@given(st.integers(0, 10**10 - 1), st.none() | st.integers(0, 10**15 - 1), st.integers(0, 10**6), st.integers(0, 2**60))
def test_names_carry_their_bound(version: int, folded_ms: int | None, partition: int, offset: int) -> None:
    bound = RewriteBound(version, folded_ms)
    key = rewritten_key(bound, partition, offset, system().new_id())
    assert parse_rewritten(key.removeprefix("_data/")) == bound
    sealed = key.removeprefix("_data/").replace(".parquet", ".0123abcd.parquet")
    assert parse_rewritten(sealed) == bound


@pytest.mark.parametrize("at", range(1, 40, 3))
async def test_a_merger_that_dies_anywhere_leaves_the_table_whole(at: int) -> None:
    world = _world()
    topic = await world.create("t", 2)
    await _fill(world, topic, 5)
    with suppress(Crash):
        await _maintenance(world, Fuse(at)).run()
    assert await world.rows() == sorted(world.acked)
    steps: list[Step] = list((await _maintenance(world).run()).steps)
    assert steps or len((await _view(world, topic)).files) < 5
    assert await world.rows() == sorted(world.acked)


async def test_tables_that_have_moved_do_not_wait_for_their_turn() -> None:
    world = MemoryWorld(settings=PipelineSettings(max_maintain_tables=2))
    created = [await world.create(f"t{number:02d}", 1) for number in range(20)]
    looked_at: list[str] = []

    class Looking(Maintenance):
        async def maintain(self, topic: Topic, *, dry_run: bool = False) -> list[Step]:
            looked_at.append(topic.name)
            return []

    maintenance = Looking(_lake(world), Topics(world.store, world.runtime), name="m", respect_leases=False)
    await maintenance.run()
    maintenance.moved(topic.topic_id for topic in (created[17], created[2], created[9], created[11]))
    for _ in range(3):
        await maintenance.run()
    assert looked_at[:8] == ["t00", "t01", "t17", "t09", "t02", "t03", "t11", "t04"]
    for _ in range(6):
        await maintenance.run()
    assert {topic.name for topic in created} <= set(looked_at)
