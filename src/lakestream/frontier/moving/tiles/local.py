"""Tiles in this process, for those who have no Spark: on threads beside the event loop, or on the loop itself."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from lakestream.errors import LakestreamError
from lakestream.frontier.moving.tiles.tile import Tile, TileOutcome
from lakestream.frontier.moving.tiles.writing import attempt_tile, failed, write_files
from lakestream.objects import ObjectStore
from lakestream.runtime import Runtime

RunBlocking = Callable[[Callable[[], TileOutcome]], Awaitable[TileOutcome]]
"""Runs blocking work on threads that belong to whoever made this."""


class LocalTiles:
    """A `TileRunner` in this process and on this event loop, one tile after the other."""

    parallelism: Final = 1

    def __init__(self, store: ObjectStore, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime

    async def run(self, tiles: Sequence[Tile]) -> list[TileOutcome]:
        outcomes = []
        for tile in tiles:
            try:
                outcomes.append(await write_files(tile, self._store, self._runtime.new_id()))
            except LakestreamError as error:
                outcomes.append(failed(error))
        return outcomes


class ThreadTiles:
    """Implements `TileRunner`. No more than `parallelism` tiles are in memory at a time, whoever asked for them."""

    def __init__(self, run_blocking: RunBlocking, runtime: Runtime, *, parallelism: int) -> None:
        self._run_blocking = run_blocking
        self._runtime = runtime
        self._parallelism = parallelism
        self._turns = asyncio.Semaphore(parallelism)

    @property
    def parallelism(self) -> int:
        return self._parallelism

    async def run(self, tiles: Sequence[Tile]) -> list[TileOutcome]:
        return list(await asyncio.gather(*map(self._write, tiles)))

    async def _write(self, tile: Tile) -> TileOutcome:
        async with self._turns:
            return await self._run_blocking(partial(attempt_tile, tile, self._runtime.new_id()))
