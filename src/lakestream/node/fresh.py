"""Fresh tables for the HTTP door: what was acked is committed in this process before an engine gets the table."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from uuid import UUID

from lakestream.catalog.port import TableCatalog
from lakestream.errors import LakestreamError, UnknownTable
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.evolving import latest_schema
from lakestream.frontier.moving.fresh import Freshener, Freshness
from lakestream.frontier.moving.tiles.local import ThreadTiles
from lakestream.frontier.moving.tiles.tile import TileOutcome
from lakestream.frontier.moving.tiles.writing import warm_up
from lakestream.frontier.settings import FreshSettings
from lakestream.http.iceberg.lagging import Behind
from lakestream.metadata.names.pointers import Pointers, TableName
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.metrics import ReadMetrics
from lakestream.node.storage.backends import Backends
from lakestream.node.storage.schemas import make_schemas
from lakestream.runtime import Clock
from lakestream.table.shape import ValueSchema
from lakestream.table.view import View


class TableFreshener:
    """What the catalog's door calls before it loads a table."""

    def __init__(self, freshener: Freshener, lake: Lake, pointers: Pointers, clock: Clock) -> None:
        self._freshener = freshener
        self._lake = lake
        self._pointers = pointers
        self._clock = clock

    async def __call__(self, name: TableName) -> Behind | None:
        """Never raises `LakestreamError`."""
        try:
            try:
                table_id = await self._pointers.resolve(name)
            except UnknownTable:
                await self._freshener.make_missing()
                table_id = await self._pointers.resolve(name)
        except LakestreamError:
            # The load that follows meets the same, and says so.
            return None
        told = await self._freshener.freshen(table_id)
        if told is Freshness.FRESH:
            return None
        as_of_ms = self._clock.now_ms()
        try:
            ends = await self._freshener.ends(table_id)
        except LakestreamError:
            return Behind(told.value, None, as_of_ms)
        return None if ends is None else Behind(told.value, ends, as_of_ms)

    async def cut(self, topic_id: UUID) -> Freshness:
        """What was acked until now is in the topic's table, or cannot be."""
        return await self._freshener.cut(topic_id)

    async def latest(self, topic: Topic) -> tuple[View, ValueSchema | None]:
        """The schema by which values of the topic are written now, and a view of the table with its columns."""
        return await latest_schema(self._lake, topic)

    def metrics(self) -> Mapping[str, float]:
        return self._freshener.counts.metrics()


def watch_fresh(backends: Backends, freshener: TableFreshener) -> None:
    read = ReadMetrics(backends.registry)
    for name in freshener.metrics():
        read.counter(name, "Fresh loads of tables: see docs/FRESHNESS.md.", partial(_count, freshener, name))


def _count(freshener: TableFreshener, name: str) -> float:
    return freshener.metrics()[name]


@asynccontextmanager
async def open_freshener(
    settings: FreshSettings, backends: Backends, catalog: TableCatalog
) -> AsyncIterator[TableFreshener]:
    """Warms up beside the first requests: compiled code is loaded once."""
    threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="fresh")
    loop = asyncio.get_running_loop()

    async def run_blocking(work: Callable[[], TileOutcome]) -> TileOutcome:
        return await loop.run_in_executor(threads, work)

    lake = Lake(
        backends.store,
        catalog,
        backends.objects,
        ThreadTiles(run_blocking, backends.runtime, parallelism=settings.threads),
        backends.runtime,
        settings.pipeline(),
        backends.wal,
        schemas=make_schemas(backends),
    )
    freshener = Freshener(lake, Topics(backends.store, backends.runtime), settings)
    warming = loop.run_in_executor(threads, warm_up)
    try:
        yield TableFreshener(freshener, lake, Pointers(backends.store), backends.runtime.clock)
    finally:
        await warming
        await freshener.close()
        threads.shutdown(wait=True, cancel_futures=True)
