"""A world over each catalog: for tests that must hold for the simulated one and for PyIceberg's alike."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from lakestream import objects
from lakestream.catalog.embedded.tables import PyIcebergTables
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.runtime import Runtime, system
from support.worlds.memory import MemoryWorld

Open = Callable[[], AbstractAsyncContextManager[MemoryWorld]]


CATALOGS = ("simulated", "pyiceberg")


def over(catalog: str, folder: Path) -> Open:
    """Opens a fresh world over one of `CATALOGS`."""

    @asynccontextmanager
    async def world() -> AsyncIterator[MemoryWorld]:
        if catalog == "simulated":
            yield MemoryWorld()
            return
        runtime = Runtime(system().clock, random.Random(3))
        store, bucket = MemoryStore(runtime), objects.open(f"file://{folder}/bucket")
        tables = PyIcebergTables(store, bucket.url, runtime)
        try:
            found = MemoryWorld(store=store, objects=bucket, catalog=tables)
            found.clock.ms = runtime.clock.now_ms()
            yield found
        finally:
            await tables.close()

    return world


async def run(opened: Open, scenario: Callable[[MemoryWorld], Awaitable[None]]) -> None:
    async with opened() as world:
        await scenario(world)
