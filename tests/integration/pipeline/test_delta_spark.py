"""The Delta mirror beside Spark: Delta's own reader and VACUUM, and Iceberg's rewrites and deletes beside it."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.tables.delta import KEYS, Rows, Scene, age, delta_rs, expected, scene

from lakestream.catalog.mirrored import TAG
from lakestream.frontier.delta import Mirrored

pytestmark = pytest.mark.spark
_names = count()


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as made:
        yield made


@pytest.fixture
def orders(spark: Any, lake: Scene) -> str:
    """The Iceberg table's name in a Spark catalog on this test's door."""
    name = f"delta{next(_names)}"
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"spark.sql.catalog.{name}.type", "rest")
    spark.conf.set(f"spark.sql.catalog.{name}.uri", lake.uri)
    spark.conf.set(f"spark.sql.catalog.{name}.cache-enabled", "false")
    return f"{name}.default.orders"


def read(spark: Any, source: str) -> Rows:
    rows = spark.sql(f"SELECT {', '.join(KEYS)} FROM {source}").collect()
    return sorted((partition, offset, bytes(value)) for partition, offset, value in rows)


def test_rewrites_and_deletes_reach_the_mirror(spark: Any, lake: Scene, orders: str) -> None:
    mirror = f"delta.`{lake.folder}`"
    for _ in range(3):
        lake.append(20)
    lake.append(5, partition=1)
    lake.mirror()
    assert read(spark, mirror) == read(spark, orders) == expected(60, 5)

    catalog = orders.partition(".")[0]
    spark.sql(
        f"CALL {catalog}.system.rewrite_data_files(table => 'default.orders', options => map('rewrite-all', 'true'))"
    )
    assert lake.mirror() == Mirrored(1)
    assert read(spark, mirror) == expected(60, 5)
    assert delta_rs(lake.folder) == expected(60, 5)
    assert all("/_data/" in file.path for file in lake.view.files)

    spark.sql(f"DELETE FROM {orders} WHERE _offset = 7")
    assert lake.mirror() == Mirrored(1)
    left = [row for row in expected(60, 5) if row[1] != 7]
    assert read(spark, mirror) == read(spark, orders) == delta_rs(lake.folder) == left
    lake.append(1)
    assert lake.mirror() == Mirrored(1)
    assert len(read(spark, mirror)) == len(left) + 1


def test_deletes_without_a_rewrite_stop_the_mirror_until_there_is_one(spark: Any, lake: Scene, orders: str) -> None:
    lake.append(20)
    lake.mirror()
    shown = lake.view.snapshot_id
    spark.sql(f"ALTER TABLE {orders} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    spark.sql(f"DELETE FROM {orders} WHERE _offset = 7")
    assert lake.view.deletes
    mirrors = lake.mirrors()
    [(topic, error)] = lake.mirror(mirrors).failures
    assert topic == "orders"
    assert "copy-on-write" in str(error)
    assert delta_rs(lake.folder) == expected(20)
    with lake.engine() as catalog:
        assert catalog.load_table("default.orders").metadata.refs[TAG].snapshot_id == shown

    options = "map('rewrite-all', 'true', 'remove-dangling-deletes', 'true')"
    name = orders.partition(".")[0]
    spark.sql(f"CALL {name}.system.rewrite_data_files(table => 'default.orders', options => {options})")
    assert lake.mirror(mirrors).failures == ()
    assert delta_rs(lake.folder) == read(spark, orders) == [row for row in expected(20) if row[1] != 7]


def vacuum(spark: Any, command: str) -> None:
    """As it is, with nothing to stop it."""
    settings = {
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        # Otherwise it lists the folder in 10,000 tasks.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        spark.sql(command).collect()
    finally:
        for name in settings:
            spark.conf.unset(name)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["VACUUM {}", "VACUUM {} LITE", "VACUUM {} RETAIN 0 HOURS"])
def test_vacuum_of_spark_breaks_neither_table(spark: Any, lake: Scene, command: str) -> None:
    """A file that only old snapshots of Iceberg name, one that Delta does not name yet, one that no table names yet."""
    lake.append(2)
    before = lake.append(3).snapshot_id
    lake.mirror()
    lake.replace()
    assert lake.mirror() == Mirrored(1)
    lake.append(1)
    fresh = lake.folder / "_data" / "tile.parquet"
    fresh.write_bytes(b"a worker is about to commit this")
    age(lake.folder)
    mirror = f"delta.`{lake.folder}`"
    vacuum(spark, command.format(mirror))
    assert fresh.exists()
    assert lake.rows() == expected(6)
    assert lake.rows(before) == expected(5)
    assert read(spark, mirror) == delta_rs(lake.folder) == expected(5)
    assert lake.mirror() == Mirrored(1)
    assert read(spark, mirror) == delta_rs(lake.folder) == expected(6)


@pytest.mark.slow
def test_a_forced_vacuum_by_the_log_takes_only_what_both_tables_have_left(spark: Any, lake: Scene) -> None:
    """It deletes by the log's tombstones and looks at no folder: older Iceberg snapshots lose their files, no more."""
    lake.append(2)
    lake.append(3)
    lake.mirror()
    lake.replace()
    lake.mirror()
    lake.append(1)
    mirror = f"delta.`{lake.folder}`"
    vacuum(spark, f"VACUUM {mirror} LITE RETAIN 0 HOURS")
    assert lake.rows() == expected(6)
    assert lake.mirror() == Mirrored(1)
    assert read(spark, mirror) == delta_rs(lake.folder) == expected(6)
