"""Typed values into a table: our work on a tile, the check that columns give the same bytes included, beside the same
values through Spark's own `from_avro` and `from_json`, in CPU seconds of everything for a gigabyte of values.

Spark gets the values as a Parquet column, which costs it less than a Kafka source would; its session, its first job and
planning are left out on both sides.
"""

import asyncio
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.avro.functions import from_avro

from benchmarks.cpu import cpu_s
from benchmarks.result import QUICK, Result, at_most_of
from benchmarks.settled import settled
from benchmarks.typed import FRAME, Kind, kinds, runs_of, write_file
from lakestream.kafka.allocator import keep_freed_memory
from lakestream.objects import LocalObjects
from lakestream.pipeline import find_java
from lakestream.records import Arena, Columns, Run, decode, warm_up
from lakestream.schemas.codecs import install
from lakestream.schemas.codecs import warm_up as warm_up_codecs
from lakestream.schemas.growing import BY_ID, grown
from lakestream.table.parquet.arrow import to_arrow
from lakestream.table.shape import RAW

ROUNDS = 1 if QUICK else 3
_JSON_TYPES = {"integer": "BIGINT", "number": "DOUBLE", "string": "STRING", "boolean": "BOOLEAN"}


def run() -> list[Result]:
    os.environ.setdefault("JAVA_HOME", str(find_java()))
    install()
    warm_up()
    warm_up_codecs()
    keep_freed_memory()
    with settled(), tempfile.TemporaryDirectory(prefix="lakestream-bench-") as folder:
        session = _session(Path(folder))
        try:
            return [
                _measure(session, Path(folder), kind)
                for kind in kinds()
                if kind.schema.format != "PROTOBUF" and not kind.is_nested
            ]
        finally:
            session.stop()


def _session(folder: Path) -> SparkSession:
    jars = [str(jar) for jar in Path(os.environ["LAKESTREAM_SPARK_JARS"].split()[0]).parent.glob("*.jar")]
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.jars", ",".join(jars))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", str(folder))
        .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
        .config("spark.sql.catalog.lake.type", "hadoop")
        .config("spark.sql.catalog.lake.warehouse", str(folder / "lake"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def _measure(session: SparkSession, folder: Path, kind: Kind) -> Result:
    runs, value_bytes = runs_of(kind)
    gigabytes = value_bytes / 1e9
    shape = grown(RAW, [kind.schema], BY_ID, RAW.columns[-1].field_id, frozenset())
    arena, store = Arena(), LocalObjects(str(folder / "ours"))
    ours = min(asyncio.run(write_file(store, runs, shape, arena))[1] for _ in range(ROUNDS + 1))
    source = folder / f"{kind.name}.parquet"
    pq.write_table(_values(runs), source, compression="zstd")
    parse = _parser(kind)
    peer = min(_spark_s(session, source, parse, number) for number in range(ROUNDS + 1))
    return at_most_of(
        f"typed, {kind.name}: WAL to table, to Spark's own functions",
        ours / gigabytes,
        peer / gigabytes,
        "CPU s/GB",
        at_most=0.5,
    )


def _values(runs: list[Run]) -> pa.Table:
    tables = [to_arrow(columns, RAW).select(["_key", "_value"]) for columns in _fills(runs)]
    return pa.concat_tables(tables)


def _fills(runs: list[Run]) -> Iterator[Columns]:
    """Each in an arena of its own, which lives as long as its columns are used."""
    for run in runs:
        yield from decode([run], Arena())


def _parser(kind: Kind) -> Callable[[Column], Column]:
    if kind.schema.format == "JSON":
        fields = json.loads(kind.schema.text)["properties"]
        types = {name: each["type"] for name, each in fields.items()}
        names = {name: each if isinstance(each, str) else each[-1] for name, each in types.items()}
        columns = ", ".join(f"{name} {_JSON_TYPES[each]}" for name, each in names.items())
        return lambda value: sf.from_json(value.cast("string"), columns)
    return lambda value: from_avro(value, kind.schema.text)


def _spark_s(session: SparkSession, source: Path, parse: Callable[[Column], Column], number: int) -> float:
    before = cpu_s()
    value = parse(sf.expr(f"substring(_value, {len(FRAME) + 1})"))
    rows = session.read.parquet(str(source)).select("_key", value.alias("v")).select("_key", "v.*")
    rows.writeTo(f"lake.db.t{number}").using("iceberg").createOrReplace()
    return cpu_s() - before
