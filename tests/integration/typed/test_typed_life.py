"""The life of a typed topic with all that is unusual in its values: merges and sorted files, compaction, DeleteRecords,
retention, a Delta mirror and Spark's source. Consumers get the producers' bytes, engines the values."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.transforms import IdentityTransform
from support.schemas import odd
from support.schemas.typed import TypedTopic, closing, typed_topic
from support.worlds.source import Node, source_node

from lakestream.catalog.mirrored import IcebergSide
from lakestream.cli.tables.query import connect
from lakestream.frontier.delta import Mirrors
from lakestream.frontier.delta.rs import DeltaRs
from lakestream.runtime import system
from lakestream.spark_source.options import parse
from lakestream.spark_source.reading.batch import TopicReader, topic_shape
from lakestream.spark_source.schema import spark_schema
from lakestream.table.shape import KIND_TOMBSTONE, KIND_TYPED

Made = dict[int, dict[str, Any] | None]
"""By offset, values as their serializer took them."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with source_node(tmp_path_factory.mktemp("life"), **{"stream.view_check_ms": 50}) as opened:
        yield opened


def configure(topic: TypedTopic, **settings: str) -> None:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    topic.node.run(topic.node.topics.alter(topic.name, lambda present: {**present, **given}))


def fill(topic: TypedTopic, made: Made, steps: tuple[int, ...] = (0, 1, 2), plain: int = 285) -> None:
    """A commit for each version, with records of those before and tombstones among them."""
    topic.registry.set_compatibility(f"{topic.name}-value", "NONE")
    dice = random.Random(len(made))
    write = {step: topic.avro(odd.schema(step, plain)) for step in steps}
    for newest in steps:
        values: list[bytes | None] = []
        for number in range(10):
            step = dice.choice([step for step in steps if step <= newest])
            value = None if number == 4 else odd.value(dice, step, plain)
            made[len(made)] = value
            values.append(None if value is None else write[step](value))
        topic.produce(values)
        assert topic.move() == 10


def check_row(row: dict[str, Any], value: dict[str, Any] | None) -> None:
    assert row["_value"] is None
    assert row["_kind"] == (KIND_TOMBSTONE if value is None else KIND_TYPED)
    wanted = {} if value is None else odd.row(value)
    assert {name: row[name] for name in wanted} == wanted, row["_offset"]


def check(topic: TypedTopic, made: Made) -> None:
    """As DuckDB reads it, and consumers."""
    with connect(topic.node.uri) as engine:
        found = engine.execute(f"SELECT * FROM lake.default.{topic.name}")
        names = [column[0] for column in found.description or ()]
        rows = {row["_offset"]: row for row in (dict(zip(names, row, strict=True)) for row in found.fetchall())}
    assert rows.keys() == made.keys()
    for offset, value in made.items():
        check_row(rows[offset], value)
    if made:
        topic.check_fetched()


def test_three_hundred_fields_through_merges_and_sorted_files(node: Node) -> None:
    with typed_topic(node, "odd") as topic, closing(RestCatalog("lake", uri=node.uri)) as rest:
        made: Made = {}
        fill(topic, made)
        check(topic, made)
        with rest.load_table("default.odd").update_sort_order() as change:
            change.asc("state", IdentityTransform()).desc("amount", IdentityTransform())
        topic.maintain(small_file_bytes=1 << 20)
        [file] = topic.view().files
        assert file.order_id == 1
        check(topic, made)


def test_compaction_keeps_the_newest_of_each_key(node: Node) -> None:
    with typed_topic(node, "compacted") as topic:
        configure(topic, cleanup_policy="compact", **{"min.cleanable.dirty.ratio": "0"})
        made: Made = {}
        fill(topic, made, plain=10)
        topic.maintain(small_file_bytes=1 << 20)
        newest = {offset % 7: offset for offset in made}.values()
        topic.sent = {offset: topic.sent[offset] for offset in newest}
        check(topic, {offset: made[offset] for offset in newest})


def first_offset(topic: TypedTopic) -> int:
    consumer = Consumer({"bootstrap.servers": topic.node.bootstrap, "group.id": "nobody"})
    try:
        low: int = consumer.get_watermark_offsets(TopicPartition(topic.name, 0), timeout=30)[0]
        return low
    finally:
        consumer.close()


def test_deleted_records_leave_the_stream_and_retention_drops_rows(node: Node) -> None:
    with typed_topic(node, "short") as topic:
        made: Made = {}
        fill(topic, made, plain=10)
        node.trim("short", 25)
        assert first_offset(topic) == 25
        topic.sent = {offset: value for offset, value in topic.sent.items() if offset >= 25}
        check(topic, made)
        configure(topic, **{"retention.ms": "1", "lakestream.table.retention.ms": "1"})
        topic.maintain()
        assert first_offset(topic) == 30
        check(topic, {})
        configure(topic, **{"retention.ms": "-1", "lakestream.table.retention.ms": "-1"})
        topic.sent = dict.fromkeys(range(30))
        fill(topic, made, plain=10)
        topic.sent = {offset: value for offset, value in topic.sent.items() if offset >= 30}
        check(topic, {offset: value for offset, value in made.items() if offset >= 30})


def test_a_delta_mirror_follows(node: Node) -> None:
    with typed_topic(node, "mirrored", table_formats="iceberg,delta") as topic:
        delta = DeltaRs({})
        mirrors = Mirrors(
            node.lake.catalog, IcebergSide(node.lake.catalog.commits), delta, node.topics, system(), node.lake.settings
        )
        made: Made = {}
        for step in range(3):
            fill(topic, made, (step,), plain=0)
            assert node.run(mirrors.mirror()).failures == ()
            folder = Path(topic.view().location.removeprefix("file://"))
            rows = DeltaTable(folder).to_pyarrow_table().to_pylist()
            assert len(rows) == len(made)
            for row in rows:
                row["lists"] = dict(row["lists"] or ())
                check_row(row, made[row["_offset"]])
        delta.close()


def test_sparks_source_has_table_and_tail(node: Node) -> None:
    with typed_topic(node, "sourced") as topic:
        made: Made = {}
        fill(topic, made)
        write = topic.avro(odd.schema(2))
        dice = random.Random(9)
        for _ in range(5):
            value = odd.value(dice, 2)
            made[len(made)] = value
            topic.produce([write(value)])
        options = parse({**node.options, "topic": "sourced"})
        shape = topic_shape(options)
        reader = TopicReader(options, spark_schema(shape), shape)
        found = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
        assert sorted(row["_offset"] for row in found) == [*made]
        for row in found:
            row["lists"] = dict(row["lists"] or ())
            check_row(row, made[row["_offset"]])
