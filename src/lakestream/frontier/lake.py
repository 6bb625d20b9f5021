"""What a worker moves records between."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from lakestream.catalog.derived.port import DerivedTables
from lakestream.catalog.port import TableCatalog
from lakestream.errors import RetryableError
from lakestream.frontier.moving.tiles.tile import Tile, TileOutcome
from lakestream.frontier.settings import PipelineSettings
from lakestream.metadata.store import Store
from lakestream.objects import ObjectStore
from lakestream.runtime import Runtime
from lakestream.schemas.source import NO_SCHEMAS, SchemaSource
from lakestream.wal import WalStores

_DELETE_CHUNK: Final = 200


class TileRunner(Protocol):
    """Where tiles are written: in this process or under Spark."""

    @property
    def parallelism(self) -> int:
        """Tiles that can run side by side: a tick is cut into at least as many, if it is big enough."""
        ...

    async def run(self, tiles: Sequence[Tile]) -> list[TileOutcome]:
        """Outcomes in the order of the tiles; a tile that fails does not fail the others. `Unavailable` if the
        runner itself could not do its work: the tiles may be tried again later."""
        ...


@dataclass(frozen=True, slots=True)
class Lake:
    """`objects` is the bucket that holds the tables, and the WAL unless it is in disk stores: `disks` has both. None:
    there are no disk stores."""

    store: Store
    catalog: TableCatalog
    objects: ObjectStore
    runner: TileRunner
    runtime: Runtime
    settings: PipelineSettings
    disks: WalStores | None = None
    derived: DerivedTables | None = None
    """Of the catalog, if it keeps such tables."""
    schemas: SchemaSource = NO_SCHEMAS

    @property
    def wal(self) -> WalStores:
        return self.disks or WalStores(self.objects)

    async def delete_wal(self, keys: Sequence[str]) -> list[str]:
        """WAL objects, from all stores. Those that are gone."""
        return await self._delete(self.wal, keys)

    async def delete(self, keys: Sequence[str]) -> list[str]:
        """Those that are gone."""
        return await self._delete(self.objects, keys)

    async def _delete(self, objects: ObjectStore, keys: Sequence[str]) -> list[str]:
        """Those that are gone. A chunk that the store refuses does not hold up the next, and is found again by a later
        pass: under throttling, passes still get somewhere."""
        gone: list[str] = []
        for start in range(0, len(keys), _DELETE_CHUNK):
            chunk = keys[start : start + _DELETE_CHUNK]
            try:
                await objects.delete(chunk)
            except RetryableError:
                continue
            gone += chunk
        return gone
