"""What transactions leave in tables, as engines see it: committed records only, each transaction's in one snapshot."""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.catalog.rest import RestCatalog
from support.worlds.doors import duck
from support.worlds.embedded import Embedded
from support.worlds.source import Node, source_node

from lakestream.frontier.upkeep.maintenance import Maintenance
from lakestream.spark_source.options import parse
from lakestream.spark_source.reading.batch import TopicReader
from lakestream.spark_source.reading.streaming import TopicStream
from lakestream.spark_source.schema import SPARK_SCHEMA

PARTITIONS = 3
WAIT_S = 30.0
_names = count()


def transactional(bootstrap: str, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0, "log_level": 0})
    producer.init_transactions(WAIT_S)
    return producer


def send(producer: Producer, topic: str, value: bytes, key: bytes | None = None) -> None:
    """To each partition."""
    for index in range(PARTITIONS):
        producer.produce(topic, value, key, partition=index)
    assert producer.flush(WAIT_S) == 0


def run(producer: Producer, topic: str, value: bytes, *, commits: bool, key: bytes | None = None) -> None:
    producer.begin_transaction()
    send(producer, topic, value, key)
    if commits:
        producer.commit_transaction(WAIT_S)
    else:
        producer.abort_transaction(WAIT_S)


def make_topic(bootstrap: str, **config: str) -> str:
    name = f"paid_{next(_names)}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1, config=config)])[name].result(WAIT_S)
    return name


def check_whole(values: Sequence[bytes]) -> set[bytes]:
    """Of each transaction all of its records."""
    counts = Counter(values)
    assert set(counts.values()) <= {PARTITIONS}, {
        value: found for value, found in counts.items() if found != PARTITIONS
    }
    return set(counts)


def is_aborted(value: bytes) -> bool:
    """Every third transaction is."""
    return int(value.rpartition(b"-")[2]) % 3 == 1


@pytest.mark.xdist_group("transactions_in_tables")
def test_engines_see_whole_transactions_and_no_aborted_record(broker: Embedded, door: str) -> None:
    """While two producers commit and abort, and a third leaves one open."""
    topic = make_topic(
        broker.bootstrap, **{"lakestream.table.freshness.ms": "0", "lakestream.table.transaction.wait.ms": "600000"}
    )
    committed: set[bytes] = set()

    def produce(name: str) -> None:
        producer = transactional(broker.bootstrap, name)
        for number in range(12):
            value = f"{name}-{number}".encode()
            commits = not is_aborted(value)
            run(producer, topic, value, commits=commits)
            if commits:
                committed.add(value)

    producers = [threading.Thread(target=produce, args=(f"{topic}-{number}",)) for number in range(2)]
    for producer in producers:
        producer.start()
    catalog = RestCatalog("lake", uri=f"{door}/iceberg")
    with duck(door) as connection:

        def look() -> set[bytes]:
            return check_whole(
                [row[0] for row in connection.execute(f"SELECT _value FROM lake.default.{topic}").fetchall()]
            )

        while any(producer.is_alive() for producer in producers):
            # What is committed may wait for a transaction that began before it.
            assert not {value for value in look() if is_aborted(value)}
        assert look() == committed
        left_open = transactional(broker.bootstrap, f"{topic}-open")
        left_open.begin_transaction()
        send(left_open, topic, b"open")
        run(transactional(broker.bootstrap, f"{topic}-late"), topic, b"behind", commits=True)
        assert look() == committed
        told = catalog.load_table(f"default.{topic}").properties
        assert told["lakestream.freshness"] == "committed"
        left_open.commit_transaction(WAIT_S)
        assert look() == committed | {b"open", b"behind"}
    table = catalog.load_table(f"default.{topic}")
    assert "lakestream.freshness" not in table.properties
    for snapshot in table.metadata.snapshots:
        check_whole(table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()["_value"].to_pylist())
        assert snapshot.summary is not None
        assert snapshot.summary.get("lakestream.split-transactions") is None


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with source_node(tmp_path_factory.mktemp("transactions")) as opened:
        yield opened


def spark_values(node: Node, topic: str) -> list[bytes]:
    """As the Spark source reads them, out of table and log."""
    reader = TopicReader(parse({**node.options, "topic": topic}), SPARK_SCHEMA)
    found = [batch for task in reader.partitions() for batch in reader.read(task)]
    return [bytes(value) for batch in found for value in batch["_value"].to_pylist()]


def streamed_values(node: Node, topic: str) -> list[bytes]:
    stream = TopicStream(parse({**node.options, "topic": topic, "startingOffsets": "earliest"}), SPARK_SCHEMA)
    tasks = stream.partitions(stream.initialOffset(), stream.latestOffset())
    return [bytes(value) for task in tasks for batch in stream.read(task) for value in batch["_value"].to_pylist()]


def consumed(node: Node, topic: str, isolation: str) -> list[bytes]:
    """All values up to the last offset that the reader is told of."""
    config = {"group.id": f"{topic}-{isolation}-{next(_names)}", "isolation.level": isolation, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "enable.partition.eof": True} | config)
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    values, ended = [], set[int | None]()
    while len(ended) < PARTITIONS:
        message = consumer.poll(WAIT_S)
        assert message is not None
        error = message.error()
        if error is None:
            values.append(message.value() or b"")
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition())
    consumer.close()
    return values


@pytest.mark.xdist_group("transactions_in_tables")
def test_the_spark_source_reads_what_is_committed_wherever_it_is(node: Node) -> None:
    topic = make_topic(node.bootstrap)
    producer = transactional(node.bootstrap, f"{topic}-a")
    run(producer, topic, b"one", commits=True)
    run(producer, topic, b"gone", commits=False)
    expected = {b"one"}
    for moved in (False, True):
        if moved:
            assert node.move() == PARTITIONS
        assert check_whole(spark_values(node, topic)) == expected
        assert check_whole(streamed_values(node, topic)) == expected
    left_open = transactional(node.bootstrap, f"{topic}-b")
    left_open.begin_transaction()
    send(left_open, topic, b"open")
    run(producer, topic, b"gone too", commits=False)
    assert check_whole(spark_values(node, topic)) == expected
    assert node.move() == 0
    left_open.commit_transaction(WAIT_S)
    assert check_whole(spark_values(node, topic)) == expected | {b"open"}
    assert check_whole(streamed_values(node, topic)) == expected | {b"open"}
    assert node.move() == PARTITIONS
    assert check_whole(spark_values(node, topic)) == expected | {b"open"}


@pytest.mark.xdist_group("transactions_in_tables")
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_readers_pass_what_was_aborted(node: Node, isolation: str) -> None:
    """In the log, where one of them sees it, and in the table, where nobody does; also where it is all there is."""
    topic = make_topic(node.bootstrap)
    producer = transactional(node.bootstrap, topic)
    run(producer, topic, b"gone", commits=False)
    run(producer, topic, b"kept", commits=True)
    run(producer, topic, b"gone", commits=False)
    seen = Counter({b"kept": PARTITIONS})
    in_log = seen + Counter({b"gone": 2 * PARTITIONS}) if isolation == "read_uncommitted" else seen
    assert Counter(consumed(node, topic, isolation)) == in_log
    assert node.move() == PARTITIONS
    assert Counter(consumed(node, topic, isolation)) == seen
    run(producer, topic, b"gone", commits=False)
    node.move()
    assert Counter(consumed(node, topic, isolation)) == seen


@pytest.mark.xdist_group("transactions_in_tables")
def test_an_aborted_record_takes_no_others_place_in_a_compacted_topic(node: Node) -> None:
    topic = make_topic(node.bootstrap, **{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    producer = transactional(node.bootstrap, topic)
    for value, commits in ((b"old", True), (b"new", True), (b"aborted", False)):
        run(producer, topic, value, commits=commits, key=b"k")
        node.move()
    maintenance = Maintenance(node.lake, node.topics, name="m", respect_leases=False)
    done: Any = node.run(maintenance.run())
    assert not done.failures
    for isolation in ("read_committed", "read_uncommitted"):
        assert Counter(consumed(node, topic, isolation)) == Counter({b"new": PARTITIONS})
    assert check_whole(spark_values(node, topic)) == {b"new"}
