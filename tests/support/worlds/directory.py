"""A data directory without its processes: what a test fills before it starts them, and checks after."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from lakestream import objects
from lakestream.catalog.embedded.tables import PyIcebergTables
from lakestream.metadata.counters import cluster_id
from lakestream.metadata.stores.sqlite.store import open_sqlite
from lakestream.runtime import system
from support.worlds.memory import MemoryWorld


@asynccontextmanager
async def directory_world(data: Path, former: MemoryWorld | None = None) -> AsyncIterator[MemoryWorld]:
    """The directory as it is now, that of a cluster, beside what the former world was told."""
    known = former or MemoryWorld()
    store = await open_sqlite(str(data / "metadata.db"))
    await cluster_id(store, system())
    bucket = objects.open(f"file://{data}/bucket")
    catalog = PyIcebergTables(store, bucket.url, system())
    try:
        yield MemoryWorld(store=store, objects=bucket, catalog=catalog, acked=known.acked, topics=known.topics)
    finally:
        await catalog.close()
        await store.close()
