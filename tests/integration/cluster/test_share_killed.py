"""Brokers are killed under share consumers: all is delivered, what was acknowledged never again, counts only grow."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.shares.java import ShareMember, StartMember, share_members, until
from support.worlds.processes import ProcessWorld

pytestmark = [pytest.mark.java, pytest.mark.slow]

QUICK = {
    "LAKESTREAM_STREAM_BROKER_TTL_MS": "2000",
    "LAKESTREAM_KAFKA_GROUPS_LEASE_TTL_MS": "1500",
    "LAKESTREAM_KAFKA_GROUPS_SHARE_HEARTBEAT_INTERVAL_MS": "300",
    "LAKESTREAM_KAFKA_GROUPS_SHARE_AUTO_OFFSET_RESET": "earliest",
    "LAKESTREAM_KAFKA_GROUPS_SHARE_RECORD_LOCK_MS": "3000",
}
PARTITIONS = 4


@pytest.fixture
def member(java: str, kafka_libs: str, tmp_path: Path) -> Iterator[StartMember]:
    with share_members(java, kafka_libs, tmp_path) as start:
        yield start


class Writing:
    """A producer that keeps at it, and knows what was acknowledged to it."""

    def __init__(self, brokers: ProcessWorld) -> None:
        self._producer = Producer(
            {"bootstrap.servers": brokers.bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        self.written: set[tuple[int, int]] = set()

    def write(self, count: int) -> None:
        for number in range(count):
            self._producer.produce("t", b"%d" % number, partition=number % PARTITIONS, on_delivery=self._delivered)
        assert self._producer.flush(40) == 0

    def _delivered(self, error: object, message: object) -> None:
        assert error is None, error
        self.written.add((message.partition(), message.offset()))  # type: ignore[attr-defined]


def audit(members: list[ShareMember], written: set[tuple[int, int]]) -> None:
    """What members say in order of their clocks: none hears of a record that was acknowledged before."""
    deliveries: dict[tuple[int, int], list[tuple[float, int]]] = defaultdict(list)
    acked: dict[tuple[int, int], float] = {}
    for each in members:
        for at_s, partition, offset, count in each.got_at:
            deliveries[partition, offset].append((at_s, count))
        for at_s, partition, offset in each.acked_at:
            record = (partition, offset)
            acked[record] = min(at_s, acked.get(record, at_s))
    assert deliveries.keys() == written, "all that was written was delivered, and nothing else"
    assert acked.keys() == written, "and acknowledged by somebody"
    for record, told in deliveries.items():
        counts = [count for _, count in sorted(told)]
        assert counts == sorted(set(counts)), f"{record}: deliveries {counts}"
        # A member hears of the acknowledgement after the broker has stored it.
        late = [at_s for at_s, _ in told if at_s > acked[record]]
        assert not late, f"{record} came again after it was acknowledged"


def test_brokers_are_killed_and_stopped(cluster: Callable[..., ProcessWorld], member: StartMember) -> None:
    brokers = cluster(3, environment=QUICK)
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(10)
    settings = {"max.poll.records": "20"}
    members = [member(brokers.bootstrap, how=how, settings=settings) for how in ("accept", "implicit", "accept")]
    until(lambda: all(each.is_ready for each in members), "they are there")
    writing = Writing(brokers)
    for number in range(6):
        writing.write(400)
        if number in (1, 3):
            brokers.brokers[number // 2].kill()
        if number == 4:
            brokers.start_broker(0)
            brokers.brokers[2].stop()
        time.sleep(0.2)
    until(lambda: {each for one in members for each in one.acked} >= writing.written, "all is acknowledged")
    for each in members:
        each.kill()
    audit(members, writing.written)
