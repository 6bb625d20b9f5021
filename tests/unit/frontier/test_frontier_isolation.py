"""A fault that nobody foresaw, in the work on one topic: the others go on, and the log has its stack."""

import asyncio
import logging
from typing import Any

import msgspec
import pytest
from support.worlds.memory import SETTINGS, MemoryWorld, Producer

from lakestream.errors import Conflict, Unexpected
from lakestream.frontier.collecting.orphans import Orphans
from lakestream.frontier.isolation import isolated
from lakestream.frontier.moving.advance import plan_tail
from lakestream.frontier.moving.fresh import Freshener
from lakestream.frontier.moving.worker import Worker
from lakestream.frontier.settings import FreshSettings
from lakestream.frontier.upkeep.maintenance import Maintenance
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.table.view import View

_FAULT = "an engine wrote what no library foresaw"


async def _world() -> tuple[MemoryWorld, Worker, Topic, Topic]:
    """Two topics with something to move; tables cannot be loaded for the first."""
    world = MemoryWorld(settings=msgspec.structs.replace(SETTINGS, min_merge_files=2))
    bad, good = await world.create("bad", 1), await world.create("good", 1)
    worker, _ = world.pipeline()
    await _append(world, bad, good)
    await worker.tick()
    await _append(world, bad, good)
    catalog: Any = worker._lake.catalog
    for name in ("load", "named"):
        setattr(catalog, name, _broken(getattr(catalog, name), bad))
    return world, worker, bad, good


async def _append(world: MemoryWorld, *topics: Topic) -> None:
    producer = Producer(world, f"p{world.runtime.new_id()}")
    for topic in topics:
        await producer.append({topic.each_partition()[0]: [b"1", b"2"]})


def _broken(plain: Any, bad: Topic) -> Any:
    async def call(topic_id: Any) -> View:
        if topic_id == bad.topic_id:
            raise ValueError(_FAULT)
        return await plain(topic_id)

    return call


def _stacks(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.exc_info and record.levelno == logging.ERROR]


async def test_a_tick_moves_the_other_topics(caplog: pytest.LogCaptureFixture) -> None:
    world, worker, _, good = await _world()
    tick = await worker.tick()
    assert [(failure.topic, type(failure.error)) for failure in tick.failures] == [("bad", Unexpected)]
    assert _FAULT in str(tick.failures[0].error)
    assert [done.topic for done in tick.commits] == ["good"]
    assert (await world.catalog_on(world.store).load(good.topic_id)).frontier == (4,)
    assert worker.failing == ("bad",)
    assert _stacks(caplog) == ["topic bad: nobody foresaw this; please report it"]


async def test_a_plan_that_fails_concerns_its_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    world = MemoryWorld()
    topics = [await world.create(name, 1) for name in ("bad", "good")]
    await _append(world, *topics)
    worker, _ = world.pipeline()

    def plan(lake: Any, tail: Any, *, tile_size: int) -> Any:
        if tail.topic.name == "bad":
            raise KeyError(_FAULT)
        return plan_tail(lake, tail, tile_size=tile_size)

    monkeypatch.setattr("lakestream.frontier.moving.worker.plan_tail", plan)
    tick = await worker.tick()
    assert [(failure.topic, type(failure.error)) for failure in tick.failures] == [("bad", Unexpected)]
    assert [done.topic for done in tick.commits] == ["good"]


async def test_maintenance_goes_on_with_the_next_table(caplog: pytest.LogCaptureFixture) -> None:
    world, worker, _, _ = await _world()
    await worker.tick()
    lake = worker._lake
    topics = Topics(world.store, world.runtime)
    done = await Maintenance(lake, topics, name="m", respect_leases=False).run()
    assert [(topic, type(error)) for topic, error in done.failures] == [("bad", Unexpected)]
    assert {step.topic for step in done.steps} == {"good"}
    tidied = await Orphans(lake, topics).collect()
    assert [(topic, type(error)) for topic, error in tidied.failures] == [("bad", Unexpected)]
    assert len(_stacks(caplog)) == 3


async def test_an_engine_gets_the_table_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    world, worker, bad, good = await _world()
    door = Freshener(worker._lake, Topics(world.store, world.runtime), FreshSettings())
    told = [(await door.freshen(topic.topic_id)).name for topic in (bad, good)]
    assert told == ["FAILED", "FRESH"]
    await door.close()
    assert len(_stacks(caplog)) == 1


def test_what_is_foreseen_passes_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    foreseen = Conflict("somebody was first")
    with pytest.raises(Conflict) as caught, isolated("orders"):
        raise foreseen
    assert caught.value is foreseen
    with pytest.raises(asyncio.CancelledError), isolated("orders"):
        raise asyncio.CancelledError
    assert not caplog.records
