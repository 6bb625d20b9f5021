"""Groups of the newer protocol (KIP-848) with real clients: librdkafka's, Java's, and Kafka's tool."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from support.worlds.processes import HOST, ProcessWorld

QUICK = {
    "LAKESTREAM_STREAM_BROKER_TTL_MS": "3000",
    "LAKESTREAM_KAFKA_GROUPS_LEASE_TTL_MS": "1500",
    "LAKESTREAM_KAFKA_GROUPS_INITIAL_REBALANCE_DELAY_MS": "100",
    "LAKESTREAM_KAFKA_GROUPS_CONSUMER_HEARTBEAT_INTERVAL_MS": "300",
}
WAIT_S = 40.0


def _until(holds: Callable[[], object], what: str, work: Callable[[], object] = lambda: time.sleep(0.05)) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, what
        work()


def _make_topic(brokers: ProcessWorld, name: str = "t", partitions: int = 4) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(10)
    return admin


def _fill(bootstrap: str, values: list[bytes], topic: str = "t", partitions: int = 4) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions)
    assert producer.flush(30) == 0


class NewerMember:
    def __init__(self, bootstrap: str, topics: str = "t", **config: Any) -> None:
        self.rebalances = 0
        self.values: list[bytes] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "g",
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
            | config
        )
        self.consumer.subscribe([topics], on_assign=self._count, on_revoke=self._count, on_lost=self._count)

    def _count(self, *_: object) -> None:
        self.rebalances += 1

    def poll(self) -> None:
        message = self.consumer.poll(0.05)
        if message is not None and message.error() is None:
            self.values.append(message.value())

    def share(self) -> int:
        return len(self.consumer.assignment())


@contextmanager
def _opened(*members: NewerMember) -> Iterator[Callable[[], None]]:
    def poll() -> None:
        for each in members:
            each.poll()

    try:
        yield poll
    finally:
        for each in members:
            each.consumer.close()


def test_members_share_commit_and_outlive_their_coordinator(cluster: Callable[..., ProcessWorld]) -> None:
    brokers = cluster(2, environment=QUICK)
    admin = _make_topic(brokers)
    members = [NewerMember(brokers.bootstrap), NewerMember(brokers.bootstrap, **{"group.instance.id": "static"})]
    with _opened(*members) as poll:
        _until(lambda: [each.share() for each in members] == [2, 2], "two and two", poll)
        _fill(brokers.bootstrap, [b"before"] * 8)
        _until(lambda: sum(len(each.values) for each in members) == 8, "what was written before", poll)
        described = admin.describe_consumer_groups(["g"])["g"].result(10)
        assert (described.type, described.state) == (ConsumerGroupType.CONSUMER, ConsumerGroupState.STABLE)
        assert sorted(len(each.assignment.topic_partitions) for each in described.members) == [2, 2]
        for each in members:
            each.rebalances = 0
        left = 1 - described.coordinator.id
        brokers.brokers[1 - left].kill()
        _fill(f"{HOST}:{brokers.ports[left]}", [b"after"] * 8)
        _until(lambda: sum(each.values.count(b"after") for each in members) == 8, "what was written after", poll)
        for each in members:
            each.consumer.commit(asynchronous=False)
        until_s = time.monotonic() + 2
        _until(lambda: time.monotonic() > until_s, "", poll)
        assert [each.rebalances for each in members] == [0, 0]
        assert sum(len(each.values) for each in members) == 16, "nothing was read twice"
        offsets = admin_offsets(members[0])
        assert offsets == [4, 4, 4, 4]


def admin_offsets(member: NewerMember) -> list[int]:
    return [each.offset for each in member.consumer.committed([TopicPartition("t", index) for index in range(4)], 10)]


def test_a_pattern_finds_topics_that_come_later(cluster: Callable[..., ProcessWorld]) -> None:
    brokers = cluster(1, environment=QUICK)
    _make_topic(brokers, "orders.eu", 1)
    _make_topic(brokers, "other", 1)
    member = NewerMember(brokers.bootstrap, "^orders\\..*")
    with _opened(member) as poll:
        _until(lambda: member.share() == 1, "the topic that is there", poll)
        _make_topic(brokers, "orders.us", 2)
        _until(lambda: member.share() == 3, "the topic that came later", poll)
        assert {each.topic for each in member.consumer.assignment()} == {"orders.eu", "orders.us"}


def test_a_group_goes_over_and_back_while_it_reads(cluster: Callable[..., ProcessWorld]) -> None:
    """Consumers are exchanged one by one; what each has committed is where the next goes on."""
    brokers = cluster(2, environment=QUICK)
    admin = _make_topic(brokers)
    _fill(brokers.bootstrap, [b"%d" % number for number in range(40)])

    def kind() -> Any:
        return admin.describe_consumer_groups(["g"])["g"].result(10).type

    classic = {"group.protocol": "classic", "heartbeat.interval.ms": 300, "session.timeout.ms": 6_000}
    classic["partition.assignment.strategy"] = "cooperative-sticky"
    old = [NewerMember(brokers.bootstrap, **classic) for _ in range(2)]
    with _opened(*old) as poll_old:
        _until(lambda: [each.share() for each in old] == [2, 2], "two and two", poll_old)
        assert kind() is ConsumerGroupType.CLASSIC
        new = NewerMember(brokers.bootstrap)
        with _opened(new) as poll_new:

            def poll() -> None:
                poll_old()
                poll_new()

            everyone = [*old, new]
            _until(lambda: sorted(each.share() for each in everyone) == [1, 1, 2], "all three have some", poll)
            assert kind() is ConsumerGroupType.CONSUMER
            _until(lambda: sum(len(each.values) for each in everyone) >= 40, "everything was read", poll)
            for each in everyone:
                each.consumer.commit(asynchronous=False)
            old[0].consumer.close()

            def poll_rest() -> None:
                old[1].poll()
                new.poll()

            _until(lambda: new.share() + old[1].share() == 4, "its partitions are the others'", poll_rest)
        _until(lambda: old[1].share() == 4, "the last one has all", old[1].poll)
        _until(lambda: kind() is ConsumerGroupType.CLASSIC, "the group has gone back", old[1].poll)
        _fill(brokers.bootstrap, [b"late"] * 4)
        _until(lambda: old[1].values.count(b"late") == 4, "and is read on", old[1].poll)


@pytest.mark.java
def test_javas_consumer_and_tool(
    cluster: Callable[..., ProcessWorld], java: str, kafka_libs: str, tmp_path: Path
) -> None:
    quiet = tmp_path / "log4j2.properties"
    quiet.write_text("status = error\nrootLogger.level = error\n")
    brokers = cluster(2, environment=QUICK)
    _make_topic(brokers)
    run = [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={quiet}", "-cp", f"{kafka_libs}/*"]
    reader = [*run, "org.apache.kafka.tools.consumer.ConsoleConsumer", "--topic", "t", "--group", "g"]
    reader += ["--from-beginning", "--bootstrap-server", brokers.bootstrap]
    reader += ["--command-property", "group.protocol=consumer", "--command-property", "group.remote.assignor=range"]
    tool = [*run, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server", brokers.bootstrap]

    def told(*arguments: str, fails: bool = False) -> str:
        done = subprocess.run([*tool, *arguments], capture_output=True, text=True, timeout=60, check=False)
        assert fails or done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    read = tmp_path / "read"
    with read.open("wb") as output, subprocess.Popen(reader, stdout=output, stderr=output) as consumer:
        try:
            _fill(brokers.bootstrap, [b"before"] * 8)
            _until(lambda: read.read_bytes().count(b"before") == 8, "what was written before")
            state = told("--describe", "--group", "g", "--state")
            assert "range" in state
            assert "Stable" in state
            members = told("--describe", "--group", "g", "--members", "--verbose")
            assert "t:0,1,2,3" in members.replace("(0,1,2,3)", ":0,1,2,3")
            assert "Consumer" in told("--list", "--type")
            brokers.brokers[_coordinator(brokers)].kill()
            left = next(index for index, each in enumerate(brokers.brokers) if each.process.poll() is None)
            _fill(f"{HOST}:{brokers.ports[left]}", [b"after"] * 8)
            _until(lambda: read.read_bytes().count(b"after") == 8, "what was written after")
            assert consumer.poll() is None, read.read_text()
            assert "The group is not empty" in told("--delete", "--group", "g", fails=True)
        finally:
            consumer.terminate()
            consumer.wait(20)
    lines = read.read_bytes().splitlines()
    assert sorted(each for each in lines if each in (b"after", b"before")) == [b"after"] * 8 + [b"before"] * 8
    assert "was successful" in told("--delete", "--group", "g")


def _coordinator(brokers: ProcessWorld) -> int:
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    found: int = admin.describe_consumer_groups(["g"])["g"].result(10).coordinator.id
    return found
