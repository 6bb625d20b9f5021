"""Claims of engines' tables to their folders (`metadata.places`). Topics' tables need none (`Locations.is_streams`)."""

from pyiceberg.table.metadata import TableMetadata

from lakestream.catalog.embedded.commit import Commits
from lakestream.catalog.engines.locations.allowed import Locations
from lakestream.errors import StorageError
from lakestream.objects.paths import resolved


class Claims:
    def __init__(self, commits: Commits, locations: Locations) -> None:
        self._commits = commits
        self._locations = locations
        self._places = commits.pointers.places
        self._kept = False

    async def take(self, metadata: TableMetadata) -> None:
        """Before the table has its name. Idempotent. Raises `TableRefused` if its location is another table's."""
        await self._begin()
        place = await self._commits.run(lambda: self._place(metadata))
        if place is not None:
            await self._places.claim(metadata.table_uuid, place)

    async def hold(self, metadata: TableMetadata) -> bool:
        """Whether the table, which has its name by now, still has its claim."""
        place = await self._commits.run(lambda: self._place(metadata))
        return place is None or await self._places.holds(metadata.table_uuid, place)

    async def release(self, metadata: TableMetadata) -> None:
        """When the table is gone."""
        place = await self._commits.run(lambda: self._place(metadata))
        if place is not None:
            await self._places.release(metadata.table_uuid, place)

    def _place(self, metadata: TableMetadata) -> str | None:
        if self._locations.is_streams(metadata.location, metadata.table_uuid):
            return None
        return resolved(metadata.location)

    async def _begin(self) -> None:
        """Once in the life of a metadata store: tables that an earlier version made have no claims."""
        if self._kept:
            return
        if not await self._places.is_kept():
            claims = {}
            for table_id in await self._places.tables():
                row = await self._commits.pointers.get(table_id)
                if row is None or self._locations.is_ours(row.pointer.metadata_location):
                    continue
                try:
                    current = await self._commits.load(table_id)
                except StorageError:
                    continue  # nothing can be done to it that needs a claim
                place = None if current is None else await self._commits.run(lambda: self._place(current.metadata))  # noqa: B023
                if place is not None:
                    claims[place] = table_id
            await self._places.begin(claims)
        self._kept = True
