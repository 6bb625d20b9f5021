"""What the n-th commit of a table costs: one small file each, as an engine that polls makes them.

Snapshots are capped and manifests merged as part of the commit, so a thousand commits later it should cost the same.
"""

import asyncio
import io
import random
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow

from benchmarks.result import QUICK, Result, stays_under
from lakestream.catalog.port import View
from lakestream.catalog.tables import PyIcebergTables
from lakestream.metadata.sqlite import open_sqlite
from lakestream.model import WrittenFile
from lakestream.runtime import Runtime, system
from lakestream.table.schema import RAW_SCHEMA

POINTS: Final = (10, 100, 300) if QUICK else (10, 100, 300, 1_000)
AROUND: Final = 8
"""Commits before and after that a point is the median of. Their mean has the merges of manifests that fall among
them, the largest that there are at the last point."""
LIMIT: Final = 1.5
MEAN_LIMIT: Final = 2.0
ROWS: Final = 50
PARTITIONS: Final = 5
TOPIC: Final = UUID("11111111-1111-4111-8111-111111111111")


@dataclass(frozen=True, slots=True)
class Point:
    number: int
    median_ms: float
    mean_ms: float
    metadata_bytes: int
    manifests: int
    snapshots: int


def run() -> list[Result]:
    points = asyncio.run(_points())
    for point in points:
        print(
            f"commit {point.number:,}: median {point.median_ms:.1f} ms, mean {point.mean_ms:.1f} ms, "
            f"metadata {point.metadata_bytes:,} bytes, {point.manifests} manifests, {point.snapshots} snapshots"
        )
    first, last = points[0], points[-1]
    name = f"commit {last.number:,} beside commit {first.number}"
    return [
        stays_under(name, last.median_ms / first.median_ms, "×", at_most=LIMIT),
        stays_under(f"{name}, merges counted in", last.mean_ms / first.mean_ms, "×", at_most=MEAN_LIMIT),
    ]


async def _points() -> list[Point]:
    runtime = Runtime(system().clock, random.Random(7))
    with tempfile.TemporaryDirectory(prefix="lakestream-bench-") as directory:
        store = await open_sqlite(f"{directory}/metadata.db")
        tables = PyIcebergTables(store, f"file://{directory}/bucket", runtime)
        try:
            view = await tables.create(TOPIC, "orders", PARTITIONS)
            seconds: list[float] = []
            states: dict[int, tuple[int, int, int]] = {}
            for number in range(1, POINTS[-1] + AROUND + 1):
                file = _file(view, number)
                started = time.perf_counter()
                frontier = tuple(end + ROWS // PARTITIONS for end in view.frontier)
                view = await tables.commit(view, add=[file], remove=(), frontier=frontier)
                seconds.append(time.perf_counter() - started)
                if number in POINTS:
                    states[number] = await _state(tables, view)
            return _summed(seconds, states)
        finally:
            await tables.close()
            await store.close()


def _summed(seconds: list[float], states: Mapping[int, tuple[int, int, int]]) -> list[Point]:
    points = []
    for number, state in states.items():
        around = [second * 1000 for second in seconds[max(0, number - 1 - AROUND) : number + AROUND]]
        points.append(Point(number, statistics.median(around), statistics.mean(around), *state))
    return points


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
    pq.write_table(pa.Table.from_pylist(rows, schema_to_pyarrow(RAW_SCHEMA, include_field_ids=True)), sink)
    return sink.getvalue()
