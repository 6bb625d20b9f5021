"""What the n-th commit of a table costs: one small file each, as an engine that polls makes them.

Snapshots are capped and manifests merged as part of the commit, so a thousand commits later it should cost the same.
Another table is warmed up on first: what a process pays once is not to make the 10th commit look dear. The results are
of the wall clock, which has the disk's syncs in it; processor time, and what was written, say how much work it was.
"""

import asyncio
import io
import random
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow

from benchmarks.result import QUICK, Result, stays_under, with_curve
from lakestream.catalog.embedded.tables import PyIcebergTables
from lakestream.metadata.stores.sqlite.store import open_sqlite
from lakestream.model import WrittenFile
from lakestream.runtime import Runtime, system
from lakestream.table.parquet.metrics import file_metrics
from lakestream.table.schema import iceberg_schema
from lakestream.table.shape import RAW
from lakestream.table.view import View

POINTS: Final = (10, 100, 300) if QUICK else (10, 100, 300, 1_000)
AROUND: Final = 8
"""Commits before and after that a point is the median of. Their mean has the merges of manifests that fall among
them, the largest that there are at the last point."""
TOGETHER: Final = 10
LIMIT: Final = 1.5
MEAN_LIMIT: Final = 2.0
ROWS: Final = 50
PARTITIONS: Final = 5
WARMING: Final = 30
TOPIC: Final = UUID("11111111-1111-4111-8111-111111111111")
WARM: Final = UUID("22222222-2222-4222-8222-222222222222")


class Cost(NamedTuple):
    wall_ms: float
    cpu_ms: float
    files: int
    file_bytes: int


@dataclass(frozen=True, slots=True)
class Point:
    number: int
    around: list[Cost]
    metadata_bytes: int
    manifests: int
    snapshots: int

    @property
    def median_ms(self) -> float:
        return statistics.median(each.wall_ms for each in self.around)

    @property
    def mean_ms(self) -> float:
        return statistics.mean(each.wall_ms for each in self.around)


def run() -> list[Result]:
    points, costs = asyncio.run(_points())
    for point in points:
        files = statistics.mean(each.files for each in point.around)
        file_bytes = statistics.mean(each.file_bytes for each in point.around)
        print(
            f"commit {point.number:,}: median {point.median_ms:.1f} ms, mean {point.mean_ms:.1f} ms, "
            f"processor {statistics.median(each.cpu_ms for each in point.around):.1f} ms, "
            f"mean {statistics.mean(each.cpu_ms for each in point.around):.1f} ms, "
            f"written {files:.1f} files, {file_bytes:,.0f} bytes; "
            f"metadata {point.metadata_bytes:,} bytes, {point.manifests} manifests, {point.snapshots} snapshots"
        )
    first, last = points[0], points[-1]
    name = f"commit {last.number:,} beside commit {first.number}"
    return [
        stays_under(name, last.median_ms / first.median_ms, "×", at_most=LIMIT),
        with_curve(
            stays_under(f"{name}, merges counted in", last.mean_ms / first.mean_ms, "×", at_most=MEAN_LIMIT),
            "commits",
            f"What a commit costs, merges and disk syncs included: means of {TOGETHER}",
            x="commits of the table",
            y="ms",
            points=[
                (start + TOGETHER, statistics.mean(each.wall_ms for each in costs[start : start + TOGETHER]))
                for start in range(0, POINTS[-1], TOGETHER)
            ],
        ),
    ]


async def _points() -> tuple[list[Point], list[Cost]]:
    """Also what each of the commits cost."""
    runtime = Runtime(system().clock, random.Random(7))
    with tempfile.TemporaryDirectory(prefix="lakestream-bench-") as directory:
        store = await open_sqlite(f"{directory}/metadata.db")
        tables = PyIcebergTables(store, f"file://{directory}/bucket", runtime)
        try:
            warm = await tables.create(WARM, "warm", PARTITIONS)
            for number in range(1, WARMING + 1):
                warm, _ = await _commit(tables, warm, number)
            view = await tables.create(TOPIC, "orders", PARTITIONS)
            costs: list[Cost] = []
            states: dict[int, tuple[int, int, int]] = {}
            for number in range(1, POINTS[-1] + AROUND + 1):
                view, cost = await _commit(tables, view, number)
                costs.append(cost)
                if number in POINTS:
                    states[number] = await _state(tables, view)
            points = [
                Point(number, costs[max(0, number - 1 - AROUND) : number + AROUND], *state)
                for number, state in states.items()
            ]
            return points, costs
        finally:
            await tables.close()
            await store.close()


async def _commit(tables: PyIcebergTables, view: View, number: int) -> tuple[View, Cost]:
    file = _file(view, number)
    before = _metadata_files(view)
    frontier = tuple(end + ROWS // PARTITIONS for end in view.frontier)
    started, cpu_started = time.perf_counter(), time.process_time()
    view = await tables.commit(view, add=[file], remove=(), frontier=frontier)
    wall_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu_started
    new = _metadata_files(view) - before
    return view, Cost(wall_s * 1000, cpu_s * 1000, len(new), sum(path.stat().st_size for path in new))


def _metadata_files(view: View) -> set[Path]:
    return set(Path(view.metadata_location.removeprefix("file://")).parent.iterdir())


async def _state(tables: PyIcebergTables, view: View) -> tuple[int, int, int]:
    current = await tables.commits.load(TOPIC)
    assert current is not None
    snapshot = current.metadata.current_snapshot()
    assert snapshot is not None
    manifests = tables.commits.index.manifests(snapshot.manifest_list)
    size_bytes = Path(view.metadata_location.removeprefix("file://")).stat().st_size
    return size_bytes, len(manifests), len(current.metadata.snapshots)


_written: dict[str, bytes] = {}


def _file(view: View, number: int) -> WrittenFile:
    """The same rows under a new name: what a file holds does not matter here, only that it is there."""
    data = _written.setdefault("rows", _rows())
    path = Path(f"{view.location.removeprefix('file://')}/data/{number}.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return WrittenFile(
        path=f"file://{path}",
        spec_id=0,
        size_bytes=len(data),
        record_count=ROWS,
        partition_min=0,
        partition_max=PARTITIONS - 1,
        offset_min=0,
        offset_max=ROWS // PARTITIONS - 1,
        timestamp_max_ms=0,
        metrics=file_metrics(pq.read_metadata(path), RAW),
    )


def _rows() -> bytes:
    each = ROWS // PARTITIONS
    rows = [
        {
            "_stream_partition": number // each,
            "_offset": number % each,
            "_timestamp": None,
            "_timestamp_type": 0,
            "_kind": 0,
            "_key": b"key",
            "_headers": [],
            "_headers_raw": None,
            "_value": bytes(100),
            "_schema_id": None,
            "_crc": 0,
        }
        for number in range(ROWS)
    ]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema_to_pyarrow(iceberg_schema(RAW), include_field_ids=True)), sink)
    return sink.getvalue()
