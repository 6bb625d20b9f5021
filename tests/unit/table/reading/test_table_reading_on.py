"""Who reads on stays in a row group without looking it up again, in the view that was given and in no other."""

import pytest
from support.clients.records import Record, parse
from support.tables.foreign import Lake, expected, shuffled, table
from support.tables.views import view_of

from lakestream.model import DataFile
from lakestream.table.reading import segments
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
    for offset in (4, 49, 3, 30):
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
