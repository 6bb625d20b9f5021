"""Rows of a key: all that a scan finds, whoever wrote the files, and without reading those that lack it."""

import io
import random
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clients.twin import Row, batch
from support.properties import examples
from support.tables.foreign import Lake

from lakestream.model import DataFile
from lakestream.objects import Buffer, MemoryObjects
from lakestream.records import Arena, Run, decode
from lakestream.runtime import system
from lakestream.table.parquet.arrow import arrow_schema, to_arrow
from lakestream.table.parquet.files import ParquetFiles
from lakestream.table.parquet.filters import filter_places
from lakestream.table.parquet.seal import sealed_name
from lakestream.table.parquet.writer import StreamFileWriter
from lakestream.table.reading.keyed import KeyReader
from lakestream.table.reading.ranges import Ranges
from lakestream.table.shape import RAW

GROUP_ROWS = 40


class CountedObjects(MemoryObjects):
    reads = 0

    async def get_range(self, key: str, start: int, length: int, *, once: bool = False) -> Buffer:
        self.reads += 1
        return await super().get_range(key, start, length, once=once)


@dataclass
class Stream:
    """One partition, written in turns by us and by others."""

    lake: Lake = field(default_factory=lambda: Lake(CountedObjects(system().clock)))
    rows: list[pa.Table] = field(default_factory=list)
    end: int = 0

    def taken(self, keys: list[bytes | None]) -> pa.Table:
        [columns] = decode(
            [Run(0, self.end, batch([Row(self.end + n, 1_000, key, b"v") for n, key in enumerate(keys)]))],
            Arena(1 << 20),
        )
        rows = to_arrow(columns, RAW)
        copied = pa.Table.from_pydict(rows.to_pydict(), schema=rows.schema)
        self.end += len(keys)
        self.rows.append(copied)
        return copied

    async def ours(self, keys: list[bytes | None], damage: bool = False) -> DataFile:
        rows = self.taken(keys)
        sink = io.BytesIO()
        writer = StreamFileWriter(sink, RAW)
        for start in range(0, rows.num_rows, GROUP_ROWS):
            writer.write_rows(rows.slice(start, GROUP_ROWS).combine_chunks())
        stats = writer.close()
        data = bytearray(sink.getvalue())
        if damage:
            for place in filter_places(pq.read_metadata(io.BytesIO(data)), "_key"):
                data[place.end - 1] ^= 0xFF
        store = self.lake.store
        key = sealed_name(f"tables/t/data/{len(self.lake.files)}.parquet", stats.footer_checksum)
        await store.put(key, [bytes(data)])
        low, high = stats.offset_min, stats.offset_max
        file = DataFile(f"{store.url}/{key}", stats.record_count, len(data), 0, 0, low, high, None)
        self.lake.files.append(file)
        return file

    async def foreign(self, keys: list[bytes | None], *, bounds: bool = True) -> DataFile:
        """With everything that our footer said, and filters: of nothing."""
        rows = self.taken(keys)
        sink = io.BytesIO()
        writer = StreamFileWriter(sink, RAW)
        writer.write_rows(rows)
        writer.close()
        told = pq.read_metadata(sink).metadata
        order = pc.sort_indices(rows, sort_keys=[("_key", "ascending"), ("_offset", "descending")])
        return await self.lake.add(
            rows.take(order).replace_schema_metadata(told), bounds=bounds, bloom_filter_options={"_key": True}
        )

    async def offsets(self, reader: KeyReader, key: bytes, ranges: Ranges, enough: int) -> tuple[list[int], int]:
        names = arrow_schema(RAW).names
        found = await reader.newest(self.lake.files, self.lake.deletes, ranges, key, names, RAW, enough)
        offsets = [offset for table in found.tables for offset in table.column("_offset").to_pylist()]
        assert all(table.column("_key").to_pylist() == [key] * table.num_rows for table in found.tables)
        return sorted(offsets), found.since[0]

    def reader(self) -> KeyReader:
        return KeyReader(ParquetFiles(self.lake.store))


def wanted(stream: Stream, key: bytes, start: int, end: int, gone: set[int]) -> list[int]:
    rows = pa.concat_tables(stream.rows)
    of_key = zip(rows.column("_offset").to_pylist(), rows.column("_key").to_pylist(), strict=True)
    return [offset for offset, each in of_key if each == key and start <= offset < end and offset not in gone]


@given(st.integers(0, 1 << 30))
@examples(25)
@pytest.mark.filterwarnings("ignore:Parquet writer option:UserWarning")
async def test_a_lookup_finds_what_a_scan_finds(seed: int) -> None:
    dice = random.Random(seed)
    stream = Stream()
    known = [b"k%d" % number for number in range(30)] + [b""]
    for _ in range(dice.randint(1, 5)):
        keys: list[bytes | None] = [
            dice.choice(known[: dice.randint(1, 31)]) if dice.random() < 0.9 else None
            for _ in range(dice.randint(1, 150))
        ]
        kind = dice.randrange(4)
        if kind == 3:
            await stream.foreign(keys, bounds=dice.random() < 0.5)
        else:
            await stream.ours(keys, damage=kind == 2)
    deleted = dice.choice(stream.lake.files)
    positions = dice.sample(range(deleted.record_count), min(3, deleted.record_count))
    await stream.lake.delete(*((deleted.path, position) for position in positions))
    read = pq.read_table(
        io.BytesIO(await stream.lake.store.get(deleted.path.removeprefix(f"{stream.lake.store.url}/")))
    )
    gone = {read.column("_offset")[position].as_py() for position in positions}
    reader = stream.reader()
    start, end = dice.randint(0, stream.end // 2), dice.randint(stream.end // 2, stream.end)
    ranges = Ranges.between({0: start}, {0: end})
    for key in (*dice.sample(known, 5), b"never"):
        enough = dice.randint(1, 200)
        if not ranges:
            break
        found, since = await stream.offsets(reader, key, ranges, enough)
        assert found == wanted(stream, key, since, end, gone)
        assert len(found) >= enough or since == start


async def test_what_lacks_the_key_is_not_read() -> None:
    stream = Stream()
    for number in range(20):
        await stream.ours([b"%d-%d" % (number, row) for row in range(120)])
    store, reader = stream.lake.store, stream.reader()
    assert isinstance(store, CountedObjects)
    ranges = Ranges.between({0: 0}, {0: stream.end})
    assert await stream.offsets(reader, b"never", ranges, 1) == ([], 0)
    # The filters of each file in one piece, and no rows.
    assert store.reads <= 20 + 2
    store.reads = 0
    assert (await stream.offsets(reader, b"3-77", ranges, 1))[0] == [3 * 120 + 77]
    assert 1 <= store.reads <= 4
    store.reads = 0
    assert (await stream.offsets(reader, b"19-119", ranges, 1))[0] == [2399]
    assert store.reads <= 4
