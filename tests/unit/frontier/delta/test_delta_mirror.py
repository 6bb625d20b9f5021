"""The mirror follows its table whatever happens between the steps; on simulated tables and a log in memory."""

import asyncio
import contextlib
import json
import random
from dataclasses import replace
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples
from support.tables.delta import COLUMNS, CONFIGS, SETTINGS, MemoryLog, PlainTables
from support.tables.simulated import SimulatedTables
from support.worlds.memory import Crash, Fuse, Fused, Hands

from lakestream.errors import StorageError, Unavailable, Unexpected
from lakestream.frontier.delta import Mirrored, Mirrors
from lakestream.frontier.delta.difference import difference, stats_of
from lakestream.frontier.delta.port import Shown
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.model import DataFile, PositionDeletes, WrittenFile
from lakestream.runtime import Runtime, system
from lakestream.table.view import View


class Scene:
    def __init__(self) -> None:
        store = MemoryStore(system())
        self.catalog = SimulatedTables(store)
        self.topics = Topics(store, system())
        self.log = MemoryLog()
        self.side = PlainTables()
        self.topic: Topic
        self.history: list[frozenset[str]] = []
        """The live files of every view that ever was, oldest first."""
        self._numbers = count()

    async def begin(self) -> None:
        self.topic = await self.topics.create("orders", 1, CONFIGS)
        view = await self.catalog.create(self.topic.topic_id, "orders", 1)
        self.history.append(_names(view))

    def mirrors(self, fuse: Fuse | None = None) -> Mirrors:
        catalog: Any = Fused(self.catalog, fuse, "catalog") if fuse else self.catalog
        log: Any = Fused(self.log, fuse, "log") if fuse else self.log
        side: Any = Fused(self.side, fuse, "side") if fuse else self.side
        return Mirrors(catalog, side, log, self.topics, system(), SETTINGS)

    async def change(self, *, drop: int = 0) -> None:
        """An append of one file in the place of the oldest `drop`: what pipelines and outside engines do."""
        view = await self.catalog.load(self.topic.topic_id)
        start = view.frontier[0]
        path = f"{view.location}/_data/{next(self._numbers)}.parquet"
        file = WrittenFile(path, 0, 100, 1, 0, 0, start, start, None)
        gone = sorted(view.files, key=lambda live: live.offset_min or 0)[:drop]
        view = await self.catalog.commit(view, add=[file], remove=gone, frontier=(start + 1,))
        self.history.append(_names(view))

    async def versions(self) -> list[frozenset[str]]:
        view = await self.catalog.load(self.topic.topic_id)
        return [shown.paths for shown in self.log.versions.get(view.location, [])]

    async def check(self) -> None:
        """Delta shows the newest view, has shown only views that were, and never an older one after a newer."""
        shown = await self.versions()
        assert shown[-1] == self.history[-1]
        places = [self.history.index(paths) for paths in shown]
        assert places == sorted(places), places


def _names(view: View) -> frozenset[str]:
    return frozenset(file.path.removeprefix(f"{view.location}/") for file in view.files)


async def test_each_commit_is_the_difference_to_the_newest_view() -> None:
    scene = Scene()
    await scene.begin()
    mirrors = scene.mirrors()
    assert (await mirrors.mirror()).failures == ()
    await scene.check()
    for drop in (0, 0, 2, 1):
        await scene.change(drop=drop)
        await scene.change()
        assert (await mirrors.mirror()).commits == 1
        await scene.check()
    before = len(await scene.versions())
    assert (await mirrors.mirror()).commits == 0
    assert (await scene.mirrors().mirror()).commits == 0
    assert len(await scene.versions()) == before


async def test_a_crash_at_any_step_is_finished_by_the_next_run() -> None:
    async def scenario(at: int) -> bool:
        scene = Scene()
        await scene.begin()
        await scene.mirrors().mirror()
        await scene.change()
        await scene.change(drop=1)
        fuse = Fuse(at)
        with contextlib.suppress(Crash):
            await scene.mirrors(fuse).mirror()
        await scene.mirrors().mirror()
        await scene.check()
        return fuse.blown

    blown = [await scenario(at) for at in range(1, 16)]
    assert any(blown)
    assert not all(blown), "steps beyond the last one tried"


async def test_of_a_new_log_too() -> None:
    async def scenario(at: int) -> None:
        scene = Scene()
        await scene.begin()
        await scene.change()
        with contextlib.suppress(Crash):
            await scene.mirrors(Fuse(at)).mirror()
        await scene.change()
        await scene.mirrors().mirror()
        await scene.check()

    for at in range(1, 22):
        await scenario(at)


async def test_a_mirror_that_sleeps_at_any_step_puts_nothing_back() -> None:
    async def scenario(at: int) -> bool:
        scene = Scene()
        await scene.begin()
        await scene.mirrors().mirror()
        await scene.change()

        async def meanwhile() -> None:
            await scene.change(drop=1)
            await scene.mirrors().mirror()
            await scene.change(drop=1)
            await scene.mirrors().mirror()

        fuse = Fuse(at, meanwhile)
        zombie = scene.mirrors(fuse)
        await zombie.mirror()
        await scene.check()
        await zombie.mirror()
        await scene.check()
        return fuse.blown

    blown = [await scenario(at) for at in range(1, 40)]
    assert any(blown)
    assert not all(blown)


@examples(60)
@given(st.lists(st.tuples(st.sampled_from(["change", "drop", "mirror", "both"]), st.integers(0, 14)), max_size=12))
async def test_any_history_of_changes_crashes_and_rivals(steps: list[tuple[str, int]]) -> None:
    scene = Scene()
    await scene.begin()
    for kind, number in steps:
        if kind == "change":
            await scene.change()
        elif kind == "drop":
            await scene.change(drop=number % 3)
        elif kind == "mirror":
            with contextlib.suppress(Crash):
                await scene.mirrors(Fuse(number)).mirror()
        else:
            await asyncio.gather(*(scene.mirrors(Fuse(99)).mirror() for _ in range(2)))
    await scene.mirrors().mirror()
    await scene.check()


async def test_what_cannot_be_mirrored_stays_and_its_snapshot_is_held() -> None:
    scene = Scene()
    await scene.begin()
    await scene.change()
    mirrors = scene.mirrors()
    await mirrors.mirror()
    shown = (await scene.versions())[-1]
    held = (await scene.catalog.load(scene.topic.topic_id)).snapshot_id
    assert scene.side.held == {scene.topic.topic_id: None}

    load = scene.catalog.load

    async def with_deletes(topic_id: Any) -> View:
        return replace(await load(topic_id), deletes=(PositionDeletes("file:///x-deletes.parquet"),))

    await scene.change()
    scene.catalog.load = with_deletes  # type: ignore[method-assign]
    [(topic, error)] = (await mirrors.mirror()).failures
    assert topic == "orders"
    assert isinstance(error, StorageError)
    assert "copy-on-write" in str(error)
    assert (await scene.versions())[-1] == shown
    assert scene.side.held == {scene.topic.topic_id: held}

    scene.catalog.load = load  # type: ignore[method-assign]
    assert (await mirrors.mirror()).commits == 1
    await scene.check()
    assert scene.side.held == {scene.topic.topic_id: None}


async def test_a_failing_log_is_left_alone_for_a_while() -> None:
    scene = Scene()
    await scene.begin()
    looks = 0

    async def fail(location: str) -> None:
        nonlocal looks
        looks += 1
        raise Unavailable("the store sleeps")

    scene.log.read = fail  # type: ignore[method-assign,assignment]
    patient = replace_settings(backoff_ms=60_000)
    clock = Hands()
    mirrors = Mirrors(scene.catalog, scene.side, scene.log, scene.topics, Runtime(clock, random.Random(1)), patient)
    assert len((await mirrors.mirror()).failures) == 1
    assert (await mirrors.mirror()).failures == ()
    assert looks == 1
    clock.ms -= 3_600_000
    assert len((await mirrors.mirror()).failures) == 1, "a clock that was set back says nothing"
    assert (await mirrors.mirror()).failures == ()


async def test_a_fault_that_nobody_foresaw_keeps_what_the_mirror_shows() -> None:
    scene = Scene()
    await scene.begin()
    await scene.change()
    await scene.mirrors().mirror()
    await scene.change(drop=1)

    async def fail(*arguments: object) -> None:
        raise ValueError("what no library foresaw")

    plain = scene.log.commit
    scene.log.commit = fail  # type: ignore[method-assign,assignment]
    failures = (await scene.mirrors().mirror()).failures
    assert [(topic, type(error)) for topic, error in failures] == [("orders", Unexpected)]
    assert scene.side.held[scene.topic.topic_id] is not None
    scene.log.commit = plain  # type: ignore[method-assign]
    assert (await scene.mirrors().mirror()).failures == ()
    assert scene.side.held[scene.topic.topic_id] is None
    await scene.check()


def replace_settings(**changes: int) -> Any:
    return type(SETTINGS)(**{"max_backoff_ms": 60_000, **changes})


async def test_topics_that_do_not_ask_or_have_no_table_get_none() -> None:
    scene = Scene()
    topic = await scene.topics.create("plain", 1, {})
    await scene.catalog.create(topic.topic_id, "plain", 1)
    await scene.topics.create("without", 1, CONFIGS)
    assert await scene.mirrors().mirror() == Mirrored()
    assert scene.log.versions == {}


FILE = DataFile(
    "memory://b/t/_data/a.parquet", 3, 100, 1, 2, 5, 9, 1_700_000_000_123, timestamp_min_ms=1_700_000_000_000
)
VIEW = View(None, "default.t", "memory://b/t", "memory://b/t/_iceberg/00007-x.metadata.json", 4, (10,), (FILE,), ())  # type: ignore[arg-type]
EMPTY = Shown(3, frozenset(), COLUMNS)


def test_statistics_say_what_the_manifest_says() -> None:
    assert json.loads(stats_of(FILE)) == {
        "numRecords": 3,
        "minValues": {"_stream_partition": 1, "_offset": 5, "_timestamp": "2023-11-14T22:13:20.000Z"},
        "maxValues": {"_stream_partition": 2, "_offset": 9, "_timestamp": "2023-11-14T22:13:20.124Z"},
        "nullCount": {"_stream_partition": 0, "_offset": 0},
    }
    unknown = replace(FILE, partition_min=None, offset_max=None, timestamp_max_ms=None)
    assert json.loads(stats_of(unknown)) == {"numRecords": 3, "minValues": {}, "maxValues": {}, "nullCount": {}}
    last = replace(FILE, timestamp_max_ms=253_402_300_799_999)
    assert "_timestamp" not in json.loads(stats_of(last))["maxValues"]


def test_a_step_names_what_it_was_made_from() -> None:
    step = difference(EMPTY, VIEW, COLUMNS, 99)
    assert step is not None
    assert [file.path for file in step.add] == ["_data/a.parquet"]
    assert (step.remove, step.columns, step.snapshot_id, step.metadata_version) == ([], [], 4, 7)
    assert difference(replace(EMPTY, paths=frozenset(["_data/a.parquet"]), snapshot_id=4), VIEW, COLUMNS, 99) is None


def test_files_in_trouble_stop_the_mirror() -> None:
    with pytest.raises(StorageError, match="it is ORC"):
        difference(EMPTY, replace(VIEW, files=(FILE, replace(FILE, trouble="it is ORC"))), COLUMNS, 99)


def test_files_elsewhere_stop_the_mirror() -> None:
    with pytest.raises(StorageError, match="outside of its folder"):
        difference(EMPTY, replace(VIEW, files=(replace(FILE, path="memory://b/tt/a.parquet"),)), COLUMNS, 99)


def test_new_columns_are_followed_and_lost_ones_stop_the_mirror() -> None:
    wider = COLUMNS.append(pa.field("note", pa.string()))
    step = difference(EMPTY, VIEW, wider, 99)
    assert step is not None
    assert [field.name for field in step.columns] == ["note"]
    with pytest.raises(StorageError, match="dropped or retyped"):
        difference(replace(EMPTY, columns=wider), VIEW, COLUMNS, 99)
    retyped = COLUMNS.set(1, pa.field("_offset", pa.int32()))
    with pytest.raises(StorageError, match="_offset"):
        difference(EMPTY, VIEW, retyped, 99)
