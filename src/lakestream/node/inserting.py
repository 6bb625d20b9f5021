"""INSERTs of engines into the tables of topics, for the HTTP door."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from lakestream.catalog.engines.opening import InsertOpener
from lakestream.catalog.port import TableCatalog
from lakestream.errors import LakestreamError
from lakestream.http.iceberg.lagging import Behind
from lakestream.metadata.names.pointers import Pointers, TableName
from lakestream.metadata.topics.list import Topics
from lakestream.node.fresh import TableFreshener
from lakestream.node.storage.backends import Backends
from lakestream.stream.inserting.inserter import Around, Inserter
from lakestream.table.parquet.unplaced import UnplacedReader

_PASS_MS: Final = 5_000


class OpenedTables:
    """What the catalog's door calls before it loads a table."""

    def __init__(self, freshener: TableFreshener, opener: InsertOpener, pointers: Pointers) -> None:
        self._freshener = freshener
        self._opener = opener
        self._pointers = pointers

    async def __call__(self, name: TableName) -> Behind | None:
        """Never raises `LakestreamError`."""
        told = await self._freshener(name)
        try:
            table_id = await self._pointers.resolve(name)
        except LakestreamError:
            # The load that follows meets the same, and says so.
            return told
        await self._opener(table_id)
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
    )
    task = asyncio.create_task(inserter.run(_PASS_MS), name="inserts")
    try:
        yield inserter
    finally:
        task.cancel()
        await asyncio.wait((task,))
