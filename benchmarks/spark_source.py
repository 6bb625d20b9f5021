"""`spark.read.format("lakestream")`, local[2]: history to Spark's rows, all columns, per CPU second of JVM and Python
workers together. The files are as the pipeline writes them; planning, which needs a cluster, is left out, and so are
the session and the first job. The same rows through Spark's own Parquet reader are the peer: it has no Python worker
and decodes into the JVM directly, but checks nothing.
"""

import asyncio
import io
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from benchmarks.cpu import cpu_s
from benchmarks.records import make_runs
from benchmarks.result import QUICK, Result, versus
from lakestream.model import DataFile
from lakestream.objects import LocalObjects
from lakestream.pipeline import find_java
from lakestream.records import Arena, Run, decode
from lakestream.spark_source.reading.batch import read_task
from lakestream.spark_source.reading.filters import RowFilter
from lakestream.spark_source.reading.plan import HistoryTask
from lakestream.spark_source.schema import SPARK_SCHEMA, wanted_columns
from lakestream.table.parquet.seal import sealed_name
from lakestream.table.parquet.writer import StreamFileWriter
from lakestream.table.reading.ranges import Ranges
from lakestream.table.shape import RAW

FILES = 4
FILE_BYTES = (8 if QUICK else 50) * 1_000_000
ROUNDS = 1 if QUICK else 3


class _Planned(DataSource):
    """The source with its tasks given: one for each file."""

    @classmethod
    def name(cls) -> str:
        return "planned"

    def schema(self) -> StructType:
        return SPARK_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return _PlannedReader(Path(self.options["path"]), schema)


class _PlannedReader(DataSourceReader):
    def __init__(self, folder: Path, schema: StructType) -> None:
        self._folder = folder
        self._columns = wanted_columns(schema)

    def partitions(self) -> list[HistoryTask]:
        location = LocalObjects(str(self._folder)).url
        rows = {path: int(path.name.split("-")[1]) for path in self._folder.glob("*.parquet")}
        files = [
            DataFile(f"{location}/{path.name}", count, path.stat().st_size, None, None, None, None, None)
            for path, count in rows.items()
        ]
        return [HistoryTask(location, (file,), (), Ranges({0: (0, 1 << 62)}), None) for file in files]

    def read(self, partition: Any) -> Any:
        return read_task(partition, self._columns, RowFilter(None), RAW)


def run() -> list[Result]:
    os.environ.setdefault("JAVA_HOME", str(find_java()))
    with tempfile.TemporaryDirectory(prefix="lakestream-bench-") as folder:
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.memory", "1g")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.python.daemon.module", "lakestream.pipeline.daemon")
            .config("spark.local.dir", folder)
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("ERROR")
        session.sparkContext.pythonExec = sys.executable
        session.dataSource.register(_Planned)
        try:
            return [_measure(session, Path(folder), size) for size in (1000, 100)]
        finally:
            session.stop()


def _measure(session: Any, folder: Path, value_bytes: int) -> Result:
    table = folder / f"table-{value_bytes}"
    value_total = asyncio.run(_write(LocalObjects(str(table)), value_bytes))
    ours = max(_rate(session, "planned", table, value_total) for _ in range(ROUNDS + 1))
    peer = max(_rate(session, "parquet", table, value_total) for _ in range(ROUNDS + 1))
    return versus(f"Spark source, {value_bytes} B from history, per core", ours, peer, "MB/s", at_least=0.4)


def _rate(session: Any, source: str, table: Path, value_total: int) -> float:
    before = cpu_s()
    session.read.format(source).load(str(table)).write.format("noop").mode("overwrite").save()
    return value_total / 1e6 / (cpu_s() - before)


async def _write(store: LocalObjects, value_bytes: int) -> int:
    total = offset = 0
    for number in range(FILES):
        sink = io.BytesIO()
        writer = StreamFileWriter(sink, RAW)
        runs = [Run(0, offset + run.base_offset, run.data) for run in make_runs(FILE_BYTES, value_bytes)]
        for columns in decode(runs, Arena()):
            writer.write(columns)
            total += int(columns.value.offsets[-1]) - int(columns.value.offsets[0])
        stats = writer.close()
        offset = stats.offset_max + 1
        await store.put(
            sealed_name(f"{number}-{stats.record_count}-x.parquet", stats.footer_checksum), [sink.getbuffer()]
        )
    return total
