"""Views of tables, read out of their metadata and manifests wherever the pointers are, and remembered."""

from collections.abc import Awaitable, Callable
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata

from lakestream.catalog.layouts import layout_of, order_of
from lakestream.catalog.manifests.deletions import placed
from lakestream.catalog.manifests.reachable import ReachableFiles, read_reachable
from lakestream.catalog.manifests.statistics import shown
from lakestream.catalog.rules.evolving import own_names
from lakestream.catalog.rules.lineage import intact_in
from lakestream.catalog.staging import Current, Stager
from lakestream.errors import Conflict, ObjectMissing, StorageError, UnknownStream
from lakestream.metadata.names.pointers import Pointers
from lakestream.table.parquet.compression import chosen_or_default
from lakestream.table.reading.files import FileIndex
from lakestream.table.schema import TOPIC_ID_PROPERTY, shape_of
from lakestream.table.view import View

Load = Callable[[UUID], Awaitable[Current | None]]
ReadFrontier = Callable[[UUID, str, TableMetadata], tuple[int, ...]]
"""Of a topic's table, as its metadata says it. Raises `StorageError`."""


class ViewReader:
    def __init__(self, stager: Stager, pointers: Pointers, frontier: ReadFrontier) -> None:
        self._stager = stager
        self._pointers = pointers
        self._frontier = frontier
        self._views: dict[UUID, View] = {}

    async def present(self, topic_id: UUID, load: Load) -> View:
        """Raises `UnknownStream` if no table is bound to the topic."""
        while True:
            current = await load(topic_id)
            try:
                return await self._view(topic_id, current)
            except ObjectMissing:
                # The manifests of a view that has been expired meanwhile are gone; a present one's never are.
                latest = await load(topic_id)
                if current is None or latest is None or latest.location == current.location:
                    raise

    async def reachable(self, topic_id: UUID, load: Load) -> tuple[Current, ReachableFiles]:
        """The present table, and every file that it names in any snapshot. Raises `UnknownStream`."""
        while True:
            current = await load(topic_id)
            if current is None or not current.row.pointer.bound:
                raise _unbound(topic_id)
            metadata, location = current.metadata, current.location
            try:
                return current, await self._stager.run(lambda: read_reachable(self._stager.index, metadata, location))  # noqa: B023
            except ObjectMissing:
                latest = await load(topic_id)
                if latest is not None and latest.location == location:
                    raise

    async def remember(self, topic_id: UUID, table: str, current: Current) -> View:
        """As the present view."""
        view = await self.read(table, current)
        self._views[topic_id] = view
        return view

    def forget(self, topic_id: UUID) -> None:
        self._views.pop(topic_id, None)

    async def read(self, table: str, current: Current) -> View:
        """Of this metadata, present or not."""
        return await self._stager.run(lambda: self._read(current.table_id, table, current))

    async def _view(self, topic_id: UUID, current: Current | None) -> View:
        name = None if current is None else await self._pointers.name_of(topic_id)
        if current is None or name is None or not current.row.pointer.bound:
            self.forget(topic_id)
            raise _unbound(topic_id)
        known = self._views.get(topic_id)
        if known is not None and (known.metadata_location, known.table) == (current.location, str(name)):
            return known
        return await self.remember(topic_id, str(name), current)

    def _read(self, topic_id: UUID, table: str, current: Current) -> View:
        metadata = current.metadata
        bound_to = metadata.properties.get(TOPIC_ID_PROPERTY)
        if bound_to != str(topic_id):
            raise StorageError(f"{table}: property {TOPIC_ID_PROPERTY} is {bound_to!r}, not {topic_id}")
        snapshot = metadata.current_snapshot()
        index = self._stager.index
        manifests = () if snapshot is None else index.manifests(snapshot.manifest_list)
        shape = shape_of(metadata.properties)
        frontier = self._frontier(topic_id, table, metadata)
        found = [index.get(manifest, shape) for manifest in manifests]
        files = FileIndex(manifest.files for manifest in found)
        return View(
            topic_id=topic_id,
            table=table,
            location=metadata.location,
            metadata_location=current.location,
            snapshot_id=None if snapshot is None else snapshot.snapshot_id,
            frontier=frontier,
            files=files,
            deletes=placed(files, [file for manifest in found for file in manifest.deletes]),
            shape=shape,
            compression=chosen_or_default(metadata.properties),
            sequence_number=0 if snapshot is None else snapshot.sequence_number or 0,
            intact_from=intact_in(snapshot, frontier),
            statistics=shown(metadata),
            last_column_id=metadata.last_column_id,
            layout=layout_of(metadata, shape),
            order=order_of(metadata, shape),
            own_names=own_names(metadata.schema(), shape),
        )


def check_same(view: View, current: Current | None) -> Current:
    """The table, if it is what the view shows. Raises `Conflict`."""
    if current is None or not current.row.pointer.bound or current.location != view.metadata_location:
        raise Conflict(f"{view.table} is no longer what the view shows: load it again")
    return current


def _unbound(topic_id: UUID) -> UnknownStream:
    return UnknownStream(f"no table is bound to topic {topic_id}")
