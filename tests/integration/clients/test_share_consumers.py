"""Share groups with Kafka's own share consumer and tools."""

import subprocess
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
    "LAKESTREAM_KAFKA_GROUPS_SHARE_RECORD_LOCK_MS": "2500",
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


@pytest.mark.slow
def test_what_is_released_or_lapses_comes_again_and_what_is_rejected_does_not(
    cluster: Callable[..., ProcessWorld], member: StartMember
) -> None:
    brokers = cluster(1, environment=QUICK)
    for topic in ("rejected", "released", "hung", "renewed"):
        make_topic(brokers, topic)
    rejecting = member(brokers.bootstrap, "rejecting", "rejected", "reject-odd")
    releasing = member(brokers.bootstrap, "releasing", "released", "release")
    hanging = member(brokers.bootstrap, "hanging", "hung", "hang")
    renewing = member(brokers.bootstrap, "renewing", "renewed", "renew")
    until(lambda: all(each.is_ready for each in (rejecting, releasing, hanging, renewing)), "they are there")
    for topic, count in (("rejected", 4), ("released", 4), ("hung", 4), ("renewed", 1)):
        fill(brokers, count, topic)
    until(lambda: len(releasing.got) >= 20, "four records five times")
    assert sorted(releasing.got) == sorted((0, offset, count) for offset in range(4) for count in range(1, 6))
    until(lambda: len(rejecting.acked) >= 4, "all are done with")
    assert sorted(rejecting.got) == [(0, offset, 1) for offset in range(4)]
    until(lambda: hanging.got, "one is stuck")
    helping = member(brokers.bootstrap, "hanging", "hung")
    until(lambda: len(helping.got) >= 4, "its locks have lapsed")
    assert sorted(helping.got) == [(0, offset, 2) for offset in range(4)]
    until(lambda: len(renewing.got) >= 5, "it was kept for longer than its lock")
    assert set(renewing.got) == {(0, 0, 1)}
    assert not renewing.failed


@pytest.fixture
def tool(java: str, kafka_libs: str, tmp_path: Path) -> Callable[..., str]:
    """Runs one of Kafka's tools to its end, and says what it said."""
    quiet = tmp_path / "log4j2.properties"
    quiet.write_text("status = error\nrootLogger.level = error\n")

    def run(name: str, *arguments: str) -> str:
        command = [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={quiet}"]
        command += [
            "-cp",
            f"{kafka_libs}/*",
            name if name.startswith("kafka.") else f"org.apache.kafka.tools.{name}",
            *arguments,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
        return done.stdout + done.stderr

    return run


@pytest.mark.slow
def test_kafkas_tools(cluster: Callable[..., ProcessWorld], tool: Callable[..., str]) -> None:
    brokers = cluster(1, environment=QUICK)
    make_topic(brokers, partitions=2)
    fill(brokers, 10, partitions=2)
    where = ("--bootstrap-server", brokers.bootstrap)
    group = ("--group", "g", *where)
    console = ("consumer.ConsoleShareConsumer", "--topic", "t", "--max-messages", "10", "--timeout-ms", "20000", *group)
    read = tool(*console)
    assert sorted(line for line in read.splitlines() if line.isdigit()) == [str(number) for number in range(10)]
    groups = "consumer.group.ShareGroupCommand"
    assert tool(groups, "--list", *where).split() == ["g"]
    assert "g" in tool("GroupsCommand", "--list", "--share", *where)
    described = [line.split() for line in tool(groups, "--describe", *group).splitlines() if " t " in line]
    assert sorted((row[1], row[2], row[3], row[-1]) for row in described) == [
        ("t", "0", "5", "0"),
        ("t", "1", "5", "0"),
    ]
    assert "Empty" in tool(groups, "--describe", "--state", *group)
    reset = tool(groups, "--reset-offsets", "--topic", "t", "--to-earliest", "--execute", *group)
    assert "Error" not in reset, reset
    again = tool(*console)
    assert sorted(line for line in again.splitlines() if line.isdigit()) == [str(number) for number in range(10)]
    configured = ("--entity-type", "groups", "--entity-name", "g", *where)
    changed = "share.record.lock.duration.ms=20000,share.isolation.level=read_committed"
    assert "Completed" in tool("kafka.admin.ConfigCommand", "--alter", "--add-config", changed, *configured)
    assert "successful" in tool(groups, "--delete-offsets", "--topic", "t", *group).lower()
    assert "successful" in tool(groups, "--delete", *group).lower()
    assert tool(groups, "--list", *where).split() == []
