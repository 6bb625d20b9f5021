"""Consumer groups with real clients: sharing, coming and going, restarts, three brokers."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from support.worlds.embedded import Embedded, embedded

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

Open = Callable[..., Consumer]


@pytest.fixture
def consumer() -> Iterator[Open]:
    """Opens consumers; whatever a test leaves open is closed after it."""
    opened: list[Consumer] = []

    def connect(brokers: Embedded, group: str = "g", **config: Any) -> Consumer:
        settings = {
            "bootstrap.servers": brokers.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 300,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 1_000,
        }
        opened.append(Consumer(settings | config))
        opened[-1].subscribe(["t"])
        return opened[-1]

    yield connect
    for each in opened:
        each.close()


def _topic(brokers: Embedded, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    admin.create_topics([NewTopic("t", partitions, 1)])["t"].result(10)


def _fill(brokers: Embedded, partitions: int, each: int) -> None:
    producer = Producer({"bootstrap.servers": brokers.bootstrap, "enable.idempotence": True})
    for number in range(each):
        for partition in range(partitions):
            producer.produce("t", b"%d" % number, partition=partition)
    assert producer.flush(30) == 0


def _read(source: Consumer, count: int, timeout_s: float = 30) -> list[Any]:
    messages: list[Any] = []
    deadline = time.monotonic() + timeout_s
    while len(messages) < count and time.monotonic() < deadline:
        batch = source.consume(count - len(messages), 0.1)
        messages += [message for message in batch if message.error() is None]
    assert len(messages) == count
    return messages


def _settle(consumers: list[Consumer], shares: list[int], timeout_s: float = 30) -> None:
    """Polls all of them until each has its share of the partitions."""
    deadline = time.monotonic() + timeout_s
    found: list[int] = []
    while time.monotonic() < deadline:
        for each in consumers:
            each.poll(0.05)
        found = sorted(len(each.assignment()) for each in consumers)
        if found == sorted(shares):
            return
    raise AssertionError(f"shares {found} instead of {shares}")


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_members_share_the_partitions_and_take_over_what_a_leaver_had(
    tmp_path: Path, consumer: Open, strategy: str
) -> None:
    with embedded(tmp_path) as brokers:
        _topic(brokers, 4)
        config = {"partition.assignment.strategy": strategy}
        first = consumer(brokers, **config)
        _settle([first], [4])
        second = consumer(brokers, **config)
        _settle([first, second], [2, 2])
        owned = [{partition.partition for partition in each.assignment()} for each in (first, second)]
        assert owned[0] | owned[1] == {0, 1, 2, 3}
        assert not owned[0] & owned[1]
        second.close()
        _settle([first], [4])


def test_committed_offsets_survive_a_restart(tmp_path: Path, consumer: Open) -> None:
    with embedded(tmp_path) as brokers:
        _topic(brokers, 2)
        _fill(brokers, 2, 10)
        reader = consumer(brokers)
        for message in _read(reader, 20):
            if int(message.value()) < 6:
                reader.commit(message, asynchronous=False)
        brokers.stop(0)
        brokers.start(0)
        again = Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": "g"})
        committed = again.committed([TopicPartition("t", 0), TopicPartition("t", 1)], timeout=20)
        assert [each.offset for each in committed] == [6, 6]
        again.close()


def test_a_group_goes_on_after_a_restart(tmp_path: Path, consumer: Open) -> None:
    with embedded(tmp_path) as brokers:
        _topic(brokers, 2)
        _fill(brokers, 2, 5)
        reader = consumer(brokers)
        _read(reader, 10)
        reader.commit(asynchronous=False)
        brokers.stop(0)
        brokers.start(0)
        _fill(brokers, 2, 5)
        assert {message.offset() for message in _read(reader, 10)} == {5, 6, 7, 8, 9}


def test_a_static_member_comes_back_without_a_rebalance(tmp_path: Path, consumer: Open) -> None:
    with embedded(tmp_path) as brokers:
        _topic(brokers, 4)
        first = consumer(brokers, **{"group.instance.id": "one"})
        rebalances: list[Any] = []
        first.subscribe(["t"], on_revoke=lambda *_: rebalances.append(1), on_lost=lambda *_: rebalances.append(1))
        second = consumer(brokers, **{"group.instance.id": "two"})
        _settle([first, second], [2, 2])
        owned = {partition.partition for partition in second.assignment()}
        rebalances.clear()
        second.close()
        back = consumer(brokers, **{"group.instance.id": "two"})
        _settle([first, back], [2, 2])
        assert {partition.partition for partition in back.assignment()} == owned
        assert not rebalances


def test_three_brokers_one_coordinator(tmp_path: Path, consumer: Open) -> None:
    with embedded(tmp_path, 3) as brokers:
        _topic(brokers, 6)
        _fill(brokers, 6, 20)
        readers = [consumer(brokers) for _ in range(3)]
        _settle(readers, [2, 2, 2])
        found = [AdminClient({"bootstrap.servers": brokers.address(index)}) for index in range(3)]
        coordinators = {admin.describe_consumer_groups(["g"])["g"].result(10).coordinator.id for admin in found}
        assert len(coordinators) == 1


def test_a_group_moves_when_its_coordinator_stops(tmp_path: Path, consumer: Open) -> None:
    with embedded(tmp_path, 3) as brokers:
        _topic(brokers, 3)
        _fill(brokers, 3, 5)
        reader = consumer(brokers)
        assert len(_read(reader, 15)) == 15
        reader.commit(asynchronous=False)
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
        coordinator = admin.describe_consumer_groups(["g"])["g"].result(10).coordinator.id
        brokers.stop(coordinator)
        _fill(brokers, 3, 5)
        assert {message.offset() for message in _read(reader, 15)} == {5, 6, 7, 8, 9}
        moved = AdminClient({"bootstrap.servers": brokers.bootstrap})
        assert moved.describe_consumer_groups(["g"])["g"].result(10).coordinator.id != coordinator


def test_any_broker_takes_any_partition(tmp_path: Path) -> None:
    """Every broker is asked for every partition by a client that knows of no other."""
    with embedded(tmp_path, 3) as brokers:
        _topic(brokers, 3)
        _fill(brokers, 3, 10)
        for index in range(3):
            reader = Consumer({"bootstrap.servers": brokers.address(index), "group.id": "solo"})
            reader.assign([TopicPartition("t", partition, 0) for partition in range(3)])
            assert len(_read(reader, 30)) == 30
            reader.close()
