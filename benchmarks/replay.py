"""Replay from the table: Parquet files in a directory to record batches, as a fetch below the frontier reads them, with
a broker's allocators and its collector of cycles; then through a real broker (`replay_served`)."""

import asyncio
import io
import tempfile
import time
from uuid import UUID

from benchmarks import replay_served
from benchmarks.records import make_runs
from benchmarks.result import QUICK, Result, reaches
from benchmarks.settled import settled
from lakestream.kafka.allocator import keep_freed_memory
from lakestream.model import DataFile
from lakestream.objects import LocalObjects
from lakestream.records import Arena, decode, warm_up
from lakestream.table.allocator import keep_decoded_memory
from lakestream.table.parquet.seal import sealed_name
from lakestream.table.parquet.writer import StreamFileWriter
from lakestream.table.reading.history import HistoryReader
from lakestream.table.shape import RAW
from lakestream.table.view import View

TOTAL_BYTES = 32_000_000 if QUICK else 128_000_000
FETCH_BYTES = 1024 * 1024
CACHE_BYTES = 64 * 1024 * 1024
"""Less than the history: its memory is used again and again, as in a long replay."""
ROUNDS = 2 if QUICK else 5
"""The best counts: the first also pays for fresh memory, and the machine is shared."""


def run() -> list[Result]:
    warm_up()
    keep_freed_memory()
    keep_decoded_memory()
    with settled():
        alone = [
            reaches(f"replay {value_bytes} B from Parquet, per core", _measure(value_bytes), "MB/s", at_least=400)
            for value_bytes in (1000, 100)
        ]
    return [*alone, *replay_served.run()]


def _measure(value_bytes: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        store = LocalObjects(folder)
        file = asyncio.run(_write(store, value_bytes))
        return max(asyncio.run(_replay(store, file)) for _ in range(ROUNDS))


async def _write(store: LocalObjects, value_bytes: int) -> DataFile:
    sink = io.BytesIO()
    writer = StreamFileWriter(sink, RAW)
    for columns in decode(make_runs(TOTAL_BYTES, value_bytes), Arena()):
        writer.write(columns)
    stats = writer.close()
    name = sealed_name("history.parquet", stats.footer_checksum)
    await store.put(name, [sink.getbuffer()])
    return DataFile(
        path=f"{store.url}/{name}",
        record_count=stats.record_count,
        size_bytes=stats.size_bytes,
        partition_min=stats.partition_min,
        partition_max=stats.partition_max,
        offset_min=stats.offset_min,
        offset_max=stats.offset_max,
        timestamp_max_ms=stats.timestamp_max_ms,
    )


async def _replay(store: LocalObjects, file: DataFile) -> float:
    """MB of record batches per second of CPU, all threads counted, nothing cached at first."""
    reader = HistoryReader(store, cache_bytes=CACHE_BYTES)
    view = View(UUID(int=1), "t", "", "", None, (), (file,), ())
    end_offset = (file.offset_max or 0) + 1
    offset = size_bytes = 0
    start_s = time.process_time()
    while offset < end_offset:
        history = await reader.read(view, partition=0, offset=offset, end_offset=end_offset, max_bytes=FETCH_BYTES)
        size_bytes += sum(map(len, history.parts))
        offset = history.next_offset
    return size_bytes / (time.process_time() - start_s) / 1e6
