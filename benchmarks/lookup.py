"""From an offset to the file that holds it: the index of a view's files, from a thousand files to a million.

The files are made up, in manifests as our commits merge them (250 entries, 1,000 in the largest table), 24 partitions
side by side. A lookup searches one view's index. A new view is what follows a commit: all manifests but one are known.
Loading is measured on manifests that were written and read with PyIceberg, as a broker that starts reads them.
"""

import gc
import random
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from pyiceberg.io import FileIO, load_file_io
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import (
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
)
from pyiceberg.typedef import Record

from benchmarks.result import QUICK, Result, reaches, stays_under, with_curve
from lakestream.catalog.manifests.index import ManifestIndex
from lakestream.catalog.manifests.merge import MANY_MANIFESTS, MAX_ENTRIES
from lakestream.model import DataFile
from lakestream.table.reading.files import FileIndex, FilePart
from lakestream.table.schema import OFFSET_WINDOW, iceberg_schema, stream_spec
from lakestream.table.shape import RAW

PARTITIONS = 24
RECORDS = 10_000
MANIFEST_FILES = 250
SIZES = (1_000, 10_000, 100_000) if QUICK else (1_000, 10_000, 100_000, 1_000_000)
LOOKUPS = 2_000
ROUNDS = 5
LOADED_FILES = 2_000 if QUICK else 10_000
LOOKUP_US = 50
NEW_VIEW_MS = 10


def run() -> list[Result]:
    measured = []
    for size in SIZES:
        parts = list(_parts(size))
        measured.append(_measure(size, parts))
        del parts
        gc.collect()
    lookups, views = (list(kind) for kind in zip(*measured, strict=True))
    lookups[-1] = _with_curve(lookups, "lookup", "From an offset to its file", "µs", LOOKUP_US)
    views[-1] = _with_curve(views, "new_view", "A new view after a commit", "ms", NEW_VIEW_MS)
    return [*lookups, *views, _memory(), _load()]


def _with_curve(results: list[Result], name: str, title: str, unit: str, limit: float) -> Result:
    """The last with the curve over all sizes."""
    points = [(size, result["ours"]) for size, result in zip(SIZES, results, strict=True)]
    return with_curve(results[-1], name, title, x="files in the table", y=unit, points=points, limit=limit)


def _measure(size: int, parts: list[FilePart]) -> tuple[Result, Result]:
    view = FileIndex(parts)
    dice = random.Random(size)
    end = size // PARTITIONS * RECORDS
    wanted = [(dice.randrange(PARTITIONS), dice.randrange(end)) for _ in range(LOOKUPS)]
    for partition in range(PARTITIONS):
        view.next_start(partition, 0)
    rounds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        found = [view.overlapping(partition, offset, offset) for partition, offset in wanted]
        rounds.append((time.perf_counter() - started) / LOOKUPS * 1e6)
        if any(len(files) != 1 for files in found):
            raise RuntimeError("an offset is in one file, and in one only")
    started = time.perf_counter()
    FileIndex([*parts, FilePart(islice(_files(), 1))]).overlapping(0, 0, 0)
    new_ms = (time.perf_counter() - started) * 1e3
    return (
        stays_under(f"lookup in {size:,} files", min(rounds), "µs", at_most=LOOKUP_US),
        stays_under(f"new view of {size:,} files", new_ms, "ms", at_most=NEW_VIEW_MS),
    )


def _memory() -> Result:
    """Of a file in the index, its name included."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    parts = list(_parts(10 * MANIFEST_FILES))
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return stays_under("index of a million files", held / sum(map(len, parts)), "MB", at_most=1_000)


def _load() -> Result:
    """Files per second that a process without an index reads out of manifests."""
    with tempfile.TemporaryDirectory() as folder:
        io = load_file_io({}, folder)
        entries = _files()
        manifests = [
            write_manifest_of(io, Path(folder) / f"{number}.avro", islice(entries, MANIFEST_FILES))
            for number in range(LOADED_FILES // MANIFEST_FILES)
        ]
        rates = []
        for _ in range(3):
            index = ManifestIndex(io)
            started = time.perf_counter()
            loaded = sum(len(index.get(manifest, RAW).files) for manifest in manifests)
            rates.append(loaded / (time.perf_counter() - started))
    return reaches("files of a cold index, loaded per second", statistics.median(rates), "1/s", at_least=5_000)


def write_manifest_of(io: FileIO, path: Path, files: Iterable[DataFile]) -> ManifestFile:
    with write_manifest(
        2, stream_spec(RAW), iceberg_schema(RAW), io.new_output(f"file://{path}"), 1, "deflate"
    ) as writer:
        for file in files:
            writer.add_entry(
                ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=1, data_file=_iceberg(file))
            )
    return writer.to_manifest_file()


def _iceberg(file: DataFile) -> IcebergFile:
    partition, low, high = file.partition_min or 0, file.offset_min or 0, file.offset_max or 0
    fields = {field.name: field.field_id for field in iceberg_schema(RAW).fields}
    place, offset = fields["_stream_partition"], fields["_offset"]
    return IcebergFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=Record(partition, low // OFFSET_WINDOW * OFFSET_WINDOW),
        record_count=file.record_count,
        file_size_in_bytes=file.size_bytes,
        column_sizes=dict.fromkeys(fields.values(), 1000),
        value_counts=dict.fromkeys(fields.values(), RECORDS),
        null_value_counts=dict.fromkeys(fields.values(), 0),
        nan_value_counts={},
        lower_bounds={place: partition.to_bytes(4, "little"), offset: low.to_bytes(8, "little")},
        upper_bounds={place: partition.to_bytes(4, "little"), offset: high.to_bytes(8, "little")},
    )


def _parts(size: int) -> Iterator[FilePart]:
    entries = _files()
    each = MANIFEST_FILES if size // MANIFEST_FILES < MANY_MANIFESTS else MAX_ENTRIES
    for _ in range(size // each):
        yield FilePart(islice(entries, each))


def _files() -> Iterator[DataFile]:
    """As a pipeline that is never idle leaves them: a file of each partition in every commit."""
    start = 0
    while True:
        for partition in range(PARTITIONS):
            yield DataFile(
                path=f"s3://bucket/tables/orders__0a1b2c3d/data/{partition:05d}-{start:020d}-{start:08x}-0000.parquet",
                record_count=RECORDS,
                size_bytes=10_000_000,
                partition_min=partition,
                partition_max=partition,
                offset_min=start,
                offset_max=start + RECORDS - 1,
                timestamp_max_ms=1_760_000_000_000 + start,
                spec_id=1,
            )
        start += RECORDS
