"""What queries take, and what becomes of them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Histogram

from lakestream.metrics.buckets import SECONDS


class QueryMetrics:
    """Outcomes are `ok` and names of errors, so their number is bounded."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._outcomes = Counter(
            "lakestream_queries",
            "Queries and replays, by what became of them.",
            ["outcome"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "lakestream_query_seconds",
            "How long queries take, their wait for a process included.",
            buckets=SECONDS,
            registry=self.registry,
        )

    @contextmanager
    def measure(self) -> Iterator[None]:
        started = time.perf_counter()
        outcome = "ok"
        try:
            yield
        except BaseException as error:
            outcome = type(error).__name__
            raise
        finally:
            self._outcomes.labels(outcome).inc()
            self._seconds.observe(time.perf_counter() - started)
