"""Streams that Spark makes, alters and drops, in one session."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from support.schemas.typed import TypedTopic
from support.worlds.source import Node, source_node

from lakestream.metadata.topics.list import Topic

pytestmark = pytest.mark.spark
DAY_US = 86_400_000_000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with source_node(tmp_path_factory.mktemp("first"), **{"stream.view_check_ms": 50}) as opened:
        yield opened


@pytest.fixture(scope="module")
def lake(node: Node, spark: Any) -> str:
    for name, value in {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "rest",
        ".uri": node.uri,
        ".cache-enabled": "false",
    }.items():
        spark.conf.set(f"spark.sql.catalog.first{name}", value)
    spark.sql("CREATE NAMESPACE first.shop WITH DBPROPERTIES ('lakestream.partitions'='1')")
    return "first.shop"


def topic_of(node: Node, name: str) -> Topic | None:
    found: Topic | None = node.run(node.topics.by_names([name])).get(name)
    return found


def fields(node: Node, topic: str) -> list[str]:
    answer = httpx.get(f"{node.registry}/subjects/{topic}-value/versions/latest").json()
    source: dict[str, Any] = json.loads(answer["schema"])
    return [field["name"] for field in source["fields"]]


def test_create_alter_and_drop(node: Node, spark: Any, lake: str) -> None:
    spark.sql(
        f"CREATE TABLE {lake}.orders (id BIGINT COMMENT 'of the order', item STRING, n INT, ts TIMESTAMP,"
        " place STRUCT<city: STRING, lines: ARRAY<STRING>>) USING iceberg PARTITIONED BY (days(ts), bucket(4, id))"
        " TBLPROPERTIES ('lakestream.stream'='true', 'lakestream.key'='id', 'retention.ms'='60000', 'note'='mine')"
    )
    topic = topic_of(node, "shop.orders")
    assert topic is not None
    assert (topic.partitions, topic.options.key, topic.options.retention_ms) == (1, ("id",), 60000)
    shown = {row[0]: row[1] for row in spark.sql(f"SHOW TBLPROPERTIES {lake}.orders").collect()}
    assert (shown["lakestream.partitions"], shown["retention.ms"], shown["note"]) == ("1", "60000", "mine")
    with SchemaRegistryClient({"url": node.registry}) as registry:
        stream = TypedTopic(node, "shop.orders", registry)
        answer = httpx.get(f"{node.registry}/subjects/shop.orders-value/versions/latest").json()
        serialize = stream.avro(json.loads(answer["schema"]))
        rows = [
            {"id": n, "item": "a", "n": n, "ts": n * DAY_US, "place": {"city": "x", "lines": ["1", None]}}
            for n in range(6)
        ]
        stream.produce([serialize(row) for row in rows])
        assert stream.move() == 6
        found = spark.sql(f"SELECT id, n, date(ts), place.city FROM {lake}.orders WHERE n > 3 ORDER BY id").collect()
        assert [(row[0], row[1], str(row[2]), row[3]) for row in found] == [
            (4, 4, "1970-01-05", "x"),
            (5, 5, "1970-01-06", "x"),
        ]
        stream.check_fetched()
        for change in (
            "ADD COLUMN note STRING AFTER id",
            "RENAME COLUMN item TO thing",
            "ALTER COLUMN n TYPE BIGINT",
            "ADD COLUMN place.zip INT",
            "ALTER COLUMN ts FIRST",
            "DROP COLUMN note",
            "SET TBLPROPERTIES ('retention.ms'='70000')",
            "UNSET TBLPROPERTIES ('note')",
        ):
            spark.sql(f"ALTER TABLE {lake}.orders {change}")
        assert fields(node, "shop.orders") == ["ts", "id", "thing", "n", "place"]
        names = spark.table(f"{lake}.orders").columns
        assert names[:6] == ["ts", "id", "thing", "n", "place", "note"]
        found = spark.sql(f"SELECT thing, place.zip FROM {lake}.orders WHERE id = 2").collect()
        assert [tuple(row) for row in found] == [("a", None)]
        stream.check_fetched()
    after = topic_of(node, "shop.orders")
    assert after is not None
    assert after.options.retention_ms == 70000
    stream = "USING iceberg TBLPROPERTIES ('lakestream.stream'='true')"
    for wrong, why in (
        (f"ALTER TABLE {lake}.orders RENAME COLUMN _offset TO o", "cannot be dropped, renamed"),
        (f"ALTER TABLE {lake}.orders SET TBLPROPERTIES ('retention.ms'='soon')", "whole number"),
        (
            f"CREATE TABLE {lake}.w (id BIGINT NOT NULL) USING iceberg TBLPROPERTIES ('lakestream.stream'='true')",
            "NOT NULL",
        ),
        (
            f"CREATE TABLE {lake}.w USING iceberg TBLPROPERTIES ('lakestream.stream'='true') AS SELECT 1L AS id",
            "begins without rows",
        ),
    ):
        with pytest.raises(Exception, match=why):
            spark.sql(wrong)
    spark.sql(f"ALTER TABLE {lake}.orders RENAME TO shop.sales")
    assert spark.table(f"{lake}.sales").count() == 6
    spark.sql(f"DROP TABLE {lake}.sales")
    assert topic_of(node, "shop.orders") is None
    assert topic_of(node, "shop.w") is None


def test_a_sort_order_holds_for_merges_and_for_sparks_rewrites(node: Node, spark: Any, lake: str) -> None:
    spark.sql(
        f"CREATE TABLE {lake}.prices (item STRING, price INT) USING iceberg"
        " TBLPROPERTIES ('lakestream.stream'='true', 'lakestream.partitions'='1')"
    )
    spark.sql(f"ALTER TABLE {lake}.prices WRITE ORDERED BY item DESC NULLS LAST, bucket(4, price)")
    with SchemaRegistryClient({"url": node.registry}) as registry:
        topic = TypedTopic(node, "shop.prices", registry)
        serialize = topic.avro(json.loads(registry.get_latest_version("shop.prices-value").schema.schema_str))
        for first in (0, 50, 100):
            topic.produce([serialize({"item": f"i{n * 7 % 10}", "price": n}) for n in range(first, first + 50)])
            topic.move()
        topic.maintain(small_file_bytes=1 << 20)
        [merged] = topic.view().files
        assert merged.order_id == 1
        read = spark.read.parquet(merged.path.removeprefix("file://"))
        items = [row[0] for row in read.select("item").collect()]
        assert items == sorted(items, reverse=True)
        topic.check_fetched()
        found = spark.sql(f"SELECT count(*), sum(price) FROM {lake}.prices WHERE item = 'i7'").collect()
        assert [tuple(row) for row in found] == [(15, sum(n for n in range(150) if n * 7 % 10 == 7))]
        spark.sql(f"ALTER TABLE {lake}.prices WRITE ORDERED BY price DESC")
        spark.sql(
            "CALL first.system.rewrite_data_files(table => 'shop.prices', strategy => 'sort',"
            " options => map('rewrite-all', 'true'))"
        )
        topic.check_fetched()
        topic.produce([serialize({"item": "late", "price": 1})])
        topic.move()
        topic.maintain(small_file_bytes=1 << 20)
        topic.check_fetched()
        assert {file.order_id for file in topic.view().files} <= {0, 2}
