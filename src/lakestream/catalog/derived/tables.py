"""Derived tables over the metadata store's pointers, with the commits of the embedded catalog.

Their pointers are those of tables that no topic owns; the row beside the names makes them derived, so it is written
first and taken away last, and engines are refused by it.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata

from lakestream.catalog.derived.metadata import evolved, first_derived, frontier_in, shape_in
from lakestream.catalog.derived.port import DerivedFile, DerivedView
from lakestream.catalog.derived.snapshot import DerivedPlan, DerivedSnapshot
from lakestream.catalog.embedded.commit import Commits
from lakestream.catalog.engines.properties import is_on
from lakestream.catalog.files import version_of
from lakestream.catalog.manifests.deletions import placed
from lakestream.catalog.manifests.reachable import read_reachable
from lakestream.catalog.port import Named
from lakestream.catalog.rules.streams import falls
from lakestream.catalog.staging import Change, Current, Prepare, exactly
from lakestream.errors import Conflict, ObjectMissing, TableExists, UnknownStream, UnknownTable
from lakestream.metadata.names.derived import DerivedNames, DerivedRow
from lakestream.metadata.names.pointers import Pointers
from lakestream.metadata.names.rows import TableName
from lakestream.metadata.store import Store
from lakestream.metadata.topics.tables import clashing_name, detached_name
from lakestream.table.deriving.recipe import DerivedShape, recipe_text
from lakestream.table.parquet.compression import chosen_or_default
from lakestream.table.reading.files import FileIndex
from lakestream.table.shape import RAW
from lakestream.table.view import View

_LOAD_ATTEMPTS: Final = 3


class EmbeddedDerived:
    """Implements `DerivedTables`."""

    def __init__(self, store: Store, pointers: Pointers, commits: Commits) -> None:
        self._names = DerivedNames(store)
        self._pointers = pointers
        self._commits = commits
        self._stager = commits.stager
        self._views: dict[UUID, DerivedView] = {}

    async def every(self) -> list[DerivedRow]:
        return await self._names.every()

    async def of_topic(self, topic_id: UUID) -> list[DerivedRow]:
        return await self._names.of_topic(topic_id)

    async def load(self, row: DerivedRow) -> DerivedView | None:
        for attempt in range(_LOAD_ATTEMPTS):
            current = await self._commits.load(row.table_id)
            name = None if current is None else await self._pointers.name_of(row.table_id)
            if current is None or name is None:
                return None
            known = self._views.get(row.table_id)
            if known is not None and known.view.metadata_location == current.location and known.view.table == str(name):
                return known
            try:
                return await self._remember(row, str(name), current)
            except ObjectMissing:
                # Expired meanwhile, if somebody commits beside us; a present one's files are there.
                if attempt == _LOAD_ATTEMPTS - 1:
                    raise
        return None

    async def announce(self, topic_id: UUID, shape: DerivedShape, frontier: tuple[int, ...] = ()) -> DerivedRow:
        recipe = recipe_text(shape.recipe)
        table_id = self._stager.runtime.new_id()
        return await self._names.add(DerivedRow(topic_id, shape.recipe.kind, table_id, recipe, frontier))

    async def reached(self, row: DerivedRow, frontier: tuple[int, ...]) -> DerivedRow:
        return await self._names.reached(row, frontier)

    async def create(self, row: DerivedRow, topic: str, shape: DerivedShape, table: TableName) -> DerivedView:
        if await self._pointers.get(row.table_id) is None:
            location = f"{self._stager.bucket_url}/tables/{detached_name(table.name, row.table_id)}"
            now_ms = self._stager.runtime.clock.now_ms()
            first = first_derived(row, topic, shape, location, row.frontier, now_ms)
            await self._create(row.table_id, first)
        try:
            await self._pointers.bind(row.table_id, table, make_namespace=True)
        except TableExists:
            await self._pointers.bind(row.table_id, clashing_name(table, row.table_id), make_namespace=True)
        if row.table_id not in await self._names.topics_of([row.table_id]):
            # Put away while it was made: whoever did it found nothing.
            await self._pointers.drop(row.table_id)
            raise Conflict(f"{table} was put away while it was made")
        found = await self.load(row)
        if found is None:
            raise Conflict(f"{table} was put away while it was made")
        return found

    async def rename(self, row: DerivedRow, table: TableName) -> None:
        try:
            await self._pointers.rename(row.table_id, table)
        except TableExists:
            return

    async def commit(
        self,
        derived: DerivedView,
        *,
        add: Sequence[DerivedFile],
        remove: AbstractSet[str],
        frontier: tuple[int, ...],
    ) -> DerivedView:
        view = derived.view
        if falls(view.frontier, frontier):
            raise ValueError(f"the frontier of {view.table} cannot fall from {view.frontier} to {frontier}")
        current = self._same(view, await self._commits.load(view.topic_id))
        runtime = self._stager.runtime
        plan = DerivedPlan(
            add=add,
            remove=remove,
            frontier=frontier,
            snapshot_id=runtime.random.getrandbits(62) + 1,
            timestamp_ms=runtime.clock.now_ms(),
            unique=runtime.new_id(),
            version=version_of(current.location) + 1,
        )

        def prepare(metadata: TableMetadata, written: list[str]) -> Change:
            updates = DerivedSnapshot(self._stager, metadata, plan, written).build()
            return Change(exactly(view, metadata), updates)

        return await self._commit(derived, current, prepare)

    async def evolve(self, derived: DerivedView, shape: DerivedShape) -> DerivedView:
        view = derived.view
        current = self._same(view, await self._commits.load(view.topic_id))
        return await self._commit(
            derived, current, lambda metadata, _written: Change(exactly(view, metadata), evolved(shape))
        )

    async def named(self, row: DerivedRow) -> Named:
        current = await self._commits.load(row.table_id)
        if current is None:
            raise UnknownStream(f"there is no derived table {row.table_id}")
        reachable = await self._stager.run(
            lambda: read_reachable(self._stager.index, current.metadata, current.location)
        )
        return Named(
            frontier=frontier_in(str(row.table_id), current.metadata),
            paths=reachable.files,
            collectable=is_on(current.metadata.properties, "gc.enabled", default=True),
            version=version_of(current.location),
        )

    async def put_away(self, row: DerivedRow) -> str | None:
        self._views.pop(row.table_id, None)
        name = await self._pointers.name_of(row.table_id)
        if name is not None and not name.name.endswith(detached_name("", row.table_id)):
            name = TableName(name.namespace, detached_name(name.name, row.table_id))
            try:
                await self._pointers.rename(row.table_id, name)
            except UnknownTable:
                name = None
        if name is None:
            # Its creation was never finished, so nothing was ever committed to it.
            await self._pointers.drop(row.table_id)
        await self._names.remove(row)
        return None if name is None else str(name)

    async def _commit(self, derived: DerivedView, current: Current, prepare: Prepare) -> DerivedView:
        if derived.row.table_id not in await self._names.topics_of([derived.row.table_id]):
            raise Conflict(f"{derived.view.table} has been put away")
        done = await self._commits.commit(current, prepare)
        return await self._remember(derived.row, derived.view.table, done)

    async def _create(self, table_id: UUID, metadata: TableMetadata) -> None:
        await self._commits.create(table_id, metadata, bound=False)

    async def _remember(self, row: DerivedRow, table: str, current: Current) -> DerivedView:
        view = await self._stager.run(lambda: self._read(row, table, current))
        self._views[row.table_id] = view
        return view

    def _read(self, row: DerivedRow, table: str, current: Current) -> DerivedView:
        metadata, index = current.metadata, self._stager.index
        snapshot = metadata.current_snapshot()
        manifests = () if snapshot is None else index.manifests(snapshot.manifest_list)
        found = [index.get(manifest, RAW) for manifest in manifests]
        files = FileIndex(manifest.files for manifest in found)
        shape = shape_in(table, metadata)
        view = View(
            topic_id=row.table_id,
            table=table,
            location=metadata.location,
            metadata_location=current.location,
            snapshot_id=None if snapshot is None else snapshot.snapshot_id,
            frontier=frontier_in(table, metadata),
            files=files,
            deletes=placed(files, [file for manifest in found for file in manifest.deletes]),
            shape=shape.columns,
            compression=chosen_or_default(metadata.properties),
            sequence_number=0 if snapshot is None else snapshot.sequence_number or 0,
        )
        return DerivedView(view, shape, row)

    @staticmethod
    def _same(view: View, current: Current | None) -> Current:
        if current is None or current.location != view.metadata_location:
            raise Conflict(f"{view.table} is no longer what the view shows: load it again")
        return current
