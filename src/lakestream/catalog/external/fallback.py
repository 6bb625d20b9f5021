"""The views that brokers serve of tables in an external catalog: the present one, or the last that was good.

Records are in a table or in the WAL. What somebody did to a table in a catalog that cannot refuse stops the pipeline,
and the WAL stays as it is from then on; the files of the last good view are still there. So together they still hold
every record, and consumers go on. The same holds while the catalog does not answer.

A table in format version 3 is good to read, with its deletion vectors, although nothing is committed to it. What was
once served as deleted stays so, whatever happens to the table then and whoever serves it: no view is handed out before
the note says that it is good, and none but the noted one is fallen back on.
"""

import logging
from typing import Final
from uuid import UUID

from lakestream.catalog.external.commit import ExternalCommits
from lakestream.catalog.port import TableViews
from lakestream.catalog.reading import ViewReader
from lakestream.catalog.rules.streams import falls
from lakestream.catalog.rules.views import check_rows
from lakestream.errors import Conflict, LakestreamError, RetryableError, StorageError, Unavailable
from lakestream.metadata.names.pointers import Pointer, PointerRow
from lakestream.metadata.names.rows import TableName
from lakestream.metadata.topics.list import Begun
from lakestream.table.view import View

_log = logging.getLogger(__name__)
_TRIES: Final = 10


class FallbackViews:
    """Implements `TableViews`, over those that the catalog shows. Deletes that cannot be applied are no reason to serve
    what was deleted: a view with such is handed out as it is, and reading it fails."""

    def __init__(self, tables: TableViews, commits: ExternalCommits, reader: ViewReader) -> None:
        self._tables = tables
        self._commits = commits
        self._reader = reader
        self._good: dict[UUID, View] = {}
        self._told: dict[UUID, str] = {}

    async def pointer(self, topic_id: UUID) -> str | None:
        try:
            current = await self._commits.readable(topic_id)
        except (StorageError, RetryableError) as error:
            return (await self._last_good(topic_id, error)).metadata_location
        return None if current is None else current.location

    async def load(self, topic_id: UUID) -> View:
        for _ in range(_TRIES):
            noted = await self._commits.pointers.get(topic_id)
            try:
                view = await self._checked(topic_id)
            except (StorageError, RetryableError) as error:
                return await self._last_good(topic_id, error)
            if await self._is_noted(noted, view):
                self._good[topic_id] = view
                if self._told.pop(topic_id, None):
                    _log.warning("%s is served from its present view again", view.table)
                return view
        raise Unavailable(f"{view.table} changes faster than it can be noted which of its views are good: fetch again")

    async def _is_noted(self, noted: PointerRow | None, view: View) -> bool:
        """Notes that this view is good. Only over the note that was there when the table was loaded: a newer note may
        be of a newer table, so the table has to be loaded again."""
        if noted is None or not noted.pointer.bound or noted.pointer.metadata_location == view.metadata_location:
            return True
        try:
            await self._commits.pointers.swing(
                view.topic_id, noted.version, Pointer(view.metadata_location, bound=True)
            )
        except Conflict:
            return False
        return True

    async def detach(self, topic_id: UUID) -> str | None:
        self._good.pop(topic_id, None)
        self._told.pop(topic_id, None)
        return await self._tables.detach(topic_id)

    async def adoptable(self, table: TableName, partitions: int) -> Begun | None:
        return await self._tables.adoptable(table, partitions)

    async def claim(self, table: TableName, name: str, begun: Begun) -> Begun:
        return await self._tables.claim(table, name, begun)

    async def adopt(self, topic_id: UUID, name: str, frontier: tuple[int, ...], *, table: TableName) -> bool:
        return await self._tables.adopt(topic_id, name, frontier, table=table)

    async def _checked(self, topic_id: UUID) -> View:
        """The log is asked before the view that is compared with it: then only a table that went back is behind."""
        view = await self._reader.present(topic_id, self._commits.readable)
        told = await self._commits.reported_frontier(view)
        if falls(told, view.frontier):
            view = await self._reader.present(topic_id, self._commits.readable)
        if falls(told, view.frontier):
            raise StorageError(
                f"{view.table} ends at {view.frontier}, yet the log was told that it holds everything below {told}; was"
                " it replaced or rolled back?"
            )
        check_rows(view)
        return view

    async def _last_good(self, topic_id: UUID, error: LakestreamError) -> View:
        """As the note says it, which is of the newest that anybody found good. Raises the error if there was none, or
        if it cannot be read: an older one may have rows that were deleted since."""
        view = self._good.get(topic_id)
        noted = await self._commits.pointers.get(topic_id)
        if view is None or noted is None or noted.pointer.metadata_location != view.metadata_location:
            view = None
            try:
                current = await self._commits.last_good(topic_id)
                if current is not None:
                    view = await self._reader.read(str(await self._commits.pointers.name_of(topic_id)), current)
            except (StorageError, RetryableError) as other:
                _log.error("the last good view of topic %s cannot be read: %s", topic_id, other)
                raise error from other
            if view is None:
                raise error
            self._good[topic_id] = view
        if self._told.get(topic_id) != str(error):
            self._told[topic_id] = str(error)
            _log.error("%s is served from the last good view: %s", view.table, error)
        return view
