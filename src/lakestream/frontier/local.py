"""Tiles on threads of this process, for those who have no Spark."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from lakestream.frontier.tile import Tile, TileOutcome
from lakestream.frontier.writing import attempt_tile
from lakestream.runtime import Runtime

RunBlocking = Callable[[Callable[[], TileOutcome]], Awaitable[TileOutcome]]
"""Runs blocking work on threads that belong to whoever made this."""


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
