"""librdkafka as the load: the same client code for every server."""

import time
from typing import Any

from confluent_kafka import Producer

from benchmarks.servers import Server

CHUNK = 5_000


def produce(server: Server, topic: str, partitions: int, record_count: int, size_bytes: int) -> float:
    """Seconds from the first record to the last acknowledgement, with acks=all. Raises if one was not taken."""
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.kbytes": 262_144,
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 0,
        }
    )
    producer.list_topics(topic, timeout=30)
    acked = 0
    failures: list[Any] = []

    def delivered(error: Any, _message: Any) -> None:
        nonlocal acked
        if error is None:
            acked += 1
        else:
            failures.append(error)

    value = (bytes(range(256)) * (size_bytes // 256 + 1))[:size_bytes]
    message = {"value": value}
    chunk = [message] * CHUNK
    started = time.perf_counter()
    sent = 0
    while sent < record_count:
        queued = producer.produce_batch(topic, chunk[: record_count - sent], partition=sent // CHUNK % partitions)
        sent += queued
        if queued < CHUNK:
            message.pop("_error", None)
            producer.poll(0.005)
    while producer.flush(0.05):
        pass
    for partition in range(partitions):
        producer.produce(topic, value, partition=partition, on_delivery=delivered)
    left = producer.flush(120)
    elapsed = time.perf_counter() - started
    if left or failures or acked != partitions:
        raise RuntimeError(f"{server.name}: {left} records unacknowledged, {failures[:1]}")
    return elapsed
