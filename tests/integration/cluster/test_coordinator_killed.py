"""`kill -9` of the broker that coordinates a group: the other one goes on with it, and no member joins again."""

import asyncio
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.errors import ErrorCode
from support.clients.wire import Client
from support.worlds.processes import HOST, ProcessWorld

QUICK = {
    "LAKESTREAM_STREAM_BROKER_TTL_MS": "3000",
    "LAKESTREAM_KAFKA_GROUPS_LEASE_TTL_MS": "1500",
    "LAKESTREAM_KAFKA_GROUPS_INITIAL_REBALANCE_DELAY_MS": "100",
}
WAIT_S = 40.0
DELETE_GROUPS = 42


def _until(holds: Callable[[], object], what: str, work: Callable[[], object] = lambda: time.sleep(0.05)) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, what
        work()


def _make_topic(brokers: ProcessWorld, partitions: int = 4) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    admin.create_topics([NewTopic("t", partitions, 1)])["t"].result(10)
    return admin


def _fill(bootstrap: str, values: list[bytes], partitions: int = 4) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number, value in enumerate(values):
        producer.produce("t", value, partition=number % partitions)
    assert producer.flush(30) == 0


def _kill_the_coordinator(brokers: ProcessWorld, admin: AdminClient) -> int:
    """Returns the index of the other one."""
    killed: int = admin.describe_consumer_groups(["g"])["g"].result(10).coordinator.id
    brokers.brokers[killed].kill()
    return 1 - killed


def _generations(brokers: ProcessWorld, index: int) -> list[str]:
    """What a broker has said of the group's generations."""
    return re.findall(
        r"group g: generation \d+|coordinating group g from generation \d+ on, with \d+ members",
        brokers.brokers[index].output,
    )


class Member:
    def __init__(self, bootstrap: str, **config: Any) -> None:
        self.rebalances = 0
        self.values: list[bytes] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 300,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
            | config
        )
        self.consumer.subscribe(["t"], on_assign=self._count, on_revoke=self._count, on_lost=self._count)

    def _count(self, *_: object) -> None:
        self.rebalances += 1

    def poll(self) -> None:
        message = self.consumer.poll(0.05)
        if message is not None and message.error() is None:
            self.values.append(message.value())


@contextmanager
def _members(brokers: ProcessWorld, *configs: dict[str, Any]) -> Iterator[list[Member]]:
    members = [Member(brokers.bootstrap, **config) for config in configs]
    try:
        yield members
    finally:
        for each in members:
            each.consumer.close()


@pytest.mark.parametrize("static", [False, True])
async def test_librdkafka_consumers_keep_their_partitions(cluster: Callable[..., ProcessWorld], static: bool) -> None:
    brokers = cluster(2, environment=QUICK)
    admin = _make_topic(brokers)
    _fill(brokers.bootstrap, [b"before"] * 8)
    configs: list[dict[str, Any]] = [{"group.instance.id": name} if static else {} for name in ("one", "two")]
    with _members(brokers, *configs) as members:

        def poll() -> None:
            for each in members:
                each.poll()

        _until(lambda: [len(each.consumer.assignment()) for each in members] == [2, 2], "two and two", poll)
        _until(lambda: sum(len(each.values) for each in members) == 8, "what was written before", poll)
        for each in members:
            each.rebalances = 0
        left = _kill_the_coordinator(brokers, admin)
        assert await _deleted(brokers.ports[left]) is ErrorCode.non_empty_group
        _fill(f"{HOST}:{brokers.ports[left]}", [b"after"] * 8)
        _until(lambda: sum(each.values.count(b"after") for each in members) == 8, "what was written after", poll)
        for each in members:
            each.consumer.commit(asynchronous=False)
        until_s = time.monotonic() + 3
        _until(lambda: time.monotonic() > until_s, "", poll)
        assert [each.rebalances for each in members] == [0, 0]
        assert all(line.endswith("with 2 members") for line in _generations(brokers, left)), _generations(brokers, left)
        assert sum(len(each.values) for each in members) == 16, "nothing was read twice"


async def _deleted(port: int) -> ErrorCode:
    """The answer of this broker, as soon as it coordinates the group. Asked by hand: librdkafka's admin client, sent to
    the dead broker first, may abort its process."""
    client = await Client.connect(port)
    async with asyncio.timeout(WAIT_S):
        while True:
            [result] = (await client.ask(DELETE_GROUPS, 2, {"groups_names": ("g",)})).results
            if result.error_code is not ErrorCode.not_coordinator:
                await client.close()
                code: ErrorCode = result.error_code
                return code
            await asyncio.sleep(0.05)


@pytest.mark.java
def test_a_java_consumer_keeps_its_partitions(
    cluster: Callable[..., ProcessWorld], java: str, kafka_libs: str, tmp_path: Path
) -> None:
    quiet = tmp_path / "log4j2.properties"
    quiet.write_text("status = error\nrootLogger.level = error\n")
    brokers = cluster(2, environment=QUICK)
    admin = _make_topic(brokers)
    command = [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={quiet}", "-cp"]
    command += [f"{kafka_libs}/*", "org.apache.kafka.tools.consumer.ConsoleConsumer", "--topic", "t", "--group", "g"]
    command += ["--from-beginning", "--bootstrap-server", brokers.bootstrap]
    command += ["--command-property", "heartbeat.interval.ms=300"]
    read = tmp_path / "read"
    with read.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as consumer:
        try:
            _fill(brokers.bootstrap, [b"before"] * 8)
            _until(lambda: read.read_bytes().count(b"before") == 8, "what was written before")
            left = _kill_the_coordinator(brokers, admin)
            _fill(f"{HOST}:{brokers.ports[left]}", [b"after"] * 8)
            _until(lambda: read.read_bytes().count(b"after") == 8, "what was written after")
            _until(lambda: _generations(brokers, left), "the other broker coordinates")
            time.sleep(2)
            assert consumer.poll() is None, read.read_text()
            found = _generations(brokers, left)
            assert len(found) == 1, found
            assert found[0].endswith("with 1 members")
            assert sorted(read.read_bytes().splitlines()[-16:]) == [b"after"] * 8 + [b"before"] * 8
        finally:
            consumer.kill()
