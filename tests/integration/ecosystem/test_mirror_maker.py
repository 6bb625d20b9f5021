"""MirrorMaker 2 from a real Kafka into us and back: records exactly once, settings, and the offsets of groups."""

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from support.clients.committed import committed, until
from support.clients.java_programs import JavaPrograms
from support.clients.topic_settings import setting_of
from support.servers.apache_kafka import apache_kafka
from support.worlds.processes import ProcessWorld

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(420)]

WAIT_S = 120.0
SETTINGS = """
clusters = kafka, lake
kafka.bootstrap.servers = {kafka}
lake.bootstrap.servers = {lake}
kafka->lake.enabled = true
lake->kafka.enabled = true
kafka->lake.topics = orders
lake->kafka.topics = sales
kafka.exactly.once.source.support = enabled
lake.exactly.once.source.support = enabled
replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
offset.storage.replication.factor = 1
config.storage.replication.factor = 1
status.storage.replication.factor = 1
dedicated.mode.enable.internal.rest = true
listeners = http://127.0.0.1:0
refresh.topics.interval.seconds = 2
refresh.groups.interval.seconds = 2
sync.topic.configs.interval.seconds = 2
emit.heartbeats.interval.seconds = 1
emit.checkpoints.interval.seconds = 1
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 1
offset.lag.max = 0
tasks.max = 2
session.timeout.ms = 6000
heartbeat.interval.ms = 500
rebalance.timeout.ms = 10000
scheduled.rebalance.max.delay.ms = 0
"""


def _produce(bootstrap: str, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    for number in range(first, first + count):
        producer.produce(
            topic, b"value %d" % number, b"key %d" % number, partition=number % 3, headers=[("n", b"%d" % number)]
        )
    assert producer.flush(60) == 0


def _told(messages: list[Message]) -> list[tuple[object, ...]]:
    return [
        (message.partition(), message.key(), message.value(), message.headers(), message.timestamp())
        for message in messages
    ]


def _topic(bootstrap: str, name: str, **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 3, 1, config=settings)])[name].result(30)


def _has(bootstrap: str, name: str) -> bool:
    return name in AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=20).topics


def test_from_kafka_and_back(
    cluster: Callable[..., ProcessWorld],
    programs: Callable[..., JavaPrograms],
    java: str,
    kafka_libs: str,
    tmp_path: Path,
) -> None:
    ours = cluster().bootstrap
    with apache_kafka(tmp_path / "kafka", java, kafka_libs) as (host, port):
        theirs = f"{host}:{port}"
        _topic(theirs, "orders", **{"cleanup.policy": "compact", "max.message.bytes": "200000"})
        _topic(ours, "sales")
        _produce(theirs, "orders", 0, 2_000)
        _produce(ours, "sales", 0, 2_000)
        consumer = Consumer({"bootstrap.servers": theirs, "group.id": "billing"})
        consumer.commit(offsets=[TopicPartition("orders", 0, 400), TopicPartition("orders", 1, 0)], asynchronous=False)

        mirror = programs(kafka_libs, "connect-mirror-*")
        config = tmp_path / "mirror.properties"
        config.write_text(SETTINGS.format(kafka=theirs, lake=ours))
        main = "org.apache.kafka.connect.mirror.MirrorMaker"
        running = mirror.start(main, str(config))

        def told() -> object:
            return running.output[-6000:]

        def mirrored(bootstrap: str, topic: str, source: str, original: str) -> bool:
            if not _has(bootstrap, topic):
                return False
            return len(committed(bootstrap, topic)) >= len(committed(source, original))

        def both() -> bool:
            return mirrored(ours, "kafka.orders", theirs, "orders") and mirrored(theirs, "lake.sales", ours, "sales")

        until(both, WAIT_S, told)
        _produce(theirs, "orders", 2_000, 4_000)
        _produce(ours, "sales", 2_000, 4_000)
        running.kill()
        _produce(theirs, "orders", 6_000, 1_000)
        running = mirror.start(main, str(config))
        until(both, WAIT_S, told)
        assert _told(committed(ours, "kafka.orders")) == _told(committed(theirs, "orders"))
        assert _told(committed(theirs, "lake.sales")) == _told(committed(ours, "sales"))

        admin = AdminClient({"bootstrap.servers": ours})
        assert setting_of(admin, "kafka.orders", "cleanup.policy") == "compact"
        assert setting_of(admin, "kafka.orders", "max.message.bytes") == "200000"
        reader = Consumer({"bootstrap.servers": ours, "group.id": "billing"})

        def offset() -> int:
            [place] = reader.committed([TopicPartition("kafka.orders", 0)], 20)
            return place.offset

        # Offsets are translated by the pairs of them that were noted: never beyond what the group has read.
        until(lambda: offset() > 0, WAIT_S, lambda: (offset(), told()))
        before = [m for m in committed(ours, "kafka.orders") if m.partition() == 0 and m.offset() < offset()]
        assert 0 < len(before) <= 400
        reader.close()
        consumer.close()
