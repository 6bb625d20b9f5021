"""Spark reads, follows and writes topics, with a real broker, a real catalog and real table files."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import StreamingQueryException
from support.worlds.processes import ProcessWorld, free_ports
from support.worlds.source import BASE_MS, Node, source_node

from lakestream.errors import OffsetOutOfRange, RequestError, UnknownStream
from lakestream.spark import register
from lakestream.spark_source.options import parse
from lakestream.spark_source.reading.batch import TopicReader
from lakestream.spark_source.reading.plan import HistoryTask, TailTask
from lakestream.spark_source.reading.streaming import TopicStream
from lakestream.spark_source.reading.view import TableView, ViewClient
from lakestream.spark_source.schema import SPARK_SCHEMA

_catalogs = count()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with source_node(tmp_path_factory.mktemp("source")) as opened:
        yield opened


@pytest.fixture
def session(spark: Any) -> Any:
    register(spark)
    return spark


def expected(*counts: int) -> list[tuple[int, int]]:
    return [(partition, offset) for partition, count in enumerate(counts) for offset in range(count)]


def batch_reader(node: Node, topic: str, **options: str) -> TopicReader:
    return TopicReader(parse({**node.options, "topic": topic, **options}), SPARK_SCHEMA)


def rows(reader: Any, tasks: Sequence[Any]) -> pa.Table:
    found = [batch for task in tasks for batch in reader.read(task)]
    # A tail's memory is used again, so what is kept is copied.
    return pa.Table.from_pylist([row for batch in found for row in batch.to_pylist()], schema=None)


def places(reader: Any, tasks: Sequence[Any]) -> list[tuple[int, int]]:
    found = [
        place
        for task in tasks
        for batch in reader.read(task)
        for place in zip(batch["_stream_partition"].to_pylist(), batch["_offset"].to_pylist(), strict=True)
    ]
    return sorted(found)


def planned(reader: TopicReader) -> tuple[int, int]:
    """Files and ranges of the log that are read."""
    tasks = reader.partitions()
    files = [file for task in tasks if isinstance(task, HistoryTask) for file in task.files]
    return len(files), sum(len(task.ranges.by_partition) for task in tasks if isinstance(task, TailTask))


def test_the_union_is_the_same_rows_wherever_they_are(node: Node) -> None:
    node.create("moving")
    node.produce("moving", 40)
    node.produce("moving", 30, partition=1)
    early = batch_reader(node, "moving")
    tasks = early.partitions()
    assert planned(early) == (0, 2)
    in_tail = rows(early, tasks)
    assert places(early, tasks) == expected(40, 30)
    node.move()
    assert rows(early, tasks) == in_tail, "a plan holds while the pipeline moves what it names"

    node.produce("moving", 10, first=40)
    half = batch_reader(node, "moving")
    assert planned(half) == (1, 1)
    assert places(half, half.partitions()) == expected(50, 30)
    node.move()
    whole = batch_reader(node, "moving")
    assert planned(whole) == (2, 0)
    ended = batch_reader(node, "moving", endingOffsets='{"0": 40, "1": 30}')
    from_table = rows(ended, ended.partitions())
    order = [("_stream_partition", "ascending"), ("_offset", "ascending")]
    assert from_table.sort_by(order) == in_tail.sort_by(order), "to the byte, headers and checksums too"


def test_filters_and_offsets_leave_out_files_ranges_and_rows(node: Node) -> None:
    node.create("pruned")
    for first in (0, 100):
        node.produce("pruned", 100, first=first)
        node.move()
    node.produce("pruned", 20, first=200)
    node.produce("pruned", 10, partition=1)
    assert planned(batch_reader(node, "pruned")) == (2, 2)
    assert planned(batch_reader(node, "pruned", filter="_stream_partition = 1")) == (0, 1)
    reader = batch_reader(node, "pruned", filter="_stream_partition = 0 and _offset >= 150")
    assert planned(reader) == (1, 1)
    assert places(reader, reader.partitions()) == [(0, offset) for offset in range(150, 220)]
    moment = datetime.fromtimestamp((BASE_MS + 210_000) / 1000, UTC)
    young = batch_reader(node, "pruned", filter=f"_timestamp >= '{moment.isoformat()}'")
    assert planned(young) == (0, 1)
    assert places(young, young.partitions()) == [(0, offset) for offset in range(210, 220)]

    between = batch_reader(node, "pruned", startingOffsets='{"0": 90, "1": -1}', endingOffsets='{"0": 110}')
    assert places(between, between.partitions()) == [(0, offset) for offset in range(90, 110)]
    times = {"startingTimestamp": str(BASE_MS + 195_000), "endingTimestamp": str(BASE_MS + 205_000)}
    timed = batch_reader(node, "pruned", **times)
    assert places(timed, timed.partitions()) == [(0, offset) for offset in range(195, 205)]
    small = batch_reader(node, "pruned", maxBytesPerPartition="1", maxRecordsPerPartition="7")
    assert len(small.partitions()) == 2 + -(-30 // 7)
    assert places(small, small.partitions()) == expected(220, 10)


def test_a_snapshot_is_read_as_it_was(node: Node) -> None:
    node.create("past")
    node.produce("past", 5)
    node.move()
    [topic] = [topic for topic in node.run(_topics(node)) if topic.name == "past"]
    snapshot = node.run(node.lake.catalog.load(topic.topic_id)).snapshot_id
    node.produce("past", 5, first=5)
    node.move()
    then = batch_reader(node, "past", snapshotId=str(snapshot))
    assert places(then, then.partitions()) == expected(5)
    with pytest.raises(RequestError, match="has no snapshot 12"):
        batch_reader(node, "past", snapshotId="12").partitions()


async def _topics(node: Node) -> Any:
    return await node.topics.list()


def test_the_union_is_whole_while_a_real_door_freshens_the_table(cluster: Callable[..., ProcessWorld]) -> None:
    """Processes as a user has them: loading the table may commit the tail at that very moment."""
    made = cluster(http=True)
    admin = AdminClient({"bootstrap.servers": made.bootstrap})
    admin.create_topics([NewTopic("fresh", 1)])["fresh"].result(30)
    options = parse({"kafka.bootstrap.servers": made.bootstrap, "uri": made.catalog, "topic": "fresh"})
    producer = Producer({"bootstrap.servers": made.bootstrap})
    for seen in (10, 20, 30):
        for number in range(seen - 10, seen):
            producer.produce("fresh", b"%d" % number)
        assert producer.flush(30) == 0
        reader = TopicReader(options, SPARK_SCHEMA)
        assert places(reader, reader.partitions()) == expected(seen)


def test_a_broker_that_is_gone_is_passed_by(node: Node) -> None:
    node.create("failing", 1)
    node.produce("failing", 5)
    reader = batch_reader(node, "failing")
    [task] = reader.partitions()
    assert isinstance(task, TailTask)
    gone = ("127.0.0.1", free_ports())
    assert places(reader, [replace(task, brokers=(gone, *task.brokers))]) == expected(5)


def test_the_table_is_found_by_whatever_name_it_has(node: Node) -> None:
    node.create("Shop.Orders")
    node.create("shop-orders")
    node.create("chosen", table_name="lab.other")
    for topic in ("Shop.Orders", "shop-orders", "chosen"):
        node.produce(topic, 5)
    node.move()
    for topic in ("Shop.Orders", "shop-orders", "chosen"):
        reader = batch_reader(node, topic)
        assert planned(reader) == (1, 0), topic
        assert places(reader, reader.partitions()) == expected(5)
    elsewhere = batch_reader(node, "chosen", table="default.shop_orders")
    assert planned(elsewhere) == (0, 1), "another topic's table is not its own: the brokers have everything"


def test_what_is_deleted_from_the_log_is_missed_or_passed_over(node: Node) -> None:
    node.create("trimmed", 1)
    node.produce("trimmed", 20)
    node.move()
    node.produce("trimmed", 10, first=20)
    strict = {**node.options, "topic": "trimmed", "startingOffsets": '{"0": 0}'}
    careless = strict | {"failOnDataLoss": "false"}
    node.trim("trimmed", 5)
    stream = TopicStream(parse(strict), SPARK_SCHEMA)
    start, end = stream.initialOffset(), stream.latestOffset()
    with pytest.raises(OffsetOutOfRange, match="offsets 0 to 5 of partition 0"):
        stream.partitions(start, end)
    stream = TopicStream(parse(careless), SPARK_SCHEMA)
    assert places(stream, stream.partitions(start, end)) == expected(30), "the table has them still"
    whole = batch_reader(node, "trimmed")
    assert places(whole, whole.partitions()) == expected(30)

    node.trim("trimmed", 25)
    with pytest.raises(OffsetOutOfRange, match="offsets 20 to 25 of partition 0"):
        whole.partitions()
    rest = batch_reader(node, "trimmed", failOnDataLoss="false")
    assert places(rest, rest.partitions()) == [(0, n) for n in range(30) if not 20 <= n < 25]
    fresh = TopicStream(parse(strict | {"startingOffsets": "earliest"}), SPARK_SCHEMA)
    assert fresh.initialOffset()["offsets"] == {"0": 25}


def test_what_leaves_while_a_batch_is_planned_is_missed_too(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log's start passes rows before retention takes them out of the table: a start that was read before the table
    does not tell that they are gone."""
    node.create("shrinking", 1)
    node.produce("shrinking", 20)
    node.move()
    options = {**node.options, "topic": "shrinking", "startingOffsets": "earliest", "maxRecordsPerPartition": "7"}
    stream = TopicStream(parse(options), SPARK_SCHEMA)
    start, end = stream.initialOffset(), stream.latestOffset()
    load = ViewClient.load

    def load_late(self: ViewClient, *args: Any) -> TableView:
        node.trim("shrinking", 5)
        return load(self, *args)

    monkeypatch.setattr(ViewClient, "load", load_late)
    with pytest.raises(OffsetOutOfRange, match="offsets 0 to 5 of partition 0"):
        stream.partitions(start, end)


def test_a_topic_made_anew_is_another_stream(node: Node) -> None:
    node.create("reborn")
    node.produce("reborn", 5)
    reader = batch_reader(node, "reborn")
    tasks = reader.partitions()
    stream = TopicStream(parse({**node.options, "topic": "reborn", "startingOffsets": "earliest"}), SPARK_SCHEMA)
    start, end = stream.initialOffset(), stream.latestOffset()
    assert places(stream, stream.partitions(start, end)) == expected(5)
    node.delete("reborn")
    node.create("reborn")
    node.produce("reborn", 9)
    with pytest.raises(UnknownStream, match="is gone"):
        rows(reader, tasks)
    for another in (stream, TopicStream(parse({**node.options, "topic": "reborn"}), SPARK_SCHEMA)):
        with pytest.raises(UnknownStream, match="made anew"):
            another.partitions(start, end)
    with pytest.raises(UnknownStream, match="there is no topic"):
        batch_reader(node, "never").partitions()


def test_a_stream_is_limited_and_goes_on_where_it_was(node: Node) -> None:
    node.create("paced")
    node.produce("paced", 60)
    node.produce("paced", 30, partition=1)
    options = {"topic": "paced", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "30"}
    stream = TopicStream(parse({**node.options, **options, "maxRecordsPerPartition": "7"}), SPARK_SCHEMA)
    position = stream.initialOffset()
    seen: list[tuple[int, int]] = []
    sizes = []
    while (end := stream.latestOffset()) != position:
        found = places(stream, stream.partitions(position, end))
        sizes.append(len(found))
        seen += found
        position = end
        node.move()
    assert sorted(seen) == expected(60, 30)
    assert sizes == [30, 30, 30]
    ahead = {**position, "offsets": {"0": 70, "1": 30}}
    with pytest.raises(OffsetOutOfRange, match="ends at 60"):
        stream.partitions(ahead, position)


@pytest.mark.spark
@pytest.mark.slow
def test_spark_reads_through_deletes_and_rewrites(node: Node, session: Any) -> None:
    node.create("changed")
    node.produce("changed", 60)
    node.produce("changed", 20, partition=1)
    node.move()
    node.produce("changed", 5, partition=1, first=20)
    lake = f"source{next(_catalogs)}"
    for name, value in {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "rest",
        ".uri": node.uri,
        ".cache-enabled": "false",
    }.items():
        session.conf.set(f"spark.sql.catalog.{lake}{name}", value)
    table = f"{lake}.default.changed"
    options = {**node.options, "topic": "changed", "startingOffsets": "earliest", "maxRecordsPerPartition": "10"}
    stream = TopicStream(parse(options), SPARK_SCHEMA)
    start, end = stream.initialOffset(), stream.latestOffset()
    session.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    session.sql(f"DELETE FROM {table} WHERE _stream_partition = 0 AND _offset BETWEEN 10 AND 19")
    left = [place for place in expected(60, 25) if not (place[0] == 0 and 10 <= place[1] < 20)]
    reader = batch_reader(node, "changed")
    assert places(reader, reader.partitions()) == left
    session.sql(
        f"CALL {lake}.system.rewrite_data_files(table => 'default.changed', strategy => 'sort',"
        " sort_order => '_timestamp DESC', options => map('rewrite-all', 'true'))"
    )
    assert places(stream, stream.partitions(start, end)) == left
    frame = session.read.format("lakestream").options(**node.options).load("changed")
    kept = frame.where("_stream_partition = 0 AND _offset >= 15").select("_offset", "_value", "_headers").collect()
    assert sorted(row[0] for row in kept) == list(range(20, 60))
    assert {bytes(row[1]) for row in kept} == {b"0-%d" % offset for offset in range(20, 60)}
    assert [[(part.key, bytes(part.value)) for part in row[2] or ()] for row in kept if row[0] == 30] == [[("h", b"x")]]
    assert frame.count() == len(left), "the filter of one query is not that of the next"
    some = session.read.format("lakestream").options(**node.options, filter="_offset >= 15").load("changed")
    assert sorted(row[0] for row in some.select("_offset").collect()) == sorted(o for _, o in left if o >= 15)


@pytest.mark.spark
def test_a_query_reads_every_offset_once_across_restarts(node: Node, session: Any, tmp_path: Path) -> None:
    node.create("followed")
    produced = 0
    source = session.readStream.format("lakestream").options(
        **node.options, topic="followed", startingOffsets="earliest", maxRecordsPerPartition=10
    )

    def run(**trigger: Any) -> None:
        frame = source.load().select("_stream_partition", "_offset", "_value")
        sink = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = sink.trigger(**trigger).start(str(tmp_path / "out"))
        try:
            if "availableNow" in trigger:
                query.awaitTermination(120)
            else:
                query.processAllAvailable()
        finally:
            query.stop()

    for moves, trigger in ((True, {"availableNow": True}), (False, {"processingTime": "0 seconds"})):
        for partition in (0, 1):
            node.produce("followed", 15, partition=partition, first=produced)
        produced += 15
        run(**trigger)
        if moves:
            node.move()
    found = session.read.parquet(str(tmp_path / "out")).collect()
    assert sorted((row[0], row[1]) for row in found) == expected(produced, produced)
    assert {bytes(row[2]) for row in found} == {b"%d-%d" % place for place in expected(produced, produced)}
    offsets = sorted((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    assert json.loads(offsets[-1].read_text().splitlines()[-1])["offsets"] == {"0": produced, "1": produced}

    node.delete("followed")
    node.create("followed")
    node.produce("followed", 3)
    with pytest.raises(StreamingQueryException, match="made anew"):
        run(availableNow=True)


@pytest.mark.spark
def test_what_spark_writes_is_in_the_topic(node: Node, session: Any, tmp_path: Path) -> None:
    node.create("written")
    node.create("copied")
    frame = session.sql(
        "SELECT concat('k', id) AS key, IF(id = 3, NULL, concat('v', id)) AS value, CAST(id % 2 AS INT) AS partition,"
        " timestamp_millis(1700000000000 + id) AS timestamp,"
        " array(named_struct('key', 'h', 'value', CAST('x' AS BINARY))) AS headers FROM range(10)"
    )
    frame.write.format("lakestream").options(**node.options).mode("append").save("written")
    reader = batch_reader(node, "written")
    table = rows(reader, reader.partitions()).to_pylist()
    assert sorted(row["_key"] for row in table) == sorted(b"k%d" % number for number in range(10))
    [third] = [row for row in table if row["_key"] == b"k3"]
    assert (third["_value"], third["_kind"], third["_stream_partition"]) == (None, 1, 1)
    assert third["_headers"] == [{"key": "h", "value": b"x"}]
    assert third["_timestamp"] == datetime.fromtimestamp(1700000000.003, UTC)

    stream = session.readStream.format("lakestream").options(**node.options, startingOffsets="earliest").load("written")
    query = (
        stream.writeStream.format("lakestream")
        .options(**node.options, topic="copied", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    copied = batch_reader(node, "copied")
    order = [("_stream_partition", "ascending"), ("_offset", "ascending")]
    again = rows(copied, copied.partitions())
    assert again.sort_by(order) == pa.Table.from_pylist(table).sort_by(order)


@pytest.mark.spark
@pytest.mark.slow
def test_a_tail_larger_than_the_memory_it_is_decoded_in(node: Node, session: Any) -> None:
    node.create("large", 1)
    node.produce("large", 4000, value_bytes=10_000)
    frame = session.read.format("lakestream").options(**node.options).schema("_value binary, _offset bigint")
    rows = frame.load("large").selectExpr("_offset", "trim(TRAILING '.' FROM CAST(_value AS STRING))").collect()
    assert [(row[0], row[1]) for row in rows] == [(offset, f"0-{offset}") for offset in range(4000)]
