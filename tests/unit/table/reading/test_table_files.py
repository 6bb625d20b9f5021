"""The index of a view's files beside a plain search through all of them."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lakestream.model import DataFile
from lakestream.table.reading.files import UNBOUNDED, FileIndex, FilePart, index_of

PARTITIONS = st.integers(0, 3)
OFFSETS = st.integers(0, 30)


@st.composite
def data_files(draw: st.DrawFn) -> DataFile:
    partition, offset = draw(PARTITIONS), draw(OFFSETS)
    file = DataFile(
        path=f"file:///{draw(st.integers(0, 1 << 30))}",
        record_count=1,
        size_bytes=1,
        partition_min=partition,
        partition_max=partition + draw(st.sampled_from((0, 0, 0, 2))),
        offset_min=offset,
        offset_max=offset + draw(st.integers(0, 9)),
        timestamp_max_ms=draw(st.integers(0, 20)),
    )
    for bound in draw(
        st.sets(st.sampled_from(("partition_min", "partition_max", "offset_min", "offset_max")), max_size=1)
    ):
        file = replace(file, **{bound: None})
    return replace(file, timestamp_max_ms=None) if draw(st.integers(0, 9)) == 0 else file


MANIFESTS = st.lists(st.lists(data_files(), max_size=8), max_size=6)


def holds(file: DataFile, partition: int, low: int, high: int) -> bool:
    return (
        (file.partition_min is None or file.partition_min <= partition)
        and (file.partition_max is None or file.partition_max >= partition)
        and (file.offset_min or 0) <= high
        and (file.offset_max is None or file.offset_max >= low)
    )


def bound_ms(file: DataFile) -> int:
    return UNBOUNDED if file.timestamp_max_ms is None else file.timestamp_max_ms


@given(MANIFESTS, PARTITIONS, OFFSETS, st.integers(-1, 12), st.integers(0, 20))
def test_lookups_find_what_a_plain_search_finds(
    manifests: list[list[DataFile]], partition: int, low: int, width: int, since_ms: int
) -> None:
    index = FileIndex(map(FilePart, manifests))
    every = [file for manifest in manifests for file in manifest]
    high = low + width
    found = index.overlapping(partition, low, high)
    assert sorted(map(id, found)) == sorted(id(file) for file in every if holds(file, partition, low, high))
    starts = [file.offset_min or 0 for file in found]
    assert starts == sorted(starts)
    newer = [file for file in found if bound_ms(file) >= since_ms]
    assert index.overlapping(partition, low, high, since_ms=since_ms) == newer
    ahead = [file.offset_min or 0 for file in every if holds(file, partition, 0, UNBOUNDED)]
    assert index.next_start(partition, low) == min((start for start in ahead if start > low), default=UNBOUNDED)
    newest = list(index.newest_first(partition, low))
    assert [ms for _, ms in newest] == sorted((ms for _, ms in newest), reverse=True)
    assert sorted(id(file) for file, _ in newest) == sorted(
        id(file) for file in every if holds(file, partition, 0, low - 1)
    )


@given(MANIFESTS)
def test_an_index_is_the_sequence_of_its_files(manifests: list[list[DataFile]]) -> None:
    index = FileIndex(map(FilePart, manifests))
    every = tuple(file for manifest in manifests for file in manifest)
    assert (tuple(index), len(index), index) == (every, len(every), every)
    assert every == index
    assert hash(index) == hash(index_of(every))
    assert [index[place] for place in range(-len(every), len(every))] == [*every, *every]
    assert index[1:3] == every[1:3]
    assert index_of(index) is index
    if every:
        assert index != every[1:]
        assert every[0] in index


def test_views_share_the_parts_of_their_manifests() -> None:
    """A new view costs nothing for the files of the manifests it shares with the last one."""
    part = FilePart([DataFile(f"file:///{n}", 1, 1, 0, 0, n, n, 0) for n in range(1_000)])
    one = FileIndex([part])
    two = FileIndex([part, FilePart([DataFile("file:///new", 1, 1, 0, 0, 1_000, 1_000, 0)])])
    assert one.overlapping(0, 7, 7)[0] is two.overlapping(0, 7, 7)[0]
    assert [file.path for file in two.overlapping(0, 999, 1_000)] == ["file:///999", "file:///new"]
    assert (one.next_start(0, 999), two.next_start(0, 999)) == (UNBOUNDED, 1_000)
