"""One table, many engines, the same rows: each with a reader of its own, through the REST door."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import polars as pl
import pytest
from duckdb_extensions import import_extension
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table
from pyiceberg_core.datafusion import IcebergDataFusionTable
from support.tables.files import Door, open_door

Rows = list[tuple[int, int, bytes]]
COLUMNS = "_stream_partition, _offset, _value"


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A table with files of both specs, one partition's and shared ones, over several snapshots."""
    folder: Path = tmp_path_factory.mktemp("lake")
    with open_door(folder) as opened:
        opened.create(partitions=3)
        for partition in (0, 1, 0, 2):
            opened.append(40, partition=partition)
        opened.append(7, partition=1, spec_id=0)
        yield opened


@pytest.fixture
def table(door: Door) -> Iterator[Table]:
    catalog = RestCatalog("lake", uri=door.uri)
    yield catalog.load_table("default.orders")
    catalog.close()


def _expected() -> Rows:
    ends = {0: 80, 1: 47, 2: 40}
    return [(partition, offset, b"v%d" % offset) for partition, end in ends.items() for offset in range(end)]


def _pyiceberg(table: Table) -> Rows:
    rows = table.scan(selected_fields=tuple(COLUMNS.split(", "))).to_arrow().to_pylist()
    return [(row["_stream_partition"], row["_offset"], row["_value"]) for row in rows]


def _polars(table: Table) -> Rows:
    return pl.scan_iceberg(table).select(COLUMNS.split(", ")).collect().rows()


def _datafusion(table: Table) -> Rows:
    """With iceberg-rust, which reads metadata, manifests and files without PyIceberg."""
    context = datafusion.SessionContext()
    provider = IcebergDataFusionTable(
        identifier=table.name(), metadata_location=table.metadata_location, file_io_properties={}
    )
    context.register_table("orders", provider)
    found = context.sql(f"SELECT {COLUMNS} FROM orders").to_pydict()
    return list(zip(found["_stream_partition"], found["_offset"], found["_value"], strict=True))


@pytest.mark.parametrize("read", [_pyiceberg, _polars, _datafusion], ids=["pyiceberg", "polars", "datafusion"])
@pytest.mark.filterwarnings("ignore:Iceberg scan planning")
def test_an_engine_in_this_process(table: Table, read: Callable[[Table], Rows]) -> None:
    assert sorted(read(table)) == _expected()


def test_duckdb(door: Door) -> None:
    with duckdb.connect() as duck:
        for extension in ("avro", "httpfs", "iceberg"):
            import_extension(extension)
            duck.load_extension(extension)
        duck.execute(f"ATTACH '' AS lake (TYPE iceberg, ENDPOINT '{door.uri}', AUTHORIZATION_TYPE 'none')")
        rows = duck.execute(f"SELECT {COLUMNS} FROM lake.default.orders").fetchall()
        duck.execute("DETACH lake")
    assert sorted(rows) == _expected()


@pytest.mark.spark
def test_spark(door: Door, spark: Any) -> None:
    name = "same_rows"
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"spark.sql.catalog.{name}.type", "rest")
    spark.conf.set(f"spark.sql.catalog.{name}.uri", door.uri)
    rows = spark.sql(f"SELECT {COLUMNS} FROM {name}.default.orders").collect()
    assert sorted((row[0], row[1], bytes(row[2])) for row in rows) == _expected()
