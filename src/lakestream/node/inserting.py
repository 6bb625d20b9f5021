"""INSERTs of engines into the tables of topics, for the HTTP door."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from lakestream.catalog.engines.opening import InsertOpener
from lakestream.catalog.port import TableCatalog
from lakestream.errors import LakestreamError, UnknownTable
from lakestream.http.iceberg.lagging import Behind
from lakestream.metadata.names.pointers import Pointers, TableName
from lakestream.metadata.topics.list import Topics
from lakestream.metrics import InsertMetrics
from lakestream.node.fresh import TableFreshener
from lakestream.node.storage.backends import Backends
from lakestream.stream.inserting.inserter import Around, Inserter
from lakestream.table.parquet.unplaced import UnplacedReader

_log = logging.getLogger(__name__)

_PASS_MS: Final = 5_000


class OpenedTables:
    """What the catalog's door calls before it loads a table."""

    def __init__(self, freshener: TableFreshener, opener: InsertOpener, pointers: Pointers, topics: Topics) -> None:
        self._freshener = freshener
        self._opener = opener
        self._pointers = pointers
        self._topics = topics

    async def __call__(self, name: TableName) -> Behind | None:
        """Never raises `LakestreamError`."""
        told = await self._freshener(name)
        try:
            table_id = await self._pointers.resolve(name)
            topic = (await self._topics.by_ids([table_id])).get(table_id)
            if topic is not None and topic.options.table_inserts:
                await self._opener(table_id)
                # The columns that rows are written by, before there is any row of that schema.
                await self._freshener.latest(topic)
        except UnknownTable:
            # An engine that is about to make it looks first.
            return told
        except LakestreamError as error:
            # The table itself is met with again by the load that follows, which says so.
            _log.warning("table %s is loaded as it is, not opened for INSERTs: %s", name, error)
        return told


@asynccontextmanager
async def open_inserter(
    backends: Backends, catalog: TableCatalog, freshener: TableFreshener, max_batch_bytes: int
) -> AsyncIterator[Inserter]:
    """Looks after inserts that other processes left, while it is entered."""
    inserter = Inserter(
        backends.store,
        backends.objects,
        Topics(backends.store, backends.runtime),
        UnplacedReader(backends.objects),
        backends.runtime,
        Around(freshener.cut, catalog.named, freshener.latest, max_batch_bytes),
        InsertMetrics(backends.registry),
    )
    task = asyncio.create_task(inserter.run(_PASS_MS), name="inserts")
    try:
        yield inserter
    finally:
        task.cancel()
        await asyncio.wait((task,))
