"""A stream whose table has columns of the value, too: through tiles, commits, fetches, merges, folds and rewrites of an
engine the columns are filled, and consumers get the producers' bytes."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import ForbiddenError
from support.tables.shapes import ITEMS, typed
from support.worlds.source import Node, source_node

from lakestream.frontier.upkeep.maintenance import Maintenance
from lakestream.spark_source.options import parse
from lakestream.spark_source.reading.batch import TopicReader, topic_shape
from lakestream.spark_source.schema import spark_schema
from lakestream.table.shape import KIND_RAW, KIND_TOMBSTONE, KIND_TYPED, KIND_TYPED_AND_RAW, RAW
from lakestream.table.view import View

ODD = (b"", None, b"\xff\x00", b"12:\xff", b"no amount")
"""Values that are in no column but `_value`."""
_catalogs = count()

Sent = dict[int, tuple[bytes, bytes | None]]
"""Key and value by offset."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with source_node(tmp_path_factory.mktemp("shapes"), **{"stream.view_check_ms": 50}) as opened:
        yield opened


def create(node: Node, topic: str, **configs: str) -> None:
    """With one partition and a table of the made-up shape."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    config = {name.replace("_", "."): value for name, value in configs.items()}
    config["lakestream.value.format"] = "schema_id"
    admin.create_topics([NewTopic(topic, 1, config=config)])[topic].result(30)
    found = node.run(node.topics.by_names([topic]))[topic]
    view = node.run(node.lake.catalog.create(found.topic_id, topic, 1, shape=ITEMS))
    assert view.shape == ITEMS != RAW


def produce(node: Node, topic: str, first: int, sent: Sent) -> None:
    """Twelve records, into the WAL."""
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for number in range(first, first + 12):
        value = ODD[number // 6 % len(ODD)] if number % 6 == 5 else b"%d:item %d" % (number * 7, number % 4)
        sent[number] = (b"k%d" % (number % 9), value)
        producer.produce(topic, value, sent[number][0], partition=0, headers=[("h", b"%d" % number)])
    assert producer.flush(30) == 0


def consumed(node: Node, topic: str, end: int) -> Sent:
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "g", "enable.auto.commit": False})
    found: Sent = {}
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while max(found, default=-1) < end - 1:
            message = consumer.poll(30)
            assert message is not None, found
            assert message.error() is None, message.error()
            assert message.headers() == [("h", b"%d" % message.offset())]
            found[message.offset()] = (message.key(), message.value())
        return found
    finally:
        consumer.close()


def check_rows(rows: pa.Table, sent: Sent) -> None:
    assert tuple(rows.column_names) == ITEMS.names
    by_offset = {row["_offset"]: row for row in rows.to_pylist()}
    assert len(by_offset) == rows.num_rows
    assert by_offset.keys() == sent.keys()
    for offset, (key, value) in sent.items():
        row = by_offset[offset]
        kind = kind_of(value)
        assert (row["amount"], row["item"], row["_kind"]) == (*typed(value), kind), (offset, value)
        assert (row["_key"], row["_value"]) == (key, None if kind == KIND_TYPED else value)


def kind_of(value: bytes | None) -> int:
    amount, item = typed(value)
    if value is None or item is None:
        return KIND_TOMBSTONE if value is None else KIND_RAW
    return KIND_TYPED if value == f"{amount}:{item}".encode() else KIND_TYPED_AND_RAW


def view_of(node: Node, topic: str) -> View:
    found = node.run(node.topics.by_names([topic]))[topic]
    view: View = node.run(node.lake.catalog.load(found.topic_id))
    return view


def ranges(view: View) -> list[tuple[int, int]]:
    """What the table's manifests say of its files."""
    found = [(file.offset_min, file.offset_max) for file in view.files]
    assert {(file.partition_min, file.partition_max) for file in view.files} == {(0, 0)}
    return sorted((low, high) for low, high in found if low is not None and high is not None)


def maintain(node: Node, topic: str) -> None:
    settings = msgspec.structs.replace(node.lake.settings, min_merge_files=2)
    keeper = Maintenance(replace(node.lake, settings=settings), node.topics, name="t", respect_leases=False)
    node.run(keeper.maintain(node.run(node.topics.by_names([topic]))[topic]))


def fill(node: Node, topic: str, ticks: int) -> Sent:
    sent: Sent = {}
    for tick in range(ticks):
        produce(node, topic, tick * 12, sent)
        node.move()
    return sent


def check(node: Node, topic: str, sent: Sent) -> None:
    catalog = RestCatalog("lake", uri=node.uri)
    check_rows(catalog.load_table(f"default.{topic}").scan().to_arrow(), sent)
    catalog.close()
    assert consumed(node, topic, max(sent) + 1) == sent


def test_the_columns_are_filled_merged_and_served(node: Node) -> None:
    create(node, "items")
    sent = fill(node, "items", 4)
    before = view_of(node, "items")
    assert (len(before.files), before.frontier) == (4, (48,))
    assert ranges(before) == [(n, n + 11) for n in (0, 12, 24, 36)]
    check(node, "items", sent)
    maintain(node, "items")
    merged = view_of(node, "items")
    assert ranges(merged) == [(0, 47)]
    check(node, "items", sent)
    rest = RestCatalog("lake", uri=node.uri)
    table = rest.load_table("default.items")
    with pytest.raises(ForbiddenError, match="amount"), table.update_schema() as change:
        change.rename_column("amount", "price")
    with pytest.raises(ForbiddenError, match=r"lakestream\.shape"), table.transaction() as transaction:
        transaction.set_properties({"lakestream.shape": "{}"})
    rest.close()


def test_the_source_reads_them_from_table_and_tail(node: Node) -> None:
    create(node, "read")
    sent = fill(node, "read", 2)
    assert view_of(node, "read").frontier == (24,)
    produce(node, "read", 24, sent)
    options = parse({**node.options, "topic": "read"})
    shape = topic_shape(options)
    assert shape == ITEMS
    reader = TopicReader(options, spark_schema(shape), shape)
    found = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
    assert {row["_offset"]: (row["amount"], row["item"]) for row in found} == {
        offset: typed(value) for offset, (_, value) in sent.items()
    }
    options = parse({**node.options, "topic": "read", "filter": "amount >= 70 and item = 'item 2'"})
    reader = TopicReader(options, spark_schema(shape), shape)
    rows = [row["_offset"] for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
    assert sorted(rows) == [n for n, (_, v) in sent.items() if (typed(v)[0] or 0) >= 70 and typed(v)[1] == "item 2"]


def test_a_fold_keeps_them(node: Node) -> None:
    create(node, "folded", cleanup_policy="compact", **{"min.cleanable.dirty.ratio": "0"})
    sent = fill(node, "folded", 3)
    maintain(node, "folded")
    newest = {key: offset for offset, (key, _) in sent.items()}
    left = {offset: sent[offset] for offset in newest.values()}
    assert len(left) < len(sent)
    check(node, "folded", left)


@pytest.mark.spark
def test_a_rewrite_by_spark_keeps_them(node: Node, spark: Any) -> None:
    create(node, "rewritten")
    sent = fill(node, "rewritten", 3)
    maintain(node, "rewritten")
    produce(node, "rewritten", 36, sent)
    node.move()
    lake = f"shapes{next(_catalogs)}"
    for name, value in {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "rest",
        ".uri": node.uri,
        ".cache-enabled": "false",
    }.items():
        spark.conf.set(f"spark.sql.catalog.{lake}{name}", value)
    before = {file.path for file in view_of(node, "rewritten").files}
    spark.sql(
        f"CALL {lake}.system.rewrite_data_files(table => 'default.rewritten', strategy => 'sort',"
        " sort_order => 'item DESC', options => map('rewrite-all', 'true'))"
    )
    after = view_of(node, "rewritten")
    assert not before & {file.path for file in after.files}
    assert ranges(after) == [(0, 35), (36, 47)]
    check(node, "rewritten", sent)
    produce(node, "rewritten", 48, sent)
    node.move()
    maintain(node, "rewritten")
    check(node, "rewritten", sent)
    [row] = spark.sql(f"SELECT sum(amount), count(DISTINCT item) FROM {lake}.default.rewritten").collect()
    amounts = [typed(value)[0] for _, value in sent.values()]
    assert tuple(row) == (sum(amount for amount in amounts if amount is not None), 4)
