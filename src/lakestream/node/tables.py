"""Tables: PyIceberg and Arrow. Importing this costs as much as all else in a broker, which leaves it to `late`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lakestream.catalog.tables import PyIcebergTables
from lakestream.node.backends import Backends
from lakestream.table.history import HistoryReader


def make_catalog(backends: Backends) -> PyIcebergTables:
    return PyIcebergTables(backends.store, backends.objects.url, backends.runtime)


def make_history(backends: Backends, cache_bytes: int) -> HistoryReader:
    return HistoryReader(backends.objects, cache_bytes=cache_bytes)


@asynccontextmanager
async def open_catalog(backends: Backends) -> AsyncIterator[PyIcebergTables]:
    catalog = make_catalog(backends)
    try:
        yield catalog
    finally:
        await catalog.close()
