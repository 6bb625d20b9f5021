"""The streams of a process: of a broker, and of a door that is none."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import msgspec

from lakestream.access import ALLOW_ALL
from lakestream.catalog.embedded.early import EarlyViews
from lakestream.coordination.groups.looking import GroupViews
from lakestream.metadata.brokers import UNLISTED_ID, Broker
from lakestream.metadata.log.enlistment import Enlistment
from lakestream.metadata.names.pointers import Pointers
from lakestream.metrics import StreamMetrics
from lakestream.node.storage.backends import Backends
from lakestream.node.storage.lazy import LazyTables
from lakestream.node.storage.schemas import make_schemas
from lakestream.settings import Settings
from lakestream.stream import Streams
from lakestream.stream.appending.schemas import TopicSchemas
from lakestream.stream.engine import StreamEngine

_MIB: Final = 1024 * 1024
_TAIL_CACHE_BYTES: Final = 64 * _MIB
_HISTORY_CACHE_BYTES: Final = 64 * _MIB
"""Of a door, where nobody has set them: consumers that follow a stream read it from brokers."""


class DoorStreams(NamedTuple):
    streams: Streams
    groups: GroupViews
    failed: "asyncio.Future[None]"
    """Done, with the error, if a part that must not stop has stopped."""


def make_engine(
    broker: Broker, settings: Settings, backends: Backends, tables: LazyTables, enlistment: Enlistment | None = None
) -> StreamEngine:
    views = tables if backends.external_catalog else EarlyViews(Pointers(backends.store), tables)
    return StreamEngine(
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
        has_external_catalog=bool(backends.external_catalog),
        enlistment=enlistment,
    )


@asynccontextmanager
async def open_streams(settings: Settings, backends: Backends) -> AsyncIterator[DoorStreams]:
    """For a door that Kafka's clients do not know: it appends and reads as any broker, and they never hear of it."""
    stream = settings.stream
    own = msgspec.structs.replace(
        settings,
        stream=msgspec.structs.replace(
            stream,
            tail_cache_bytes=_TAIL_CACHE_BYTES if stream.tail_cache_bytes is None else stream.tail_cache_bytes,
        ),
    )
    history_bytes = _HISTORY_CACHE_BYTES if stream.history_cache_bytes is None else stream.history_cache_bytes
    tables = LazyTables(backends, history_bytes)
    broker = Broker(UNLISTED_ID, settings.http.host, settings.http.port, None, backends.runtime.new_id().hex)
    engine = make_engine(broker, own, backends, tables)
    try:
        await engine.start()
        try:
            schemas = TopicSchemas(make_schemas(backends), tables.value_check)
            yield DoorStreams(Streams(engine, ALLOW_ALL, schemas), GroupViews(backends.store, ALLOW_ALL), engine.failed)
        finally:
            await engine.stop()
    finally:
        await tables.close()
