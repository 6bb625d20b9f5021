"""The first record of any offset below the frontier, in a table of 10,000 files: nothing of the file is known before.

The index names 10,000 files; those that the sampled offsets lead to are real. Sorted means: another engine has sorted
each offset window by another column, so every file of the window spans all of its offsets. Warm: the index is there,
each file is met for the first time. Cold: the index too has to be read from the manifests. The collector of cycles is
set as a broker sets its own once all is loaded: what `benchmarks` imports besides would cost it 80 ms in one turn.
"""

import asyncio
import io
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import numpy as np
import pyarrow.parquet as pq
from pyiceberg.io import load_file_io

from benchmarks.lookup import MANIFEST_FILES, write_manifest_of
from benchmarks.records import make_runs
from benchmarks.result import QUICK, Result, stays_under
from benchmarks.settled import settled
from lakestream.catalog.manifests.index import ManifestIndex
from lakestream.model import DataFile
from lakestream.objects import LocalObjects
from lakestream.records import Arena, decode, warm_up
from lakestream.table.parquet.arrow import to_arrow
from lakestream.table.parquet.seal import sealed_name
from lakestream.table.parquet.writer import StreamFileWriter
from lakestream.table.reading.files import FileIndex, FilePart
from lakestream.table.reading.history import HistoryReader
from lakestream.table.shape import RAW
from lakestream.table.view import View

FILES = 10_000
FILE_RECORDS = 5_000
VALUE_BYTES = 200
WINDOW_FILES = 40
SAMPLES = 20 if QUICK else 100
WINDOWS = 2 if QUICK else 5
FETCH_BYTES = 1024 * 1024


def run() -> list[Result]:
    warm_up()
    with settled(), tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure(LocalObjects(folder), Path(folder)))


async def _measure(store: LocalObjects, folder: Path) -> list[Result]:
    dice = random.Random(3)
    made = _Files(store)
    plain = [dice.randrange(FILES) for _ in range(SAMPLES)]
    files = [_entry(f"{store.url}/none-{number}.parquet", number, 1) for number in range(FILES)]
    for number in set(plain):
        files[number] = await made.in_order(number)
    index = FileIndex([FilePart(files[at : at + MANIFEST_FILES]) for at in range(0, FILES, MANIFEST_FILES)])
    wanted = [number * FILE_RECORDS + dice.randrange(FILE_RECORDS) for number in plain]
    results = [_result("warm index", [await _first_ms(store, index, offset) for offset in wanted])]

    manifests = [
        write_manifest_of(load_file_io({}, str(folder)), folder / f"{at}.avro", files[at : at + MANIFEST_FILES])
        for at in range(0, FILES, MANIFEST_FILES)
    ]
    cold = []
    for offset in wanted[:3]:
        started = time.perf_counter()
        loaded = ManifestIndex(load_file_io({}, str(folder)))
        fresh = FileIndex([loaded.get(manifest).files for manifest in manifests])
        await _first_ms(store, fresh, offset)
        cold.append((time.perf_counter() - started) * 1e3)
    results.append(
        stays_under("first record of 10,000 files, cold index", statistics.median(cold), "ms", at_most=3_000)
    )

    files = [
        _entry(f"{store.url}/none-{number}.parquet", number // WINDOW_FILES * WINDOW_FILES, WINDOW_FILES)
        for number in range(FILES)
    ]
    windows = dice.sample(range(FILES // WINDOW_FILES), WINDOWS)
    for window in windows:
        at = window * WINDOW_FILES
        files[at : at + WINDOW_FILES] = await made.sorted_window(at)
    index = FileIndex([FilePart(files[at : at + MANIFEST_FILES]) for at in range(0, FILES, MANIFEST_FILES)])
    wanted = [
        (window * WINDOW_FILES + dice.randrange(WINDOW_FILES)) * FILE_RECORDS
        for window in windows * (SAMPLES // WINDOWS)
    ]
    times = [await _first_ms(store, index, offset, WINDOW_FILES) for offset in wanted]
    results.append(_result("sorted by another column", times))
    return results


def _result(name: str, times_ms: Sequence[float]) -> Result:
    """p99, or the slowest of few."""
    return stays_under(
        f"first record of 10,000 files, {name}, p99", float(np.percentile(times_ms, 99)), "ms", at_most=100
    )


async def _first_ms(store: LocalObjects, index: FileIndex, offset: int, span: int = 1) -> float:
    """With a reader that has seen no file yet. Nothing is asked for beyond the files that are real."""
    reader = HistoryReader(store)
    started = time.perf_counter()
    end = (offset // (span * FILE_RECORDS) + 1) * span * FILE_RECORDS
    history = await reader.read(_view(index), partition=0, offset=offset, end_offset=end, max_bytes=FETCH_BYTES)
    taken_ms = (time.perf_counter() - started) * 1e3
    if not history.parts or int.from_bytes(history.parts[0][:8], "big") != offset:
        raise RuntimeError(f"the first record is not that of offset {offset}")
    return taken_ms


def _entry(path: str, number: int, span: int, records: int = FILE_RECORDS, size_bytes: int = 1) -> DataFile:
    start = number * FILE_RECORDS
    return DataFile(path, records, size_bytes, 0, 0, start, start + span * FILE_RECORDS - 1, start, 1)


@dataclass(frozen=True, slots=True)
class _Files:
    """Real files with the records of `benchmarks.records`, numbered as asked."""

    store: LocalObjects

    async def in_order(self, number: int) -> DataFile:
        """As we write them."""
        sink = io.BytesIO()
        writer = StreamFileWriter(sink, RAW)
        runs = make_runs(FILE_RECORDS * VALUE_BYTES, VALUE_BYTES)
        first = [run._replace(base_offset=number * FILE_RECORDS + run.base_offset) for run in runs]
        [columns] = decode(first, Arena())
        writer.write(columns.slice(0, FILE_RECORDS))
        stats = writer.close()
        name = sealed_name(f"plain-{number}.parquet", stats.footer_checksum)
        await self.store.put(name, [sink.getbuffer()])
        return _entry(f"{self.store.url}/{name}", number, 1, stats.record_count, stats.size_bytes)

    async def sorted_window(self, number: int) -> list[DataFile]:
        """As another engine leaves a window: by key, a run of keys to each file."""
        records = FILE_RECORDS * WINDOW_FILES
        runs = make_runs(records * VALUE_BYTES, VALUE_BYTES)
        moved = [run._replace(base_offset=number * FILE_RECORDS + run.base_offset) for run in runs]
        [columns] = decode(moved, Arena(2 * records * VALUE_BYTES))
        table = to_arrow(columns, RAW).slice(0, records).sort_by("_key")
        found = []
        for place in range(WINDOW_FILES):
            sink = io.BytesIO()
            pq.write_table(table.slice(place * FILE_RECORDS, FILE_RECORDS), sink, compression="zstd")
            name = f"sorted-{number}-{place}.parquet"
            await self.store.put(name, [sink.getbuffer()])
            found.append(_entry(f"{self.store.url}/{name}", number, WINDOW_FILES, FILE_RECORDS, sink.tell()))
        return found


def _view(index: FileIndex) -> View:
    return View(UUID(int=1), "t", "", "", None, (), index, ())
