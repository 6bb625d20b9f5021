"""What of an extent becomes rows, when transactions were aborted: against a look at every record."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clients.batches import batch
from support.worlds.memory import Hands

from lakestream.errors import CorruptRecords
from lakestream.frontier.moving.tiles.tile import Slice, Tile
from lakestream.frontier.moving.tiles.visible import AbortedPart, AbortedRanges, joined, visible
from lakestream.frontier.moving.tiles.writing import write_files
from lakestream.metadata.log.head import MARKER_EXTENT, Extent
from lakestream.objects import MemoryObjects
from lakestream.records import control_batch, crc32c

_BATCHES = st.lists(st.tuples(st.integers(-1, 3), st.booleans(), st.integers(1, 3)), min_size=1, max_size=10)
"""(producer, transactional, records)."""
_ABORTED = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(1, 12)), max_size=6)


def _sent(producer: int, transactional: bool, records: int) -> bytes:
    values = [b"v%d" % number for number in range(records)]
    return batch(*values, producer=(producer, 0, 0) if producer >= 0 else (-1, -1, -1), transactional=transactional)


@given(_BATCHES, _ABORTED, st.integers(0, 20), st.data())
def test_runs_and_gaps_are_exactly_what_was_asked_for(
    sent: list[tuple[int, bool, int]], aborted: list[tuple[int, int, int]], base: int, data: st.DataObject
) -> None:
    run = b"".join(_sent(*each) for each in sent)
    offsets: list[tuple[int, bool, int]] = []
    boundaries = [base]
    for producer, transactional, records in sent:
        offsets += [(producer, transactional, boundaries[-1])] * records
        boundaries.append(boundaries[-1] + records)
    start, end = sorted(data.draw(st.lists(st.sampled_from(boundaries), min_size=2, max_size=2)))
    ranges = [AbortedPart(producer, first, first + length) for producer, first, length in aborted]
    extent = Extent(base, boundaries[-1], ("main",), "wal/1", 0, len(run), 0, crc32c(run))
    inside = AbortedRanges(ranges).within(base, boundaries[-1])
    assert {*inside} == {each for each in ranges if each.start < boundaries[-1] and each.end > base}
    found = visible(3, extent, run, start, end, inside)
    shown = {offset for each in found.runs for offset in range(each.base_offset, each.end_offset or 0)}
    empty = {offset for _, low, high in found.gaps for offset in range(low, high)}
    expected = {
        base + place
        for place, (producer, transactional, first) in enumerate(offsets)
        if transactional and any(each.producer_id == producer and each.start <= first < each.end for each in ranges)
    } & set(range(start, end))
    assert empty == expected
    assert shown == set(range(start, end)) - expected
    assert sum(len(range(low, high)) for _, low, high in found.gaps) == len(empty)


def test_ends_that_are_no_batch_boundaries_are_refused() -> None:
    run = _sent(1, True, 3) + _sent(1, True, 2)
    extent = Extent(10, 15, ("main",), "wal/1", 0, len(run), 0, crc32c(run))
    with pytest.raises(CorruptRecords, match="starts at 11"):
        visible(0, extent, run, 11, 15, ())
    with pytest.raises(CorruptRecords, match="ends at 14"):
        visible(0, extent, run, 10, 14, ())
    short = Extent(10, 16, ("main",), "wal/1", 0, len(run), 0, crc32c(run))
    with pytest.raises(CorruptRecords, match="end at 15, not at 16"):
        visible(0, short, run, 10, 16, (AbortedPart(1, 10, 12),))


def test_gaps_side_by_side_are_one() -> None:
    assert joined([(0, 1, 3), (0, 3, 4), (0, 5, 6), (1, 6, 7)]) == ((0, 1, 4), (0, 5, 6), (1, 6, 7))


def _marker(offset: int) -> Extent:
    data = control_batch(offset, offset)
    return Extent(offset, offset + 1, (), "", 0, len(data), 0, crc32c(data), data, MARKER_EXTENT)


async def test_a_tile_leaves_out_what_was_aborted_and_says_so() -> None:
    store = MemoryObjects(Hands(), "memory://unit")
    run = _sent(1, True, 2) + _sent(2, True, 3) + _sent(1, True, 1) + _sent(-1, False, 1)
    await store.put("wal/1", [run])
    held = Extent(4, 11, ("main",), "wal/1", 0, len(run), 0, crc32c(run))
    part = Slice(0, 4, 12, (held, _marker(11)), 12, (AbortedPart(1, 4, 12),))
    tile = Tile(UUID(int=1), "orders", "memory://unit", "memory://unit/t", (part,), 1 << 30, 1 << 30)
    outcome = await write_files(tile, store, UUID(int=2))
    [file] = outcome.files
    assert (file.record_count, file.offset_min, file.offset_max) == (4, 6, 10)
    assert outcome.gaps == ((0, 4, 6), (0, 9, 10), (0, 11, 12))


async def test_a_tile_without_a_row_has_no_file() -> None:
    store = MemoryObjects(Hands(), "memory://unit")
    run = _sent(1, True, 5)
    await store.put("wal/1", [run])
    held = Extent(0, 5, ("main",), "wal/1", 0, len(run), 0, crc32c(run))
    part = Slice(0, 0, 6, (held, _marker(5)), 6, (AbortedPart(1, 0, 5),))
    for own_file_bytes in (1, 1 << 30):
        tile = Tile(UUID(int=1), "orders", "memory://unit", "memory://unit/t", (part,), own_file_bytes, 1 << 30)
        outcome = await write_files(tile, store, UUID(int=2))
        assert (outcome.files, outcome.gaps) == ((), ((0, 0, 6),))
