"""What a filter leaves unread, and that it leaves unread nothing that matches."""

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

from lakestream.model import DataFile
from lakestream.query.worker.pruning import known_of_file, possible
from lakestream.query.worker.reading import plain_schema
from lakestream.table.shape import RAW

SCHEMA = plain_schema(RAW)
STAMP = pa.timestamp("us", tz="UTC")


def file(first: int, last: int, newest_ms: int | None, oldest_ms: int | None, partition: int | None = 0) -> DataFile:
    return DataFile("x", 1, 1, partition, partition, first, last, newest_ms, timestamp_min_ms=oldest_ms)


def at(us: int) -> pa.Scalar:
    return pa.scalar(us, STAMP)


def test_files_that_cannot_match_are_left_out() -> None:
    files = [
        file(0, 9, 9, 0),
        file(10, 19, 19, 10),
        file(0, 9, None, None, partition=1),
        file(20, 29, None, None, None),
    ]
    known = [*map(known_of_file, files)]
    offset, stamp, partition = pc.field("_offset"), pc.field("_timestamp"), pc.field("_stream_partition")
    for condition, wanted in (
        (None, [0, 1, 2, 3]),
        (offset == 12, [1]),
        (offset > 9, [1, 3]),
        (offset.isin([3, 25]), [0, 2, 3]),
        (partition == 1, [2, 3]),
        (stamp > at(9_999), [1, 2, 3]),
        (stamp <= at(9_999), [0, 2, 3]),
        (stamp.is_null(), [0, 1, 2, 3]),
        ((offset < 5) & (partition == 0), [0]),
        (pc.field("_key") == b"k", [0, 1, 2, 3]),
        ((pc.field("_key") == b"k") | (offset == 12), [0, 1, 2, 3]),
    ):
        assert possible(SCHEMA, condition, known) == wanted, str(condition)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 10)), min_size=1, max_size=8), st.integers(0, 60))
@examples(60)
def test_no_row_that_matches_is_left_out(bounds: list[tuple[int, int]], asked: int) -> None:
    known = [known_of_file(file(first, first + length, first + length, first)) for first, length in bounds]
    found = possible(SCHEMA, pc.field("_offset") == asked, known)
    assert found == [n for n, (first, length) in enumerate(bounds) if first <= asked <= first + length]
    times = possible(SCHEMA, pc.field("_timestamp") >= at(asked * 1000), known)
    assert times == [n for n, (first, length) in enumerate(bounds) if first + length >= asked]
