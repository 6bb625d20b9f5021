"""The tables of streams in a catalog that somebody else runs."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, NoReturn
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata

from lakestream.catalog.binding import owner
from lakestream.catalog.engines.changes import apply_updates
from lakestream.catalog.external.binding import bind, detach
from lakestream.catalog.external.claiming import (
    check_mark,
    claim_requirements,
    claim_updates,
    claimed_frontier,
    unless_columns,
)
from lakestream.catalog.external.client import CatalogClient
from lakestream.catalog.external.commit import ExternalCommits, is_collectable
from lakestream.catalog.external.empty import empty_snapshot
from lakestream.catalog.external.fallback import FallbackViews
from lakestream.catalog.external.rules import is_marked, is_of
from lakestream.catalog.files import version_of
from lakestream.catalog.first import first_metadata
from lakestream.catalog.port import Named
from lakestream.catalog.reading import ViewReader, check_same
from lakestream.catalog.rules.adopting import adopted_frontier, check_adopted
from lakestream.catalog.rules.evolving import check_evolution
from lakestream.catalog.rules.lineage import intact_after
from lakestream.catalog.rules.streams import check_commit, falls
from lakestream.catalog.rules.vector import is_sealed
from lakestream.catalog.rules.views import check_view
from lakestream.catalog.staging import Change, Current, Prepare, Stager, told_split
from lakestream.errors import Conflict, InvalidSetting, StorageError, Unavailable
from lakestream.metadata.names.pointers import Pointer, PointerRow
from lakestream.metadata.names.rows import TableName
from lakestream.metadata.store import ABSENT, Store
from lakestream.metadata.topics.list import Begun
from lakestream.metadata.topics.tables import detached_name, table_name
from lakestream.model import DataFile, StatisticsFile, WrittenFile
from lakestream.runtime import Runtime
from lakestream.table.schema import FRONTIER_PROPERTY, frontier_text, shape_of
from lakestream.table.shape import RAW, TableShape
from lakestream.table.view import View

_CLAIM_ATTEMPTS: Final = 10


class ExternalTables:
    """Implements `OpenCatalog`. `bucket_url` is where tables live; `client` is closed with it."""

    derived: Final = None
    keeps_statistics: Final = False
    """Some catalogs do not: their tables keep what engines set, where they set it."""

    def __init__(
        self, store: Store, bucket_url: str, runtime: Runtime, client: CatalogClient, io_properties: Mapping[str, str]
    ) -> None:
        self._stager = Stager(runtime, io_properties, bucket_url)
        self._client = client
        self.commits: Final = ExternalCommits(store, self._stager, client)
        self.place: Final = client.place
        self._pointers = self.commits.pointers
        self._reader = ViewReader(self._stager, self._pointers, self.commits.frontier)

    async def close(self) -> None:
        self._stager.close()
        self._client.close()

    def broker_views(self) -> FallbackViews:
        return FallbackViews(self, self.commits, self._reader)

    async def create(
        self, topic_id: UUID, name: str, partitions: int, *, table: TableName | None = None, shape: TableShape = RAW
    ) -> View:
        def first() -> TableMetadata:
            home = f"{self._stager.bucket_url}/tables/{detached_name(name, topic_id)}"
            return self._begun(topic_id, name, home, (0,) * partitions, shape)

        await bind(self.commits, topic_id, table or table_name(name), first)
        return await self.load(topic_id)

    async def pointer(self, topic_id: UUID) -> str | None:
        current = await self.commits.load(topic_id)
        return None if current is None else current.location

    async def load(self, topic_id: UUID) -> View:
        return await self._reader.present(topic_id, self.commits.load)

    async def named(self, topic_id: UUID) -> Named:
        """Without a version: its numbers are the catalog's to choose."""
        current, reachable = await self._reader.reachable(topic_id, self.commits.load)
        return Named(
            frontier=self.commits.frontier(topic_id, str(topic_id), current.metadata),
            paths=reachable.files,
            collectable=is_collectable(current.metadata),
        )

    async def commit(
        self,
        view: View,
        *,
        add: Sequence[WrittenFile],
        remove: Sequence[DataFile],
        frontier: tuple[int, ...],
        gaps: int = 0,
        split: Sequence[str] = (),
    ) -> View:
        check_commit(view, add, remove, frontier)
        current = await self._unmoved(view)
        said = self.commits.said(view.topic_id, frontier_text(frontier))
        intact, version = intact_after(view, add, remove, frontier, gaps), version_of(current.location) + 1
        plan = self._stager.plan(told_split(said, split), add=add, remove=remove, intact_from=intact, version=version)
        return await self._committed(view, current, self._stager.prepared(view, plan, said))

    async def evolve(self, view: View, shape: TableShape) -> View:
        check_evolution(view.shape, shape, view.last_column_id)
        current = await self._unmoved(view)
        said = self.commits.said(view.topic_id, frontier_text(view.frontier))
        intact, version = intact_after(view, (), (), view.frontier), version_of(current.location) + 1
        plan = self._stager.plan(said, intact_from=intact, version=version)
        return await self._committed(view, current, self._stager.evolving(view, shape, plan, said, keeps_order=True))

    async def _unmoved(self, view: View) -> Current:
        check_view(view)
        if falls(await self.commits.reported_frontier(view), view.frontier):
            # Behind what the log was told it was set back, or is not the newest: to load it again tells.
            raise Conflict(f"{view.table} has moved since it was loaded, or was set back: load it again")
        return check_same(view, await self.commits.load(view.topic_id))

    async def _committed(self, view: View, current: Current, prepare: Prepare) -> View:
        done = await self.commits.commit(current, prepare)
        await self.commits.keep(view.topic_id, current.row.version, done.location)
        return await self._reader.remember(view.topic_id, view.table, done)

    async def describe(self, view: View, statistics: StatisticsFile) -> View:
        raise ValueError(f"{view.table} cannot have statistics in catalog {self.place}")

    async def owner(self, table: TableName) -> UUID | None:
        return await owner(self._pointers, table)

    async def detach(self, topic_id: UUID) -> str | None:
        self._reader.forget(topic_id)
        return await detach(self.commits, topic_id)

    async def adoptable(self, table: TableName, partitions: int) -> Begun | None:
        current = await self.find(table)
        if current is None:
            return None
        frontier = self._left_frontier(current, partitions)
        await self._check_adoptable(current, self._first(current, "", frontier))
        return Begun(current.table_id, frontier)

    async def claim(self, table: TableName, name: str, begun: Begun) -> Begun:
        for _ in range(_CLAIM_ATTEMPTS):
            current = await self.find(table)
            if current is None or current.table_id != begun.table_id:
                raise InvalidSetting("it was dropped or replaced in this moment")
            frontier = self._left_frontier(current, len(begun.frontier))
            first = self._first(current, name, frontier)
            await self._check_adoptable(current, first)
            with suppress(Conflict):
                if await self.mark(table, current, first):
                    return Begun(current.table_id, frontier)
        raise InvalidSetting("others change it all the time: stop them, and create the topic again")

    async def adopt(self, topic_id: UUID, name: str, frontier: tuple[int, ...], *, table: TableName) -> bool:
        def missing() -> NoReturn:
            raise Conflict(f"table {table} was dropped while topic {topic_id} was made")

        found = await self.commits.ask(lambda: self._client.load(table))
        if found is None or not is_of(topic_id, found.metadata):
            return False
        await bind(self.commits, topic_id, table, missing)
        return await self.commits.load(topic_id) is not None

    async def find(self, table: TableName) -> Current | None:
        """The table of that name, for a topic to go on in; None: there is none. Raises `InvalidSetting` if it is
        another topic's, or another cluster's."""
        if await owner(self._pointers, table) is not None:
            raise InvalidSetting("it is the table of another topic")
        cluster = await self.commits.cluster()
        found = await self.commits.ask(lambda: self._client.load(table))
        if found is None:
            return None
        check_mark(cluster, found.metadata)
        return Current(found.metadata.table_uuid, PointerRow(Pointer(found.location), ABSENT), found.metadata)

    async def mark(self, table: TableName, current: Current, first: TableMetadata) -> bool:
        """Whether the table is marked as this cluster's. If not it is now, by one commit that adds an empty snapshot
        (see `claiming`): whether that worked is what the table says when it is found again, not the answer to it."""
        cluster = await self.commits.cluster()
        if is_marked(cluster, current.metadata) and is_sealed(current.table_id, cluster, current.metadata):
            return True
        adopted = await self._adopted(current, first)
        plan = self._stager.plan(self.commits.said(current.table_id, first.properties[FRONTIER_PROPERTY]))

        def prepare(metadata: TableMetadata, written: list[str]) -> Change:
            updates = claim_updates(metadata, first, cluster)
            snapshot = empty_snapshot(self._stager, adopted, plan, written)
            return Change(claim_requirements(metadata), (*updates, *snapshot))

        try:
            await self.commits.attempt(table, current, prepare)
        except Unavailable as error:
            raise unless_columns(current.metadata, error) from error
        return False

    def _left_frontier(self, current: Current, partitions: int) -> tuple[int, ...]:
        return adopted_frontier(current.metadata, partitions, self._stager.bucket_url, claimed_frontier)

    async def _check_adoptable(self, current: Current, first: TableMetadata) -> None:
        try:
            adopted = await self._adopted(current, first)
            check_adopted(await self._reader.read("the table", replace(current, metadata=adopted)))
        except StorageError as error:
            raise InvalidSetting(str(error)) from error

    async def _adopted(self, current: Current, first: TableMetadata) -> TableMetadata:
        """The table as the topic's, whose own would begin with `first`."""
        updates = claim_updates(current.metadata, first, await self.commits.cluster())
        return apply_updates(current.metadata, updates, None, validate=False)

    def _first(self, current: Current, name: str, frontier: tuple[int, ...]) -> TableMetadata:
        """What a table of the topic would begin with at the same place."""
        shape = shape_of(current.metadata.properties)
        return self._begun(current.table_id, name, current.metadata.location, frontier, shape)

    def _begun(
        self, topic_id: UUID, name: str, home: str, frontier: tuple[int, ...], shape: TableShape
    ) -> TableMetadata:
        said = self.commits.said(topic_id, frontier_text(frontier))
        return first_metadata(topic_id, name, home, said.properties, shape, self._stager.runtime.clock.now_ms())
