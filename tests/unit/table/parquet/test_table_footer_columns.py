"""What the footer of a sealed file tells of every row is not read, and the records are the same. Only sealed files are
believed."""

import io
import random
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st
from support.clients.twin import Row, batch
from support.properties import examples
from support.tables.foreign import BASE_MS, Lake, expected, shuffled, table

from lakestream.errors import CorruptObject
from lakestream.model import DataFile
from lakestream.objects import MemoryObjects
from lakestream.records import Arena, Run, decode
from lakestream.runtime import system
from lakestream.table.parquet import files as parquet
from lakestream.table.parquet.arrow import to_arrow
from lakestream.table.parquet.seal import chunk_range, sealed_name
from lakestream.table.parquet.writer import StreamFileWriter
from lakestream.table.rewriting.rewriter import Rewriter
from lakestream.table.shape import RAW, TableShape

Placed = tuple[int, Row]
"""A record and its partition."""
OLDER = TableShape(
    columns=tuple(msgspec.structs.replace(column, has_statistics=column.is_full) for column in RAW.columns)
)
TOLD = ("_stream_partition", "_offset", "_timestamp_type")


def rows_of(placed: Sequence[Placed]) -> pa.Table:
    runs = [Run(partition, row.offset, batch([row])) for partition, row in placed]
    (columns,) = decode(runs, Arena(1 << 20))
    return to_arrow(columns, RAW)


async def add_sealed(lake: Lake, groups: Sequence[pa.Table], shape: TableShape = RAW) -> DataFile:
    """A file of ours, a row group of each table."""
    sink = io.BytesIO()
    made = StreamFileWriter(sink, shape)
    for rows in groups:
        made.write_rows(rows)
    stats = made.close()
    key = sealed_name(f"tables/t/data/{len(lake.files)}.parquet", stats.footer_checksum)
    await lake.store.put(key, [sink.getvalue()])
    written = stats.written(f"{lake.store.url}/{key}", 0)
    file = DataFile(
        written.path,
        written.record_count,
        written.size_bytes,
        written.partition_min,
        written.partition_max,
        written.offset_min,
        written.offset_max,
        written.timestamp_max_ms,
    )
    lake.files.append(file)
    return file


async def served(lake: Lake, partition: int, start: int, end: int, max_bytes: int) -> list[Row]:
    """All that a consumer sees, batch by batch, with the kind of its times."""
    found = []
    while start < end:
        history = await lake.reader.read(
            lake.view,
            partition=partition,
            offset=start,
            end_offset=end,
            max_bytes=max_bytes,
        )
        batches = MemoryRecords(b"".join(history.parts))
        while batches.has_next():
            one = batches.next_batch()
            assert one is not None
            assert one.validate_crc()
            found += [Row(r.offset, r.timestamp, r.key, r.value, timestamp_type=r.timestamp_type) for r in one]
        assert history.next_offset > start
        start = history.next_offset
    return found


def random_group(rng: random.Random, partition: int, offset: int) -> list[Placed]:
    """Rows of a row group that follows (partition, offset), in order: with or without gaps, of one partition or more,
    with the producer's or the broker's times or both."""
    shape = rng.choice(["dense", "dense", "gappy", "partitions"])
    times = rng.choice([(0,), (0,), (1,), (0, 1)])
    found = []
    for _ in range(rng.randrange(1, 20)):
        row = Row(offset, BASE_MS + rng.randrange(1000), rng.choice([None, b"k%d" % offset]), b"v%d" % offset)
        found.append((partition, replace(row, timestamp_type=rng.choice(times))))
        if shape == "partitions" and rng.random() < 0.3:
            partition, offset = partition + rng.randrange(1, 3), rng.randrange(30)
        elif shape == "gappy":
            offset += rng.randrange(1, 4)
        else:
            offset += 1
    return found


@examples(80, derandomize=True)
@given(
    seed=st.integers(0, 1_000_000),
    group_count=st.integers(1, 5),
    piece_rows=st.sampled_from([1, 3, 1024]),
    older=st.booleans(),
    cache_bytes=st.sampled_from([1 << 20, 3000]),
)
async def test_what_was_written_is_served(
    seed: int, group_count: int, piece_rows: int, older: bool, cache_bytes: int
) -> None:
    """From any offset, less the rows that are deleted. Older files do not have the bounds of the kinds of times."""
    rng = random.Random(seed)
    lake = Lake(cache_bytes=cache_bytes)
    groups: list[list[Placed]] = []
    partition, offset = rng.randrange(3), rng.randrange(50)
    for _ in range(group_count):
        groups.append(random_group(rng, partition, offset))
        partition, offset = groups[-1][-1][0] + (rng.random() < 0.3), groups[-1][-1][1].offset + rng.randrange(1, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "PIECE_BYTES", 1)
        patch.setattr(parquet, "_PIECE_ROWS", piece_rows)
        file = await add_sealed(lake, [rows_of(group) for group in groups], OLDER if older else RAW)
        rows = [placed for group in groups for placed in group]
        gone = set(rng.sample(range(len(rows)), rng.choice([0, 0, 1, len(rows) // 3])))
        if gone:
            await lake.delete(*((file.path, position) for position in gone))
        left = [placed for position, placed in enumerate(rows) if position not in gone]
        end = max(row.offset for _, row in rows) + 1
        for partition in {partition for partition, _ in rows}:
            for start in (0, rng.randrange(end)):
                want = [row for number, row in left if number == partition and row.offset >= start]
                assert await served(lake, partition, start, end, rng.choice([1, 200, 1 << 20])) == want
            own = [row for number, row in left if number == partition]
            newest = await lake.reader.newest(lake.view, partition=partition, end_offset=end)
            best = max(own, key=lambda row: (row.timestamp_ms, -row.offset), default=None)
            assert newest == (best and (best.offset, best.timestamp_ms))
    rewriter = Rewriter(lake.store, max_bytes=1 << 20)
    merged = await rewriter.rewrite(lake.files, lake.deletes, shape=RAW, own_file_bytes=1 << 20)
    again = [pq.read_table(io.BytesIO(made.data)) for made in merged]
    assert sum(part.num_rows for part in again) == len(left)
    if left:
        kept = np.array([position for position in range(len(rows)) if position not in gone])
        whole = pa.concat_tables([rows_of(group) for group in groups]).take(pa.array(kept))
        order = [("_stream_partition", "ascending"), ("_offset", "ascending")]
        assert pa.concat_tables(again).sort_by(order).equals(whole.sort_by(order))


async def damaged(lake: Lake, file: DataFile, column: str) -> Lake:
    """The same table, and a reader that knows nothing yet; a bit of the first row group's column is flipped."""
    key = file.path.removeprefix(f"{lake.store.url}/")
    data = bytearray(await lake.store.get(key))
    group = pq.read_metadata(io.BytesIO(data)).row_group(0)
    [chunk] = [c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == column]
    start, end = chunk_range(chunk)
    data[(start + end) // 2] ^= 1
    other = Lake(files=lake.files)
    await other.store.put(key, [bytes(data)])
    return other


@pytest.mark.parametrize("column", [*TOLD, "_timestamp", "_key", "_value", "_crc"])
async def test_columns_that_are_told_are_not_read(column: str) -> None:
    """All others are held against their checksums, as ever."""
    lake = Lake()
    file = await add_sealed(lake, [table(range(40, 80))])
    lake = await damaged(lake, file, column)
    if column in TOLD:
        assert await lake.replay(0, 80) == [expected(offset) for offset in range(40, 80)]
    else:
        with pytest.raises(CorruptObject, match=f"column {column} does not hold"):
            await lake.replay(0, 80)


@pytest.mark.parametrize("column", ["_offset", "_timestamp_type"])
async def test_columns_that_differ_from_row_to_row_are_read(column: str) -> None:
    lake = Lake()
    rows = [(0, Row(offset, BASE_MS, None, b"v", timestamp_type=offset % 2)) for offset in (0, 1, 2, 4)]
    file = await add_sealed(lake, [rows_of(rows)])
    with pytest.raises(CorruptObject, match=f"column {column} does not hold"):
        await (await damaged(lake, file, column)).read(0, 5)


class Counting(MemoryObjects):
    def __init__(self) -> None:
        super().__init__(system().clock)
        self.read: list[str] = []

    async def get_range(self, key: str, start: int, length: int, *, once: bool = False) -> bytes:
        self.read.append(key)
        return await super().get_range(key, start, length)


async def test_places_that_are_told_cost_no_read() -> None:
    """By their bounds both files may have offset 5: where rows are has to be known first."""
    store = Counting()
    lake = Lake(store=store)
    dense = await add_sealed(lake, [table(range(3, 9), partition=1)])
    mixed = pa.concat_tables([table(range(3)), table([9], partition=1), table(range(20), partition=2)])
    other = await add_sealed(lake, [mixed])
    assert [record.offset for record in (await lake.read(5, 9, partition=1))[0]] == [5, 6, 7, 8]
    read = [key for key in store.read if not key.endswith("deletes.parquet")]
    assert [dense.path.endswith(key) for key in read] == [False, True], "places of one, records of the other"
    assert other.path.endswith(read[0])


@pytest.mark.parametrize("seed", range(5))
async def test_order_is_not_taken_from_the_bounds_of_another_engines_file(seed: int) -> None:
    lake = Lake()
    rows = shuffled(table(range(30)), seed)
    assert rows.column("_offset").to_pylist() != list(range(30))
    await lake.add(rows, row_group_size=30)
    assert await lake.replay(0, 30) == [expected(offset) for offset in range(30)]


async def test_statistics_of_another_engines_file_may_lie() -> None:
    """Rows of the producer's times under a footer that says they are all the broker's."""
    wrong, right = (_plain(timestamp_type) for timestamp_type in (1, 0))
    lying = right[: -_footer_bytes(right)] + wrong[-_footer_bytes(wrong) :]
    group = pq.read_metadata(io.BytesIO(lying)).row_group(0)
    assert (group.column(3).path_in_schema, group.column(3).statistics.min_raw) == ("_timestamp_type", 1)
    lake = Lake()
    file = await lake.add(table(range(3)))
    await lake.store.put(file.path.removeprefix(f"{lake.store.url}/"), [lying], overwrite=True)
    assert [row.timestamp_type for row in await served(lake, 0, 0, 3, 1 << 20)] == [0, 0, 0]


def _plain(timestamp_type: int) -> bytes:
    """A file in which every number takes as much room as any other."""
    sink = io.BytesIO()
    rows = [(0, Row(offset, BASE_MS, None, b"v", timestamp_type=timestamp_type)) for offset in range(3)]
    pq.write_table(rows_of(rows), sink, store_schema=False, use_dictionary=False, compression="none")
    return sink.getvalue()


def _footer_bytes(data: bytes) -> int:
    return int.from_bytes(data[-8:-4], "little") + 8
