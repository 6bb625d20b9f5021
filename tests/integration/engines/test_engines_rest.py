"""Real engines on real tables through the REST door."""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from duckdb_extensions import import_extension
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException, ForbiddenError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.table.update import AssertRefSnapshotId, SetPropertiesUpdate
from pyiceberg.types import LongType, NestedField, StringType
from support.tables.files import Door, open_door

_names = count()


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    with open_door(tmp_path) as opened:
        yield opened


@pytest.fixture
def rest(door: Door) -> Iterator[RestCatalog]:
    catalog = RestCatalog("lake", uri=door.uri)
    yield catalog
    catalog.close()


@pytest.fixture
def duck(door: Door) -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    for extension in ("avro", "httpfs", "iceberg"):
        import_extension(extension)
        connection.load_extension(extension)
    connection.execute(f"ATTACH '' AS lake (TYPE iceberg, ENDPOINT '{door.uri}', AUTHORIZATION_TYPE 'none')")
    yield connection
    connection.close()


@pytest.fixture
def lake(spark: Any, door: Door) -> str:
    """The name of a Spark catalog on this test's door."""
    name = f"lake{next(_names)}"
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"spark.sql.catalog.{name}.type", "rest")
    spark.conf.set(f"spark.sql.catalog.{name}.uri", door.uri)
    spark.conf.set(f"spark.sql.catalog.{name}.cache-enabled", "false")
    return name


def test_pyiceberg_makes_fills_and_drops_a_table(rest: RestCatalog) -> None:
    rest.create_namespace("mine", {"owner": "me"})
    assert rest.list_namespaces() == [("mine",)]
    schema = Schema(NestedField(1, "n", LongType()), NestedField(2, "text", StringType()))
    table = rest.create_table("mine.t", schema)
    table.append(pa.table({"n": [1, 2, 3], "text": ["a", "b", "c"]}))
    assert rest.load_table("mine.t").scan().to_arrow().num_rows == 3
    with pytest.raises(TableAlreadyExistsError):
        rest.create_table("mine.t", schema)
    with table.transaction() as change:
        change.set_properties(note="kept")
        change.delete("n = 2")
    assert sorted(rest.load_table("mine.t").scan().to_arrow()["n"].to_pylist()) == [1, 3]
    with rest.create_table_transaction("mine.staged", schema) as staged:
        staged.append(pa.table({"n": [9], "text": ["z"]}))
    assert rest.load_table("mine.staged").scan().to_arrow()["n"].to_pylist() == [9]
    rest.rename_table("mine.staged", "mine.renamed")
    assert sorted(rest.list_tables("mine")) == [("mine", "renamed"), ("mine", "t")]
    rest.drop_table("mine.t")
    assert not rest.table_exists("mine.t")
    rest.purge_table("mine.renamed")
    with pytest.raises(NoSuchTableError):
        rest.load_table("mine.renamed")
    rest.drop_namespace("mine")


def test_pyiceberg_reads_a_stream_and_cannot_break_it(door: Door, rest: RestCatalog) -> None:
    door.create(partitions=2)
    for partition in (0, 1, 0):
        door.append(3, partition=partition)
    door.append(2, partition=1, spec_id=0)
    table = rest.load_table("default.orders")
    rows = table.scan().to_arrow()
    assert rows.num_rows == 11
    found = sorted(zip(rows["_stream_partition"].to_pylist(), rows["_offset"].to_pylist(), strict=True))
    assert found == [(0, n) for n in range(6)] + [(1, n) for n in range(5)]
    assert table.scan(row_filter="_stream_partition = 1 and _offset >= 3").to_arrow().num_rows == 2
    with pytest.raises(ForbiddenError, match="fall"), table.transaction() as change:
        change.set_properties({"lakestream.frontier": "0,0"})
    with pytest.raises(ForbiddenError, match="living topic"):
        rest.drop_table("default.orders")
    assert door.load().frontier == (6, 5)


def test_pyiceberg_with_a_stale_table_conflicts(door: Door, rest: RestCatalog) -> None:
    door.create()
    door.append(3)
    stale = rest.load_table("default.orders")
    view = door.append(3)
    expected = AssertRefSnapshotId.model_validate({"ref": "main", "snapshot-id": stale.metadata.current_snapshot_id})
    with pytest.raises(CommitFailedException, match="main has changed"):
        rest.commit_table(stale, (expected,), (SetPropertiesUpdate(updates={"a": "1"}),))
    assert door.load() == view


def test_duckdb_reads_a_stream(door: Door, duck: duckdb.DuckDBPyConnection) -> None:
    door.create(partitions=2)
    door.append(4)
    door.append(3, partition=1)
    door.append(2, spec_id=0)
    select = (
        "SELECT _stream_partition, count(*), min(_offset), max(_offset) FROM lake.default.orders GROUP BY 1 ORDER BY 1"
    )
    assert duck.execute(select).fetchall() == [(0, 6, 0, 5), (1, 3, 0, 2)]
    found = duck.sql("SELECT * FROM lake.default.orders WHERE _stream_partition = 0 AND _offset = 5").to_arrow_table()
    [row] = found.to_pylist()
    assert (row["_offset"], row["_value"], row["_crc"]) == (5, b"v5", 7)
    assert row["_timestamp"] == datetime.fromtimestamp(5, UTC)


def test_duckdb_makes_a_table_of_a_query(door: Door, duck: duckdb.DuckDBPyConnection) -> None:
    door.create()
    door.append(3)
    duck.execute("CREATE TABLE lake.default.made AS SELECT _offset AS n FROM lake.default.orders")
    assert duck.execute("SELECT n FROM lake.default.made ORDER BY n").fetchall() == [(0,), (1,), (2,)]


def test_duckdb_makes_and_fills_a_table(duck: duckdb.DuckDBPyConnection) -> None:
    duck.execute("CREATE SCHEMA lake.mine")
    duck.execute("CREATE TABLE lake.mine.t (n BIGINT, text VARCHAR)")
    duck.execute("INSERT INTO lake.mine.t VALUES (1, 'a'), (2, 'b')")
    assert duck.execute("SELECT sum(n) FROM lake.mine.t").fetchall() == [(3,)]
    duck.execute("DROP TABLE lake.mine.t")
    assert duck.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 't'").fetchall() == [(0,)]


@pytest.mark.spark
def test_spark_reads_rewrites_and_deletes_beside_the_stream(door: Door, spark: Any, lake: str) -> None:
    door.create(partitions=2)
    for _ in range(3):
        door.append(4, spec_id=1)
    door.append(5, partition=1, spec_id=0)
    table = f"{lake}.default.orders"
    rows = spark.sql(f"SELECT * FROM {table} ORDER BY _stream_partition, _offset").collect()
    assert [(row["_stream_partition"], row["_offset"]) for row in rows] == [
        *((0, n) for n in range(12)),
        *((1, n) for n in range(5)),
    ]
    assert bytes(rows[7]["_value"]) == b"v7"

    before = door.load()
    spark.sql(
        f"CALL {lake}.system.rewrite_data_files(table => 'default.orders', options => map('rewrite-all', 'true'))"
    )
    rewritten = door.load()
    assert rewritten.metadata_location != before.metadata_location
    assert rewritten.frontier == before.frontier == (12, 5)
    assert not {file.path for file in rewritten.files} & {file.path for file in before.files}
    assert sorted((file.partition_min, file.offset_min, file.offset_max) for file in rewritten.files) == [
        (0, 0, 11),
        (1, 0, 4),
    ]
    assert all(file.partition_min == file.partition_max for file in rewritten.files)
    assert {file.timestamp_max_ms for file in rewritten.files} == {11_000, 4_000}

    door.append(2)
    spark.sql(f"DELETE FROM {table} WHERE _stream_partition = 0 AND _offset BETWEEN 3 AND 5")
    assert spark.sql(f"SELECT count(*) FROM {table}").collect()[0][0] == 16
    assert sum(file.record_count for file in door.load().files) == 16
    after = door.append(3, partition=1)
    assert after.frontier == (14, 8)
    assert spark.sql(f"SELECT count(*) FROM {table}").collect()[0][0] == 19


@pytest.mark.spark
def test_spark_rewrites_and_deletes_while_the_stream_runs(door: Door, spark: Any, lake: str) -> None:
    door.create()
    for _ in range(3):
        door.append(4)
    table = f"{lake}.default.orders"
    with door.appending():
        spark.sql(f"DELETE FROM {table} WHERE _offset BETWEEN 3 AND 5")
        options = "options => map('rewrite-all', 'true')"
        spark.sql(f"CALL {lake}.system.rewrite_data_files(table => 'default.orders', {options})")
        spark.sql(f"UPDATE {table} SET _schema_id = 1 WHERE _offset = 2")
    view = door.load()
    end = view.frontier[0]
    assert end > 13
    expected = [offset for offset in range(end) if offset not in (3, 4, 5)]
    rows = spark.sql(f"SELECT _offset, _schema_id FROM {table} ORDER BY 1").collect()
    assert [row[0] for row in rows] == expected
    assert [row[0] for row in rows if row[1] == 1] == [2]
    assert sum(file.record_count for file in view.files) == len(expected)


@pytest.mark.spark
def test_spark_with_position_deletes_and_expiry(door: Door, spark: Any, lake: str) -> None:
    door.create()
    door.append(6)
    table = f"{lake}.default.orders"
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    spark.sql(f"DELETE FROM {table} WHERE _offset = 2")
    view = door.load()
    assert (len(view.files), len(view.deletes)) == (1, 1)
    assert view.deletes[0].path.endswith(".parquet")
    after = door.append(2)
    assert (len(after.files), after.deletes, after.frontier) == (2, view.deletes, (8,))
    assert [row[0] for row in spark.sql(f"SELECT _offset FROM {table} ORDER BY 1").collect()] == [0, 1, 3, 4, 5, 6, 7]

    spark.sql(
        f"CALL {lake}.system.expire_snapshots(table => 'default.orders',"
        " older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
    )
    assert door.load().files == after.files
    assert door.append(1).frontier == (9,)
    assert spark.sql(f"SELECT count(*) FROM {table}").collect()[0][0] == 8


@pytest.mark.spark
def test_spark_makes_its_own_tables(door: Door, spark: Any, lake: str) -> None:
    spark.sql(f"CREATE NAMESPACE {lake}.mine")
    spark.sql(f"CREATE TABLE {lake}.mine.made AS SELECT id FROM range(10)")
    spark.sql(f"INSERT INTO {lake}.mine.made VALUES (10)")
    spark.sql(f"UPDATE {lake}.mine.made SET id = -1 WHERE id = 10")
    assert spark.sql(f"SELECT sum(id) FROM {lake}.mine.made").collect()[0][0] == 44
    spark.sql(f"ALTER TABLE {lake}.mine.made ADD COLUMN more string")
    spark.sql(f"CREATE OR REPLACE TABLE {lake}.mine.made AS SELECT 'x' AS word")
    assert spark.sql(f"SELECT * FROM {lake}.mine.made").collect() == [("x",)]
    assert [row["tableName"] for row in spark.sql(f"SHOW TABLES IN {lake}.mine").collect()] == ["made"]
    spark.sql(f"DROP TABLE {lake}.mine.made PURGE")
    assert spark.sql(f"SHOW TABLES IN {lake}.mine").collect() == []
