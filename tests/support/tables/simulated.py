"""Tables without files or threads: for the simulator. The pointers are as real as the store they are in."""

from collections.abc import MutableMapping, Sequence
from dataclasses import replace
from itertools import count
from uuid import UUID

from lakestream.catalog.binding import bind, detach, location, owner
from lakestream.catalog.files import version_of
from lakestream.catalog.port import Named
from lakestream.catalog.rules.evolving import check_evolution
from lakestream.catalog.rules.lineage import intact_after
from lakestream.catalog.rules.streams import check_commit
from lakestream.errors import Conflict, InvalidSetting, UnknownStream, UnknownTable
from lakestream.metadata.names.pointers import Pointer, PointerRow, Pointers
from lakestream.metadata.names.rows import TableName
from lakestream.metadata.store import Store
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.metadata.topics.list import Begun
from lakestream.metadata.topics.tables import detached_name, table_name
from lakestream.model import DataFile, StatisticsFile, WrittenFile
from lakestream.runtime import system
from lakestream.table.shape import RAW, TableShape
from lakestream.table.view import View

Metadata = MutableMapping[str, View]
"""Location → what its metadata says. Shared by all that use one simulated bucket; only ever added to."""


class Snapshots(dict[str, View]):
    """With the transactional ids that each snapshot says to have a part of."""

    def __init__(self) -> None:
        super().__init__()
        self.splits: dict[str, Sequence[str]] = {}


class SimulatedTables:
    """Implements `TableCatalog`. Deterministic if its store is. Without a store it keeps its pointers to itself."""

    def __init__(self, store: Store | None = None, metadata: Metadata | None = None) -> None:
        self._pointers = Pointers(MemoryStore(system()) if store is None else store)
        self._metadata: Metadata = {} if metadata is None else metadata

    async def close(self) -> None:
        """Nothing to end."""

    async def create(
        self, topic_id: UUID, name: str, partitions: int, *, table: TableName | None = None, shape: TableShape = RAW
    ) -> View:
        async def make_pointer() -> PointerRow:
            location = f"simulated://tables/{detached_name(name, topic_id)}"
            zero = (0,) * partitions
            view = View(topic_id, "", location, "", None, zero, (), (), shape, intact_from=zero)
            return await self._pointers.add(topic_id, Pointer(self._write(view), bound=True))

        await bind(self._pointers, topic_id, table or table_name(name), make_pointer)
        return await self.load(topic_id)

    async def pointer(self, topic_id: UUID) -> str | None:
        return await location(self._pointers, topic_id)

    async def load(self, topic_id: UUID) -> View:
        location = await self.pointer(topic_id)
        name = await self._pointers.name_of(topic_id)
        if location is None or name is None:
            raise UnknownStream(f"no table is bound to topic {topic_id}")
        view = self._metadata[location]
        return view if view.table == str(name) else replace(view, table=str(name))

    async def named(self, topic_id: UUID) -> Named:
        """Only the present snapshot is retained."""
        location = await self.pointer(topic_id)
        if location is None:
            raise UnknownStream(f"no table is bound to topic {topic_id}")
        view = self._metadata[location]
        paths = {file.path for file in view.files} | {file.path for file in view.deletes}
        return Named(view.frontier, frozenset(paths), version=version_of(location))

    async def commit(
        self,
        view: View,
        *,
        add: Sequence[WrittenFile],
        remove: Sequence[DataFile],
        frontier: tuple[int, ...],
        gaps: int = 0,
        split: Sequence[str] = (),
        outside: bool = False,
    ) -> View:
        """`outside`: it is another engine's, which nobody takes for one of ours."""
        check_commit(view, add, remove, frontier)
        row = await self._pointers.get(view.topic_id)
        if row is None or not row.pointer.bound or row.pointer.metadata_location != view.metadata_location:
            raise Conflict(f"{view.table} is no longer what the view shows: load it again")
        gone = {file.path for file in remove}
        kept = tuple(file for file in view.files if file.path not in gone)
        # Columns are what the table has, whatever the view says: `evolve` changes them.
        present = self._metadata[view.metadata_location]
        new = replace(
            view,
            shape=present.shape,
            last_column_id=present.last_column_id,
            snapshot_id=(view.snapshot_id or 0) + 1,
            sequence_number=view.sequence_number + 1,
            frontier=frontier,
            intact_from=frontier if outside else intact_after(view, add, remove, frontier, gaps),
            files=(*map(_live, add), *kept),
        )
        location = self._write(new)
        if isinstance(self._metadata, Snapshots):
            self._metadata.splits[location] = split
        await self._pointers.swing(view.topic_id, row.version, Pointer(location, bound=True))
        return replace(self._metadata[location], table=view.table)

    async def evolve(self, view: View, shape: TableShape) -> View:
        check_evolution(view.shape, shape, view.last_column_id)
        row = await self._pointers.get(view.topic_id)
        if row is None or not row.pointer.bound or row.pointer.metadata_location != view.metadata_location:
            raise Conflict(f"{view.table} is no longer what the view shows: load it again")
        last = max(view.last_column_id, *(each.field_id for _, each in shape.leaves()))
        snapshot_id, number = (view.snapshot_id or 0) + 1, view.sequence_number + 1
        new = replace(view, snapshot_id=snapshot_id, sequence_number=number, shape=shape, last_column_id=last)
        location = self._write(new)
        await self._pointers.swing(view.topic_id, row.version, Pointer(location, bound=True))
        return replace(self._metadata[location], table=view.table)

    @property
    def keeps_statistics(self) -> bool:
        return True

    async def describe(self, view: View, statistics: StatisticsFile) -> View:
        row = await self._pointers.get(view.topic_id)
        if row is None or not row.pointer.bound or row.pointer.metadata_location != view.metadata_location:
            raise Conflict(f"{view.table} is no longer what the view shows: load it again")
        location = self._write(replace(view, statistics=statistics))
        await self._pointers.swing(view.topic_id, row.version, Pointer(location, bound=True))
        return replace(self._metadata[location], table=view.table)

    async def owner(self, table: TableName) -> UUID | None:
        return await owner(self._pointers, table)

    async def detach(self, topic_id: UUID) -> str | None:
        return await detach(self._pointers, topic_id)

    async def adoptable(self, table: TableName, partitions: int) -> Begun | None:
        try:
            await self._pointers.resolve(table)
        except UnknownTable:
            return None
        raise InvalidSetting("the simulation has no tables but those of topics")

    async def claim(self, table: TableName, name: str, begun: Begun) -> Begun:
        return begun

    async def adopt(self, topic_id: UUID, name: str, frontier: tuple[int, ...], *, table: TableName) -> bool:
        return False

    def _write(self, view: View) -> str:
        for version in count(len(self._metadata)):
            location = f"{view.location}/_iceberg/{version:05d}.metadata.json"
            if location not in self._metadata:
                self._metadata[location] = replace(view, metadata_location=location)
                return location
        raise AssertionError("counting never ends")


def _live(file: WrittenFile) -> DataFile:
    return DataFile(
        path=file.path,
        record_count=file.record_count,
        size_bytes=file.size_bytes,
        partition_min=file.partition_min,
        partition_max=file.partition_max,
        offset_min=file.offset_min,
        offset_max=file.offset_max,
        timestamp_max_ms=file.timestamp_max_ms,
        spec_id=file.spec_id,
    )
