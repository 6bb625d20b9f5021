"""History is what was written, in offset order, from any offset, whatever the files look like."""

import asyncio
import io
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clients.records import parse
from support.properties import examples
from support.tables.foreign import Lake, expected, shuffled, table
from support.tables.views import view_of

from lakestream.errors import CorruptObject, ObjectMissing, StorageError
from lakestream.model import DataFile, PositionDeletes
from lakestream.objects import LocalObjects, MemoryObjects
from lakestream.runtime import system
from lakestream.table.parquet import files as parquet
from lakestream.table.parquet.arrow import arrow_schema
from lakestream.table.reading import segments
from lakestream.table.reading.history import HistoryReader
from lakestream.table.shape import RAW

quick = examples(40, derandomize=True)


@contextmanager
def in_pieces_of(rows: int) -> Iterator[None]:
    """Row groups are decoded so many rows at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "PIECE_BYTES", 1)
        patch.setattr(parquet, "_PIECE_ROWS", rows)
        yield


@pytest.mark.parametrize("piece_rows", [1, 5, 1024])
async def test_a_file_of_ours_comes_back_from_any_offset(piece_rows: int) -> None:
    lake = Lake()
    await lake.add(table(range(100, 160)), row_group_size=13)
    with in_pieces_of(piece_rows):
        assert await lake.replay(0, 200) == [expected(offset) for offset in range(100, 160)]
    for start in (0, 100, 101, 126, 127, 159):
        assert await lake.replay(start, 200) == [expected(offset) for offset in range(max(start, 100), 160)]
    assert await lake.read(160, 200) == ([], 200)
    assert (await lake.read(90, 130))[1] == 130


async def test_at_least_one_record_then_only_what_fits() -> None:
    lake = Lake()
    await lake.add(table(range(20), value_bytes=500))
    records, after = await lake.read(4, 20, max_bytes=1)
    assert ([record.offset for record in records], after) == ([4], 5)
    records, after = await lake.read(4, 20, max_bytes=1400)
    assert ([record.offset for record in records], after) == ([4, 5], 6)


async def test_a_read_goes_on_into_the_next_file_while_there_is_room() -> None:
    lake = Lake()
    for start in (0, 5, 12):
        await lake.add(table(range(start, start + 5)))
    records, after = await lake.read(2, 20, max_bytes=1 << 20)
    assert [record.offset for record in records] == [2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 14, 15, 16]
    assert after == 20


@quick
@given(
    st.integers(0, 10_000),
    st.integers(1, 3),
    st.integers(1, 5),
    st.booleans(),
    st.sampled_from([1 << 20, 3000]),
    st.sampled_from([1, 2, 7, 1024]),
)
async def test_any_layout(
    seed: int, partitions: int, file_count: int, bounds: bool, cache_bytes: int, piece_rows: int
) -> None:
    """Rows dealt out at random: overlapping files, several partitions in one, gaps, deletes, odd encodings; row groups
    decoded in pieces of any size."""
    rng = random.Random(seed)
    lake = Lake(cache_bytes=cache_bytes)
    piles: list[list[pa.Table]] = [[] for _ in range(file_count)]
    model: dict[int, set[int]] = {}
    for partition in range(partitions):
        offsets = sorted(rng.sample(range(60), rng.randrange(1, 25)))
        model[partition] = set(offsets)
        deal = rng.choice(["runs", "scattered"])
        for index, offset in enumerate(offsets):
            pile = index * file_count // len(offsets) if deal == "runs" else rng.randrange(file_count)
            piles[pile].append(table([offset], partition=partition))
    for pile in filter(None, piles):
        rows = pa.concat_tables(pile)
        rows = (
            shuffled(rows, seed)
            if rng.random() < 0.5
            else rows.sort_by([("_stream_partition", "ascending"), ("_offset", "ascending")])
        )
        file = await lake.add(
            rows,
            bounds=bounds,
            row_group_size=rng.choice([1, 3, 100]),
            use_dictionary=rng.random() < 0.5,
            write_statistics=rng.random() < 0.7,
            compression=rng.choice(["none", "snappy", "zstd"]),
        )
        if rng.random() < 0.3:
            gone = rng.randrange(rows.num_rows)
            await lake.delete((file.path, gone), ("file:///elsewhere", 0))
            model[rows.column("_stream_partition")[gone].as_py()].discard(rows.column("_offset")[gone].as_py())
    with in_pieces_of(piece_rows):
        for partition, offsets in model.items():
            for start, end in ((0, 60), (rng.randrange(60), rng.randrange(1, 61))):
                want = [expected(offset, partition) for offset in sorted(offsets) if start <= offset < end]
                assert await lake.replay(start, end, partition=partition, max_bytes=rng.choice([1, 200, 5000])) == want


@examples(25, derandomize=True)
@given(
    seed=st.integers(0, 100_000),
    file_count=st.integers(3, 9),
    stride=st.sampled_from([1, 3, 40]),
    glance_rows=st.sampled_from([1, 2, 5, 1024]),
    glance_bytes=st.sampled_from([1, 3000, 1 << 22]),
    cache_bytes=st.sampled_from([1 << 22, 20_000, 2_000]),
)
async def test_sorted_files_with_deletes_from_any_offset(
    seed: int, file_count: int, stride: int, glance_rows: int, glance_bytes: int, cache_bytes: int
) -> None:
    """What an outside sort by another column leaves, sparse or dense, with rows deleted on top."""
    rng = random.Random(seed)
    lake = Lake(cache_bytes=cache_bytes)
    offsets = [stride * number + rng.randrange(stride) for number in range(rng.randrange(10, 70))]
    end = offsets[-1] + 1 + rng.randrange(5)
    rows = shuffled(table(offsets), seed)
    left = set(offsets)
    cuts = sorted(rng.sample(range(1, len(offsets)), file_count - 1))
    for start, stop in pairwise([0, *cuts, len(offsets)]):
        part = rows.slice(start, stop - start)
        file = await lake.add(part, row_group_size=rng.choice([2, 5, 100]), compression=rng.choice(["snappy", "zstd"]))
        gone = [row for row in range(part.num_rows) if rng.random() < 0.2]
        if gone:
            await lake.delete(*((file.path, row) for row in gone))
            left -= {part.column("_offset")[row].as_py() for row in gone}
    want = [expected(offset) for offset in sorted(left)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "_GLANCE_ROWS", glance_rows)
        patch.setattr(segments, "_GLANCE_BYTES", glance_bytes)
        for start in (0, rng.randrange(end), rng.randrange(end)):
            found = await lake.replay(start, end, max_bytes=rng.choice([1, 150, 900, 1 << 20]))
            assert found == [record for record in want if record.offset >= start]
    fresh = Lake(store=lake.store, files=lake.files, deletes=lake.deletes, cache_bytes=cache_bytes)
    start = rng.randrange(end)
    first, after = await fresh.read(start, end)
    at = [record for record in want if start <= record.offset < after]
    assert first == at, "the first answer of all leaves nothing out that lies before its end"
    assert after > start


def _large(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_binary(kind):
        kind = pa.large_binary()
    elif pa.types.is_string(kind):
        kind = pa.large_string()
    elif pa.types.is_list(kind):
        kind = pa.large_list(_large(kind.value_field))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_large(child) for child in kind])
    return pa.field(field.name, kind, field.nullable)


def _milliseconds(rows: pa.Table) -> pa.Table:
    position = rows.schema.get_field_index("_timestamp")
    return rows.set_column(position, "_timestamp", rows.column("_timestamp").cast(pa.timestamp("ms", tz="UTC")))


@pytest.mark.parametrize("piece_rows", [7, 1024])
@pytest.mark.parametrize("shape", ["large", "dictionary", "milliseconds", "reordered", "extra column", "v2 pages"])
async def test_files_of_other_engines(shape: str, piece_rows: int) -> None:
    lake = Lake()
    rows = table(range(40))
    options: dict[str, object] = {"store_schema": True}
    if shape == "large":
        rows = rows.cast(pa.schema([_large(field) for field in rows.schema]))
    elif shape == "dictionary":
        rows = rows.set_column(5, "_key", rows.column("_key").dictionary_encode())
    elif shape == "milliseconds":
        rows = _milliseconds(rows)
    elif shape == "reordered":
        rows = rows.select(list(reversed(rows.column_names)))
    elif shape == "extra column":
        rows = rows.add_column(0, "amount", pa.array(range(40))).drop_columns(["_schema_id", "_headers_raw"])
    else:
        options |= {
            "data_page_version": "2.0",
            "column_encoding": {"_value": "DELTA_LENGTH_BYTE_ARRAY"},
            "use_dictionary": False,
        }
    await lake.add(rows, row_group_size=9, **options)
    with in_pieces_of(piece_rows):
        assert await lake.replay(0, 40) == [expected(offset) for offset in range(40)]


async def test_a_row_that_stands_twice_is_an_alarm() -> None:
    lake = Lake()
    await lake.add(table(range(10)))
    await lake.add(table([4]))
    with pytest.raises(CorruptObject, match="offset 4 stands"):
        await lake.read(0, 10)
    for piece_rows in (1, 2, 1024):
        one = Lake()
        await one.add(table([1, 2, 2, 3]))
        with in_pieces_of(piece_rows), pytest.raises(CorruptObject, match="offset 2 stands"):
            await one.read(0, 10)


async def test_a_value_that_changed_is_an_alarm() -> None:
    lake = Lake()
    rows = table(range(5))
    values = rows.column("_value").to_pylist()
    values[2] = b"not what was sent"
    await lake.add(rows.set_column(8, arrow_schema(RAW).field("_value"), pa.array(values, pa.binary())))
    assert [record.offset for record in (await lake.read(0, 2))[0]] == [0, 1]
    with pytest.raises(CorruptObject, match="offset 2 cannot be restored"):
        await lake.read(2, 5)


async def test_missing_damaged_and_foreign_files() -> None:
    lake = Lake()
    file = await lake.add(table(range(5)))
    lake.files = [replace(file, path=f"{lake.store.url}/tables/t/data/gone.parquet")]
    with pytest.raises(ObjectMissing):
        await lake.read(0, 5)
    for number, data in enumerate(
        (b"", b"PAR1", b"x" * 100, b"\xff\xff\x00\x00PAR1", b"junk" * 30 + b"\x20\x00\x00\x00PAR1")
    ):
        await lake.store.put(f"bad{number}", [data])
        lake.files = [replace(file, path=f"{lake.store.url}/bad{number}")]
        with pytest.raises(CorruptObject):
            await lake.read(0, 5)
    lake.files = [replace(file, path="s3://elsewhere/x.parquet")]
    with pytest.raises(StorageError, match="outside"):
        await lake.read(0, 5)


async def test_damaged_pages_are_an_alarm() -> None:
    lake = Lake()
    file = await lake.add(table(range(50), value_bytes=200), compression="zstd")
    data = bytearray(await lake.store.get("tables/t/data/0.parquet"))
    for position in range(50, len(data) // 2, 7):
        data[position] ^= 0x55
    await lake.store.put("tables/t/data/0.parquet", [bytes(data)], overwrite=True)
    lake.files = [file]
    with pytest.raises(CorruptObject):
        await lake.replay(0, 50)


class Counting(MemoryObjects):
    """Counts what is read."""

    def __init__(self) -> None:
        super().__init__(system().clock)
        self.ranges: list[tuple[str, int, int]] = []
        self.tails = 0

    async def get_range(self, key: str, start: int, length: int, *, once: bool = False) -> bytes:
        self.ranges.append((key, start, length))
        return await super().get_range(key, start, length)

    async def get_tail(self, key: str, length: int) -> bytes:
        self.tails += 1
        return await super().get_tail(key, length)


async def test_a_replay_reads_every_byte_once() -> None:
    store = Counting()
    lake = Lake(store=store, cache_bytes=1 << 22)
    for start in range(0, 120, 40):
        await lake.add(table(range(start, start + 40)), row_group_size=20)
    assert len(await lake.replay(0, 120, max_bytes=150)) == 120
    assert store.tails == 3
    assert len(store.ranges) == 6
    assert len(set(store.ranges)) == 6


async def test_only_row_groups_that_match_are_read() -> None:
    store = Counting()
    lake = Lake(store=store)
    rows = pa.concat_tables([table(range(30), partition=partition) for partition in range(3)])
    await lake.add(rows, row_group_size=10)
    assert [record.offset for record in (await lake.read(12, 18, partition=1))[0]] == list(range(12, 18))
    assert len(store.ranges) == 1


async def test_a_first_look_into_sorted_files_reads_few_of_them() -> None:
    """Rows dealt out to 20 files: the first answer opens those of its few records, the next one all."""
    store = Counting()
    lake = Lake(store=store)
    for first in range(20):
        await lake.add(table(range(first, 400, 20)))
    records, after = await lake.read(100, 400, max_bytes=1 << 20)
    assert ([record.offset for record in records], after) == ([100, 101], 102)
    assert len(store.ranges) <= 20 + len(records), "places of all, records of few"
    records, after = await lake.read(after, 400, max_bytes=1 << 20)
    assert ([record.offset for record in records], after) == (list(range(102, 400)), 400)
    records, _ = await lake.read(7, 400, max_bytes=1 << 20)
    assert len(records) == 393, "what was decoded is at hand"


async def test_concurrent_readers_share_one_decode() -> None:
    store = Counting()
    lake = Lake(store=store)
    await lake.add(table(range(30)))
    reads = (
        lake.reader.read(view_of(lake.files), partition=0, offset=offset, end_offset=30, max_bytes=400)
        for offset in range(20)
    )
    assert min([len(parse(history.parts)) for history in await asyncio.gather(*reads)]) > 0
    assert (store.tails, len(store.ranges)) == (1, 1)


async def test_a_cancelled_reader_leaves_the_others_alone() -> None:
    lake = Lake()
    await lake.add(table(range(30)))

    def read() -> asyncio.Task[object]:
        return asyncio.ensure_future(
            lake.reader.read(view_of(lake.files), partition=0, offset=0, end_offset=30, max_bytes=1 << 20)
        )

    first, second = read(), read()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    history = await second
    with pytest.raises(asyncio.CancelledError):
        await first
    assert len(parse(history.parts)) == 30


async def test_deleted_rows_that_come_back_are_seen_again() -> None:
    """A rollback brings rows back; what was learned with the deletes must not hide them."""
    lake = Lake()
    first = await lake.add(table([0, 2, 4]))
    await lake.add(table([1, 3, 5]))
    await lake.delete((first.path, 2))
    assert [record.offset for record in await lake.replay(0, 6)] == [0, 1, 2, 3, 5]
    lake.deletes = []
    assert [record.offset for record in await lake.replay(0, 6)] == [0, 1, 2, 3, 4, 5]


async def test_paths_are_one_file_however_they_are_spelled(tmp_path: Path) -> None:
    store = LocalObjects(str(tmp_path))
    sink = io.BytesIO()
    pq.write_table(table(range(5)), sink, store_schema=False)
    await store.put("a.parquet", [sink.getvalue()])
    reader = HistoryReader(store)
    file = DataFile(f"file:{tmp_path}/a.parquet", 5, 0, 0, 0, 0, 4, None)
    gone = io.BytesIO()
    pq.write_table(pa.table({"file_path": [f"file://{tmp_path}/a.parquet"], "pos": [1]}), gone)
    await store.put("d.parquet", [gone.getvalue()])
    deletes = [PositionDeletes(f"file://{tmp_path}/d.parquet")]
    history = await reader.read(view_of([file], deletes), partition=0, offset=0, end_offset=5, max_bytes=9999)
    assert [record.offset for record in parse(history.parts)] == [0, 2, 3, 4]


async def test_no_files() -> None:
    lake = Lake()
    assert await lake.read(0, 10) == ([], 10)
    assert await lake.reader.newest(view_of([]), partition=0, end_offset=5) is None
