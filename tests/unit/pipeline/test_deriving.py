"""The loop that brings derived tables on: what it says, when it ends, where it has nothing to do."""

import logging
from pathlib import Path

import msgspec
import pytest
from support.worlds.derived import DerivedWorld, derived_world

from lakestream.frontier.derived.deriving import Derived
from lakestream.frontier.lake import Lake
from lakestream.pipeline.deriving import Deriving


def loop(world: DerivedWorld, lake: Lake) -> tuple[Deriving, list[Derived]]:
    seen: list[Derived] = []
    return Deriving(lake, "t", seen.append, respect_leases=False), seen


async def test_it_ends_when_all_is_in_the_tables(tmp_path: Path) -> None:
    async with derived_world(tmp_path) as world:
        topic = await world.topic(partitions=1, lakestream__table__upsert="_key")
        await world.put(topic, 0, *((b"k%d" % key, b"1") for key in range(90)))
        await world.put(topic, 0, *((None, b"skipped") for _ in range(40)))
        await world.house.tick()
        deriving, seen = loop(world, world.lake(derive_rows=10, derive_steps=1))
        await deriving.finish()
        assert len(await world.latest()) == 90
        assert [each.done[0].lag for each in seen][-1] == 0
        assert sum(done.records for each in seen for done in each.done) == 130
        assert sum(done.skipped for each in seen for done in each.done) == 40


async def test_a_failure_is_told_once_until_it_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with derived_world(tmp_path) as world:
        topic = await world.topic(partitions=1, lakestream__table__upsert="item")
        await world.put(topic, 0, (b"a", b"1"))
        await world.house.tick()
        deriving, _ = loop(world, world.lake())
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                await deriving.finish()
        [told] = [record.getMessage() for record in caplog.records]
        assert "topic orders: what is derived from its table waits" in told
        await world.configure(topic, lakestream__table__upsert="_key")
        await deriving.finish()
        assert await world.latest() == {b"a": b"1"}


async def test_an_external_catalog_has_none_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with derived_world(tmp_path) as world:
        await world.topic(partitions=1, lakestream__table__upsert="_key")
        lake = world.lake()
        without = Lake(
            *(lake.store, lake.catalog, lake.objects, lake.runner, lake.runtime),
            msgspec.structs.replace(lake.settings),
        )
        deriving, seen = loop(world, without)
        with caplog.at_level(logging.WARNING):
            await deriving.finish()
            await deriving.finish()
        [told] = [record.getMessage() for record in caplog.records]
        assert "lakestream.table.upsert has no effect with an external catalog" in told
        assert [each.done for each in seen] == [(), ()]
        assert await world.tables.every() == []
