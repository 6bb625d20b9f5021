"""What the metadata store alone tells of tables, for a broker that has not loaded PyIceberg yet."""

from uuid import UUID

from lakestream.catalog.binding import detach, location
from lakestream.catalog.port import TableViews
from lakestream.errors import UnknownTable
from lakestream.metadata.names.pointers import Pointers
from lakestream.metadata.names.rows import TableName
from lakestream.metadata.topics.list import Begun
from lakestream.table.view import View


class EarlyViews:
    """Implements `TableViews`. `lazy` is asked for the rest, and may have to load first."""

    def __init__(self, pointers: Pointers, lazy: TableViews) -> None:
        self._pointers = pointers
        self._lazy = lazy

    async def pointer(self, topic_id: UUID) -> str | None:
        return await location(self._pointers, topic_id)

    async def detach(self, topic_id: UUID) -> str | None:
        return await detach(self._pointers, topic_id)

    async def load(self, topic_id: UUID) -> View:
        return await self._lazy.load(topic_id)

    async def adoptable(self, table: TableName, partitions: int) -> Begun | None:
        try:
            await self._pointers.resolve(table)
        except UnknownTable:
            return None
        return await self._lazy.adoptable(table, partitions)

    async def claim(self, table: TableName, name: str, begun: Begun) -> Begun:
        return await self._lazy.claim(table, name, begun)

    async def adopt(self, topic_id: UUID, name: str, frontier: tuple[int, ...], *, table: TableName) -> bool:
        return await self._lazy.adopt(topic_id, name, frontier, table=table)
