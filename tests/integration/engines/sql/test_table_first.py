"""Streams that begin as tables: engines make, alter, rename and drop them; a real producer writes at once."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import SchemaRegistryClient
from duckdb_extensions import import_extension
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import BadRequestError, ForbiddenError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, TruncateTransform
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType
from support.schemas.typed import TypedTopic, closing
from support.worlds.doors import duck as opened_duck
from support.worlds.doors import http_door
from support.worlds.embedded import embedded
from support.worlds.source import Node, source_node

from lakestream.table.shape import KIND_TYPED

COLUMNS = Schema(
    NestedField(1, "id", LongType(), doc="of the order"),
    NestedField(2, "item", StringType()),
    NestedField(3, "ts", TimestamptzType()),
)
BY_DAY = PartitionSpec(PartitionField(3, 1000, DayTransform(), "ts_day"))
DAY_US = 86_400_000_000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with source_node(tmp_path_factory.mktemp("first"), **{"stream.view_check_ms": 50}) as opened:
        opened.create("others")
        opened.produce("others", 1)
        opened.move()
        yield opened


@pytest.fixture
def rest(node: Node) -> Iterator[RestCatalog]:
    with closing(RestCatalog("lake", uri=node.uri)) as catalog:
        yield catalog


@pytest.fixture
def duck(node: Node) -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    for extension in ("avro", "httpfs", "iceberg"):
        import_extension(extension)
        connection.load_extension(extension)
    connection.execute(f"ATTACH '' AS lake (TYPE iceberg, ENDPOINT '{node.uri}', AUTHORIZATION_TYPE 'none')")
    yield connection
    connection.close()


def settings_of(node: Node, topic: str) -> tuple[int, dict[str, str]]:
    """Partitions and settings, as Kafka's clients see them."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    found = admin.list_topics(topic, timeout=30).topics[topic]
    configs = node.run(node.topics.by_names([topic]))[topic].configs
    return len(found.partitions), configs


def latest(node: Node, topic: str) -> Any:
    """Not by Confluent's client, which remembers it for a while."""
    return json.loads(httpx.get(f"{node.registry}/subjects/{topic}-value/versions/latest").json()["schema"])


def order(number: int) -> dict[str, Any]:
    return {"id": number, "item": f"item {number % 3}", "ts": (20_000 + number % 2) * DAY_US + number}


def test_pyiceberg_makes_a_stream_and_a_client_produces_at_once(node: Node, rest: RestCatalog) -> None:
    properties = {"lakestream.stream": "true", "lakestream.partitions": "1", "retention.ms": "86400000", "note": "x"}
    table = rest.create_table("default.orders", COLUMNS, partition_spec=BY_DAY, properties=properties)
    assert [field.name for field in table.schema().fields][:4] == ["id", "item", "ts", "_stream_partition"]
    assert table.properties["lakestream.partitions"] == "1"
    partitions, configs = settings_of(node, "orders")
    assert (partitions, configs["retention.ms"], configs["lakestream.value.format"]) == (1, "86400000", "schema_id")
    with pytest.raises(TableAlreadyExistsError):
        rest.create_table("default.orders", COLUMNS, properties=properties)
    with SchemaRegistryClient({"url": node.registry}) as registry:
        topic = TypedTopic(node, "orders", registry)
        serialize = topic.avro(latest(node, "orders"))
        topic.produce([serialize(order(number)) for number in range(40)])
        assert registry.get_versions("orders-value") == [1], "the derived schema is the one that they used"
        topic.check_fetched()
        assert topic.move() == 40
        rows = topic.rows()
        assert [rows[n]["id"] for n in range(40)] == list(range(40))
        assert {row["_kind"] for row in rows.values()} == {KIND_TYPED}
        assert {row["_value"] for row in rows.values()} == {None}
        topic.check_fetched()

        with rest.load_table("default.orders").update_schema() as change:
            change.add_column("note", StringType())
            change.rename_column("item", "thing")
            change.move_first("ts")
        assert [field["name"] for field in latest(node, "orders")["fields"]] == ["ts", "id", "thing", "note"]
        serialize = topic.avro(latest(node, "orders"))
        topic.produce([serialize({"ts": None, "id": n, "thing": "new", "note": f"n{n}"}) for n in range(40, 50)])
        topic.check_fetched()
        topic.move()
        assert topic.column("thing") == [order(n)["item"] for n in range(40)] + ["new"] * 10
        assert topic.column("note") == [None] * 40 + [f"n{n}" for n in range(40, 50)]
        topic.check_fetched()
    with pytest.raises(ForbiddenError, match="cannot be dropped, renamed"):
        with rest.load_table("default.orders").update_schema() as change:
            change.delete_column("_key")
    with rest.load_table("default.orders").transaction() as transaction:
        transaction.set_properties({"retention.ms": "3600000"})
    assert settings_of(node, "orders")[1]["retention.ms"] == "3600000"
    with pytest.raises(BadRequestError, match="whole number"), rest.load_table("default.orders").transaction() as wrong:
        wrong.set_properties({"retention.ms": "soon"})
    rest.rename_table("default.orders", "default.sales")
    assert rest.load_table("default.sales").scan().to_arrow().num_rows == 50
    rest.drop_table("default.sales")
    assert "orders" not in AdminClient({"bootstrap.servers": node.bootstrap}).list_topics(timeout=30).topics
    with pytest.raises(NoSuchTableError):
        rest.load_table("default.sales")
    [left] = [name for _, name in rest.list_tables("default") if name.startswith("sales__")]
    assert rest.load_table(f"default.{left}").scan().to_arrow().num_rows == 50


def test_staged_by_pyiceberg(node: Node, rest: RestCatalog) -> None:
    stream = {"lakestream.stream": "true"}
    with rest.create_table_transaction("default.staged", COLUMNS, partition_spec=BY_DAY, properties=stream):
        pass
    assert settings_of(node, "staged")[0] == 1
    assert "_offset" in rest.load_table("default.staged").schema().column_names
    rows = pa.table({"id": [1], "item": ["a"], "ts": pa.array([1], pa.timestamp("us", "UTC"))})
    with pytest.raises(ForbiddenError, match="begins without rows"):
        with rest.create_table_transaction("default.filled", COLUMNS, properties=stream) as transaction:
            transaction.append(rows)
    assert node.run(node.topics.by_names(["filled"])) == {}


def test_duckdb_makes_alters_and_drops_a_stream(node: Node, duck: duckdb.DuckDBPyConnection) -> None:
    duck.execute(
        "CREATE TABLE lake.default.clicks (id BIGINT, seen TIMESTAMPTZ) PARTITIONED BY (day(seen))"
        " WITH ('lakestream.stream'='true', 'lakestream.partitions'='3', 'lakestream.key'='id',"
        " 'cleanup.policy'='delete')"
    )
    partitions, configs = settings_of(node, "clicks")
    assert (partitions, configs["lakestream.key"], configs["cleanup.policy"]) == (3, "id", "delete")
    duck.execute("ALTER TABLE lake.default.clicks ADD COLUMN page VARCHAR")
    duck.execute("ALTER TABLE lake.default.clicks RENAME COLUMN id TO click")
    with SchemaRegistryClient({"url": node.registry}) as registry:
        assert [field["name"] for field in latest(node, "clicks")["fields"]] == ["click", "seen", "page"]
        assert registry.get_versions("clicks-value") == [1, 2, 3]
    assert settings_of(node, "clicks")[1]["lakestream.key"] == "click"
    duck.execute("CALL set_iceberg_table_properties(lake.default.clicks, {'retention.ms': '60000'})")
    assert settings_of(node, "clicks")[1]["retention.ms"] == "60000"
    with pytest.raises(duckdb.Error, match="colour is nothing"):
        duck.execute(
            "CREATE TABLE lake.default.wrong (id BIGINT) WITH ('lakestream.stream'='true', 'lakestream.colour'='x')"
        )
    with pytest.raises(duckdb.Error, match="begins without rows"):
        duck.execute("CREATE TABLE lake.default.filled WITH ('lakestream.stream'='true') AS SELECT 1::BIGINT AS id")
    duck.execute("DROP TABLE lake.default.clicks")
    assert node.run(node.topics.by_names(["clicks", "wrong", "filled"])) == {}


def test_a_namespace_that_says_it(node: Node, rest: RestCatalog, duck: duckdb.DuckDBPyConnection) -> None:
    rest.create_namespace("live", {"lakestream.stream": "true", "lakestream.partitions": "2"})
    duck.execute("CREATE TABLE lake.live.events (id BIGINT)")
    assert settings_of(node, "live.events")[0] == 2
    assert duck.execute("SELECT count(*) FROM lake.live.events").fetchall() == [(0,)]


@pytest.mark.parametrize("rewrite_bytes", [1 << 27, 1 << 10], ids=["merged", "streamed"])
def test_files_come_into_the_owners_partitions(
    node: Node, rest: RestCatalog, duck: duckdb.DuckDBPyConnection, rewrite_bytes: int
) -> None:
    name = f"placed{rewrite_bytes}"
    spec = PartitionSpec(
        PartitionField(3, 1000, DayTransform(), "ts_day"), PartitionField(2, 1001, TruncateTransform(6), "item_start")
    )
    rest.create_table(f"default.{name}", COLUMNS, partition_spec=spec, properties={"lakestream.stream": "true"})
    with SchemaRegistryClient({"url": node.registry}) as registry:
        topic = TypedTopic(node, name, registry)
        serialize = topic.avro(latest(node, name))
        for first in range(0, 120, 40):
            topic.produce([serialize(order(number)) for number in range(first, first + 40)])
            topic.move()
    assert {file.spec_id for file in topic.view().files} <= {0, 1}
    small = 1 << 20 if rewrite_bytes > 1 << 20 else 1
    topic.maintain(small_file_bytes=small, max_rewrite_bytes=rewrite_bytes)
    view = topic.view()
    assert {file.spec_id for file in view.files} == {2}
    places = {(day, f"item {n}") for day in (20_000, 20_001) for n in range(3)}
    assert {file.place[:2] for file in view.files} == places
    topic.check_fetched()
    table = rest.load_table(f"default.{name}")
    day = "ts >= '2024-10-05T00:00:00+00:00' and item = 'item 1'"
    files = [task.file.file_path for task in table.scan(row_filter=day).plan_files()]
    assert 0 < len(files) < len(view.files)
    assert table.scan(row_filter=day).to_arrow().num_rows == 20
    counted = duck.execute(f"SELECT count(*), count(DISTINCT id) FROM lake.default.{name} WHERE item = 'item 1'")
    assert counted.fetchall() == [(40, 40)]
    with table.update_spec() as change:
        change.remove_field("item_start")
    for first in (120, 130, 140):
        topic.produce([serialize(order(number)) for number in range(first, first + 10)])
        topic.move()
    topic.maintain(small_file_bytes=1 << 20)
    assert sorted(topic.column("id")) == list(range(150))
    topic.check_fetched()
    assert {file.spec_id for file in topic.view().files} == {2, 3}, "files of an earlier spec stay as they are"
    assert {file.place[0] for file in topic.view().files if file.spec_id == 3} == {20_000, 20_001}


def test_the_first_table_of_a_cluster(tmp_path: Path) -> None:
    """Nothing was there before, not even a namespace that somebody made."""
    with embedded(tmp_path) as broker, http_door(tmp_path) as door, opened_duck(door) as engine:
        engine.execute("CREATE TABLE lake.default.orders (id BIGINT) WITH ('lakestream.stream'='true')")
        topics = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=30).topics
        assert "orders" in topics
        assert engine.execute("SELECT count(*) FROM lake.default.orders").fetchall() == [(0,)]
