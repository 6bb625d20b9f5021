"""The plan covers exactly what is due, once, in tiles of bounded size."""

from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakestream.errors import StorageError
from lakestream.frontier.moving.tiles.plan import Target, due, limit, plan, tile_bytes
from lakestream.frontier.moving.tiles.tile import Slice, Tile, pack, size_of, slice_bytes, unpack_tile
from lakestream.frontier.settings import PipelineSettings
from lakestream.metadata.log.head import Extent

TARGET = Target(UUID(int=7), "orders", "memory://bucket", "memory://bucket/tables/orders", 100, 1 << 30)


def extent(base: int, end: int, length: int = 100, *, key: str = "wal/1") -> Extent:
    return Extent(base, end, ("main",), key, 8, length, 0, 0)


def tail(*shape: tuple[int, int], start: int = 0) -> list[Extent]:
    """Dense extents of (record count, bytes)."""
    found = []
    for number, (count, length) in enumerate(shape):
        found.append(extent(start, start + count, length, key=f"wal/{number}"))
        start += count
    return found


extents = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 400)), max_size=12)


@given(
    tails=st.dictionaries(st.integers(0, 20), st.tuples(st.integers(0, 1000), extents), max_size=10),
    size=st.integers(1, 1500),
)
def test_every_due_offset_is_in_exactly_one_slice(
    tails: dict[int, tuple[int, list[tuple[int, int]]]], size: int
) -> None:
    frontier = [tails[index][0] if index in tails else 0 for index in range(21)]
    given_tails = {index: tail(*shape, start=start) for index, (start, shape) in tails.items()}
    made = plan(TARGET, frontier, given_tails, tile_size=size)

    expected = {
        (index, start, start + sum(count for count, _ in shape)) for index, (start, shape) in tails.items() if shape
    }
    assert {(each.partition, each.start, each.end) for each in made.ranges} == expected
    slices: dict[int, list[Slice]] = {}
    for tile in made.tiles:
        assert [part.partition for part in tile.slices] == sorted({part.partition for part in tile.slices})
        for part in tile.slices:
            slices.setdefault(part.partition, []).append(part)
    for each in made.ranges:
        parts = sorted(slices.pop(each.partition), key=lambda part: part.start)
        assert parts[0].start == each.start
        assert parts[-1].end == each.end
        assert all(one.end == other.start for one, other in pairwise(parts))
        assert [found for part in parts for found in part.extents] == given_tails[each.partition]
    assert not slices


@given(shape=extents, size=st.integers(1, 1500))
def test_a_tile_is_bigger_than_asked_only_if_one_extent_is(shape: list[tuple[int, int]], size: int) -> None:
    made = plan(TARGET, (0,), {0: tail(*shape)}, tile_size=size)
    for tile in made.tiles:
        assert sum(map(slice_bytes, tile.slices)) <= size or len(tile.slices[0].extents) == 1


def test_adjacent_partitions_share_a_tile_and_a_big_one_is_cut_into_runs() -> None:
    tails = {0: tail((1, 40)), 1: tail((1, 40)), 2: tail(*[(1, 50)] * 6), 5: tail((1, 10))}
    made = plan(TARGET, (0,) * 6, tails, tile_size=100)
    assert [[part.partition for part in tile.slices] for tile in made.tiles] == [[0, 1], [2], [2], [2], [5]]
    assert [len(tile.slices[0].extents) for tile in made.tiles[1:4]] == [2, 2, 2]


def test_a_partition_new_to_the_table_starts_at_zero() -> None:
    made = plan(TARGET, (5,), {3: tail((2, 10))}, tile_size=100)
    assert [(each.partition, each.start, each.end) for each in made.ranges] == [(3, 0, 2)]


def test_extents_below_the_frontier_are_skipped() -> None:
    all_of_it = tail((10, 1), (10, 1), (10, 1))
    assert due("orders", 0, 10, all_of_it) == tuple(all_of_it[1:])
    assert due("orders", 0, 30, all_of_it) == ()
    assert due("orders", 0, 0, all_of_it) == tuple(all_of_it)


def test_an_extent_may_straddle_the_frontier() -> None:
    all_of_it = tail((10, 1), (10, 1))
    found = due("orders", 0, 4, all_of_it)
    assert found == tuple(all_of_it)
    made = plan(TARGET, (4,), {0: found}, tile_size=100)
    assert (made.tiles[0].slices[0].start, made.tiles[0].slices[0].end) == (4, 20)


@pytest.mark.parametrize(
    ("frontier", "given_extents"),
    [
        pytest.param(0, [extent(5, 10)], id="first-extent-beyond-the-frontier"),
        pytest.param(0, [extent(0, 5), extent(6, 10)], id="hole-between-extents"),
        pytest.param(0, [extent(0, 5), extent(4, 10)], id="overlapping-extents"),
        pytest.param(3, [extent(0, 5), extent(2, 10)], id="two-extents-straddle"),
    ],
)
def test_what_is_neither_in_table_nor_wal_is_an_alarm(frontier: int, given_extents: list[Extent]) -> None:
    with pytest.raises(StorageError, match="topic orders, partition 0"):
        due("orders", 0, frontier, given_extents)


@given(tails=st.dictionaries(st.integers(0, 20), extents.filter(bool), max_size=10), max_bytes=st.integers(1, 3000))
def test_a_limited_tick_moves_every_partition_and_takes_first_parts(
    tails: dict[int, list[tuple[int, int]]], max_bytes: int
) -> None:
    given_tails = {index: tail(*shape) for index, shape in tails.items()}
    taken = limit(given_tails, max_bytes)
    for index, found in taken.items():
        assert found
        assert list(found) == given_tails[index][: len(found)]
    over = sum(size_of(found[-1]) for found in taken.values())
    assert sum(size_of(each) for found in taken.values() for each in found) <= max_bytes + over


def test_tile_size_follows_the_work() -> None:
    settings = PipelineSettings(min_tile_bytes=10, target_tile_bytes=100)
    assert tile_bytes(1, 2, settings) == 10
    assert tile_bytes(60, 2, settings) in range(30, 33)
    assert tile_bytes(210, 2, settings) in range(53, 57)
    assert tile_bytes(10_000, 2, settings) == 100


@given(sizes=st.lists(st.integers(97, 103), min_size=24, max_size=24), parallelism=st.sampled_from([1, 2, 3, 4, 6]))
def test_every_worker_gets_as_many_tiles(sizes: list[int], parallelism: int) -> None:
    settings = PipelineSettings(min_tile_bytes=10, target_tile_bytes=850)
    size = tile_bytes(sum(sizes), parallelism, settings)
    made = plan(TARGET, [0] * 24, {index: tail((1, size)) for index, size in enumerate(sizes)}, tile_size=size)
    assert len(made.tiles) % parallelism == 0
    assert max(len(tile.slices) for tile in made.tiles) == min(len(tile.slices) for tile in made.tiles)


def test_a_tile_survives_the_way_to_a_worker() -> None:
    inline = Extent(0, 1, ("main",), "", 0, 0, 5, 9, b"batch")
    tile = Tile(UUID(int=1), "t", "file:///b", "file:///b/tables/t", (Slice(3, 0, 1, (inline,)),), 5, 6)
    assert unpack_tile(pack(tile)) == tile
