"""Any history of upserts and deletes, cut into any steps, with crashes, two workers at once and a stream's table whose
files change between: the table of latest rows is the fold of the log."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples
from support.worlds.derived import DerivedWorld, derived_world
from support.worlds.memory import Crash, Fuse

from lakestream.errors import Conflict
from lakestream.frontier.upkeep.rewrite import put_in_place
from lakestream.metadata.topics.list import Topic
from lakestream.table.rewriting.rewriter import Rewriter

KEYS = 12
PARTITIONS = 3


class History:
    """What was produced, and what must be."""

    def __init__(self, world: DerivedWorld, topic: Topic, seed: int) -> None:
        self.world, self.topic = world, topic
        self.random = random.Random(seed)
        self.fold: dict[bytes, bytes] = {}
        self.count = 0

    async def produce(self) -> None:
        partition = self.random.randrange(PARTITIONS)
        pairs: list[tuple[bytes | None, bytes | None]] = []
        for _ in range(self.random.randint(1, 8)):
            key = b"k%d" % (partition + PARTITIONS * self.random.randrange(KEYS))
            self.count += 1
            value = None if self.random.random() < 0.3 else b"v%d" % self.count
            pairs.append((key, value))
            if value is None:
                self.fold.pop(key, None)
            else:
                self.fold[key] = value
        await self.world.put(self.topic, partition, *pairs)

    async def move(self) -> None:
        await self.world.house.tick()

    async def derive(self) -> None:
        await self.world.derive(
            derive_rows=self.random.choice([1, 3, 10, 1000]), derive_steps=self.random.randint(1, 3)
        )

    async def crash(self) -> None:
        fuse = Fuse(self.random.randint(1, 60))
        with contextlib.suppress(Crash):
            await self.world.deriver(fuse, derive_rows=5).run()

    async def race(self) -> None:
        """Two workers, of which neither heeds the other."""
        both = [self.world.deriver(derive_rows=4) for _ in range(2)]
        done = await asyncio.gather(*(each.run() for each in both))
        assert all(isinstance(error, Conflict) for each in done for _, error in each.failures)

    async def merge(self) -> None:
        await self.world.maintain()

    async def delete(self) -> None:
        """An engine takes rows out of the stream's table that were derived from."""
        view = await self.world.house.catalog.load(self.topic.topic_id)
        derived = await self.world.view()
        if derived is None or not view.files:
            return
        file = self.random.choice(list(view.files))
        seen = derived.view.frontier
        limits = [seen[index] if index < len(seen) else 0 for index in range(PARTITIONS)]

        def keep(rows):  # type: ignore[no-untyped-def]
            partition, offset = (rows.column(name).to_numpy() for name in ("_stream_partition", "_offset"))
            return (offset >= np.asarray(limits)[partition]) | (offset % 2 == 0)

        lake = self.world.lake()
        rewritten = await Rewriter(lake.objects, max_bytes=1 << 20).rewrite(
            [file], view.deletes, shape=view.shape, own_file_bytes=1 << 20, keep=keep
        )
        await put_in_place(lake, view, [file], rewritten)


def _steps() -> list[Callable[[History], Awaitable[None]]]:
    return [
        History.produce,
        History.produce,
        History.move,
        History.derive,
        History.crash,
        History.race,
        History.merge,
        History.delete,
    ]


@examples(15)
@given(seed=st.integers(0, 1 << 30), steps=st.lists(st.integers(0, 7), min_size=5, max_size=30))
async def test_latest_is_the_fold_of_the_log(seed: int, steps: list[int]) -> None:
    with TemporaryDirectory() as folder:
        async with derived_world(Path(folder), seed) as world:
            topic = await world.topic(partitions=PARTITIONS, lakestream__table__upsert="_key")
            history = History(world, topic, seed)
            await history.produce()
            await history.move()
            for number in steps:
                await _steps()[number](history)
            await world.settle()
            assert await world.latest() == history.fold


class _Writes(Fuse):
    """Counts only what a crash can be seen by: the steps around writes of files, and around what the catalog does."""

    async def step(self, name: str) -> None:
        if name.split(" ")[1].startswith(("derived.", "objects.put")):
            await super().step(name)


async def test_a_crash_at_any_step_changes_nothing(tmp_path: Path) -> None:
    async with derived_world(tmp_path) as world:
        topic = await world.topic(partitions=1, lakestream__table__upsert="_key")
        await world.put(topic, 0, (b"a", b"0"), (b"b", b"0"), (b"c", b"0"))
        await world.settle()
        crashes = 0
        for at in count(1):
            await world.put(topic, 0, (b"a", b"%d" % at), (b"b", b"%d" % at if at % 2 else None))
            await world.house.tick()
            fuse = _Writes(at)
            try:
                await world.deriver(fuse).run()
            except Crash:
                crashes += 1
            await world.settle()
            want = {b"a": b"%d" % at, b"c": b"0"} | ({b"b": b"%d" % at} if at % 2 else {})
            assert await world.latest() == want, fuse.trail[-1]
            if not fuse.blown:
                break
        assert crashes >= 8
