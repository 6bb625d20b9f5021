"""Maintenance of a table: small files merged into one, and keys folded to the newest record of each.

On a local directory, MB of values as they were produced per second of CPU, all threads counted.
"""

import asyncio
import io
import tempfile
import time

from benchmarks.records import make_runs
from benchmarks.result import QUICK, Result, reaches
from lakestream.model import DataFile
from lakestream.objects import LocalObjects
from lakestream.records import Arena, decode, warm_up
from lakestream.table.parquet.seal import sealed_name
from lakestream.table.parquet.writer import StreamFileWriter
from lakestream.table.rewriting.folding import KEY_COLUMNS, Newest, keeper
from lakestream.table.rewriting.rewriter import Rewriter
from lakestream.table.shape import RAW

TOTAL_BYTES = 16_000_000 if QUICK else 64_000_000
FILES = 32
ROUNDS = 2 if QUICK else 4


def run() -> list[Result]:
    warm_up()
    found = []
    for value_bytes in (1000, 100):
        merge, fold = _measure(value_bytes)
        found.append(reaches(f"merge {FILES} files of {value_bytes} B values, per core", merge, "MB/s", at_least=50))
        found.append(reaches(f"fold the keys of {value_bytes} B values, per core", fold, "MB/s", at_least=50))
    return found


def _measure(value_bytes: int) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder:
        store = LocalObjects(folder)
        files = asyncio.run(_write(store, value_bytes))
        size_mb = sum(file.record_count for file in files) * value_bytes / 1e6
        merges = [size_mb / asyncio.run(_merge(store, files)) for _ in range(ROUNDS)]
        folds = [size_mb / asyncio.run(_fold(store, files)) for _ in range(ROUNDS)]
        return max(merges), max(folds)


async def _write(store: LocalObjects, value_bytes: int) -> list[DataFile]:
    """One partition in files of equal size, neighbours."""
    [columns] = decode(make_runs(TOTAL_BYTES, value_bytes), Arena(2 * TOTAL_BYTES))
    share = -(-len(columns) // FILES)
    files = []
    for number in range(FILES):
        sink = io.BytesIO()
        writer = StreamFileWriter(sink, RAW)
        writer.write(columns.slice(number * share, min(len(columns), (number + 1) * share)))
        stats = writer.close()
        name = sealed_name(f"{number}.parquet", stats.footer_checksum)
        await store.put(name, [sink.getbuffer()])
        places = (stats.partition_min, stats.partition_max, stats.offset_min, stats.offset_max)
        files.append(DataFile(f"{store.url}/{name}", stats.record_count, stats.size_bytes, *places, None))
    return files


async def _merge(store: LocalObjects, files: list[DataFile]) -> float:
    start_s = time.process_time()
    merged = await Rewriter(store, max_bytes=8 * TOTAL_BYTES).rewrite(files, (), shape=RAW, own_file_bytes=1)
    assert sum(file.stats.record_count for file in merged) == sum(file.record_count for file in files)
    return time.process_time() - start_s


async def _fold(store: LocalObjects, files: list[DataFile]) -> float:
    start_s = time.process_time()
    rewriter = Rewriter(store, max_bytes=8 * TOTAL_BYTES)
    newest, deleted = Newest(), await rewriter.deleted(())
    for file in files:
        await rewriter.read(file, deleted, KEY_COLUMNS, newest.add)
    await rewriter.rewrite(files, (), shape=RAW, own_file_bytes=1, keep=keeper(newest, {}))
    return time.process_time() - start_s
