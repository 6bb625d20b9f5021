"""A topic that goes on in a table of an external catalog, made by somebody who dies at any step of it."""

from pathlib import Path
from typing import Any

import pytest
from support.servers.catalogs import sql_place, step_by_step
from support.worlds.lake import external_lake_world
from support.worlds.memory import Crash, Fuse, Fused
from support.worlds.takeover import ALIAS, KINDS, OLD_ROWS, Scene, failure, former, on

from lakestream.errors import StreamExists
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.runtime import system

STEPS = 90
"""More than it takes to make a topic."""


@KINDS
@pytest.mark.parametrize("at", [*range(2, STEPS, 9), pytest.param(0, id="none")])
async def test_a_crash_while_the_topic_is_made(tmp_path: Path, kind: str, at: int) -> None:
    await check_crash(tmp_path, kind, at)


@pytest.mark.slow
@KINDS
@pytest.mark.parametrize("at", [step for step in range(1, STEPS) if step % 9 != 2])
async def test_a_crash_at_any_other_step(tmp_path: Path, kind: str, at: int) -> None:
    await check_crash(tmp_path, kind, at)


async def check_crash(folder: Path, kind: str, at: int) -> None:
    """Whoever makes the topic dies at some step. Whoever asks for it again gets it, and if it is listed already, the
    pipeline goes on with it; a former owner has lost nothing at any of them."""

    async def test(scene: Scene) -> None:
        left = None if kind == "made by an engine" else await former(scene)
        if left is None:
            scene.engine_table()
        else:
            scene.let_go()
        rows, base = ([], 0) if left is None else (OLD_ROWS, 2)
        store, fuse = MemoryStore(system()), Fuse(at)
        await create_and_crash(scene, store, fuse)
        if at == 0:
            assert STEPS - 20 < fuse.steps < STEPS, fuse.trail
        async with external_lake_world(scene.place, store) as house:
            if not await house.streams.topics.list():
                await house.streams.create_topic("orders", 2, ALIAS)
            [topic] = await house.streams.topics.list()
            assert await house.produce(topic, 0, b"d") == base
            assert not (await house.tick()).failures
            assert scene.rows() == sorted([*rows, (0, base, b"d")])
            assert await house.consume(topic, 0) == [row[1:] for row in scene.rows() if row[0] == 0]
            with pytest.raises(StreamExists):
                await house.streams.create_topic("orders", 2, ALIAS)
        if left is not None:
            old, topic = left
            await old.produce(topic, 0, b"tail")
            assert "has taken it over" in await failure(old)
            assert await old.consume(topic, 0) == [(0, b"a"), (1, b"b"), (2, b"tail")]

    await on(sql_place(folder), test)


async def create_and_crash(scene: Scene, store: MemoryStore, fuse: Fuse) -> None:
    fused: Any = Fused(store, fuse, "store")
    catalog = scene.place.tables(fused, system())
    async with external_lake_world(scene.place, store, catalog) as house:
        for task in house.streams._background:
            task.cancel()
        step_by_step(catalog, fuse)
        house.streams.store = house.streams.topics._store = fused
        try:
            await house.streams.create_topic("orders", 2, ALIAS)
            assert fuse.at == 0 or fuse.steps < fuse.at
        except Crash:
            assert fuse.blown
