"""A pipeline process: the Spark driver that moves records into their tables."""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lakestream import pipeline
from lakestream.catalog.mirrored import IcebergSide
from lakestream.frontier.delta.rs import DeltaRs
from lakestream.frontier.derived.deriving import Derived
from lakestream.frontier.lag import LagReader
from lakestream.frontier.lag_gauges import as_gauges
from lakestream.frontier.moving.worker import Tick
from lakestream.metadata.brokers import Brokers
from lakestream.metadata.feed import Feed
from lakestream.metadata.topics.list import Topics
from lakestream.metrics import PipelineMetrics
from lakestream.node.monitoring.listener import monitoring
from lakestream.node.monitoring.readiness import Readiness
from lakestream.node.storage.backends import open_backends, saving_rows
from lakestream.node.storage.schemas import make_schemas
from lakestream.node.storage.tables import io_properties, open_catalog
from lakestream.settings import Settings


async def run_pipeline(
    settings: Settings, ready: Callable[[], None], stop: asyncio.Event, *, once: bool = False
) -> pipeline.Summary:
    """Until `stop`, or with `once` until nothing is due."""
    spark = settings.spark
    session = pipeline.DriverSettings(
        master=spark.master, driver_memory=spark.driver_memory, ui=spark.ui, options=spark.options
    )
    async with (
        open_backends(settings) as backends,
        saving_rows(settings, backends),
        open_catalog(backends) as catalog,
    ):
        with open_delta() as delta:
            parts = pipeline.Components(
                backends.store,
                catalog,
                backends.objects,
                backends.runtime,
                delta,
                IcebergSide(catalog.commits),
                backends.wal,
                catalog.derived,
                make_schemas(backends),
            )
            metrics = PipelineMetrics(backends.registry)
            topics = Topics(backends.store, backends.runtime)

            def ticked(tick: Tick) -> None:
                for done in tick.commits:
                    metrics.filled(done.topic, done.kinds)
                metrics.ticked(tick.record_count, tick.wal_bytes, len(tick.commits), len(tick.failures))

            def derived(done: Derived) -> None:
                metrics.derived(done.done, len(done.failures))

            feed = Feed(backends.store, Brokers(backends.store).sessions)
            lags = LagReader(backends.store, topics, feed, sweep_ms=settings.pipeline.sweep_ms)

            async def lag() -> str:
                return as_gauges(await lags.read(backends.runtime.clock.now_ms()))

            async with monitoring(settings.monitor, backends.registry, Readiness(backends, stop.is_set), lag):
                return await pipeline.run(
                    parts,
                    settings.pipeline,
                    session,
                    once=once,
                    stop=stop,
                    on_tick=ticked,
                    on_ready=ready,
                    on_derived=derived,
                )


@contextmanager
def open_delta() -> Iterator[DeltaRs]:
    """Delta logs in the same store as the bucket, with the credentials and the endpoint of the environment."""
    options = {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "GOOGLE_", "AZURE_"))}
    endpoint = io_properties(os.environ).get("s3.endpoint")
    if endpoint:
        # Plain HTTP is only ever used if the configured endpoint says so.
        options |= {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"}
    delta = DeltaRs(options)
    try:
        yield delta
    finally:
        delta.close()
