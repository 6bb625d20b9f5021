"""INSERT INTO the table of a topic: the rows are records, which a Kafka client reads in their order."""

import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.table import Table
from pyiceberg.types import StringType
from support.worlds.doors import duck, http_door
from support.worlds.embedded import Embedded

INSERTS = {"lakestream.table.inserts": "true"}
WAIT_S = 30
ROUNDS = 3
_names = count()


def make_topic(broker: Embedded, partitions: int = 3, **config: str) -> str:
    name = f"orders_{next(_names)}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1, config=INSERTS | config)])[name].result(WAIT_S)
    return name


def table(door: str, topic: str) -> Table:
    return RestCatalog("lake", uri=f"{door}/iceberg").load_table(("default", topic))


def rows(**columns: Any) -> pa.Table:
    """With nulls in the columns by which the table is partitioned, unless they are given: PyIceberg wants them."""
    length = len(next(iter(columns.values())))
    nowhere = {
        "_stream_partition": pa.array([None] * length, pa.int32()),
        "_offset": pa.array([None] * length, pa.int64()),
    }
    return pa.table(nowhere | columns)


def consume(broker: Embedded, topic: str, records: int, partitions: int = 3) -> list[list[tuple[Any, ...]]]:
    """By partition (offset, key, value); exactly so many records are there."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "nobody",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found: list[list[tuple[Any, ...]]] = [[] for _ in range(partitions)]
    ended: set[int] = set()
    while len(ended) < partitions or sum(map(len, found)) < records:
        message = consumer.poll(WAIT_S)
        assert message is not None, found
        if message.error() is not None:
            ended.add(message.partition())
            continue
        found[message.partition()].append((message.offset(), message.key(), message.value()))
    consumer.close()
    assert sum(map(len, found)) == records
    return found


def test_pyiceberg_appends_records(broker: Embedded, door: str) -> None:
    topic = make_topic(broker, 1)
    stream = table(door, topic)
    stream.append(rows(_key=[b"a", b"b", None], _value=[b"1", None, b"3"]))
    stream.append(rows(_value=[b"4"]))
    assert consume(broker, topic, 4, 1) == [[(0, b"a", b"1"), (1, b"b", None), (2, None, b"3"), (3, None, b"4")]]
    found = table(door, topic).scan().to_arrow()
    assert sorted(zip(found["_offset"].to_pylist(), found["_value"].to_pylist(), strict=True)) == [
        (0, b"1"),
        (1, None),
        (2, b"3"),
        (3, b"4"),
    ]


def test_duckdb_inserts_records(broker: Embedded, door: str) -> None:
    topic = make_topic(broker, 1)
    with duck(door) as engine:
        engine.execute(f"INSERT INTO lake.default.{topic} (_key, _value) VALUES ('a', '1'), ('b', '2')")
        engine.execute(f"INSERT INTO lake.default.{topic} (_value) SELECT (i::VARCHAR)::BLOB FROM range(3) t(i)")
        seen = engine.execute(f"SELECT _offset, decode(_value) FROM lake.default.{topic} ORDER BY 1").fetchall()
    expected = [(0, b"a", b"1"), (1, b"b", b"2"), (2, None, b"0"), (3, None, b"1"), (4, None, b"2")]
    assert consume(broker, topic, 5, 1) == [expected]
    assert seen == [(offset, value.decode()) for offset, _, value in expected]


def test_a_row_says_its_partition_headers_and_time(broker: Embedded, door: str) -> None:
    topic = make_topic(broker)
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    table(door, topic).append(
        rows(
            _stream_partition=pa.array([2, 2], pa.int32()),
            _value=[b"1", b"2"],
            _timestamp=pa.array([1_700_000_000_000_000, None], pa.timestamp("us", tz="UTC")),
            _headers=pa.array([[{"key": "a", "value": b"x"}, {"key": "b", "value": None}], None], header),
        )
    )
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "nobody"})
    consumer.assign([TopicPartition(topic, 2, 0)])
    first, second = consumer.poll(WAIT_S), consumer.poll(WAIT_S)
    assert first is not None
    assert second is not None
    consumer.close()
    assert (first.value(), first.headers(), first.timestamp()[1]) == (
        b"1",
        [("a", b"x"), ("b", None)],
        1_700_000_000_000,
    )
    assert (second.value(), second.headers()) == (b"2", None)
    assert abs(second.timestamp()[1] - time.time() * 1000) < 600_000


def test_keys_go_where_a_producer_sends_them(broker: Embedded, door: str) -> None:
    topic = make_topic(broker)
    keys = [f"customer-{number}".encode() for number in range(40)]
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2"})
    for key in keys:
        producer.produce(topic, b"sent", key)
    assert producer.flush(WAIT_S) == 0
    table(door, topic).append(rows(_key=keys, _value=[b"inserted"] * 40))
    for partition in consume(broker, topic, 80):
        sent = [key for _, key, value in partition if value == b"sent"]
        inserted = [key for _, key, value in partition if value == b"inserted"]
        assert inserted == [key for key in keys if key in set(sent)]
        assert len(inserted) == len(sent)


def test_rows_without_a_key_are_spread(broker: Embedded, door: str) -> None:
    topic = make_topic(broker)
    table(door, topic).append(rows(_value=[b"%d" % number for number in range(9)]))
    assert sorted(map(len, consume(broker, topic, 9))) == [3, 3, 3]


def test_a_transaction_of_two_inserts_is_one(broker: Embedded, door: str) -> None:
    topic = make_topic(broker, 1)
    with duck(door) as engine:
        engine.execute("BEGIN")
        engine.execute(f"INSERT INTO lake.default.{topic} (_value) VALUES ('1')")
        engine.execute(f"INSERT INTO lake.default.{topic} (_value) VALUES ('2')")
        engine.execute("COMMIT")
    assert [value for _, _, value in consume(broker, topic, 2, 1)[0]] == [b"1", b"2"]


def test_the_same_commit_sent_again_inserts_nothing(
    broker: Embedded, door: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after another commit, and when the engine's files are gone."""
    topic = make_topic(broker, 1)
    sent: list[tuple[str, bytes]] = []
    stream = table(door, topic)
    session: Any = stream.catalog._session  # type: ignore[attr-defined]
    post = session.post

    def recorded(url: str, **kwargs: Any) -> Any:
        sent.append((url, kwargs["data"]))
        return post(url, **kwargs)

    monkeypatch.setattr(session, "post", recorded)
    stream.append(rows(_value=[b"1", b"2"]))
    [(url, body)] = sent
    table(door, topic).append(rows(_value=[b"3"]))
    for _ in range(2):
        again = post(url, data=body, headers={"Content-Type": "application/json"})
        assert again.status_code == 200, again.text
    assert [value for _, _, value in consume(broker, topic, 3, 1)[0]] == [b"1", b"2", b"3"]
    folder = Path(stream.location().removeprefix("file://"))
    left = [path.name for path in folder.rglob("*") if path.is_file() and "=" in str(path)]
    assert left == []


def test_what_is_refused_changes_nothing(broker: Embedded, door: str) -> None:
    topic = make_topic(broker, 2, **{"max.message.bytes": "2000"})
    stream = table(door, topic)
    stream.append(rows(_stream_partition=pa.array([0, 1], pa.int32()), _value=[b"1", b"2"]))
    with stream.update_schema() as update:
        update.add_column("note", StringType())
    stream = table(door, topic)
    at = pa.timestamp("us", tz="UTC")
    there = stream.scan(row_filter="_offset = 0 and _stream_partition = 0").to_arrow()
    mixed = pa.array([7, None], pa.int64())
    refused: list[tuple[str, pa.Table]] = [
        ("there is no partition 2: the topic has 2", rows(_stream_partition=pa.array([2], pa.int32()))),
        ("_crc is the log's to give", rows(_crc=pa.array([1], pa.int32()))),
        ("_kind is the log's to give", rows(_kind=pa.array([0], pa.int32()))),
        ("column note is no part of the records", rows(_value=[b"3"], note=["n"])),
        ("above the maximum of 2000", rows(_value=[b"3" * 4000])),
        ("has an _offset in 1 of 1 rows", rows(_offset=mixed, _value=[b"3", b"4"])),
        ("1 rows would be appended", there),
        ("a record's _timestamp is from 1970", rows(_timestamp=pa.array([-1], at))),
    ]
    for sentence, given in refused:
        with pytest.raises(ForbiddenError, match=sentence):
            stream.append(given)
    with pytest.raises(ForbiddenError, match="adds rows and takes others away"):
        stream.overwrite(rows(_value=[b"3"]))
    assert sorted(value for _, _, value in chain(*consume(broker, topic, 2, 2))) == [b"1", b"2"]


def test_a_compacted_topic_takes_rows_with_a_key_only(broker: Embedded, door: str) -> None:
    topic = make_topic(broker, 1, **{"cleanup.policy": "compact"})
    with pytest.raises(ForbiddenError, match="a compacted topic takes records with a key only"):
        table(door, topic).append(rows(_key=[b"k", None], _value=[b"1", b"2"]))
    table(door, topic).append(rows(_key=[b"k"], _value=[b"1"]))
    assert consume(broker, topic, 1, 1) == [[(0, b"k", b"1")]]


def counted(door: str) -> list[float]:
    """Commits that were taken and refused, and records."""
    lines = httpx.get(f"{door}/metrics").text.splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if line.startswith("lakestream_insert"))
    names = ('lakestream_inserts_total{outcome="ok"}', 'lakestream_inserts_total{outcome="TableRefused"}')
    return [float(values.get(name, 0)) for name in (*names, "lakestream_insert_records_total")]


def test_a_topic_that_does_not_take_rows(broker: Embedded, door: str) -> None:
    topic = make_topic(broker, 1)
    stream = table(door, topic)
    configure(broker, topic, "false")
    before = counted(door)
    with pytest.raises(ForbiddenError, match=r"With lakestream.table.inserts=true topic orders_\d+ takes rows"):
        stream.append(rows(_value=[b"1"]))
    configure(broker, topic, "true")
    stream.append(rows(_value=[b"1"]))
    assert [now - then for now, then in zip(counted(door), before, strict=True)] == [1, 1, 1]
    assert consume(broker, topic, 1, 1) == [[(0, None, b"1")]]


def test_columns_of_a_stream_that_takes_no_rows_stay_required(broker: Embedded, door: str) -> None:
    topic = make_topic(broker, 1, **{"lakestream.table.inserts": "false"})
    stream = table(door, topic)
    assert stream.schema().find_field("_offset").required
    with (
        pytest.raises(ForbiddenError, match="column _offset of a stream's table stays required"),
        stream.update_schema() as update,
    ):
        update.make_column_optional("_offset")
    configure(broker, topic, "true")
    stream = table(door, topic)
    assert not any(field.required for field in stream.schema().fields)
    stream.append(rows(_value=[b"1"]))
    assert consume(broker, topic, 1, 1) == [[(0, None, b"1")]]


def test_engines_insert_at_once_while_producers_run(broker: Embedded, door: str, data: Path) -> None:
    topic = make_topic(broker)
    stop = threading.Event()
    failures: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    produced = 0

    def produce() -> None:
        nonlocal produced
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "enable.idempotence": True})
        while not stop.is_set():
            producer.produce(topic, b"p%d" % produced)
            produced += 1
            producer.flush(WAIT_S)
            time.sleep(0.02)

    def by_pyiceberg(name: bytes, address: str) -> None:
        stream = table(address, topic)
        for number in range(ROUNDS):
            stream.append(
                rows(
                    _stream_partition=pa.array([1, 1], pa.int32()),
                    _value=[b"%s%d" % (name, 2 * number), b"%s%d" % (name, 2 * number + 1)],
                )
            )

    def by_duckdb() -> None:
        with duck(door) as engine:
            for number in range(ROUNDS):
                values = f"(1, 'd{2 * number}'), (1, 'd{2 * number + 1}')"
                engine.execute(f"INSERT INTO lake.default.{topic} (_stream_partition, _value) VALUES {values}")

    with http_door(data) as other:
        producing = guarded(produce)
        inserting = [
            guarded(partial(by_pyiceberg, b"x", door)),
            guarded(partial(by_pyiceberg, b"y", other)),
            guarded(by_duckdb),
        ]
        for thread in inserting:
            thread.join()
        stop.set()
        producing.join()
    assert failures == []
    found = consume(broker, topic, produced + 6 * ROUNDS)
    for partition in found:
        assert [offset for offset, _, _ in partition] == list(range(len(partition)))
    for name in (b"x", b"y", b"d"):
        assert [value for _, _, value in found[1] if value[:1] == name] == [
            b"%s%d" % (name, number) for number in range(2 * ROUNDS)
        ]
    seen = table(door, topic).scan().to_arrow()
    assert sorted(seen["_value"].to_pylist()) == sorted(value for partition in found for _, _, value in partition)


@pytest.mark.slow
@pytest.mark.spark
def test_spark_inserts_records(broker: Embedded, door: str, spark: Any) -> None:
    topic = make_topic(broker, 2)
    for name, value in {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "rest",
        ".uri": f"{door}/iceberg",
    }.items():
        spark.conf.set(f"spark.sql.catalog.inserting{name}", value)
    name = f"inserting.default.{topic}"
    into = f"INSERT INTO {name} (_key, _value)"
    spark.sql(f"{into} VALUES (CAST('a' AS BINARY), CAST('1' AS BINARY)), (CAST('a' AS BINARY), NULL)")
    spark.sql(f"{into} SELECT CAST('a' AS BINARY), CAST(CAST(id AS STRING) AS BINARY) FROM range(50)")
    found = [partition for partition in consume(broker, topic, 52, 2) if partition]
    assert [value for _, _, value in found[0]][:2] == [b"1", None]
    assert sorted(value for _, _, value in found[0][2:]) == sorted(b"%d" % number for number in range(50))
    assert spark.sql(f"SELECT count(*) FROM {name}").collect()[0][0] == 52
    with pytest.raises(Exception, match="DELETE first, then INSERT"):
        spark.sql(f"INSERT OVERWRITE {name} (_value) VALUES (CAST('x' AS BINARY))")


def configure(broker: Embedded, topic: str, inserts: str) -> None:
    entry = ConfigEntry("lakestream.table.inserts", inserts, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)
