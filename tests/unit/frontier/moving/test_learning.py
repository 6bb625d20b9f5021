"""Schemas that a tile did not know: when the driver asks, waits, evolves, and when it goes on without."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec
import pytest
from support.schemas.door import record
from support.worlds.memory import SETTINGS, MemoryWorld, Producer

from lakestream.errors import Conflict, RegistryUnavailable, Unavailable
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.fresh import Freshener, Freshness
from lakestream.frontier.moving.tiles.local import LocalTiles
from lakestream.frontier.moving.tiles.tile import Tile, TileOutcome
from lakestream.frontier.moving.worker import Worker
from lakestream.frontier.settings import FreshSettings
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.schemas.growing import BY_ID, grown
from lakestream.schemas.source import SubjectVersion
from lakestream.table.shape import RAW as RAW_SHAPE
from lakestream.table.shape import ValueSchema
from lakestream.table.view import View

KNOWN = ValueSchema(7, json.dumps(record("item")))
VALUE = b"\0\0\0\0\7\4ab"


@dataclass
class Source:
    """Implements `SchemaSource`."""

    is_away: bool = False
    asked: list[int] = field(default_factory=list)

    async def by_id(self, schema_id: int, subject: str) -> ValueSchema | None:
        assert subject == "orders-value"
        self.asked.append(schema_id)
        if self.is_away:
            raise RegistryUnavailable("the registry is away")
        return KNOWN if schema_id == KNOWN.schema_id else None

    async def latest(self, subject: str) -> ValueSchema | None:
        return None

    async def versions(self, subject: str) -> tuple[SubjectVersion, ...]:
        return ()


@dataclass
class Counting:
    """A `TileRunner` that counts."""

    runner: LocalTiles
    runs: int = 0
    parallelism: int = 1

    async def run(self, tiles: Sequence[Tile]) -> list[TileOutcome]:
        self.runs += bool(tiles)
        return await self.runner.run(tiles)


@dataclass
class Scene:
    world: MemoryWorld
    topic: Topic
    lake: Lake
    source: Source
    runner: Counting

    @property
    def topics(self) -> Topics:
        return Topics(self.world.store, self.world.runtime)

    async def produce(self, *values: bytes) -> None:
        await Producer(self.world, f"p{len(self.source.asked)}").append({self.topic.each_partition()[0]: [*values]})

    async def view(self) -> View:
        return await self.lake.catalog.load(self.topic.topic_id)

    def worker(self, **settings: int) -> Worker:
        lake = replace(self.lake, settings=msgspec.structs.replace(self.lake.settings, **settings))
        return Worker(lake, self.topics, name="w", respect_leases=False, keeps_intervals=False)

    async def objects(self) -> set[str]:
        return {info.key async for info in self.world.objects.list("tables")}


@pytest.fixture
async def scene() -> Scene:
    world = MemoryWorld()
    topic = await Topics(world.store, world.runtime).create("orders", 1, {"lakestream.value.format": "schema_id"})
    world.topics[topic.topic_id] = topic
    source = Source()
    runner = Counting(LocalTiles(world.objects, world.runtime))
    catalog = world.catalog_on(world.store)
    lake = Lake(world.store, catalog, world.objects, runner, world.runtime, SETTINGS, schemas=source)
    return Scene(world, topic, lake, source, runner)


async def test_a_table_evolves_and_the_same_is_planned_again_in_one_tick(scene: Scene) -> None:
    await scene.produce(VALUE, b"\0\0\0\0\x09x")
    tick = await scene.worker().tick()
    assert (tick.record_count, tick.failures, scene.runner.runs) == (2, (), 2)
    [commit] = tick.commits
    assert commit.kinds == (1, 0, 1, 0)
    view = await scene.view()
    assert [each.schema_id for each in view.shape.schemas] == [7]
    assert {file.path.rpartition("/tables/")[2] for file in view.files} == {
        key.removeprefix("tables/") for key in await scene.objects()
    }, "files of the first try are gone"
    assert scene.source.asked == [7, 9, 9]


async def test_a_registry_that_is_away_holds_a_topic_up_for_a_while_only(scene: Scene) -> None:
    scene.source.is_away = True
    await scene.produce(VALUE)
    worker = scene.worker(schema_wait_ms=30_000)
    for _ in range(3):
        tick = await worker.tick()
        assert [str(failure.error) for failure in tick.failures] == ["the registry is away"]
        assert not await scene.objects()
    scene.world.runtime.clock.ms += 30_001  # type: ignore[attr-defined]
    tick = await worker.tick()
    assert (tick.record_count, tick.failures) == (1, ())
    assert tick.commits[0].kinds == (1, 0, 0, 0)
    await scene.produce(b"\0\0\0\0\x08x")
    assert (await worker.tick()).commits[0].kinds == (1, 0, 0, 0), "it has waited for this outage"
    scene.source.is_away = False
    await scene.produce(VALUE)
    assert (await worker.tick()).commits[0].kinds == (0, 0, 1, 0)


async def test_a_catalog_that_takes_no_columns_holds_a_topic_up_for_a_moment_only(scene: Scene) -> None:
    async def refused(view: View, shape: object) -> View:
        raise Unavailable("HTTP 500: it takes no new columns")

    scene.lake.catalog.evolve = refused  # type: ignore[method-assign]
    await scene.produce(VALUE)
    worker = scene.worker(schema_wait_ms=30_000)
    assert len((await worker.tick()).failures) == 1, "it may have been an accident"
    scene.world.runtime.clock.ms += 2_001  # type: ignore[attr-defined]
    tick = await worker.tick()
    assert (tick.record_count, tick.failures, tick.commits[0].kinds) == (1, (), (1, 0, 0, 0))


async def test_a_table_that_another_evolves_meanwhile_is_taken_as_it_is(scene: Scene) -> None:
    await scene.produce(VALUE)
    evolve = scene.lake.catalog.evolve
    rivals = [grown(RAW_SHAPE, [each], BY_ID, 14, frozenset()) for each in (ValueSchema(8, KNOWN.text), KNOWN)]

    async def raced(view: View, shape: object) -> View:
        if rivals:
            await evolve(view, grown(view.shape, rivals.pop(0).schemas, BY_ID, view.last_column_id, frozenset()))
            raise Conflict("another was first")
        return await evolve(view, shape)  # type: ignore[arg-type]

    scene.lake.catalog.evolve = raced  # type: ignore[method-assign]
    tick = await scene.worker().tick()
    assert (tick.record_count, tick.failures, tick.commits[0].kinds) == (1, (), (0, 0, 1, 0))
    assert [each.schema_id for each in (await scene.view()).shape.schemas] == [8, 7]


async def test_a_cut_that_meets_a_new_schema_evolves_the_table(scene: Scene) -> None:
    await scene.produce(VALUE)
    door = Freshener(scene.lake, scene.topics, FreshSettings(wait_ms=60_000))
    assert await door.freshen(scene.topic.topic_id) is Freshness.FRESH
    view = await scene.view()
    assert (view.frontier, [each.schema_id for each in view.shape.schemas]) == ((1,), [7])
    await door.close()


async def test_a_cut_leaves_it_to_the_pipeline_how_long_to_wait_for_a_registry(scene: Scene) -> None:
    scene.source.is_away = True
    await scene.produce(VALUE)
    door = Freshener(scene.lake, scene.topics, FreshSettings(wait_ms=60_000))
    assert await door.freshen(scene.topic.topic_id) is Freshness.FAILED
    assert (await scene.view()).frontier == (0,)
    assert not await scene.objects()
    await door.close()
