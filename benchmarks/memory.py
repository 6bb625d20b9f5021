"""Producers at full speed against a store that has become slow: how far does the broker's memory grow?

What a broker may hold is its budget for requests in work and its tail cache; the rest is the program itself.
"""

import threading
import time
from typing import Any

from confluent_kafka import Producer

from benchmarks.clients import produce
from benchmarks.result import QUICK, Result, stays_under
from benchmarks.servers import Server, lakestream
from benchmarks.slow_store import slow_store

BUDGET_BYTES = 128 * 1024 * 1024
TAIL_CACHE_BYTES = 32 * 1024 * 1024
SECONDS = 8.0 if QUICK else 20.0
DELAY_S = 5.0
PARTITIONS = 6


def run() -> list[Result]:
    limits = {
        "LAKESTREAM_STREAM_MEMORY_BUDGET_BYTES": str(BUDGET_BYTES),
        "LAKESTREAM_STREAM_TAIL_CACHE_BYTES": str(TAIL_CACHE_BYTES),
    }
    with slow_store() as (store, environment), lakestream(environment | limits) as server:
        server.create_topic("slow", PARTITIONS)
        peak = _Peak(server)
        produce(server, "slow", PARTITIONS, 1000, 1000)
        rest_bytes = server.rss_bytes()
        stop = threading.Event()
        load = [threading.Thread(target=_produce, args=(server, stop)) for _ in range(3)]
        for thread in load:
            thread.start()
        peak.watch(1.0)
        taken = store.put_bytes
        store.delay_s = DELAY_S
        peak.watch(SECONDS)
        taken = store.put_bytes - taken
        store.delay_s = 0.0
        stop.set()
        for thread in load:
            thread.join()
    if taken < BUDGET_BYTES / 4:
        raise RuntimeError(f"the load did not last: {taken} bytes reached the slow store")
    grown_mib = (peak.bytes - rest_bytes) / 2**20
    allowed_mib = (BUDGET_BYTES + TAIL_CACHE_BYTES) / 2**20
    return [stays_under("memory above rest, slow store", grown_mib, "MiB", at_most=allowed_mib)]


class _Peak:
    def __init__(self, server: Server) -> None:
        self._server = server
        self.bytes = 0

    def watch(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.bytes = max(self.bytes, self._server.rss_bytes())
            time.sleep(0.02)


def _produce(server: Server, stop: threading.Event) -> None:
    """As much as librdkafka takes, until told to stop; what is not acknowledged then is dropped."""
    config: dict[str, Any] = {
        "bootstrap.servers": server.bootstrap,
        "acks": "all",
        "linger.ms": 5,
        "queue.buffering.max.kbytes": 131_072,
        "log_level": 0,
    }
    producer = Producer(config)
    chunk = [{"value": bytes(1000)}] * 1000
    number = 0
    while not stop.is_set():
        if producer.produce_batch("slow", chunk, partition=number % PARTITIONS) < len(chunk):
            producer.poll(0.01)
        number += 1
    producer.purge()
    producer.flush(5)
