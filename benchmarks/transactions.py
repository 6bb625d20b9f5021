"""Exactly once beside Apache Kafka, which does not sync: transactions of 100 records by one producer and by many, on
`disk` (a majority of three stores has all before it is told) and on `diskless`; what `read_committed` costs who reads
the tail; how long the members of a group wait when one more joins."""

import tempfile
import threading
import time
from collections.abc import Mapping
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.result import QUICK, Result, stays_under, versus
from benchmarks.servers import Server, kafka, lakestream

A_TRANSACTION: Final = 100
VALUE: Final = bytes(100)
PARTITIONS: Final = 6
MANY: Final = 50
WARM_UP_S: Final = 1.0 if QUICK else 5.0
MEASURED_S: Final = 4.0 if QUICK else 30.0
TAIL_RECORDS: Final = 100_000 if QUICK else 1_000_000
LIMIT_S: Final = 300.0


def run() -> list[Result]:
    results = []
    with tempfile.TemporaryDirectory(prefix="lakestream-bench-") as folder:
        stores = {"LAKESTREAM_DISK_STORES": ",".join(f"file://{folder}/{name}" for name in "abc")}
        with lakestream(stores) as server:
            disk = [_transactions_a_second(server, {"lakestream.profile": "disk"}, count) for count in (1, MANY)]
    with lakestream() as server:
        diskless = [_transactions_a_second(server, {}, count) for count in (1, MANY)]
        committed, uncommitted = _tail_rates(server)
        joining_s = _joining_s(server)
    with kafka() as server:
        peer = [_transactions_a_second(server, {}, count) for count in (1, MANY)]
    for name, ours, at_least in (("disk", disk, 0.8), ("diskless", diskless, 0.0)):
        for producers, mine, theirs in zip((1, MANY), ours, peer, strict=True):
            what = f"transactions of {A_TRANSACTION} records, {name}, producers: {producers}"
            results.append(versus(what, mine, theirs, "1/s", at_least=at_least))
    results.append(
        versus("tail, read_committed beside read_uncommitted", committed, uncommitted, "records/s", at_least=0.95)
    )
    return [*results, stays_under(f"one more in a group of {MANY}: all have joined", joining_s, "s", at_most=3.0)]


def _topic(server: Server, settings: Mapping[str, str]) -> str:
    name = f"transactions-{time.monotonic_ns()}"
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, PARTITIONS, 1, config=dict(settings))])[name].result(60)
    return name


def _transactions_a_second(server: Server, settings: Mapping[str, str], producers: int) -> float:
    topic = _topic(server, settings)
    counts, measuring, done = [0] * producers, threading.Event(), threading.Event()

    def work(index: int) -> None:
        producer = Producer(
            {
                "bootstrap.servers": server.bootstrap,
                "transactional.id": f"{topic}-{index}",
                "linger.ms": 1,
                "log_level": 0,
            }
        )
        producer.init_transactions(LIMIT_S)
        while not done.is_set():
            producer.begin_transaction()
            for number in range(A_TRANSACTION):
                producer.produce(topic, VALUE, partition=number % PARTITIONS)
            producer.commit_transaction(LIMIT_S)
            counts[index] += measuring.is_set()

    threads = [threading.Thread(target=work, args=(index,)) for index in range(producers)]
    for thread in threads:
        thread.start()
    time.sleep(WARM_UP_S)
    measuring.set()
    time.sleep(MEASURED_S)
    done.set()
    counted = sum(counts)
    for thread in threads:
        thread.join(LIMIT_S)
    return counted / MEASURED_S


def _tail_rates(server: Server) -> tuple[float, float]:
    """Of committed and of all records, read from the beginning, the best of three."""
    topic = _topic(server, {})
    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(LIMIT_S)
    for _ in range(TAIL_RECORDS // 10_000):
        producer.begin_transaction()
        for number in range(10_000):
            producer.produce(topic, VALUE, partition=number % PARTITIONS)
            producer.poll(0)
        producer.commit_transaction(LIMIT_S)
    # In turn, so that neither has the quieter machine.
    rates = [(_rate(server, topic, "read_committed"), _rate(server, topic, "read_uncommitted")) for _ in range(3)]
    return max(rate for rate, _ in rates), max(rate for _, rate in rates)


def _rate(server: Server, topic: str, isolation: str) -> float:
    consumer = Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": topic, "isolation.level": isolation, "log_level": 0}
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    read, started = 0, 0.0
    deadline = time.monotonic() + LIMIT_S
    while read < TAIL_RECORDS and time.monotonic() < deadline:
        found = consumer.consume(10_000, 0.5)
        started = started or time.perf_counter()
        read += sum(message.error() is None for message in found)
    took_s = time.perf_counter() - started
    consumer.close()
    return read / took_s


def _joining_s(server: Server) -> float:
    """From the moment when one more joins until each of them has heard of the new generation."""
    topic = f"joining-{time.monotonic_ns()}"
    server.create_topic(topic, MANY + 1)
    done = threading.Event()
    assigned: list[float] = []

    def work() -> None:
        consumer = Consumer(
            {"bootstrap.servers": server.bootstrap, "group.id": topic, "heartbeat.interval.ms": 500, "log_level": 0}
        )
        consumer.subscribe([topic], on_assign=lambda *_: assigned.append(time.perf_counter()))
        while not done.is_set():
            consumer.poll(0.1)
        consumer.close()

    members = [threading.Thread(target=work) for _ in range(MANY)]
    for member in members[:-1]:
        member.start()
    _until_quiet(assigned, MANY - 1)
    assigned.clear()
    started = time.perf_counter()
    members[-1].start()
    _until_quiet(assigned, MANY)
    done.set()
    for member in members:
        member.join(LIMIT_S)
    return max(assigned) - started


def _until_quiet(assigned: list[float], count: int) -> None:
    """All have been assigned something, and nobody anything for a while."""
    deadline = time.monotonic() + LIMIT_S
    while len(assigned) < count or time.perf_counter() - max(assigned) < 5.0:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(assigned)} of {count} members have joined")
        time.sleep(0.1)
