"""How a broker appends."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram

from lakestream.metrics.buckets import BYTES, SECONDS

T = TypeVar("T")


class StreamMetrics:
    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Without a registry nobody sees them."""
        kept = registry or CollectorRegistry()
        self._upload = Histogram(
            "lakestream_upload_seconds",
            "How long the WAL object of a flush takes to be stored, retries included.",
            buckets=SECONDS,
            registry=kept,
        )
        self._commit = Histogram(
            "lakestream_commit_seconds",
            "How long the metadata store takes to commit a WAL object, retries included.",
            buckets=SECONDS,
            registry=kept,
        )
        self._flush_bytes = Histogram(
            "lakestream_flush_bytes", "Records in one flush, in bytes.", buckets=BYTES, registry=kept
        )
        self.failed_flushes = Counter(
            "lakestream_flush_failures", "Flushes that were given up: producers are told to send again.", registry=kept
        )

    async def uploading(self, size_bytes: int, work: Awaitable[T]) -> T:
        self._flush_bytes.observe(size_bytes)
        return await _timed(self._upload, work)

    async def committing(self, work: Awaitable[T]) -> T:
        return await _timed(self._commit, work)


async def _timed(histogram: Histogram, work: Awaitable[T]) -> T:
    """What fails is not counted here: it is slow for reasons of its own."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    result = await work
    histogram.observe(loop.time() - started)
    return result
