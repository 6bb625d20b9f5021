"""A producer at full speed against a store that has become slow: how far does the broker's memory grow?"""

import threading
import time
from typing import Any

from confluent_kafka import Producer

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
        stop = threading.Event()
        load = [threading.Thread(target=_produce, args=(server, stop)) for _ in range(3)]
        for thread in load:
            thread.start()
        time.sleep(1.0)
        before_bytes = server.rss_bytes()
        store.delay_s = DELAY_S
        peak.watch(SECONDS)
        store.delay_s = 0.0
        stop.set()
        for thread in load:
            thread.join()
    grown_mib = max(0, peak.bytes - before_bytes) / 2**20
    return [stays_under("broker memory growth, slow store", grown_mib, "MiB", at_most=BUDGET_BYTES / 2**20)]


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
