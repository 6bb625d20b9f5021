"""Ranges, filters and tasks of a Spark read."""

from dataclasses import replace
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tables.foreign import table

from lakestream.errors import OffsetOutOfRange, RequestError, UnknownStream
from lakestream.model import DataFile, PositionDeletes
from lakestream.spark_source.options import EARLIEST, LATEST, Position, parse
from lakestream.spark_source.reading.filters import Bounds, Interval, RowFilter
from lakestream.spark_source.reading.log import Log
from lakestream.spark_source.reading.plan import (
    HistoryTask,
    TailTask,
    check_same_topic,
    history_tasks,
    readable,
    resolve,
    tail_tasks,
)
from lakestream.spark_source.reading.streaming import from_offset, limit, to_offset
from lakestream.spark_source.reading.view import TableView
from lakestream.table.reading.ranges import Ranges

ONE = UUID(int=1)
OPTIONS = parse({"topic": "t", "kafka.bootstrap.servers": "h:1", "maxRecordsPerPartition": "10"})
LOG = Log(ONE, starts={0: 0, 1: 20}, ends={0: 100, 1: 50}, brokers=(("h", 1),))

bounds = st.tuples(st.integers(0, 40), st.integers(0, 40))
some_ranges = st.dictionaries(st.integers(0, 4), bounds, max_size=5).map(
    lambda found: Ranges.between(
        {partition: min(pair) for partition, pair in found.items()},
        {partition: max(pair) for partition, pair in found.items()},
    )
)


def offsets(ranges: Ranges) -> list[tuple[int, int]]:
    return [(partition, offset) for partition, start, end in ranges for offset in range(start, end)]


@given(some_ranges, st.lists(st.integers(0, 40), max_size=5))
def test_the_frontier_cuts_without_gap_or_overlap(ranges: Ranges, frontier: list[int]) -> None:
    below, above = ranges.cut(frontier)
    assert sorted(offsets(below) + offsets(above)) == offsets(ranges)
    assert all(partition < len(frontier) and offset < frontier[partition] for partition, offset in offsets(below))
    assert all(partition >= len(frontier) or offset >= frontier[partition] for partition, offset in offsets(above))


@given(some_ranges, st.integers(1, 30))
def test_parts_are_bounded_and_together_the_whole(ranges: Ranges, most: int) -> None:
    parts = ranges.split(most)
    assert sorted(place for part in parts for place in offsets(part)) == offsets(ranges)
    assert all(0 < part.offset_count <= most for part in parts)
    assert len(parts) == -(-ranges.offset_count // most)


@given(some_ranges)
def test_rows_are_told_apart(ranges: Ranges) -> None:
    every = [(partition, offset) for partition in range(6) for offset in range(42)]
    held = ranges.holds(np.array([p for p, _ in every], np.int32), np.array([o for _, o in every], np.int64))
    assert [place for place, hit in zip(every, held, strict=True) if hit] == offsets(ranges)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("_stream_partition = 3", Bounds(partition=Interval(3, 3))),
        ("_stream_partition in (5, 2)", Bounds(partition=Interval(2, 5))),
        ("_offset > 9 and _offset < 20 and _offset >= 4", Bounds(offset=Interval(10, 19))),
        ("_timestamp >= '1970-01-01T00:00:01+00:00'", Bounds(timestamp_us=Interval(1_000_000))),
        ("_offset <= 7 and (_stream_partition = 1 or _offset = 3)", Bounds(offset=Interval(0, 7))),
        ("not _offset = 3 and _key is not null and _schema_id = 3", Bounds()),
    ],
)
def test_filters_narrow_only_what_they_speak_of(text: str, expected: Bounds) -> None:
    assert RowFilter(text).bounds == expected


def test_rows_are_filtered_where_they_are_read() -> None:
    rows = table(range(20))
    found = RowFilter("_offset >= 5 and _offset != 7 and _key is not null")
    assert found.columns == ("_offset", "_key")
    assert found.keep(rows)["_offset"].to_pylist() == [n for n in range(5, 20) if n != 7 and n % 3]
    assert RowFilter(None).keep(rows) is rows


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("_offset >", "is not understood at character"),
        ("price > 3", "Could not find field"),
        ("_offset = 'x'", "Could not convert"),
        ("_headers.element.key = 'x'", "does not fit the columns"),
    ],
)
def test_filters_that_make_no_sense_are_refused(text: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        RowFilter(text)


def test_bounds_clip_ranges() -> None:
    ranges = Ranges({0: (0, 100), 1: (0, 100), 2: (0, 5)})
    found = Bounds(partition=Interval(1, 2), offset=Interval(10, 19)).clip(ranges)
    assert found == Ranges({1: (10, 20)})


def test_positions_become_offsets() -> None:
    assert resolve(Position(EARLIEST), LOG, {}) == {0: 0, 1: 0}
    assert resolve(Position(LATEST), LOG, {}) == {0: 100, 1: 50}
    assert resolve(Position(LATEST, {0: 7, 1: EARLIEST}), LOG, {}) == {0: 7, 1: 0}
    assert resolve(Position(LATEST, {0: 700}), LOG, {}) == {0: 100, 1: 50}
    assert resolve(Position(LATEST, timestamp_ms=5), LOG, {0: 3, 1: 50}) == {0: 3, 1: 50}
    with pytest.raises(RequestError, match="no partition 2"):
        resolve(Position(LATEST, {2: 7}), LOG, {})


def test_what_the_log_has_lost_is_told_or_passed_over() -> None:
    tail = Ranges({0: (90, 100), 1: (10, 30)})
    with pytest.raises(OffsetOutOfRange, match="offsets 10 to 20 of partition 1"):
        readable(tail, LOG, fail_on_data_loss=True)
    assert readable(tail, LOG, fail_on_data_loss=False) == Ranges({0: (90, 100), 1: (20, 30)})


def file(name: str, partition: int, low: int, high: int, *, size_bytes: int = 10, newest_ms: int = 0) -> DataFile:
    return DataFile(name, high - low + 1, size_bytes, partition, partition, low, high, newest_ms)


def test_files_that_cannot_match_are_left_out_and_the_others_grouped() -> None:
    files = (
        file("c", 1, 0, 9, newest_ms=100),
        file("a", 0, 0, 9, newest_ms=100),
        file("b", 0, 10, 19, newest_ms=200),
        DataFile("unknown", 5, 10, None, None, None, None, None),
    )
    deletes = (PositionDeletes("d"),)
    view = TableView("file:///t", (20, 10), files, deletes)
    options = replace(OPTIONS, max_bytes_per_partition=20)
    everything = Ranges({0: (0, 20), 1: (0, 10)})

    def names(ranges: Ranges, bounds: Bounds = Bounds()) -> list[list[str]]:  # noqa: B008
        tasks = history_tasks(view, ranges, bounds, options)
        assert all(isinstance(task, HistoryTask) and task.deletes == deletes for task in tasks)
        return [[found.path for found in task.files] for task in tasks if isinstance(task, HistoryTask)]

    assert names(everything) == [["a", "unknown"], ["b", "c"]]
    assert names(Ranges({0: (10, 12)})) == [["unknown", "b"]]
    assert names(everything, Bounds(timestamp_us=Interval(150_000))) == [["unknown", "b"]]
    assert names(Ranges({})) == []
    assert history_tasks(TableView(None, (), (), ()), everything, Bounds(), options) == []


def test_tails_are_cut_and_joined_to_the_size_of_a_task() -> None:
    tasks = tail_tasks(LOG, Ranges({0: (0, 12), 1: (0, 3)}), OPTIONS)
    assert tasks == [
        TailTask(ONE, Ranges({0: (0, 10)}), LOG.brokers),
        TailTask(ONE, Ranges({0: (10, 12), 1: (0, 3)}), LOG.brokers),
    ]


def test_another_topic_of_the_same_name_is_not_mixed_in() -> None:
    check_same_topic("t", ONE, LOG.topic_id)
    with pytest.raises(UnknownStream, match="made anew"):
        check_same_topic("t", ONE, UUID(int=2))


def test_a_checkpoint_holds_the_topic_and_its_offsets() -> None:
    assert from_offset(to_offset(ONE, {10: 3, 2: 4})) == (ONE, {2: 4, 10: 3})


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=6),
    st.integers(1, 500),
)
def test_a_trigger_is_limited_and_always_gets_on(pairs: list[tuple[int, int]], most: int) -> None:
    starts = {partition: start for partition, (start, _) in enumerate(pairs)}
    ends = {partition: start + count for partition, (start, count) in enumerate(pairs)}
    found = limit(starts, ends, most)
    assert all(starts[partition] <= found[partition] <= ends[partition] for partition in ends)
    assert all(found[partition] > starts[partition] for partition in ends if ends[partition] > starts[partition])
    assert sum(found[partition] - starts[partition] for partition in ends) <= most + len(pairs)
