"""The HTTP door's process: the Iceberg REST catalog, the schema registry, health and metrics, under uvicorn."""

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress

import uvicorn

from lakestream.access import ALLOW_ALL
from lakestream.catalog.engines.catalog import EngineCatalog
from lakestream.catalog.engines.opening import InsertOpener
from lakestream.catalog.engines.streams.wish import StreamDefaults
from lakestream.errors import NamespaceExists, Unavailable
from lakestream.frontier.lag import LagReader, TopicLag
from lakestream.http import create_app
from lakestream.http.mcp.publishing import Publisher
from lakestream.http.rest.door import RestDoor
from lakestream.metadata.brokers import Brokers
from lakestream.metadata.feed import Feed
from lakestream.metadata.names.pointers import Pointers
from lakestream.metadata.topics.list import Topics
from lakestream.metadata.topics.tables import DEFAULT_NAMESPACE
from lakestream.metrics import HttpMetrics, RestMetrics
from lakestream.node.flight import open_flight
from lakestream.node.fresh import open_freshener, watch_fresh
from lakestream.node.inserting import OpenedTables, open_inserter
from lakestream.node.monitoring.readiness import Readiness
from lakestream.node.places import advertised, taken
from lakestream.node.query import open_queries
from lakestream.node.storage.backends import open_backends, saving_rows
from lakestream.node.storage.schemas import make_schemas
from lakestream.node.storage.tables import make_engines, open_catalog
from lakestream.node.streams import open_streams
from lakestream.node.vending import storage_config, storage_credentials
from lakestream.records import warm_up
from lakestream.runtime.memory import settle_memory
from lakestream.schemas.registry.registry import SchemaRegistry
from lakestream.settings import HttpSettings, Settings, listed
from lakestream.stream.engine import LOCAL

STOP_GRACE_S = 3


async def run_http(settings: Settings, ready: Callable[[], None], stop: asyncio.Event) -> None:
    """Serves until `stop`. Raises if the server ends by itself."""
    place = settings.http
    told_host, _port = advertised(place, "HTTP_ADVERTISED")
    await asyncio.to_thread(warm_up)
    async with AsyncExitStack() as stack:
        backends = await stack.enter_async_context(open_backends(settings))
        await stack.enter_async_context(saving_rows(settings, backends))
        catalog = await stack.enter_async_context(open_catalog(backends))
        topics = Topics(backends.store, backends.runtime)
        inserter = freshener = opened = None
        if not catalog.place:
            freshener = await stack.enter_async_context(open_freshener(settings.fresh, backends, catalog))
            watch_fresh(backends, freshener)
            inserter = await stack.enter_async_context(
                open_inserter(backends, catalog, freshener, settings.stream.max_batch_bytes)
            )
            # Some engines make tables only where they see a namespace.
            with suppress(NamespaceExists, Unavailable):
                await Pointers(backends.store).create_namespace(DEFAULT_NAMESPACE, {})
        engines = make_engines(backends, catalog, listed(place.locations), inserter)
        if freshener is not None:
            opened = OpenedTables(freshener, InsertOpener(engines.commits), Pointers(backends.store), topics)

        feed = Feed(backends.store, Brokers(backends.store).sessions)
        lags = LagReader(backends.store, topics, feed, sweep_ms=settings.pipeline.sweep_ms)

        registry = SchemaRegistry(backends.store, backends.objects, backends.runtime, ALLOW_ALL)
        has_disk = bool(settings.disk.urls) or backends.objects.url.startswith(LOCAL)
        for_streams = None if backends.schemas.registry_url else registry
        """An engine's columns become schemas of ours, which nobody looks at if values are told by another's."""
        defaults = StreamDefaults(settings.kafka.num_partitions, has_disk)

        async def lag() -> list[TopicLag]:
            return await lags.read(backends.runtime.clock.now_ms())

        tables = EngineCatalog(engines, topics, ALLOW_ALL, for_streams, defaults)
        streams = await stack.enter_async_context(open_streams(settings, backends))
        rest_metrics, schemas = RestMetrics(backends.registry), make_schemas(backends)
        publisher = None
        if place.publish:
            publisher = Publisher(streams.streams, for_streams, schemas, backends.runtime, rest_metrics)
        queries = mcp = None
        if settings.query.workers:
            queries, asked, mcp = await stack.enter_async_context(
                open_queries(settings.query, backends, catalog, tables, freshener, publisher)
            )
            await stack.enter_async_context(open_flight(settings.flight, queries, asked))

        rest = RestDoor(
            streams.streams,
            streams.groups,
            for_streams,
            schemas,
            backends.runtime,
            rest_metrics,
            num_partitions=settings.kafka.num_partitions,
            advertised=place.advertised,
        )
        stack.push_async_callback(rest.close)

        config = uvicorn.Config(
            create_app(
                tables,
                table_config=storage_config(settings.bucket, os.environ),
                credentials=storage_credentials(settings.bucket, os.environ, allowed=place.vend_credentials),
                metrics=HttpMetrics(backends.registry),
                freshen=opened,
                lag=lag,
                ready=Readiness(backends, stop.is_set),
                elsewhere=catalog.place,
                hosts=[place.host, told_host, *listed(place.hosts)],
                registry=registry,
                queries=queries,
                mcp=mcp,
                rest=rest,
            ),
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=STOP_GRACE_S,
        )
        server = _HttpServer(config, ready)
        with _listen(place) as listener:
            serving = asyncio.create_task(server.serve([listener]))
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait((serving, stopping, streams.failed), return_when=asyncio.FIRST_COMPLETED)
            if serving.done() and not stop.is_set():
                stopping.cancel()
                raise serving.exception() or Unavailable("the HTTP server stopped by itself")
            rest.stop()
            server.should_exit = True
            await serving
            if streams.failed.done():
                streams.failed.result()


class _HttpServer(uvicorn.Server):
    """Says when it listens. Signals are the caller's affair."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        settle_memory()
        self._ready()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        await self._serve(sockets)


def _listen(place: HttpSettings) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((place.host, place.port))
    except OSError as error:
        listener.close()
        raise taken(place, error, "HTTP_PORT") from error
    return listener
