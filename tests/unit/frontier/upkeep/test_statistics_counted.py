"""Distinct keys of a table: counted once each, however often and in how many parts; never misled by what lies there."""

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clients.batches import keyed
from support.properties import examples
from support.worlds import memory as lakes
from support.worlds.memory import SETTINGS, Crash, Fuse, MemoryWorld, Producer

from lakestream.frontier.upkeep.maintenance import Maintenance, Step
from lakestream.frontier.upkeep.statistics import MAX_FILE_BYTES, known_sketch
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.model import Blob, StatisticsFile, StreamPartition
from lakestream.table.parquet.puffin import StoredBlob, read_puffin, write_puffin
from lakestream.table.rewriting.distinct import THETA
from lakestream.table.view import View

HOUR_MS = 3_600_000
INTERVAL = "lakestream.table.statistics.interval.ms"


class Shop:
    """A lake with one topic of keyed records whose keys are counted every hour."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lakes, "batch", lambda *keys: keyed(*((key, b"v") for key in keys)))
        self.world = MemoryWorld(settings=msgspec.structs.replace(SETTINGS, min_merge_files=50))
        self.producer = Producer(self.world, "p")

    async def create(self, partitions: int = 2, **configs: str) -> Topic:
        await self.world.create("t", partitions)
        chosen = {INTERVAL: str(HOUR_MS)} | {name.replace("_", "."): value for name, value in configs.items()}
        self.topic = await Topics(self.world.store, self.world.runtime).alter("t", lambda _: chosen)
        return self.topic

    async def write(self, keys: Mapping[int, list[bytes | None]]) -> None:
        sent: Any = {StreamPartition(self.topic.topic_id, index): each for index, each in keys.items() if each}
        if sent:
            await self.producer.append(sent)
            await self.world.drain()

    def maintenance(self, fuse: Fuse | None = None) -> Maintenance:
        lake = self.world.pipeline(fuse)[0]._lake
        return Maintenance(lake, Topics(lake.store, lake.runtime), name="m", respect_leases=False)

    async def count(self, *, dry_run: bool = False) -> list[Step]:
        done = await self.maintenance().maintain(self.topic, dry_run=dry_run)
        return [step for step in done if step.action == "count keys"]

    async def view(self) -> View:
        return await self.world.catalog_on(self.world.store).load(self.topic.topic_id)

    async def ndv(self) -> int:
        found = known_sketch(await self.view())
        assert found is not None
        return found.ndv

    async def blobs(self) -> list[StoredBlob]:
        statistics = (await self.view()).statistics
        assert statistics is not None
        data = await self.world.objects.get(self.key(statistics))
        assert len(data) == statistics.size_bytes
        found = read_puffin(statistics.path, data)
        assert tuple(each.blob for each in found) == statistics.blobs
        return found

    def key(self, statistics: StatisticsFile) -> str:
        return statistics.path.removeprefix(self.world.objects.url + "/")

    async def describe(self, statistics: StatisticsFile) -> None:
        await self.world.catalog_on(self.world.store).describe(await self.view(), statistics)

    async def files(self) -> list[str]:
        return [info.key async for info in self.world.objects.list("tables/") if info.key.endswith(".stats")]


async def test_each_key_counts_once_and_the_next_count_reads_only_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(monkeypatch)
    await shop.create()
    await shop.write({0: [b"a", b"b", None, b"a"], 1: [b"a", b"c"]})
    (planned,) = await shop.count(dry_run=True)
    assert (await shop.view()).statistics is None
    (step,) = await shop.count()
    assert (step.about, step.rows, planned.files) == ("about 3", 6, step.files)
    assert await shop.count() == [], "it is not time yet"
    await shop.write({1: [b"c", b"d"]})
    assert await shop.count() == []
    shop.world.clock.ms += HOUR_MS
    assert "the new rows" in (await shop.count(dry_run=True))[0].about
    (step,) = await shop.count()
    assert (step.about, step.rows, step.files) == ("about 4", 2, 1)
    shop.world.clock.ms += HOUR_MS
    assert await shop.count() == [], "nothing is new"
    known = known_sketch(await shop.view())
    assert known is not None
    assert (known.counted_rows, known.frontier) == (8, (4, 4))


async def test_nobody_counts_who_was_not_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(monkeypatch)
    await shop.create(lakestream_table_statistics_interval_ms="-1")
    await shop.write({0: [b"a"]})
    assert await shop.count() == []
    assert await shop.count(dry_run=True) == []


KEYS = st.lists(st.one_of(st.none(), st.integers(0, 40).map(lambda n: b"k%d" % n)), max_size=30)


@examples(25)
@given(st.lists(st.fixed_dictionaries({0: KEYS, 1: KEYS}), min_size=1, max_size=5), st.booleans())
async def test_counted_bit_by_bit_it_is_the_same_sketch(
    rounds: list[dict[int, list[bytes | None]]], merge: bool
) -> None:

    with pytest.MonkeyPatch.context() as monkeypatch:
        often, once = Shop(monkeypatch), Shop(monkeypatch)
        if merge:
            often.world.settings = msgspec.structs.replace(often.world.settings, min_merge_files=2)
        await often.create()
        await once.create()
        for keys in ({0: [b"first"]}, *rounds):
            for shop in (often, once):
                await shop.write(keys)
            often.world.clock.ms += HOUR_MS
            await often.count()
        await once.count()
        expected = {key for keys in rounds for each in keys.values() for key in each if key is not None} | {b"first"}
        assert await once.ndv() == await often.ndv() == len(expected)
        assert (await once.blobs())[0].data == (await often.blobs())[0].data


async def test_many_keys_are_estimated_within_a_few_percent_and_the_same_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    often, once = Shop(monkeypatch), Shop(monkeypatch)
    await often.create()
    await once.create()
    for part in range(4):
        keys: list[bytes | None] = [b"key-%d" % n for n in range(part * 5_000, part * 5_000 + 8_000)]
        for shop in (often, once):
            await shop.write({part % 2: keys})
        often.world.clock.ms += HOUR_MS
        await often.count()
    await once.count()
    assert abs(await once.ndv() - 23_000) < 0.06 * 23_000
    assert (await once.blobs())[0].data == (await often.blobs())[0].data
    assert (await often.view()).statistics.size_bytes < 40_000  # type: ignore[union-attr]


async def test_a_clock_that_was_set_back_does_not_stop_the_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(monkeypatch)
    await shop.create()
    await shop.write({0: [b"a"]})
    await shop.count()
    shop.world.clock.ms -= 100 * HOUR_MS
    await shop.write({0: [b"b"]})
    assert len(await shop.count()) == 1
    assert await shop.ndv() == 2
    await shop.write({0: [b"c"]})
    assert await shop.count() == []


async def test_when_half_of_the_rows_are_gone_it_is_counted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(monkeypatch)
    await shop.create()
    for number in range(4):
        await shop.write({0: [b"%d-%d" % (number, n) for n in range(10)]})
    await shop.count()
    assert await shop.ndv() == 40
    catalog, view = shop.world.catalog_on(shop.world.store), await shop.view()
    await catalog.commit(view, add=(), remove=list(view.files)[:1], frontier=view.frontier)
    assert await shop.count() == []
    shop.world.clock.ms += HOUR_MS
    await shop.count()
    assert await shop.ndv() == 30, "never more than there are rows"
    view = await shop.view()
    await catalog.commit(view, add=(), remove=list(view.files)[:2], frontier=view.frontier)
    shop.world.clock.ms += HOUR_MS
    (step,) = await shop.count()
    assert step.rows == 10
    known = known_sketch(await shop.view())
    assert known is not None
    assert (known.ndv, known.counted_rows) == (10, 10)


async def test_keys_that_are_no_text_are_not_counted_and_the_step_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(monkeypatch)
    await shop.create()
    await shop.write({0: [b"a", b"\xff\xfe"]})
    maintenance = shop.maintenance()
    (step,) = await maintenance.maintain(shop.topic)
    assert (step.action, step.about[:8]) == ("count keys", "not done")
    assert "UTF-8" in step.about
    assert await maintenance.maintain(shop.topic) == [], "it is said once"
    assert (await shop.view()).statistics is None
    assert await shop.files() == []


async def test_what_another_engine_counted_is_kept_but_for_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(monkeypatch)
    await shop.create()
    await shop.write({0: [b"a", b"b"]})
    theirs = [
        StoredBlob(Blob(THETA, (2,), 1, 1, {"ndv": "2"}), b"offsets", "zstd"),
        StoredBlob(Blob(THETA, (6,), 1, 1, {"ndv": "99"}), b"keys"),
    ]
    data, footer_bytes = write_puffin(theirs)
    path = f"{(await shop.view()).location}/_iceberg/spark.stats"
    foreign = StatisticsFile(path, len(data), footer_bytes, tuple(each.blob for each in theirs))
    await shop.world.objects.put(shop.key(foreign), [data])
    await shop.describe(foreign)
    await shop.count()
    found = await shop.blobs()
    assert found[0] == theirs[0]
    assert [each.blob.fields for each in found] == [(2,), (6,)]
    assert await shop.ndv() == 2


@pytest.mark.parametrize(
    "damage",
    ["gone", "cut", "flipped", "no magic", "outside", "too large", "too small", "no number", "ahead", "climbs out"],
)
async def test_damaged_statistics_are_counted_anew(monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    shop = Shop(monkeypatch)
    await shop.create()
    await shop.write({0: [b"a", b"b"]})
    await shop.count()
    found = (await shop.view()).statistics
    assert found is not None
    key, data = shop.key(found), bytearray((await shop.blobs())[0].data)
    whole = bytearray(await shop.world.objects.get(key))
    blob = found.blobs[0]
    match damage:
        case "gone":
            await shop.world.objects.delete([key])
        case "cut":
            await shop.world.objects.put(key, [whole[:-20]], overwrite=True)
        case "flipped":
            whole[4 + len(data) - 1] ^= 1
            await shop.world.objects.put(key, [whole], overwrite=True)
        case "no magic":
            await shop.world.objects.put(key, [bytes(len(whole))], overwrite=True)
        case "outside":
            await shop.describe(replace(found, path="elsewhere://bucket/x.stats"))
        case "climbs out":
            await shop.describe(replace(found, path=found.path.replace("/_iceberg/", "/../_iceberg/")))
        case "too large":
            await shop.describe(replace(found, size_bytes=MAX_FILE_BYTES + 1))
        case "too small":
            await shop.describe(replace(found, size_bytes=7))
        case "no number":
            wrong = replace(blob, properties={**blob.properties, "lakestream.counted-rows": "many"})
            await shop.describe(replace(found, blobs=(wrong,)))
        case "ahead":
            wrong = replace(blob, properties={**blob.properties, "lakestream.frontier": "900,900"})
            await shop.describe(replace(found, blobs=(wrong,)))
    await shop.write({0: [b"b", b"c"]})
    shop.world.clock.ms += HOUR_MS
    (step,) = await shop.count()
    assert step.rows == 4, "all of them"
    assert await shop.ndv() == 3


async def test_commits_in_between_do_not_spoil_a_count_and_newer_statistics_do(monkeypatch: pytest.MonkeyPatch) -> None:
    async def count_while(between: str) -> Shop:
        shop = Shop(monkeypatch)
        await shop.create()
        await shop.write({0: [b"a", b"b"]})

        async def meanwhile() -> None:
            if between == "commit":
                await shop.write({0: [b"c"]})
            else:
                await shop.count()

        fuse = Fuse()
        await shop.maintenance(fuse).maintain(shop.topic, dry_run=True)
        fuse = Fuse(fuse.steps + 1, meanwhile)
        await shop.maintenance(fuse).maintain(shop.topic)
        assert fuse.blown
        return shop

    shop = await count_while("commit")
    known = known_sketch(await shop.view())
    assert known is not None
    assert (known.ndv, known.frontier) == (2, (2, 0))
    shop.world.clock.ms += HOUR_MS
    await shop.count()
    assert await shop.ndv() == 3
    shop = await count_while("count")
    assert await shop.ndv() == 2
    assert len(await shop.files()) == 1, "the one that came too late is deleted"


@pytest.mark.parametrize("seed", range(12))
async def test_a_crash_anywhere_leaves_at_most_a_file(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    shop = Shop(monkeypatch)
    await shop.create()
    await shop.write({0: [b"a", b"b"]})
    if seed % 2:
        await shop.count()
        await shop.write({1: [b"b", b"c"]})
        shop.world.clock.ms += HOUR_MS
    fuse = Fuse(random.Random(seed).randint(1, 24))
    try:
        await shop.maintenance(fuse).maintain(shop.topic)
    except Crash:
        assert fuse.blown
    await shop.count()
    assert await shop.ndv() == (3 if seed % 2 else 2)
    assert len(await shop.files()) <= 3
