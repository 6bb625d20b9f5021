"""Queries for the HTTP door: which tables, in which processes, signed with what."""

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from lakestream.access import ALLOW_ALL
from lakestream.catalog.engines.catalog import EngineCatalog
from lakestream.catalog.port import TableCatalog
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.tiles.local import LocalTiles
from lakestream.frontier.settings import PipelineSettings
from lakestream.http.mcp.door import McpDoor
from lakestream.http.mcp.publishing import Publisher
from lakestream.http.mcp.tools import StreamTools
from lakestream.metadata.counters import cluster_id
from lakestream.metadata.keys import citation_key
from lakestream.metadata.topics.list import Topics
from lakestream.metrics import QueryMetrics, ReadMetrics
from lakestream.node.fresh import TableFreshener
from lakestream.node.storage.backends import Backends
from lakestream.node.storage.schemas import make_schemas
from lakestream.node.storage.tables import io_properties
from lakestream.query.exploring import Exploring
from lakestream.query.looking import Tables
from lakestream.query.processes import QueryProcesses
from lakestream.query.queries import Queries
from lakestream.query.settings import QuerySettings

_KEY_BYTES: Final = 32


@asynccontextmanager
async def open_queries(
    settings: QuerySettings,
    backends: Backends,
    catalog: TableCatalog,
    engines: EngineCatalog,
    freshener: TableFreshener | None,
    publisher: Publisher | None,
) -> AsyncIterator[tuple[Queries, Tables, McpDoor]]:
    """`freshener`: None where this process commits nothing; `publisher`: where agents may not write."""
    lake = Lake(
        backends.store,
        catalog,
        backends.objects,
        LocalTiles(backends.objects, backends.runtime),
        backends.runtime,
        PipelineSettings(max_tick_bytes=settings.tail_bytes),
        backends.wal,
        schemas=make_schemas(backends),
    )
    tables = Tables(
        engines,
        lake,
        Topics(backends.store, backends.runtime),
        ALLOW_ALL,
        cut=None if freshener is None else freshener.cut,
        io=io_properties(os.environ),
        key_tail_bytes=settings.key_tail_bytes,
    )
    processes = QueryProcesses(settings)
    _watch(backends, processes)
    cluster = await cluster_id(backends.store, backends.runtime)
    key = await citation_key(backends.store, secrets.token_bytes(_KEY_BYTES))
    queries = Queries(
        tables,
        processes,
        settings,
        backends.runtime.clock,
        cluster=cluster,
        key=key,
        metrics=QueryMetrics(backends.registry),
    )
    mcp = McpDoor(StreamTools(queries, Exploring(tables, queries), publisher))
    try:
        async with mcp.running():
            yield queries, tables, mcp
    finally:
        await processes.close()


def _watch(backends: Backends, processes: QueryProcesses) -> None:
    read = ReadMetrics(backends.registry)
    read.gauge("lakestream_queries_running", "Queries that run now.", lambda: processes.running)
    read.gauge("lakestream_queries_waiting", "Queries that wait for a process.", lambda: processes.waiting)
    read.counter(
        "lakestream_query_processes_ended_total", "Processes of queries that were replaced.", lambda: processes.ended
    )
