"""Folds: the newest record of each key stays, whatever else happens, and tombstones go when nothing is left to hide."""

import asyncio
import io
import random
from collections.abc import Mapping

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from support.clients.batches import batch, keyed
from support.clients.wire import Client, span, with_door
from support.fakes.streams import FakeStreams
from support.properties import examples
from support.worlds import memory as lakes
from support.worlds.memory import SETTINGS, Crash, Fuse, MemoryWorld, Producer

from lakestream.frontier.collecting.orphans import Orphans
from lakestream.frontier.upkeep.compaction import folded_ms
from lakestream.frontier.upkeep.maintenance import Maintenance, Step
from lakestream.frontier.upkeep.rewrite import put_in_place
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.model import StreamPartition
from lakestream.table.rewriting.folding import Newest, keeper
from lakestream.table.rewriting.rewriter import Rewriter
from lakestream.table.shape import RAW
from lakestream.table.view import View

FEW = msgspec.structs.replace(SETTINGS, min_merge_files=2)
HOUR = 3_600_000
Pair = tuple[bytes | None, bytes | None]
"""Key and value."""


class Shop:
    """A lake with one compacted topic, and what was written to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch | None = None, world: MemoryWorld | None = None) -> None:
        self.world = world or MemoryWorld(settings=FEW)
        self.producer = Producer(self.world, "p")
        self.written: dict[tuple[int, int], Pair] = {}
        self._ends: dict[int, int] = {}
        if monkeypatch is not None:
            monkeypatch.setattr(lakes, "batch", keyed)

    async def create(self, partitions: int, **configs: str) -> Topic:
        await self.world.create("t", partitions)
        chosen = {"cleanup.policy": "compact"} | {name.replace("_", "."): value for name, value in configs.items()}
        self.topic = await Topics(self.world.store, self.world.runtime).alter("t", lambda _: chosen)
        return self.topic

    async def write(self, pairs: Mapping[int, list[Pair]], *, drain: bool = True) -> None:
        await self.producer.append(
            {StreamPartition(self.topic.topic_id, index): sent for index, sent in pairs.items()}  # type: ignore[misc]
        )
        for index, sent in pairs.items():
            for pair in sent:
                offset = self._ends.get(index, 0)
                self.written[index, offset] = pair
                self._ends[index] = offset + 1
        if drain:
            await self.world.drain()

    def maintenance(self, fuse: Fuse | None = None) -> Maintenance:
        lake = self.world.pipeline(fuse)[0]._lake
        return Maintenance(lake, Topics(lake.store, lake.runtime), name="m", respect_leases=False)

    async def fold(self) -> list[Step]:
        done = await self.maintenance().run()
        assert done.failures == ()
        return [step for step in done.steps if step.action == "fold keys"]

    async def view(self) -> View:
        return await self.world.catalog_on(self.world.store).load(self.topic.topic_id)

    async def rows(self) -> dict[tuple[int, int], Pair]:
        found: dict[tuple[int, int], Pair] = {}
        for file in (await self.view()).files:
            data = await self.world.objects.get(file.path.removeprefix(self.world.objects.url + "/"))
            columns = ["_stream_partition", "_offset", "_key", "_value"]
            for row in pq.ParquetFile(io.BytesIO(data)).read(columns).to_pylist():
                place = (row["_stream_partition"], row["_offset"])
                assert place not in found, f"{place} is there twice"
                found[place] = (row["_key"], row["_value"])
        return found

    def newest(self) -> dict[tuple[int, int], Pair]:
        """What must be there whatever was folded: the newest of each key, and records without one."""
        last: dict[tuple[int, bytes], tuple[int, int]] = {}
        for (index, offset), (key, _) in sorted(self.written.items()):
            if key is not None:
                last[index, key] = (index, offset)
        wanted = set(last.values())
        return {at: pair for at, pair in self.written.items() if pair[0] is None or at in wanted}

    async def check(self) -> dict[tuple[int, int], Pair]:
        """Every row is one that was written; no newest one is missing, but for tombstones."""
        rows = await self.rows()
        assert rows.items() <= self.written.items()
        missing = {at: pair for at, pair in self.newest().items() if at not in rows}
        assert all(value is None for _, value in missing.values()), missing
        for at, (key, _) in missing.items():
            older = [place for place, pair in rows.items() if place[0] == at[0] and pair[0] == key]
            assert older == [], f"{key!r} is deleted, yet {older} came back"
        return rows


async def test_a_fold_leaves_the_newest_of_each_key_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(monkeypatch)
    await shop.create(2)
    await shop.write({0: [(b"a", b"1"), (b"b", b"1"), (None, b"x"), (b"a", b"2")], 1: [(b"a", b"other")]})
    await shop.write({0: [(b"b", b"2"), (b"", b"empty")]})
    steps = await shop.fold()
    assert [(step.files, step.rows, step.about) for step in steps] == [(2, 7, "of 7 new rows, 2 rows went")]
    assert await shop.rows() == shop.newest()
    assert await shop.fold() == [], "nothing is dirty any more"
    await shop.write({0: [(b"a", b"3")]})
    assert await shop.fold() == [], "too little is dirty"
    assert (0, 3) in await shop.rows()
    await shop.write({0: [(b"c", b"%d" % n) for n in range(6)]})
    assert len(await shop.fold()) == 1
    assert await shop.rows() == shop.newest()
    assert (await shop.view()).frontier == (13, 1)
    assert all(folded_ms(file) is not None for file in (await shop.view()).files)


async def test_a_tombstone_outlives_what_it_hides_for_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(monkeypatch)
    await shop.create(1, delete_retention_ms=str(HOUR), min_cleanable_dirty_ratio="0")
    await shop.write({0: [(b"a", b"1"), (b"b", b"1"), (b"a", None)]})
    await shop.fold()
    assert await shop.rows() == {(0, 1): (b"b", b"1"), (0, 2): (b"a", None)}
    shop.world.clock.ms += HOUR // 2
    await shop.write({0: [(b"c", b"1")]})
    await shop.fold()
    assert (0, 2) in await shop.rows()
    for _ in range(9):
        # Folds follow each other much faster than tombstones grow old.
        shop.world.clock.ms += HOUR // 12
        await shop.write({0: [(b"c", b"2")]})
        await shop.fold()
    assert set((await shop.check()).values()) == {(b"b", b"1"), (b"c", b"2")}


async def test_what_is_not_compacted_is_not_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(monkeypatch)
    await shop.create(1, cleanup_policy="delete")
    await shop.write({0: [(b"a", b"1"), (b"a", b"2")]})
    assert await shop.fold() == []
    assert await shop.rows() == shop.written


async def test_compact_and_delete_do_both(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(monkeypatch)
    await shop.create(1, cleanup_policy="compact,delete", retention_ms="1000")
    await shop.write({0: [(b"a", b"1"), (b"a", b"2")]})
    shop.world.clock.ms += HOUR
    done = await shop.maintenance().run()
    assert [step.action for step in done.steps] == ["move log start", "fold keys"]
    assert await shop.rows() == {(0, 1): (b"a", b"2")}


async def test_more_than_one_fold_takes_is_folded_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakestream.frontier.upkeep.compaction.MAX_FOLD_ROWS", 8)
    shop = Shop(monkeypatch, MemoryWorld(settings=msgspec.structs.replace(FEW, min_merge_files=100)))
    await shop.create(1, min_cleanable_dirty_ratio="0")
    for number in range(6):
        await shop.write({0: [(b"k%d" % n, b"%d" % number) for n in range(5)]})
    for _ in range(8):
        await shop.fold()
    assert await shop.rows() == shop.newest()


async def test_rows_rewritten_by_an_engine_below_more_keys_than_a_fold_learns_are_folded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lakestream.frontier.upkeep.compaction.MAX_KEY_ROWS", 3)
    shop = Shop(monkeypatch, MemoryWorld(settings=msgspec.structs.replace(FEW, min_merge_files=100)))
    await shop.create(1, min_cleanable_dirty_ratio="0")
    for keys in (range(5), range(5, 15)):
        await shop.write({0: [(b"k%d" % key, b"1") for key in keys]})
        await shop.fold()
    view = await shop.view()
    below = [file for file in view.files if file.offset_min == 0]
    lake = shop.world.pipeline(None)[0]._lake
    rewritten = await Rewriter(lake.objects, max_bytes=1 << 20).rewrite(below, [], shape=RAW, own_file_bytes=1 << 20)
    assert await put_in_place(lake, view, below, rewritten) is not None
    assert None in map(folded_ms, (await shop.view()).files)
    assert await shop.fold() != []
    await shop.write({0: [(b"k1", b"2"), (b"k7", b"2")]})
    await shop.fold()
    assert await shop.rows() == shop.newest()
    assert None not in map(folded_ms, (await shop.view()).files)


async def test_a_file_too_large_to_hold_is_folded_a_row_group_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    tight = msgspec.structs.replace(FEW, max_rewrite_bytes=1)
    shop = Shop(monkeypatch, MemoryWorld(settings=tight))
    await shop.create(1)
    await shop.write({0: [(b"k%d" % (n % 5), b"%d" % n) for n in range(40)]})
    await shop.write({0: [(b"k1", b"last")]})
    await shop.fold()
    assert await shop.rows() == shop.newest()


WRITES = st.lists(
    st.dictionaries(
        st.integers(0, 1),
        st.lists(
            st.tuples(st.sampled_from([b"a", b"b", b"c", None]), st.sampled_from([b"v", None])), min_size=1, max_size=6
        ),
        min_size=1,
    ),
    min_size=2,
    max_size=5,
)


@examples(40)
@given(WRITES, st.integers(0, 2**32), st.integers(1, 80), st.sampled_from(["0", "0.5"]))
async def test_beside_pipelines_and_other_folds_no_newest_record_goes(
    writes: list[dict[int, list[Pair]]], seed: int, crash_at: int, ratio: str
) -> None:

    with pytest.MonkeyPatch.context() as monkeypatch:
        dice = random.Random(seed)
        shop = Shop(monkeypatch)
        await shop.create(2, min_cleanable_dirty_ratio=ratio, delete_retention_ms=str(HOUR))
        for number, pairs in enumerate(writes):
            await shop.write(pairs, drain=number < len(writes) - 1)
            if dice.random() < 0.3:
                await shop.fold()
                shop.world.clock.ms += dice.choice([0, 2 * HOUR])
        fuses = [Fuse(), Fuse(), Fuse(), Fuse(crash_at), Fuse()]
        for fuse in fuses:
            fuse.step = _slow(fuse, dice, shop.world)  # type: ignore[method-assign]
        lake = shop.world.pipeline(fuses[4])[0]._lake
        work = [
            shop.world.pipeline(fuses[0])[0].tick(),
            shop.maintenance(fuses[1]).run(),
            shop.maintenance(fuses[2]).run(),
            shop.maintenance(fuses[3]).run(),
            Orphans(lake, Topics(lake.store, lake.runtime)).collect(),
        ]
        results = await asyncio.gather(*work, return_exceptions=True)
        assert all(not isinstance(result, BaseException) or isinstance(result, Crash) for result in results), results
        await shop.world.drain()
        await shop.check()
        for _ in range(3):
            shop.world.clock.ms += 2 * HOUR
            # More new rows than can be left of the others, so that a fold is due at either ratio.
            await shop.write({0: [(b"z", b"%d" % n) for n in range(64)]})
            assert await shop.fold() != []
            await shop.check()
        rows = await shop.rows()
        left = {pair for pair in rows.values() if pair[0] is not None and pair[1] is None}
        assert not left, "tombstones go in the end"


def _slow(fuse: Fuse, dice: random.Random, world: MemoryWorld) -> object:
    step = Fuse.step

    async def slow(name: str) -> None:
        world.clock.ms += dice.randint(0, 400)
        for _ in range(dice.randint(0, 3)):
            await asyncio.sleep(0)
        await step(fuse, name)

    return slow


ROWS = st.lists(st.tuples(st.integers(0, 2), st.none() | st.binary(max_size=2), st.booleans()), max_size=30)


@given(ROWS, st.integers(0, 30), st.integers(0, 30))
def test_the_newest_of_each_key_by_the_byte(rows: list[tuple[int, bytes | None, bool]], cut: int, below: int) -> None:
    table = pa.table(
        {
            "_stream_partition": pa.array([row[0] for row in rows], pa.int32()),
            "_offset": pa.array(range(len(rows)), pa.int64()),
            "_key": pa.array([row[1] for row in rows], pa.binary()),
            "_value": pa.array([b"v" if row[2] else None for row in rows], pa.binary()),
            "_kind": pa.array([0 if row[2] else 1 for row in rows], pa.int32()),
        }
    )
    newest = Newest()
    newest.add(table.slice(cut))
    newest.add(table.slice(0, cut))
    some = Newest()
    some.add(table.slice(0, cut))
    some.add_known(table.slice(cut))
    last = {(row[0], row[1]): offset for offset, row in enumerate(rows)}
    first = {(row[0], row[1]) for row in rows[:cut]}
    assert some.keep(table).tolist() == [
        row[1] is None or (row[0], row[1]) not in first or last[row[0], row[1]] == offset
        for offset, row in enumerate(rows)
    ]
    expected = [row[1] is None or last[row[0], row[1]] == offset for offset, row in enumerate(rows)]
    assert keeper(newest, {})(table).tolist() == expected
    assert keeper(newest, {0: below})(table).tolist() == [
        kept and not (row[0] == 0 and offset < below and row[1] is not None and not row[2])
        for offset, (kept, row) in enumerate(zip(expected, rows, strict=True))
    ]


def test_a_compacted_topic_takes_no_record_without_a_key() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("kept", 1, {"cleanup.policy": "compact"})
        await streams.topics.create("t", 1, {})

        async def produce(topic: str, records: bytes) -> ErrorCode:
            data = [{"index": 0, "records": records}]
            answer = await client.ask(
                0,
                9,
                {
                    "transactional_id": None,
                    "acks": -1,
                    "timeout": span(5000),
                    "topic_data": [{"name": topic, "partition_data": data}],
                },
            )
            code: ErrorCode = answer.responses[0].partition_responses[0].error_code
            return code

        assert await produce("t", batch(b"v")) is ErrorCode.none
        assert await produce("kept", batch(b"v", key=b"")) is ErrorCode.none
        assert await produce("kept", batch(b"v")) is ErrorCode.invalid_record
        assert await produce("kept", keyed((b"k", b"v"), (None, b"v"))) is ErrorCode.invalid_record
        assert await produce("kept", batch(b"v" * 100, compression=1)) is ErrorCode.invalid_record
        assert await produce("kept", b"x" * 100) is ErrorCode.corrupt_message

    with_door(test)
