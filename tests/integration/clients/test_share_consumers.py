"""Share groups with Kafka's own share consumer and tools."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.shares.java import StartMember, share_members, until
from support.worlds.processes import ProcessWorld

pytestmark = pytest.mark.java

QUICK = {
    "LAKESTREAM_STREAM_BROKER_TTL_MS": "3000",
    "LAKESTREAM_KAFKA_GROUPS_LEASE_TTL_MS": "1500",
    "LAKESTREAM_KAFKA_GROUPS_SHARE_HEARTBEAT_INTERVAL_MS": "300",
    "LAKESTREAM_KAFKA_GROUPS_SHARE_AUTO_OFFSET_RESET": "earliest",
    "LAKESTREAM_KAFKA_GROUPS_SHARE_RECORD_LOCK_MS": "4000",
}


@pytest.fixture
def member(java: str, kafka_libs: str, tmp_path: Path) -> Iterator[StartMember]:
    with share_members(java, kafka_libs, tmp_path) as start:
        yield start


def make_topic(brokers: ProcessWorld, name: str = "t", partitions: int = 1) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(10)
    return admin


def fill(brokers: ProcessWorld, count: int, topic: str = "t", partitions: int = 1) -> None:
    producer = Producer({"bootstrap.servers": brokers.bootstrap, "linger.ms": 5})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(30) == 0


def test_members_share_a_partition(cluster: Callable[..., ProcessWorld], member: StartMember) -> None:
    brokers = cluster(1, environment=QUICK)
    make_topic(brokers)
    members = [member(brokers.bootstrap, settings={"max.poll.records": "10"}) for _ in range(2)]
    until(lambda: all(each.is_ready for each in members), "they are there")
    for _ in range(20):
        fill(brokers, 50)
    until(lambda: sum(len(each.got) for each in members) >= 1000, "all records")
    until(lambda: sum(len(each.acked) for each in members) >= 1000, "all are acknowledged")
    assert members[0].offsets() | members[1].offsets() == {(0, offset) for offset in range(1000)}
    assert not members[0].offsets() & members[1].offsets(), "each record went to one member"
    assert {count for each in members for _, _, count in each.got} == {1}
