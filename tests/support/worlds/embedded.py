"""Whole brokers in this process, on a thread of their own: real streams, SQLite and a local directory."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop

from lakestream.node.broker import run_broker
from lakestream.settings import load
from support.worlds.processes import HOST, free_ports

QUICK = {"kafka.groups.initial_rebalance_delay_ms": 50, "kafka.groups.lease_ttl_ms": 2_000}
FROM_STORES = {"stream.tail_cache_bytes": 0}
"""Nothing that was appended is kept in memory: what tests read comes from where it is stored."""


class Embedded:
    """Brokers 0, 1, 2 … on neighbouring ports and one data directory."""

    def __init__(self, data: Path, count: int, overrides: dict[str, Any]) -> None:
        self.data = data
        self._overrides = QUICK | FROM_STORES | overrides
        self._first_port = free_ports(count)
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._running: dict[int, tuple[asyncio.Event, Future[None]]] = {}
        self._thread.start()
        for index in range(count):
            self.start(index)

    def address(self, index: int = 0) -> str:
        return f"{HOST}:{self._first_port + index}"

    @property
    def bootstrap(self) -> str:
        return ",".join(self.address(index) for index in sorted(self._running))

    def start(self, index: int) -> None:
        """Returns when the broker listens."""
        settings = load(
            None,
            {},
            {"data_dir": str(self.data), "broker.id": index, "broker.port": self._first_port + index} | self._overrides,
        )
        ready, stop = threading.Event(), asyncio.Event()
        done = asyncio.run_coroutine_threadsafe(run_broker(settings, ready.set, stop), self._loop)
        self._running[index] = (stop, done)
        while not ready.wait(0.05):
            if done.done():
                done.result()

    def stop(self, index: int) -> None:
        """As after SIGTERM; raises what the broker raised."""
        stop, done = self._running.pop(index)
        self._loop.call_soon_threadsafe(stop.set)
        done.result(20)

    def close(self) -> None:
        for index in sorted(self._running):
            self.stop(index)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@contextmanager
def embedded(data: Path, count: int = 1, **overrides: Any) -> Iterator[Embedded]:
    brokers = Embedded(data, count, overrides)
    try:
        yield brokers
    finally:
        brokers.close()
