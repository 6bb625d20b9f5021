"""The tables of streams, with PyIceberg as a library over the metadata store's pointers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata

from lakestream.catalog import binding
from lakestream.catalog.derived.tables import EmbeddedDerived
from lakestream.catalog.embedded.adopting import adopted_metadata, said_frontier
from lakestream.catalog.embedded.commit import Commits
from lakestream.catalog.engines.properties import is_on
from lakestream.catalog.engines.tables import EngineTables
from lakestream.catalog.files import version_of
from lakestream.catalog.first import first_metadata
from lakestream.catalog.manifests.reachable import ReachableFiles, read_reachable
from lakestream.catalog.manifests.statistics import described
from lakestream.catalog.port import Named, TableViews
from lakestream.catalog.reading import ViewReader, check_same
from lakestream.catalog.rules.adopting import adopted_frontier, as_begun, check_adopted
from lakestream.catalog.rules.evolving import check_evolution
from lakestream.catalog.rules.lineage import intact_after
from lakestream.catalog.rules.streams import check_commit
from lakestream.catalog.staging import Change, Current, FrontierText, Stager, exactly, told_split
from lakestream.errors import InvalidSetting, StorageError, UnknownStream, UnknownTable
from lakestream.metadata.names.pointers import PointerRow
from lakestream.metadata.names.rows import TableName
from lakestream.metadata.store import Store
from lakestream.metadata.topics.list import Begun
from lakestream.metadata.topics.tables import detached_name, table_name
from lakestream.model import DataFile, StatisticsFile, WrittenFile
from lakestream.runtime import Runtime
from lakestream.table.schema import FRONTIER_PROPERTY, frontier_text, parse_frontier, shape_of
from lakestream.table.shape import RAW, TableShape
from lakestream.table.view import View


class PyIcebergTables:
    """Implements `OpenCatalog`. `bucket_url` is where tables live."""

    keeps_statistics: Final = True
    place: Final = ""

    def __init__(
        self,
        store: Store,
        bucket_url: str,
        runtime: Runtime,
        *,
        io_properties: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._stager = Stager(runtime, io_properties, bucket_url)
        self.commits: Final = Commits(store, self._stager)
        self.engines: Final = EngineTables(self.commits, bucket_url)
        """The same tables as outside engines use them."""
        self._pointers = self.commits.pointers
        self.derived: Final = EmbeddedDerived(store, self._pointers, self.commits)
        """Tables that the pipeline derives from those of streams."""
        self._reader = ViewReader(self._stager, self._pointers, _frontier)

    async def close(self) -> None:
        self._stager.close()

    def broker_views(self) -> TableViews:
        return self

    async def create(
        self, topic_id: UUID, name: str, partitions: int, *, table: TableName | None = None, shape: TableShape = RAW
    ) -> View:
        async def make_pointer() -> PointerRow:
            home = f"{self._stager.bucket_url}/tables/{detached_name(name, topic_id)}"
            first = self._first(topic_id, name, home, (0,) * partitions, shape)
            return (await self.commits.create(topic_id, first, bound=True)).row

        await binding.bind(self._pointers, topic_id, table or table_name(name), make_pointer)
        return await self.load(topic_id)

    async def pointer(self, topic_id: UUID) -> str | None:
        return await binding.location(self._pointers, topic_id)

    async def load(self, topic_id: UUID) -> View:
        return await self._reader.present(topic_id, self.commits.load)

    async def named(self, topic_id: UUID) -> Named:
        current, reachable = await self._reader.reachable(topic_id, self.commits.load)
        return Named(
            frontier=_frontier(topic_id, str(topic_id), current.metadata),
            paths=reachable.files,
            collectable=is_on(current.metadata.properties, "gc.enabled", default=True),
            version=version_of(current.location),
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
        current = check_same(view, await self.commits.load(view.topic_id))
        said, version = _said(frontier), version_of(current.location) + 1
        intact = intact_after(view, add, remove, frontier, gaps)
        plan = self._stager.plan(
            told_split(said, split),
            add=add,
            remove=remove,
            intact_from=intact,
            version=version,
            carries_statistics=True,
        )
        done = await self.commits.commit(current, self._stager.prepared(view, plan, said))
        return await self._reader.remember(view.topic_id, view.table, done)

    async def evolve(self, view: View, shape: TableShape) -> View:
        check_evolution(view.shape, shape, view.last_column_id)
        current = check_same(view, await self.commits.load(view.topic_id))
        said, version = _said(view.frontier), version_of(current.location) + 1
        intact = intact_after(view, (), (), view.frontier)
        plan = self._stager.plan(said, intact_from=intact, version=version, carries_statistics=True)
        done = await self.commits.commit(current, self._stager.evolving(view, shape, plan, said))
        return await self._reader.remember(view.topic_id, view.table, done)

    async def describe(self, view: View, statistics: StatisticsFile) -> View:
        current = check_same(view, await self.commits.load(view.topic_id))
        snapshot_id = view.snapshot_id
        if snapshot_id is None:
            raise ValueError(f"{view.table} has no snapshot that could have statistics")

        def prepare(metadata: TableMetadata, _written: list[str]) -> Change:
            return Change(exactly(view, metadata), described(metadata, snapshot_id, statistics))

        done = await self.commits.commit(current, prepare)
        return await self._reader.remember(view.topic_id, view.table, done)

    async def owner(self, table: TableName) -> UUID | None:
        return await binding.owner(self._pointers, table)

    async def detach(self, topic_id: UUID) -> str | None:
        self._reader.forget(topic_id)
        return await binding.detach(self._pointers, topic_id)

    async def adoptable(self, table: TableName, partitions: int) -> Begun | None:
        try:
            current = await self.commits.load(await self._pointers.resolve(table))
        except UnknownTable:
            return None
        if current is None or current.row.pointer.bound:
            raise InvalidSetting("it is the table of another topic")
        if await self._pointers.derived.topics_of([current.table_id]):
            raise InvalidSetting("it is derived from the table of another topic")
        frontier = self._left_frontier(current, partitions)
        try:
            await self._adopted(current, "", frontier)
        except StorageError as error:
            raise InvalidSetting(str(error)) from error
        return Begun(current.table_id, frontier)

    async def claim(self, table: TableName, name: str, begun: Begun) -> Begun:
        """The swing of the pointer will take the table: until then whatever others commit to it counts."""
        found = await self.adoptable(table, len(begun.frontier))
        if found is None or found.table_id != begun.table_id:
            raise InvalidSetting("it was dropped or replaced in this moment")
        return found

    async def adopt(self, topic_id: UUID, name: str, frontier: tuple[int, ...], *, table: TableName) -> bool:
        current = None if await self._pointers.is_leaving(topic_id) else await self.commits.load(topic_id)
        if current is None:
            return False
        if not current.row.pointer.bound:
            frontier = as_begun(frontier, said_frontier(current.metadata))
            self._check_frontier(current, name, frontier)
            await self.commits.replace(current, await self._adopted(current, name, frontier))
        return True

    def _check_frontier(self, current: Current, name: str, frontier: tuple[int, ...]) -> None:
        """Raises `StorageError` unless the table can go on from this frontier."""
        try:
            found = self._left_frontier(current, len(frontier))
        except InvalidSetting as error:
            raise StorageError(f"{current.table_id} can no longer be the table of topic {name}: {error}") from error
        if found != frontier:
            raise StorageError(
                f"{current.table_id} was to be the table of topic {name} from {frontier_text(frontier)} on, and ends at"
                f" {frontier_text(found)} now: who else writes it?"
            )

    def _left_frontier(self, current: Current, partitions: int) -> tuple[int, ...]:
        return adopted_frontier(current.metadata, partitions, self._stager.bucket_url, said_frontier)

    async def _adopted(self, current: Current, name: str, frontier: tuple[int, ...]) -> TableMetadata:
        """The table as the topic's. Raises `StorageError` if it shows what no log can have made."""
        shape = shape_of(current.metadata.properties)
        first = self._first(current.table_id, name, current.metadata.location, frontier, shape)
        metadata = adopted_metadata(current.metadata, first, current.location)
        check_adopted(await self._reader.read("the table", replace(current, metadata=metadata)))
        return metadata

    def _first(
        self, topic_id: UUID, name: str, home: str, frontier: tuple[int, ...], shape: TableShape
    ) -> TableMetadata:
        """What a table of the topic begins with at this place."""
        now_ms = self._stager.runtime.clock.now_ms()
        return first_metadata(topic_id, name, home, _said(frontier).properties, shape, now_ms)

    async def reachable(self, topic_id: UUID) -> ReachableFiles:
        """What the table names now, in any retained snapshot: a file it does not name is not in use by it.
        Raises `UnknownStream`, `StorageError`, `Unavailable`."""
        current = await self.commits.load(topic_id)
        if current is None:
            raise UnknownStream(f"topic {topic_id} has no table")
        return await self._stager.run(lambda: read_reachable(self._stager.index, current.metadata, current.location))


def _said(frontier: tuple[int, ...]) -> FrontierText:
    said = {FRONTIER_PROPERTY: frontier_text(frontier)}
    return FrontierText(said, said)


def _frontier(_topic_id: UUID, table: str, metadata: TableMetadata) -> tuple[int, ...]:
    text = metadata.properties.get(FRONTIER_PROPERTY)
    try:
        frontier = parse_frontier(text or "")
    except ValueError as error:
        raise StorageError(f"{table}: property {FRONTIER_PROPERTY} is no frontier: {text!r}") from error
    if not frontier:
        raise StorageError(f"{table}: property {FRONTIER_PROPERTY} is missing")
    return frontier
