"""Tiles as Spark tasks: one job a tick, one task a tile, no shuffle."""

from collections.abc import Sequence

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from lakestream.errors import Unavailable
from lakestream.frontier.moving.tiles.tile import Tile, TileOutcome, pack, slice_bytes, unpack_outcome
from lakestream.pipeline import tasks
from lakestream.pipeline.session import SparkDriver, error_text


class SparkTiles:
    """Implements `TileRunner`. Only metadata crosses between driver and workers: tiles out, file descriptions back."""

    def __init__(self, driver: SparkDriver) -> None:
        self._driver = driver
        self._parallelism = driver.context.defaultParallelism

    @property
    def parallelism(self) -> int:
        return self._parallelism

    async def run(self, tiles: Sequence[Tile]) -> list[TileOutcome]:
        if not tiles:
            return []
        payloads = [pack(tile) for tile in tiles]
        about = describe(tiles)
        packed = await self._driver.thread.call(lambda: self._job(payloads, about))
        return [unpack_outcome(outcome) for outcome in packed]

    def _job(self, payloads: list[bytes], about: str) -> list[bytes]:
        context = self._driver.context
        try:
            context.setJobGroup("lakestream", about)
            outcomes: list[bytes] = context.parallelize(payloads, len(payloads)).map(tasks.write).collect()
        except (Py4JError, OSError) as error:
            raise Unavailable(f"the Spark job for {about} failed: {error_text(error)}") from None
        return outcomes


def describe(tiles: Sequence[Tile]) -> str:
    """As the Spark UI shows the job."""
    names = sorted({tile.topic for tile in tiles})
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    wal_bytes = sum(slice_bytes(part) for tile in tiles for part in tile.slices)
    return f"{len(tiles)} {'tile' if len(tiles) == 1 else 'tiles'} of {shown}, {wal_bytes / 1e6:,.1f} MB of WAL"
