"""Who reads on stays in a row group without looking it up again, in the view that was given and in no other."""

import asyncio
from collections import deque
from functools import partial

import pytest
from support.clients.records import Record, parse
from support.tables.foreign import Lake, expected, shuffled, table
from support.tables.views import view_of

from lakestream.model import DataFile
from lakestream.objects import MemoryObjects
from lakestream.objects.store import Buffer
from lakestream.runtime import system
from lakestream.table.reading import cache, history, segments
from lakestream.table.reading.files import FileIndex, FilePart


class Looked(FileIndex):
    """Counts how often files are looked for."""

    count = 0

    def overlapping(self, *args, **options):  # type: ignore[no-untyped-def]
        self.count += 1
        return super().overlapping(*args, **options)


def view(*files: DataFile) -> Looked:
    """As a table's view has its files."""
    return Looked([FilePart(files)])


async def read(lake: Lake, files: FileIndex, offset: int, *, partition: int = 0, max_bytes: int = 300) -> list[Record]:
    reading = lake.reader.read(
        view_of(files, lake.deletes), partition=partition, offset=offset, end_offset=1000, max_bytes=max_bytes
    )
    return parse((await reading).parts)


async def test_a_row_group_is_looked_up_once() -> None:
    lake = Lake()
    files = view(await lake.add(table(range(100)), row_group_size=50))
    assert await read(lake, files, 3, max_bytes=1) == [expected(3)]
    looked = files.count
    for offset in (5, 49, 3, 30):
        assert await read(lake, files, offset, max_bytes=1) == [expected(offset)]
    assert files.count == looked
    for offset in (2, 50, 20):
        assert await read(lake, files, offset, max_bytes=1) == [expected(offset)]
        assert files.count > looked, "nothing is known of what lies outside"
        looked = files.count


async def test_another_view_has_other_files() -> None:
    lake = Lake()
    old = await lake.add(table(range(60)))
    before = view(old)
    assert (await read(lake, before, 0))[0] == expected(0)
    rows = shuffled(table(range(60)), 3)
    after = view(*[await lake.add(rows.slice(start, 20)) for start in (0, 20, 40)])
    await lake.store.delete([old.path.removeprefix(f"{lake.store.url}/")])
    found: list[Record] = []
    while len(found) < 40:
        found += await read(lake, after, 20 + len(found))
    assert found == [expected(offset) for offset in range(20, 60)]


async def test_rows_that_are_deleted_meanwhile_are_gone() -> None:
    lake = Lake()
    file = await lake.add(table(range(60)))
    files = view(file)
    assert [record.offset for record in await read(lake, files, 7)][:3] == [7, 8, 9]
    await lake.delete((file.path, 8), (file.path, 10))
    assert [record.offset for record in await read(lake, files, 8)][:3] == [9, 11, 12]
    lake.deletes = []
    assert [record.offset for record in await read(lake, files, 8)][:3] == [8, 9, 10]


async def test_partitions_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where more are read than are remembered."""
    monkeypatch.setattr(segments, "_ALONE_KEPT", 2)
    lake = Lake()
    numbers = range(4)
    files = view(*[await lake.add(table(range(10 * number, 10 * number + 40), partition=number)) for number in numbers])
    for offset in (30, 31, 35, 32):
        for partition in numbers:
            assert (await read(lake, files, offset, partition=partition))[0] == expected(offset, partition)


async def test_a_view_that_is_gone_is_not_mistaken_for_another() -> None:
    """Their identities may be the same number."""
    lake = Lake()
    for value_bytes in range(20, 40):
        files = view(await lake.add(table(range(10), value_bytes=value_bytes)))
        assert (await read(lake, files, 5))[0] == expected(5, value_bytes=value_bytes)
        del files


class Fetched(MemoryObjects):
    """Tells which ranges were read."""

    def __init__(self) -> None:
        super().__init__(system().clock)
        self.starts: list[tuple[str, int]] = []

    async def get_range(self, key: str, start: int, length: int, *, once: bool = False) -> Buffer:
        self.starts.append((key, start))
        return await super().get_range(key, start, length)


async def settled() -> None:
    """What is read ahead takes a thread."""
    before = -1
    while before != (before := len(asyncio.all_tasks())) or before > 1:
        await asyncio.sleep(0.005)


async def test_what_follows_is_read_before_it_is_asked_for_and_once() -> None:
    store = Fetched()
    lake = Lake(store=store)
    files = view(await lake.add(table(range(300)), row_group_size=100))
    assert (await read(lake, files, 0))[0] == expected(0)
    await settled()
    first = len(set(store.starts))
    offset = (await read(lake, files, 0))[-1].offset + 1
    offset = (await read(lake, files, offset))[-1].offset + 1
    await settled()
    second = len(set(store.starts))
    assert offset < 100, "its reader is in the first row group still"
    assert second > first
    assert [r.offset for r in await read(lake, files, 100, max_bytes=1)] == [100]
    assert len(set(store.starts)) == second, "from memory"
    found = [await read(lake, files, number, max_bytes=1) for number in range(100, 300)]
    assert found == [[expected(number)] for number in range(100, 300)]
    await settled()
    assert len(store.starts) == len(set(store.starts)), "no range was read twice"


async def test_who_does_not_read_on_has_nothing_read_ahead() -> None:
    store = Fetched()
    lake = Lake(store=store)
    files = view(await lake.add(table(range(300)), row_group_size=100))
    await read(lake, files, 50, max_bytes=1)
    await settled()
    looked = len(store.starts)
    for offset in (10, 70, 30):
        await read(lake, files, offset, max_bytes=1)
    await settled()
    assert len(store.starts) == looked


async def test_partitions_that_do_not_fit_memory_take_turns() -> None:
    """An answer that has something loads nothing more then: else each fetch would decode the rows of all anew."""
    store = Fetched()
    lake = Lake(store=store, cache_bytes=60_000)
    numbers = range(6)
    files = view(
        *[await lake.add(table(range(400), partition=number, value_bytes=50), row_group_size=400) for number in numbers]
    )
    at, order, fetches = dict.fromkeys(numbers, 0), deque(numbers), 0
    while any(offset < 400 for offset in at.values()):
        got = False
        for number in order:
            answer = await lake.reader.read(
                view_of(files), partition=number, offset=at[number], end_offset=400, max_bytes=2000, spare=got
            )
            found = [record.offset for record in parse(answer.parts)]
            assert found == list(range(at[number], answer.next_offset))
            at[number], got = answer.next_offset, got or bool(found)
        order.rotate(-1)
        fetches += 1
    loads = len(store.starts)
    assert fetches > 20
    assert loads < 3 * fetches, "without turns it is six each time"


async def test_a_partition_is_not_left_out_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if its reader always asks for others first."""
    monkeypatch.setattr(history, "_LEFT_OUT_S", 0.1)
    monkeypatch.setattr(cache, "SHORT_S", 60.0)
    lake = Lake(cache_bytes=1)
    files = view(*[await lake.add(table(range(40), partition=number)) for number in range(3)])
    for number in range(3):
        await read(lake, files, 0, partition=number, max_bytes=1)
    spared = partial(lake.reader.read, view_of(files), partition=0, offset=0, end_offset=40, max_bytes=1, spare=True)
    assert (await spared()).parts == []
    async with asyncio.timeout(30):
        while not (await spared()).parts:
            await asyncio.sleep(0.02)
