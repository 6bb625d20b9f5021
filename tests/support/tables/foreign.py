"""Tables whose files look the way another engine might have left them."""

import io
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.parquet as pq

from lakestream.model import DataFile, PositionDeletes
from lakestream.objects import MemoryObjects
from lakestream.records import Arena, Run, decode
from lakestream.runtime import system
from lakestream.table.parquet.arrow import to_arrow
from lakestream.table.reading.history import HistoryReader
from lakestream.table.shape import RAW
from lakestream.table.view import View
from support.clients.batches import batch
from support.clients.records import Record, parse
from support.tables.views import view_of

BASE_MS = 1_700_000_000_000


def table(offsets: Sequence[int], *, partition: int = 0, value_bytes: int = 20) -> pa.Table:
    """Rows as they are in a file. Record n has timestamp BASE_MS + 7 n mod 1000 and a value with its number."""
    runs = []
    for offset in offsets:
        value = None if offset % 11 == 3 else (b"%d-%d " % (partition, offset)).ljust(value_bytes, b".")
        data = batch(
            value,
            timestamp_ms=BASE_MS + 7 * offset % 1000,
            key=b"k%d" % offset if offset % 3 else None,
            headers=[("h", b"v"), ("n", None)] if offset % 5 == 0 else [],
        )
        runs.append(Run(partition, offset, data))
    (columns,) = decode(runs, Arena(1 << 17))
    return to_arrow(columns, RAW)


def expected(offset: int, partition: int = 0, value_bytes: int = 20) -> Record:
    return Record(
        offset,
        BASE_MS + 7 * offset % 1000,
        b"k%d" % offset if offset % 3 else None,
        None if offset % 11 == 3 else (b"%d-%d " % (partition, offset)).ljust(value_bytes, b"."),
        (("h", b"v"), ("n", None)) if offset % 5 == 0 else (),
    )


@dataclass
class Lake:
    store: MemoryObjects = field(default_factory=lambda: MemoryObjects(system().clock))
    files: list[DataFile] = field(default_factory=list)
    deletes: list[PositionDeletes] = field(default_factory=list)
    cache_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        self.reader = HistoryReader(self.store, cache_bytes=self.cache_bytes)

    async def add(self, rows: pa.Table, *, bounds: bool = True, **options: object) -> DataFile:
        sink = io.BytesIO()
        pq.write_table(rows, sink, **{"store_schema": False, **options})
        key = f"tables/t/data/{len(self.files)}.parquet"
        await self.store.put(key, [sink.getvalue()])
        offsets = rows.column("_offset").to_pylist()
        partitions = rows.column("_stream_partition").to_pylist()
        low, high = (min(partitions), min(offsets)), (max(partitions), max(offsets))
        file = DataFile(
            f"{self.store.url}/{key}", len(offsets), len(sink.getvalue()), low[0], high[0], low[1], high[1], None
        )
        if not bounds:
            file = replace(file, partition_min=None, partition_max=None, offset_min=None, offset_max=None)
        self.files.append(file)
        return file

    async def delete(self, *rows: tuple[str, int]) -> None:
        sink = io.BytesIO()
        pq.write_table(pa.table({"file_path": [path for path, _ in rows], "pos": [row for _, row in rows]}), sink)
        key = f"tables/t/data/{len(self.deletes)}-deletes.parquet"
        await self.store.put(key, [sink.getvalue()])
        self.deletes.append(PositionDeletes(f"{self.store.url}/{key}"))

    @property
    def view(self) -> View:
        return view_of(self.files, self.deletes)

    async def read(
        self, offset: int, end: int, *, partition: int = 0, max_bytes: int = 1 << 20
    ) -> tuple[list[Record], int]:
        history = await self.reader.read(
            view_of(self.files, self.deletes),
            partition=partition,
            offset=offset,
            end_offset=end,
            max_bytes=max_bytes,
        )
        return parse(history.parts), history.next_offset

    async def replay(self, offset: int, end: int, *, partition: int = 0, max_bytes: int = 300) -> list[Record]:
        found: list[Record] = []
        while offset < end:
            records, after = await self.read(offset, end, partition=partition, max_bytes=max_bytes)
            assert after > offset
            assert all(offset <= record.offset < after for record in records)
            assert records or after == end
            found += records
            offset = after
        return found


def shuffled(rows: pa.Table, seed: int) -> pa.Table:
    order = list(range(rows.num_rows))
    random.Random(seed).shuffle(order)
    return rows.take(order)
