"""Spark plans with the pipeline's count of keys, and with its own statistics while a topic goes on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.worlds.processes import ProcessWorld

from lakestream import objects
from lakestream.catalog.embedded.tables import PyIcebergTables
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.tiles.local import LocalTiles
from lakestream.frontier.moving.worker import Worker
from lakestream.frontier.settings import PipelineSettings
from lakestream.frontier.upkeep.maintenance import Step
from lakestream.metadata.stores.sqlite.store import open_sqlite
from lakestream.metadata.topics.list import Topics
from lakestream.node.maintain import run_maintenance
from lakestream.runtime import system
from lakestream.settings import load
from lakestream.table.rewriting.distinct import KeySketch

pytestmark = pytest.mark.spark

TOPIC = "orders"
_names = count()


async def produce(cluster: ProcessWorld, keys: range) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 2})
    for number in keys:
        producer.produce(TOPIC, b"v%d" % number, b"key-%d" % number)
    assert producer.flush(30) == 0
    await _move(cluster)


async def _move(cluster: ProcessWorld) -> None:
    """Everything into the table, as a pipeline does."""
    runtime = system()
    store = await open_sqlite(str(cluster.data / "metadata.db"))
    bucket = objects.open(f"file://{cluster.data}/bucket")
    catalog = PyIcebergTables(store, bucket.url, runtime)
    try:
        lake = Lake(store, catalog, bucket, LocalTiles(bucket, runtime), runtime, PipelineSettings())
        worker = Worker(lake, Topics(store, runtime), name="test", respect_leases=False)
        while (tick := await worker.tick()).topics:
            assert not tick.failures, tick.failures
    finally:
        await catalog.close()
        await store.close()


async def count_keys(cluster: ProcessWorld) -> list[Step]:
    settings = load(None, {}, {"data_dir": str(cluster.data)})
    return await run_maintenance(settings, TOPIC, dry_run=False)


def _each(iterable: Any) -> Iterator[Any]:
    """Of Java or Scala."""
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()


def distinct_counts(spark: Any, table: str) -> dict[str, int]:
    """What the cost-based optimizer knows of a scan of the table, by column."""
    plan = spark.table(table)._jdf.queryExecution().optimizedPlan()
    found = {}
    for entry in _each(plan.stats().attributeStats()):
        if entry._2().distinctCount().isDefined():
            found[entry._1().name()] = int(entry._2().distinctCount().get())
    return found


def sketches(spark: Any, table: str) -> dict[int, bytes]:
    """By field, as Iceberg's own reader finds them in the statistics of the current snapshot."""
    iceberg = spark._jvm.org.apache.iceberg
    loaded = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, table)
    [file] = [f for f in loaded.statisticsFiles() if f.snapshotId() == loaded.currentSnapshot().snapshotId()]
    reader = iceberg.puffin.Puffin.read(loaded.io().newInputFile(file.path())).withFileSize(file.fileSizeInBytes())
    reader = reader.withFooterSize(file.fileFooterSizeInBytes()).build()
    found = {}
    try:
        for pair in _each(reader.readAll(reader.fileMetadata().blobs())):
            found[pair.first().inputFields()[0]] = bytes(
                spark._jvm.org.apache.iceberg.util.ByteBuffers.toByteArray(pair.second())
            )
    finally:
        reader.close()
    return found


@contextmanager
def cost_based(spark: Any) -> Iterator[None]:
    spark.conf.set("spark.sql.cbo.enabled", "true")
    try:
        yield
    finally:
        spark.conf.unset("spark.sql.cbo.enabled")


def joined(*parts: bytes) -> int:
    sketch = KeySketch()
    for part in parts:
        sketch.join(part)
    return sketch.result()[1]


async def test_spark_plans_with_counts_of_both_while_the_topic_goes_on(
    spark: Any, cluster: Callable[..., ProcessWorld]
) -> None:
    made = cluster(1, http=True)
    admin = AdminClient({"bootstrap.servers": made.bootstrap})
    config = {"lakestream.table.statistics.interval.ms": "0"}
    admin.create_topics([NewTopic(TOPIC, 2, config=config)])[TOPIC].result(30)
    lake = f"statistics{next(_names)}"
    spark.conf.set(f"spark.sql.catalog.{lake}", "org.apache.iceberg.spark.SparkCatalog")
    for key, value in (("type", "rest"), ("uri", made.catalog), ("cache-enabled", "false")):
        spark.conf.set(f"spark.sql.catalog.{lake}.{key}", value)
    table = f"{lake}.default.{TOPIC}"

    with cost_based(spark):
        await produce(made, range(300))
        assert distinct_counts(spark, table) == {}
        assert [(step.action, step.about) for step in await count_keys(made)] == [("count keys", "about 300")]
        assert distinct_counts(spark, table) == {"_key": 300}

        await produce(made, range(200, 400))
        assert distinct_counts(spark, table) == {"_key": 300}, "as counted, and taken along"
        assert [step.about for step in await count_keys(made)] == ["about 400"]
        assert distinct_counts(spark, table) == {"_key": 400}

        # Keys hash to the same in Spark's own sketches, in Iceberg's and in ours: their unions count each once.
        [(together,)] = spark.sql(
            f"SELECT theta_sketch_estimate(theta_union(X'{sketches(spark, table)[6].hex()}', theta_sketch_agg(_key)))"
            f" FROM {table}"
        ).collect()
        assert together == 400
        ours = sketches(spark, table)[6]
        spark.sql(f"CALL {lake}.system.compute_table_stats(table => 'default.{TOPIC}')").collect()
        theirs = sketches(spark, table)
        assert theirs.keys() > {6}
        assert joined(ours) == joined(theirs[6]) == joined(ours, theirs[6]) == 400
        before = distinct_counts(spark, table)
        assert before["_key"] == 400
        assert before["_offset"] > 100

        await produce(made, range(400, 410))
        assert distinct_counts(spark, table) == before, "a commit of ours takes Spark's along"
        assert [(step.about, step.rows) for step in await count_keys(made)] == [("about 410", 510)], (
            "from the beginning"
        )
        assert distinct_counts(spark, table) == before | {"_key": 410}
        assert sketches(spark, table).keys() == theirs.keys()
    assert len(list(made.data.glob("bucket/**/*.stats"))) <= 2
