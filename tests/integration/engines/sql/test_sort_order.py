"""A sort order that an engine gives the table of a stream: merges put rows in it, and consumers read on by offset."""

import io
import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, TimestamptzType
from support.schemas.avro import framed, written
from support.schemas.typed import ORDER, TypedTopic, closing, order, typed_topic
from support.worlds.source import Node, source_node

from lakestream.model import DataFile

DAY_US = 86_400_000_000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with source_node(tmp_path_factory.mktemp("sorted"), **{"stream.view_check_ms": 50}) as opened:
        yield opened


def values_in(node: Node, file: DataFile, *columns: str) -> list[tuple[Any, ...]]:
    """As they lie in the file."""
    data = node.run(node.lake.objects.get(file.path.removeprefix(node.lake.objects.url + "/")))
    rows = pq.ParquetFile(io.BytesIO(data)).read(list(columns))
    return list(zip(*(rows.column(name).to_pylist() for name in columns), strict=True))


def fill(topic: TypedTopic, count: int, rounds: int = 3) -> None:
    serialize = topic.avro(ORDER)
    dice = random.Random(count)
    for _ in range(rounds):
        topic.produce([serialize(order(dice.randrange(1000))) for _ in range(count // rounds)])
        topic.move()


@pytest.mark.parametrize("rewrite_bytes", [1 << 27, 1 << 10], ids=["merged", "in parts"])
def test_merged_files_are_in_the_owners_order(node: Node, rewrite_bytes: int) -> None:
    with typed_topic(node, f"sorted{rewrite_bytes}") as topic, closing(RestCatalog("lake", uri=node.uri)) as rest:
        fill(topic, 300)
        table = rest.load_table(f"default.{topic.name}")
        with table.update_sort_order() as change:
            change.desc("item", IdentityTransform())
            change.asc("amount", IdentityTransform(), NullOrder.NULLS_FIRST)
        small = 1 << 20 if rewrite_bytes > 1 << 20 else 1
        topic.maintain(small_file_bytes=small, max_rewrite_bytes=rewrite_bytes)
        files = topic.view().files
        assert {file.order_id for file in files} == {table.refresh().metadata.default_sort_order_id} == {1}
        for file in files:
            lying = values_in(node, file, "item", "amount")
            assert lying == sorted(
                sorted(lying, key=lambda row: (row[1] is not None, row[1] or 0)), key=lambda row: row[0], reverse=True
            )
            offsets = [row[0] for row in values_in(node, file, "_offset")]
            assert offsets != sorted(offsets)
        topic.check_fetched()
        assert topic.column("_offset") == list(range(300))
        before = {file.path for file in files}
        topic.maintain(small_file_bytes=1)
        assert {file.path for file in topic.view().files} == before, "what is in order stays"
        fill(topic, 60)
        topic.maintain(small_file_bytes=1 << 20)
        assert {file.order_id for file in topic.view().files} == {1}
        topic.check_fetched()


def test_order_and_partitions_together(node: Node) -> None:
    columns = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "item", StringType()),
        NestedField(3, "ts", TimestamptzType()),
        NestedField(4, "price", DoubleType()),
    )
    by_day = PartitionSpec(PartitionField(3, 1000, DayTransform(), "ts_day"))
    with closing(RestCatalog("lake", uri=node.uri)) as rest, SchemaRegistryClient({"url": node.registry}) as registry:
        table = rest.create_table(
            "default.both", columns, partition_spec=by_day, properties={"lakestream.stream": "true"}
        )
        with table.update_sort_order() as change:
            change.asc("price", IdentityTransform())
        topic = TypedTopic(node, "both", registry)
        latest = registry.get_latest_version("both-value").schema.schema_str
        serialize = topic.avro(msgspec.json.decode(latest))
        dice = random.Random(1)
        for _ in range(3):
            topic.produce(
                [
                    serialize({"id": n, "item": "i", "ts": (20_000 + n % 2) * DAY_US, "price": dice.random()})
                    for n in range(40)
                ]
            )
            topic.move()
        topic.maintain(small_file_bytes=1 << 20)
        files = topic.view().files
        assert {(file.spec_id, file.order_id) for file in files} == {(2, 1)}
        for file in files:
            prices = values_in(node, file, "price")
            assert prices == sorted(prices)
        topic.check_fetched()


def test_an_order_by_what_is_no_streams_column_is_left_to_engines(node: Node) -> None:
    with (
        typed_topic(node, "own", value_format="raw") as topic,
        closing(RestCatalog("lake", uri=node.uri)) as rest,
    ):
        fill(topic, 30)
        table = rest.load_table("default.own")
        with table.update_schema() as schema:
            schema.add_column("note", StringType())
        with table.update_sort_order() as change:
            change.asc("note", IdentityTransform())
        assert topic.view().order is None
        topic.maintain(small_file_bytes=1 << 20)
        assert {file.order_id for file in topic.view().files} == {0}
        topic.check_fetched()
        with table.refresh().update_sort_order() as change:
            change.desc("_key", IdentityTransform()).asc("_offset", IdentityTransform())
        topic.maintain(small_file_bytes=1)
        [file] = topic.view().files
        keys = [key for (key,) in values_in(node, file, "_key")]
        assert (file.order_id, keys) == (2, sorted(keys, reverse=True))
        topic.check_fetched()


def test_letters_that_are_filled_stay_in_order(node: Node) -> None:
    with typed_topic(node, "letters") as topic, closing(RestCatalog("lake", uri=node.uri)) as rest:
        fill(topic, 30)
        known = written(ORDER, order(7))
        topic.produce([framed(900, known)] * 3)
        topic.move()
        with rest.load_table("default.letters").update_sort_order() as change:
            change.asc("id", IdentityTransform(), NullOrder.NULLS_FIRST)
        topic.maintain(small_file_bytes=1)
        topic.register_as("letters-value", ORDER | {"doc": "known too late"}, 900)
        assert topic.replay().filled == 3
        assert {file.order_id for file in topic.view().files} == {1}
        for file in topic.view().files:
            ids = [value for (value,) in values_in(node, file, "id")]
            assert ids == sorted(ids)
        assert topic.column("id")[30:] == [7, 7, 7]
        topic.check_fetched()
