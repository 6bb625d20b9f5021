"""Offsets by time, against a plain search."""

import io
import random
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples
from support.tables.foreign import BASE_MS, Lake, expected, shuffled, table
from support.tables.views import view_of

from lakestream.table.parquet.arrow import arrow_schema
from lakestream.table.parquet.footers import ParquetFooter, parse_footers
from lakestream.table.reading.files import UNBOUNDED
from lakestream.table.shape import RAW

quick = examples(40, derandomize=True)


@quick
@given(st.integers(0, 10_000), st.integers(BASE_MS - 5, BASE_MS + 1005), st.integers(0, 40), st.integers(1, 60))
async def test_times_against_a_plain_search(seed: int, timestamp_ms: int, start: int, end: int) -> None:
    rng = random.Random(seed)
    lake = Lake()
    offsets = sorted(rng.sample(range(60), 30))
    cut = rng.randrange(1, 30)
    await lake.add(shuffled(table(offsets[:cut]), seed), row_group_size=7)
    file = await lake.add(table(offsets[cut:]), row_group_size=7, write_statistics=rng.random() < 0.5)
    await lake.add(table(range(60), partition=1))
    await lake.delete((file.path, 0))
    there = [expected(offset) for offset in offsets if offset != offsets[cut]]
    times = [(record.offset, record.timestamp_ms) for record in there]
    lake.files = [replace(file, timestamp_max_ms=None if rng.random() < 0.3 else BASE_MS + 1000) for file in lake.files]
    found = await lake.reader.first_at_or_after(
        lake.view, partition=0, timestamp_ms=timestamp_ms, offset=start, end_offset=end
    )
    fitting = [pair for pair in times if pair[1] >= timestamp_ms and start <= pair[0] < end]
    assert found == (fitting[0] if fitting else None)
    newest = await lake.reader.newest(lake.view, partition=0, end_offset=end)
    below = [pair for pair in times if pair[0] < end]
    assert newest == (max(below, key=lambda pair: (pair[1], -pair[0])) if below else None)


async def test_records_without_a_time_are_never_the_newest() -> None:
    lake = Lake()
    rows = table(range(3))
    await lake.add(rows.set_column(2, arrow_schema(RAW).field("_timestamp"), pa.nulls(3, pa.timestamp("us", tz="UTC"))))
    assert [record.timestamp_ms for record in (await lake.read(0, 3))[0]] == [-1, -1, -1]
    assert await lake.reader.newest(view_of(lake.files), partition=0, end_offset=3) is None
    first = lake.reader.first_at_or_after(view_of(lake.files), partition=0, timestamp_ms=0, offset=0, end_offset=3)
    assert await first is None


@pytest.mark.parametrize("stored", ["ms", "us", "ns", "INT96", "number", "time of day"])
@pytest.mark.parametrize("store_schema", [True, False])
def test_the_newest_time_of_a_footer_is_never_too_low(stored: str, store_schema: bool) -> None:
    """In whatever unit: what is no time, or has no bounds, counts as any."""
    newest_ms = BASE_MS + 999
    times: pa.Array = pa.array([BASE_MS, newest_ms], pa.timestamp("ms", tz="UTC"))
    if stored == "number":
        times = times.cast(pa.int64())
    elif stored == "time of day":
        times = pa.array([1, 2], pa.time64("us"))
    elif stored != "INT96":
        times = times.cast(pa.timestamp(stored, tz="UTC"))
    rows = pa.table({"_stream_partition": pa.array([0, 0], pa.int32()), "_offset": [0, 1], "_timestamp": times})
    sink = io.BytesIO()
    pq.write_table(rows, sink, store_schema=store_schema, use_deprecated_int96_timestamps=stored == "INT96")
    [footer] = parse_footers(["a.parquet"], [sink.getvalue()])
    assert isinstance(footer, ParquetFooter)
    [group] = footer.groups
    assert group.timestamp_max_ms == (newest_ms + 1 if stored in ("ms", "us", "ns") else UNBOUNDED)
