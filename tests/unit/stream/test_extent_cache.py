"""Extents in memory: found by any of their offsets, numbered when they are read, bounded."""

from dataclasses import dataclass
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from support.clients.batches import batch
from support.clients.records import parse

from lakestream.metadata.log.head import Extent
from lakestream.model import StreamPartition
from lakestream.objects import MemoryObjects
from lakestream.records import crc32c
from lakestream.runtime import system
from lakestream.stream.fetching.cache import ExtentCache

TOPIC = UUID(int=1)


@dataclass(frozen=True)
class Made:
    partition: StreamPartition
    extent: Extent
    runs: list[bytes]


def made(index: int, base_offset: int, batches: list[int]) -> Made:
    """An extent with batches of so many records each; a record's value is its offset."""
    runs, offset = [], base_offset
    for count in batches:
        runs.append(batch(*(b"%d" % (offset + number) for number in range(count))))
        offset += count
    data = b"".join(runs)
    extent = Extent(base_offset, offset, ("main",), f"wal/{index}-{base_offset}", 0, len(data), 0, crc32c(data))
    return Made(StreamPartition(TOPIC, index), extent, runs)


def empty(limit_bytes: int) -> ExtentCache:
    return ExtentCache({"main": MemoryObjects(system().clock)}, limit_bytes)


def test_an_extent_is_found_by_each_of_its_offsets_and_no_other() -> None:
    cache, one = empty(1 << 20), made(0, 10, [2, 3])
    cache.keep(one.partition, one.extent, one.runs)
    for offset in range(10, 15):
        found = cache.find(one.partition, offset)
        assert found is not None
        assert [(record.offset, record.value) for record in parse([found.data])] == [
            (number, b"%d" % number) for number in range(10, 15)
        ]
    assert cache.find(one.partition, 9) is None
    assert cache.find(one.partition, 15) is None
    assert cache.find(StreamPartition(TOPIC, 1), 10) is None


def test_what_is_read_stays_longer_than_what_is_not() -> None:
    extents = [made(0, number * 2, [2]) for number in range(3)]
    cache = empty(2 * 900)
    for each in extents[:2]:
        cache.keep(each.partition, each.extent, each.runs)
    assert cache.find(extents[0].partition, 0) is not None
    cache.keep(extents[2].partition, extents[2].extent, extents[2].runs)
    assert [cache.find(each.partition, each.extent.base_offset) is not None for each in extents] == [True, False, True]


def test_a_cache_of_no_bytes_keeps_nothing() -> None:
    cache, one = empty(0), made(0, 0, [1])
    cache.keep(one.partition, one.extent, one.runs)
    assert cache.find(one.partition, 0) is None


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), max_size=30),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 80)), max_size=30),
    st.integers(0, 20_000),
)
def test_whatever_is_found_is_what_was_kept(
    appended: list[tuple[int, int]], looked_for: list[tuple[int, int]], limit_bytes: int
) -> None:
    cache, ends, looks = empty(limit_bytes), [0, 0, 0], iter(looked_for)
    for index, count in appended:
        one = made(index, ends[index], [count])
        ends[index] += count
        cache.keep(one.partition, one.extent, one.runs)
        for index, offset in [look for look, _ in zip(looks, range(2), strict=False)]:
            found = cache.find(StreamPartition(TOPIC, index), offset)
            if found is not None:
                assert found.base_offset <= offset < found.end_offset <= ends[index]
                assert [record.value for record in parse([found.data])] == [
                    b"%d" % number for number in range(found.base_offset, found.end_offset)
                ]
            elif offset < ends[index]:
                assert limit_bytes < 700 * len(appended)
