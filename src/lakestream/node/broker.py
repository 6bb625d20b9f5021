"""A broker process: the streams and the Kafka door in front of them."""

import asyncio
import logging
import resource
from collections.abc import Callable
from contextlib import suppress

from lakestream.access import ALLOW_ALL
from lakestream.coordination.groups import GroupCoordinator, Groups
from lakestream.coordination.shares import ShareGroups
from lakestream.coordination.transactions import Enlister, TransactionCoordinator, Transactions
from lakestream.kafka.server import KafkaServer, Listener, listen
from lakestream.metadata.brokers import Broker, Brokers
from lakestream.metrics import KafkaMetrics
from lakestream.node.monitoring.gauges import watch_broker
from lakestream.node.monitoring.listener import monitoring
from lakestream.node.monitoring.readiness import Readiness
from lakestream.node.places import advertised, taken
from lakestream.node.storage.backends import Backends, open_backends
from lakestream.node.storage.lazy import LazyTables
from lakestream.node.storage.schemas import make_schemas
from lakestream.node.streams import make_engine
from lakestream.records import warm_up
from lakestream.runtime.memory import memory_limit_bytes, settle_memory
from lakestream.settings import Settings
from lakestream.stream import Streams
from lakestream.stream.appending.schemas import TopicSchemas
from lakestream.stream.settings import history_cache_bytes

log = logging.getLogger(__name__)

STOP_GRACE_MS = 3_000
HANDOVER_MS = 1_000
"""How long a broker that is stopped tells its clients to go on elsewhere before it hangs up: every client that has
something to send or waits for records asks within this time."""


async def run_broker(settings: Settings, ready: Callable[[], None], stop: asyncio.Event) -> None:
    """Serves until `stop`, then answers what was taken in. Raises if a part that must not stop has stopped."""
    _allow_connections()
    await asyncio.to_thread(warm_up)
    async with open_backends(settings) as backends:
        tables = LazyTables(backends, history_cache_bytes(settings.stream, memory_limit_bytes()))
        try:
            await _serve(settings, backends, tables, ready, stop)
        finally:
            await tables.close()


async def _serve(
    settings: Settings, backends: Backends, tables: LazyTables, ready: Callable[[], None], stop: asyncio.Event
) -> None:
    place = settings.broker
    told = advertised(place, "KAFKA_ADVERTISED")
    try:
        # First of all: whoever listens there is the only one, and may be the broker that was there before.
        listener = await listen(place.host, place.port)
    except OSError as error:
        raise taken(place, error, "KAFKA_PORT") from error
    try:
        brokers = Brokers(backends.store, ttl_ms=settings.stream.broker_ttl_ms)
        broker = await brokers.take_id(backends.runtime.new_id().hex, told, place.zone or None, place.id)
        log.info("this is broker %d at %s:%d, zone %s", broker.broker_id, *told, broker.zone or "unknown")
        await _serve_as(broker, listener, settings, backends, tables, ready, stop)
    finally:
        listener.close()


async def _serve_as(
    broker: Broker,
    listener: Listener,
    settings: Settings,
    backends: Backends,
    tables: LazyTables,
    ready: Callable[[], None],
    stop: asyncio.Event,
) -> None:
    enlister = Enlister(backends.store, backends.runtime.clock)
    engine = make_engine(broker, settings, backends, tables, enlister)
    await engine.start()
    try:
        coordinator = GroupCoordinator(engine, settings.kafka.groups)
        groups = Groups(coordinator, ALLOW_ALL, backends.runtime.clock)
        transactions = TransactionCoordinator(
            backends.store,
            backends.runtime.clock,
            settings.kafka.transactions,
            enlister,
            engine.new_producer_id,
        )
        schemas = TopicSchemas(make_schemas(backends), tables.value_check)
        server = KafkaServer(
            Streams(engine, ALLOW_ALL, schemas),
            groups,
            Transactions(engine, transactions, ALLOW_ALL, settings.kafka.transactions),
            ShareGroups(engine, ALLOW_ALL, coordinator),
            settings.kafka,
            KafkaMetrics(backends.registry),
        )
        watch_broker(backends, engine, coordinator, server, tables)
        async with monitoring(settings.monitor, backends.registry, Readiness(backends, stop.is_set)):
            await server.start(listener)
            try:
                ready()
                await tables.loaded()
                settle_memory()
                stopping = asyncio.ensure_future(stop.wait())
                await asyncio.wait((stopping, engine.failed), return_when=asyncio.FIRST_COMPLETED)
                stopping.cancel()
                if engine.failed.done():
                    engine.failed.result()
            finally:
                log.info("stopping: clients are sent to other brokers")
                # A broker that is alone has nobody to send its clients to: they wait for its return.
                others = await engine.withdraw()
                await server.stop(STOP_GRACE_MS, HANDOVER_MS if others else 0)
    finally:
        await engine.stop()


def _allow_connections() -> None:
    """As many open files as the system lets this user have: the usual soft limit, 1,024, is a thousand clients."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):  # macOS refuses an infinite one
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
