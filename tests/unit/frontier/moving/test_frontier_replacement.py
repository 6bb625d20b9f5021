"""A plan that is overtaken by a first part of its own rows: its files take their place, or it is planned again."""

import io
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

import msgspec
import pyarrow.parquet as pq
import pytest
from support.worlds.catalogs import CATALOGS, Open, over, run
from support.worlds.memory import SETTINGS, MemoryWorld, Producer

from lakestream.frontier.collecting.orphans import Orphans
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.advance import DueTail, Moved, advance, commit, plan_tail, read_tail
from lakestream.frontier.moving.replacement import replaceable
from lakestream.frontier.moving.tiles.naming import data_key
from lakestream.frontier.moving.tiles.plan import Plan, Range
from lakestream.frontier.moving.tiles.tile import TileOutcome
from lakestream.metadata.log.partition import read_head
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.model import DataFile, PositionDeletes, WrittenFile
from lakestream.table.parquet.metrics import file_metrics
from lakestream.table.shape import RAW
from lakestream.table.view import View

LOCATION = "simulated://tables/orders"
RANGES = (Range(0, 10, 20), Range(2, 5, 9))


def file(number: int, rows: int, offsets: tuple[int, int], partitions: tuple[int, int] = (0, 0)) -> DataFile:
    path = f"{LOCATION}/{data_key(partitions[0], offsets[1], UUID(int=number))}"
    return DataFile(path, rows, 100, *partitions, *offsets, 0)


OLD = file(1, 25, (0, 9), (0, 2))
FIRST = View(UUID(int=1), "default.orders", LOCATION, "1", 1, (10, 10, 5), (OLD,), ())
ON_DEMAND = file(2, 5, (6, 13), (0, 2))
LATER = replace(FIRST, metadata_location="2", frontier=(14, 10, 6), files=(ON_DEMAND, OLD))


def test_files_of_ours_that_hold_exactly_what_was_moved_give_way() -> None:
    inside = replace(ON_DEMAND, offset_min=5)
    assert replaceable(FIRST, replace(LATER, files=(inside, OLD)), RANGES) == (inside,)
    two = (file(3, 4, (10, 13)), file(4, 1, (5, 5), (2, 2)))
    assert replaceable(FIRST, replace(LATER, files=(OLD, *two)), RANGES) == two


def test_without_movement_nothing_gives_way_whatever_else_changed() -> None:
    assert replaceable(FIRST, FIRST, RANGES) == ()
    rewritten = replace(FIRST, files=(replace(OLD, path="engine"),), deletes=(PositionDeletes("d"),))
    assert replaceable(FIRST, rewritten, RANGES) == ()
    assert replaceable(FIRST, replace(FIRST, frontier=(10, 11, 5)), RANGES) == ()


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(replace(LATER, frontier=(20, 10, 6)), id="a-range-is-done"),
        pytest.param(replace(LATER, frontier=(21, 10, 6)), id="beyond-a-range"),
        pytest.param(replace(LATER, frontier=(14, 11, 6)), id="another-partition-moved"),
        pytest.param(replace(LATER, frontier=(14, 10, 7)), id="a-row-was-deleted"),
        pytest.param(replace(LATER, frontier=(13, 10, 6)), id="a-row-too-many"),
        pytest.param(replace(LATER, files=(ON_DEMAND,)), id="an-old-file-is-gone"),
        pytest.param(replace(LATER, files=(OLD,)), id="rolled-back"),
        pytest.param(replace(LATER, deletes=(PositionDeletes("d"),)), id="a-delete-was-added"),
        pytest.param(replace(LATER, files=(replace(ON_DEMAND, path=f"{LOCATION}/data/1.parquet"), OLD)), id="updated"),
        pytest.param(replace(LATER, files=(replace(ON_DEMAND, offset_min=4), OLD)), id="rows-from-before"),
        pytest.param(replace(LATER, files=(replace(ON_DEMAND, offset_max=14), OLD)), id="rows-beyond"),
        pytest.param(replace(LATER, files=(replace(ON_DEMAND, partition_max=None), OLD)), id="no-bounds"),
        pytest.param(replace(LATER, files=(replace(ON_DEMAND, partition_max=3), OLD)), id="of-another-partition"),
    ],
)
def test_whatever_does_not_fit_is_planned_again(now: View) -> None:
    fits = replace(ON_DEMAND, offset_min=5)
    files = tuple(fits if each == ON_DEMAND else each for each in now.files)
    assert replaceable(FIRST, replace(now, files=files), RANGES) is None


@pytest.fixture(params=CATALOGS)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    return over(request.param, tmp_path)


@dataclass
class Slow:
    """A pipeline that has written its files and not committed them yet."""

    lake: Lake
    tail: DueTail
    planned: Plan
    outcomes: list[TileOutcome]

    async def commit(self) -> Moved:
        moved = await commit(self.lake, self.tail, self.planned, self.outcomes)
        await advance(self.lake, self.tail, moved.view)
        return moved


async def slow_pipeline(world: MemoryWorld, topic: Topic, max_tick_bytes: int = 1 << 20) -> Slow:
    lake = replace(world.pipeline()[0]._lake, settings=msgspec.structs.replace(SETTINGS, max_tick_bytes=max_tick_bytes))
    heads = {}
    for partition in topic.each_partition():
        found = await read_head(world.store, partition)
        assert found is not None
        heads[partition.index] = found.head
    tail = await read_tail(lake, topic, heads)
    planned = plan_tail(lake, tail, tile_size=400)
    return Slow(lake, tail, planned, await lake.runner.run(planned.tiles))


async def begun(world: MemoryWorld) -> tuple[Topic, Slow, View]:
    """Twelve records in two partitions; a pipeline about to commit them all; another has committed some of each."""
    topic = await world.create("orders", 3)
    await world.pipeline()[0].tick()
    zero, _, two = topic.each_partition()
    producer = Producer(world, "one")
    for number in range(4):
        await producer.append({zero: [b"a%d" % number, b"b%d" % number], two: [b"c%d" % number]})
    pipeline = await slow_pipeline(world, topic)
    first_part = await (await slow_pipeline(world, topic, max_tick_bytes=1)).commit()
    assert first_part.view.frontier == (2, 0, 1)
    return topic, pipeline, first_part.view


async def test_the_pipelines_files_take_the_place_of_the_first_part(opened: Open) -> None:
    async def scenario(world: MemoryWorld) -> None:
        topic, pipeline, between = await begun(world)
        moved = await pipeline.commit()
        assert (moved.superseded, moved.replaced, moved.record_count) == (False, len(between.files), 9)
        assert not {each.path for each in between.files} & {each.path for each in moved.view.files}
        assert moved.view.frontier == (8, 0, 4)
        await world.check_whole()
        late = await slow_pipeline(world, topic)
        assert not late.planned.ranges

    await run(opened, scenario)


async def test_files_that_may_still_take_a_place_are_no_orphans(opened: Open) -> None:
    async def scenario(world: MemoryWorld) -> None:
        _, pipeline, _ = await begun(world)
        world.clock.ms += SETTINGS.grace_ms + 10_000
        tidied = await Orphans(pipeline.lake, Topics(world.store, world.runtime)).collect()
        assert (tidied.deleted, tidied.failures) == (0, ())
        assert not (await pipeline.commit()).superseded
        await world.check_whole()

    await run(opened, scenario)


async def test_files_that_can_not_are(opened: Open) -> None:
    async def scenario(world: MemoryWorld) -> None:
        _, pipeline, _ = await begun(world)
        await world.drain()
        live = await world.rows()
        world.clock.ms += SETTINGS.grace_ms + 10_000
        tidied = await Orphans(pipeline.lake, Topics(world.store, world.runtime)).collect()
        assert tidied.deleted == sum(len(outcome.files) for outcome in pipeline.outcomes)
        moved = await pipeline.commit()
        assert (moved.superseded, moved.record_count) == (True, 0)
        assert await world.rows() == live == sorted(world.acked)

    await run(opened, scenario)


@pytest.mark.parametrize("deleted", [True, False])
async def test_an_engine_that_changed_the_first_part_is_not_overruled(opened: Open, deleted: bool) -> None:
    """It rewrites a file with one row less, or with the same number of rows that say something else."""

    async def scenario(world: MemoryWorld) -> None:
        topic, pipeline, between = await begun(world)
        catalog = world.catalog_on(world.store)
        taken = between.files[0]
        kept = await rewrite_elsewhere(world, taken, drop=1 if deleted else 0)
        await catalog.commit(between, add=[kept], remove=[taken], frontier=between.frontier)
        assert (await pipeline.commit()).superseded
        assert (await catalog.load(topic.topic_id)).frontier == between.frontier
        await world.drain()
        rows = await world.rows()
        assert len(rows) == len(set(rows)) == len(world.acked) - deleted
        assert set(rows) <= set(world.acked)
        assert kept.path in {each.path for each in (await catalog.load(topic.topic_id)).files}

    await run(opened, scenario)


async def rewrite_elsewhere(world: MemoryWorld, taken: DataFile, drop: int) -> WrittenFile:
    """As an engine does it: another name, all rows or all but the last ones."""
    prefix = world.objects.url + "/"
    data = await world.objects.get(taken.path.removeprefix(prefix))
    table = pq.read_table(io.BytesIO(data))
    table = table.slice(0, table.num_rows - drop)
    sink = io.BytesIO()
    pq.write_table(table, sink)
    path = f"{taken.path.rsplit('/', 1)[0]}/engine.parquet"
    await world.objects.put(path.removeprefix(prefix), [sink.getvalue()])
    partitions, offsets = table["_stream_partition"].to_pylist(), table["_offset"].to_pylist()
    metrics = file_metrics(pq.read_metadata(sink), RAW)
    places = (min(partitions), max(partitions), min(offsets), max(offsets))
    return WrittenFile(path, 0, len(sink.getvalue()), table.num_rows, *places, 0, metrics)
