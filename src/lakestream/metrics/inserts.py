"""What becomes of rows that engines insert into streams."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Histogram

from lakestream.metrics.buckets import SECONDS


class InsertMetrics:
    """Outcomes are `ok` and names of errors, so their number is bounded."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._outcomes = Counter(
            "lakestream_inserts",
            "Commits with rows for a stream, by what became of them.",
            ["outcome"],
            registry=self.registry,
        )
        self._records = Counter(
            "lakestream_insert_records", "Records that were made of such rows.", registry=self.registry
        )
        self._seconds = Histogram(
            "lakestream_insert_seconds",
            "How long an engine waits until its rows are in the log and its table.",
            buckets=SECONDS,
            registry=self.registry,
        )

    def inserted(self, record_count: int) -> None:
        self._records.inc(record_count)

    @contextmanager
    def measure(self) -> Iterator[None]:
        clock = asyncio.get_running_loop().time
        started_s = clock()
        outcome = "ok"
        try:
            yield
        except BaseException as error:
            outcome = type(error).__name__
            raise
        finally:
            self._outcomes.labels(outcome).inc()
            self._seconds.observe(clock() - started_s)
