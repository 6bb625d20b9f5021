"""A pipeline process: the Spark driver that moves records into their tables."""

import asyncio
from collections.abc import Callable

from lakestream import pipeline
from lakestream.node.backends import open_backends
from lakestream.node.tables import open_catalog
from lakestream.settings import Settings


async def run_pipeline(
    settings: Settings, ready: Callable[[], None], stop: asyncio.Event, *, once: bool = False
) -> pipeline.Summary:
    """Until `stop`, or with `once` until nothing is due."""
    spark = settings.spark
    session = pipeline.SparkSettings(
        master=spark.master, driver_memory=spark.driver_memory, ui=spark.ui, options=spark.options
    )
    async with open_backends(settings) as backends, open_catalog(backends) as catalog:
        parts = pipeline.Components(backends.store, catalog, backends.objects, backends.runtime)
        return await pipeline.run(parts, settings.pipeline, session, once=once, stop=stop, on_ready=ready)
