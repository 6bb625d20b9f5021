"""Latency by profile: `disk` beside Apache Kafka, which does not sync, at a rate that neither is busy with; a WAL write
beside a bare `fdatasync`; `diskless` on a bucket whose every PUT takes 100 ms, give or take 50."""

import asyncio
import os
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.result import QUICK, Result, at_most_of, stays_under
from benchmarks.servers import Server, kafka, lakestream
from benchmarks.slow_store import slow_store
from lakestream import objects
from lakestream.wal import DiskStore, MajorityWriter
from lakestream.wal.disks import label_of

RATE: Final = 5_000
RECORDS: Final = 5_000 if QUICK else 60_000
WARM_UP: Final = RECORDS // 5
VALUE_BYTES: Final = 1_000
WRITES: Final = 100 if QUICK else 1_000
OBJECT_BYTES: Final = 25_000
LIMIT_S: Final = 300.0


class Latencies(NamedTuple):
    """In milliseconds, in order."""

    produce: list[float]
    end_to_end: list[float]


def run() -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="lakestream-bench-") as folder:
        stores = {"LAKESTREAM_DISK_STORES": ",".join(f"file://{folder}/{name}" for name in "abc")}
        with lakestream(stores) as server:
            disk = _latencies(server, {"lakestream.profile": "disk"})
    with lakestream() as server:
        embedded = _latencies(server, {})
    with kafka() as server:
        peer = _latencies(server, {})
    results = []
    for name, ours in (("disk, 3 stores", disk), ("embedded default", embedded)):
        for share in (50, 99):
            produce, end_to_end = _at(ours.produce, share), _at(ours.end_to_end, share)
            results.append(
                at_most_of(f"{name}: produce p{share}", produce, _at(peer.produce, share), "ms", at_most=1.2)
            )
            results.append(
                at_most_of(f"{name}: end to end p{share}", end_to_end, _at(peer.end_to_end, share), "ms", at_most=1.5)
            )
    return [*results, _wal_write(), *_on_a_slow_bucket()]


def _on_a_slow_bucket() -> list[Result]:
    with slow_store() as (store, environment), lakestream(environment) as server:
        store.delay_s, store.jitter_s = 0.1, 0.05
        # Five requests in flight last as long as one takes: none waits for its turn in the client.
        found = _latencies(server, {}, linger_ms=60)
    return [
        stays_under("diskless, PUT of 100 ± 50 ms: produce p99", _at(found.produce, 99), "ms", at_most=450),
        stays_under("diskless, PUT of 100 ± 50 ms: end to end p99", _at(found.end_to_end, 99), "ms", at_most=600),
    ]


def _latencies(server: Server, settings: dict[str, str], linger_ms: int = 1) -> Latencies:
    """Of records at a steady rate, by one producer with five requests in flight and a consumer that waits for them."""
    topic = f"latency-{time.monotonic_ns()}"
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result(60)
    produced: list[float] = []
    received: list[float] = []
    ready = threading.Event()
    reader = threading.Thread(target=_consume, args=(server, topic, received, ready))
    reader.start()
    ready.wait(LIMIT_S)
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": linger_ms,
            "max.in.flight.requests.per.connection": 5,
        }
    )
    padding = bytes(VALUE_BYTES - 8)
    started = time.perf_counter()
    for number in range(RECORDS):
        ahead_s = started + number / RATE - time.perf_counter()
        producer.poll(max(0.0, ahead_s))
        sent = time.perf_counter_ns()

        def delivered(error: object, _: object, sent: int = sent) -> None:
            if error is not None:
                raise RuntimeError(f"{server.name}: {error}")
            produced.append((time.perf_counter_ns() - sent) / 1e6)

        producer.produce(topic, sent.to_bytes(8, "little") + padding, on_delivery=delivered)
    if producer.flush(LIMIT_S):
        raise RuntimeError(f"{server.name}: not all records were acknowledged")
    reader.join(LIMIT_S)
    if len(received) < RECORDS:
        raise RuntimeError(f"{server.name}: {len(received)} of {RECORDS} records came")
    return Latencies(sorted(produced[WARM_UP:]), sorted(received[WARM_UP:]))


def _consume(server: Server, topic: str, received: list[float], ready: threading.Event) -> None:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": topic, "fetch.wait.max.ms": 500})
    consumer.assign([TopicPartition(topic, 0, 0)])
    consumer.poll(1.0)
    ready.set()
    deadline = time.monotonic() + LIMIT_S
    while len(received) < RECORDS and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            received.append((time.perf_counter_ns() - int.from_bytes(message.value()[:8], "little")) / 1e6)
    consumer.close()


def _wal_write() -> Result:
    with tempfile.TemporaryDirectory(prefix="lakestream-bench-") as folder:
        bare = _synced(Path(folder) / "bare")
        ours = asyncio.run(_written(folder))
    return at_most_of("a WAL write to three disk stores, p50", _at(ours, 50), _at(bare, 50), "ms", at_most=2.0)


def _synced(path: Path) -> list[float]:
    """Appends to one file, each followed by `fdatasync`."""
    found, data = [], os.urandom(OBJECT_BYTES)
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        for _ in range(WRITES):
            started = time.perf_counter()
            os.write(descriptor, data)
            os.fdatasync(descriptor)
            found.append((time.perf_counter() - started) * 1000)
    finally:
        os.close(descriptor)
    return sorted(found)


async def _written(folder: str) -> list[float]:
    disks = []
    for name in "abc":
        label = label_of(name, "bench")
        disk = DiskStore(name, objects.open(f"file://{folder}/{name}"), "bench", label, usable=True, trouble="")
        await disk.write_label(label)
        disks.append(disk)
    writer = MajorityWriter(lambda: disks)
    found, data = [], os.urandom(OBJECT_BYTES)
    for number in range(WRITES):
        started = time.perf_counter()
        await writer.put(f"wal/0000000001/bench-{number:010d}.wal", [data])
        found.append((time.perf_counter() - started) * 1000)
    return sorted(found)


def _at(times: Sequence[float], share: int) -> float:
    return round(times[min(len(times) - 1, len(times) * share // 100)], 2)
