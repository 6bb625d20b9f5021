"""A broker process: the streams and the Kafka door in front of them."""

import asyncio
import gc
import resource
from collections.abc import Callable
from contextlib import suppress

from lakestream.access import ALLOW_ALL
from lakestream.catalog.embedded.early import EarlyViews
from lakestream.coordination.groups import GroupCoordinator, Groups
from lakestream.kafka.server import KafkaServer
from lakestream.metadata.brokers import Broker
from lakestream.metadata.names.pointers import Pointers
from lakestream.metrics import KafkaMetrics, StreamMetrics
from lakestream.node.backends import Backends, open_backends
from lakestream.node.lazy import LazyTables
from lakestream.node.monitor import monitoring
from lakestream.node.places import advertised, taken
from lakestream.node.readiness import Readiness
from lakestream.node.watching import watch_broker
from lakestream.records import warm_up
from lakestream.settings import Settings
from lakestream.stream import Streams
from lakestream.stream.engine import StreamEngine

STOP_GRACE_MS = 3_000


async def run_broker(settings: Settings, ready: Callable[[], None], stop: asyncio.Event) -> None:
    """Serves until `stop`, then answers what was taken in. Raises if a part that must not stop has stopped."""
    _allow_connections()
    await asyncio.to_thread(warm_up)
    async with open_backends(settings) as backends:
        tables = LazyTables(backends, settings.stream.history_cache_bytes)
        try:
            await _serve(settings, backends, tables, ready, stop)
        finally:
            await tables.close()


async def _serve(
    settings: Settings, backends: Backends, tables: LazyTables, ready: Callable[[], None], stop: asyncio.Event
) -> None:
    place = settings.broker
    host, port = advertised(place, "KAFKA_ADVERTISED")
    broker = Broker(place.id, host, port, place.zone, backends.runtime.new_id().hex)
    views = tables if backends.external_catalog else EarlyViews(Pointers(backends.store), tables)
    engine = StreamEngine(
        broker,
        backends.store,
        backends.objects,
        views,
        tables,
        backends.runtime,
        settings.stream,
        StreamMetrics(backends.registry),
        wal=backends.wal,
        disk=settings.disk,
    )
    await engine.start()
    try:
        coordinator = GroupCoordinator(engine, settings.kafka.groups)
        groups = Groups(coordinator, ALLOW_ALL, backends.runtime.clock)
        server = KafkaServer(Streams(engine, ALLOW_ALL), groups, settings.kafka, KafkaMetrics(backends.registry))
        try:
            await server.start(place.host, place.port)
        except OSError as error:
            raise taken(place, error, "KAFKA_PORT") from error
        try:
            watch_broker(backends, engine, coordinator, server, tables)
            async with monitoring(settings.monitor, backends.registry, Readiness(backends, stop.is_set)):
                ready()
                await tables.loaded()
                settle_memory()
                stopping = asyncio.ensure_future(stop.wait())
                await asyncio.wait((stopping, engine.failed), return_when=asyncio.FIRST_COMPLETED)
                stopping.cancel()
                if engine.failed.done():
                    engine.failed.result()
        finally:
            await server.stop(STOP_GRACE_MS)
    finally:
        await engine.stop()


def _allow_connections() -> None:
    """As many open files as the system lets this user have: the usual soft limit, 1,024, is a thousand clients."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):  # macOS refuses an infinite one
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def settle_memory() -> None:
    """What was loaded stays: the collector of cycles need not look at it again and again, and requests make few."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
