"""A flipped bit anywhere in a data file is an error that names the file and the offsets, never other records."""

import io
import random
from collections.abc import Iterator
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from support.clients.batches import batch
from support.clients.records import Record, parse
from support.tables.foreign import Lake, expected, table
from support.tables.views import view_of

from lakestream.errors import CorruptObject
from lakestream.model import DataFile
from lakestream.objects import MemoryObjects
from lakestream.records import Arena, Run, decode
from lakestream.runtime import system
from lakestream.table.parquet.filters import filter_places
from lakestream.table.parquet.seal import chunk_range, footer_checksum, sealed_name
from lakestream.table.parquet.writer import StreamFileWriter
from lakestream.table.reading.history import HistoryReader
from lakestream.table.shape import RAW

MAGIC_BYTES = 4
"""A file begins with them; nothing here reads them."""


def sealed(groups: int = 2, rows: int = 6, value_bytes: int = 20) -> tuple[bytes, DataFile]:
    """A file as the pipeline writes it: `groups` row groups of `rows` records each."""
    sink = io.BytesIO()
    writer = StreamFileWriter(sink, RAW)
    for group in range(groups):
        offsets = range(group * rows, (group + 1) * rows)
        runs = [
            Run(0, offset, batch(b"%d" % offset * value_bytes, key=b"k%d" % offset, headers=[("h", b"v")]))
            for offset in offsets
        ]
        (columns,) = decode(runs, Arena(1 << 20))
        writer.write(columns)
    stats = writer.close()
    path = f"memory:///{sealed_name('00000-x.parquet', stats.footer_checksum)}"
    data = sink.getvalue()
    return data, DataFile(path, stats.record_count, len(data), 0, 0, 0, groups * rows - 1, stats.timestamp_max_ms)


async def read(data: bytes, file: DataFile) -> list[Record]:
    """All records, then the searches by time, with a reader that has nothing cached."""
    store = MemoryObjects(system().clock)
    await store.put(file.path.removeprefix("memory:///"), [data])
    reader = HistoryReader(store)
    end = (file.offset_max or 0) + 1
    found: list[Record] = []
    offset = 0
    while offset < end:
        history = await reader.read(view_of([file]), partition=0, offset=offset, end_offset=end, max_bytes=500)
        found += parse(history.parts)
        offset = history.next_offset
    await reader.newest(view_of([file]), partition=0, end_offset=end)
    await reader.first_at_or_after(view_of([file]), partition=0, timestamp_ms=1, offset=0, end_offset=end)
    return found


def flips(data: bytes, positions: Iterator[int] | range) -> Iterator[tuple[int, bytes]]:
    rng = random.Random(7)
    for position in positions:
        damaged = bytearray(data)
        damaged[position] ^= 1 << rng.randrange(8)
        yield position, bytes(damaged)


def unread(data: bytes) -> set[int]:
    """The bytes of columns that no record needs: they are the table's, for other engines, or hold nulls only, or the
    footer tells them; and the filters of keys."""
    metadata = pq.read_metadata(io.BytesIO(data))
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    chunks = [group.column(index) for group in groups for index in range(metadata.num_columns)]
    unneeded = ("_kind", "_schema_id", "_headers_raw", "_stream_partition", "_offset", "_timestamp_type")
    ranges = [chunk_range(chunk) for chunk in chunks if chunk.path_in_schema in unneeded]
    ranges += [(place.start, place.end) for place in filter_places(metadata, "_key")]
    return {position for start, end in ranges for position in range(start, end)}


async def test_every_flipped_byte_of_a_file_of_ours_is_detected_and_named() -> None:
    data, file = sealed(rows=2, value_bytes=1)
    whole = await read(data, file)
    assert len(whole) == 4
    irrelevant = unread(data)
    for position, damaged in flips(data, range(MAGIC_BYTES, len(data))):
        if position in irrelevant:
            if position % 10 == 0:
                assert await read(damaged, file) == whole
            continue
        with pytest.raises(CorruptObject, match=r"offsets \d+ to \d+") as caught:
            await read(damaged, file)
        assert file.path in str(caught.value), position


async def test_a_damaged_row_group_leaves_the_others_readable() -> None:
    data, file = sealed()
    metadata = pq.read_metadata(io.BytesIO(data))
    position = chunk_range(metadata.row_group(1).column(metadata.num_columns - 1))[0] + 3
    damaged = bytearray(data)
    damaged[position] ^= 1
    with pytest.raises(CorruptObject, match=r"row group 1 of .*offsets 6 to 11.* column \S+ does not hold"):
        await read(bytes(damaged), file)
    one = replace(file, offset_max=5)
    with pytest.raises(CorruptObject, match="row group 1"):
        await read(bytes(damaged), file)
    assert [record.offset for record in await _records(bytes(damaged), one, end=6)] == list(range(6))


async def _records(data: bytes, file: DataFile, end: int) -> list[Record]:
    store = MemoryObjects(system().clock)
    await store.put(file.path.removeprefix("memory:///"), [data])
    history = await HistoryReader(store).read(view_of([file]), partition=0, offset=0, end_offset=end, max_bytes=1 << 20)
    return parse(history.parts)


async def test_random_flips_in_a_large_file() -> None:
    data, file = sealed(groups=3, rows=200, value_bytes=600)
    assert len(await read(data, file)) == 600
    rng = random.Random(11)
    places = sorted(set(range(MAGIC_BYTES, len(data))) - unread(data))
    for _, damaged in flips(data, iter(rng.choices(places, k=30))):
        with pytest.raises(CorruptObject, match=r"\.parquet"):
            await read(damaged, file)


async def test_every_truncation_and_a_wrong_file_are_detected() -> None:
    data, file = sealed(groups=1, rows=3)
    for end in range(0, len(data), 3):
        with pytest.raises(CorruptObject):
            await read(data[:end], file)
    other, _ = sealed(groups=1, rows=4)
    with pytest.raises(CorruptObject, match="checksum that is in the file's name"):
        await read(other, file)
    with pytest.raises(CorruptObject, match="3 rows where 4 were added"):
        await read(data, replace(file, record_count=4))


def test_the_name_carries_the_footers_checksum() -> None:
    assert sealed_name("a/00001-7.parquet", 0xBEEF) == "a/00001-7.0000beef.parquet"
    assert footer_checksum("a/00001-7.0000beef.parquet") == 0xBEEF
    for foreign in ("a/00001-7.parquet", "a/.0000beef.parquet.crc", "00000-0-0000beef.parquet", "x.0000beeg.parquet"):
        assert footer_checksum(foreign) is None


@pytest.mark.parametrize("checksums", [True, False])
async def test_flips_in_the_pages_of_another_engines_file_never_change_a_record(checksums: bool) -> None:
    """Keys, values and headers are under the rows' own checksum in any file. Footers of other engines are under none,
    and Arrow does not survive every damaged one: docs/RELIABILITY.md says so."""
    lake = Lake()
    file = await lake.add(table(range(30)), row_group_size=10, write_page_checksum=checksums)
    data = await lake.store.get("tables/t/data/0.parquet")
    contents = {(r.offset, r.key, r.value, r.headers) for r in (expected(offset) for offset in range(30))}
    path = file.path.replace("memory://", "memory:///").replace("////", "///")
    whole = replace(file, path=path)
    assert len(await read(data, whole)) == 30
    found = 0
    pages_end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for _, damaged in flips(data, range(0, pages_end, 15)):
        try:
            records = await read(damaged, whole)
        except CorruptObject:
            found += 1
            continue
        assert {(r.offset, r.key, r.value, r.headers) for r in records} <= contents
    assert found > pages_end // 15 * (0.6 if checksums else 0.3)
