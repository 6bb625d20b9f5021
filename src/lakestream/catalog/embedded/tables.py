"""The tables of streams, with PyIceberg as a library over the metadata store's pointers, or in an external catalog."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Final
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, SetPropertiesUpdate, TableRequirement

from lakestream.catalog.embedded.adopting import adopted_frontier
from lakestream.catalog.embedded.binding import owner
from lakestream.catalog.embedded.commit import Change, Commits, Current, Judge
from lakestream.catalog.embedded.files import version_of
from lakestream.catalog.engines.tables import EngineTables
from lakestream.catalog.manifests.deletions import placed
from lakestream.catalog.manifests.reachable import Reach, read_reach
from lakestream.catalog.manifests.snapshot import SnapshotBuilder, SnapshotPlan
from lakestream.catalog.manifests.statistics import described, shown
from lakestream.catalog.port import Named
from lakestream.catalog.rules.streams import check_commit
from lakestream.catalog.rules.views import check_view
from lakestream.errors import Conflict, InvalidSetting, ObjectMissing, StorageError, UnknownStream
from lakestream.metadata.names.rows import TableName
from lakestream.metadata.store import Store
from lakestream.metadata.topics.list import Begun
from lakestream.metadata.topics.tables import detached_name, table_name
from lakestream.model import DataFile, StatisticsFile, WrittenFile
from lakestream.objects.paths import is_inside
from lakestream.runtime import Runtime
from lakestream.table.parquet.compression import chosen_or_default
from lakestream.table.reading.files import FileIndex
from lakestream.table.schema import (
    DATA_FOLDER,
    PROPERTIES,
    RAW_SCHEMA,
    STREAM_SPEC,
    TOPIC_ID_PROPERTY,
    TOPIC_PROPERTY,
    UNPARTITIONED,
    frontier_text,
)
from lakestream.table.view import View

_CLAIM_ATTEMPTS: Final = 10


class PyIcebergTables:
    """Implements `TableCatalog`. `bucket_url` is where tables live; `commits` how, if not by the metadata store's
    pointers; `judge` looks into files that engines add; `close` ends its threads."""

    def __init__(
        self,
        store: Store,
        bucket_url: str,
        runtime: Runtime,
        *,
        io_properties: Mapping[str, str] = MappingProxyType({}),
        commits: Commits | None = None,
        judge: Judge | None = None,
    ) -> None:
        self.commits: Final = commits or Commits(store, runtime, io_properties, bucket_url, judge)
        self.engines: Final = EngineTables(self.commits, bucket_url)
        """The same tables as outside engines use them."""
        self._bucket_url = bucket_url.rstrip("/")
        self._runtime = runtime
        self._views: dict[UUID, View] = {}

    async def close(self) -> None:
        self.commits.close()

    async def create(self, topic_id: UUID, name: str, partitions: int, *, table: TableName | None = None) -> View:
        def first() -> TableMetadata:
            properties = self.commits.frontier_properties(topic_id, frontier_text((0,) * partitions))
            folder = f"{self._bucket_url}/tables/{detached_name(name, topic_id)}"
            return _first_metadata(topic_id, name, folder, properties, self._runtime.clock.now_ms())

        await self.commits.bind(topic_id, table or table_name(name), first)
        return await self.load(topic_id)

    async def pointer(self, topic_id: UUID) -> str | None:
        return await self.commits.location(topic_id)

    async def load(self, topic_id: UUID) -> View:
        return await self._load(topic_id, self.commits.load)

    async def readable(self, topic_id: UUID) -> View:
        """The present view also where nothing can be committed on top of it: see `Commits.readable`."""
        return await self._load(topic_id, self.commits.readable)

    async def _load(self, topic_id: UUID, load: Callable[[UUID], Awaitable[Current | None]]) -> View:
        while True:
            current = await load(topic_id)
            try:
                return await self._view(topic_id, current)
            except ObjectMissing:
                # The manifests of a view that has been expired meanwhile are gone; a present one's never are.
                latest = await load(topic_id)
                if current is None or latest is None or latest.location == current.location:
                    raise

    async def named(self, topic_id: UUID) -> Named:
        while True:
            current = await self.commits.load(topic_id)
            if current is None or not current.row.pointer.bound:
                raise UnknownStream(f"no table is bound to topic {topic_id}")
            try:
                return await self.commits.run(partial(self._read_named, current))
            except ObjectMissing:
                if await self.pointer(topic_id) == current.location:
                    raise

    async def commit(
        self,
        view: View,
        *,
        add: Sequence[WrittenFile],
        remove: Sequence[DataFile],
        frontier: tuple[int, ...],
    ) -> View:
        check_commit(view, add, remove, frontier)
        await self.commits.check_view(view)
        current = await self._exactly(view)
        text = frontier_text(frontier)
        plan = SnapshotPlan(
            add=add,
            remove={file.path for file in remove},
            summary=self.commits.summary(text),
            snapshot_id=self._runtime.random.getrandbits(62) + 1,
            timestamp_ms=self._runtime.clock.now_ms(),
            unique=self._runtime.new_id(),
            version=version_of(current.location) + 1,
            carries_statistics=self.commits.carries_statistics,
        )

        def prepare(metadata: TableMetadata, written: list[str]) -> Change:
            updates = SnapshotBuilder(self.commits.files, self.commits.index, metadata, plan, written).build()
            properties = self.commits.frontier_properties(view.topic_id, text)
            return Change(_requirements(view, metadata), (*updates, SetPropertiesUpdate(updates=properties)))

        done = await self.commits.commit(current, prepare)
        await self.commits.keep(view.topic_id, current.row.version, done.location)
        return await self._remember(view.topic_id, view.table, done)

    @property
    def keeps_statistics(self) -> bool:
        return self.commits.carries_statistics

    async def describe(self, view: View, statistics: StatisticsFile) -> View:
        current = await self._exactly(view)
        snapshot_id = view.snapshot_id
        if snapshot_id is None or not self.keeps_statistics:
            raise ValueError(f"{view.table} has no snapshot that could have statistics here")

        def prepare(metadata: TableMetadata, _written: list[str]) -> Change:
            return Change(_requirements(view, metadata), described(metadata, snapshot_id, statistics))

        return await self._remember(view.topic_id, view.table, await self.commits.commit(current, prepare))

    async def _exactly(self, view: View) -> Current:
        """The table, if it is what the view shows. Raises `Conflict`."""
        current = await self.commits.load(view.topic_id)
        if current is None or not current.row.pointer.bound or current.location != view.metadata_location:
            raise Conflict(f"{view.table} is no longer what the view shows: load it again")
        return current

    async def owner(self, table: TableName) -> UUID | None:
        return await owner(self.commits.pointers, table)

    async def detach(self, topic_id: UUID) -> str | None:
        self._views.pop(topic_id, None)
        return await self.commits.detach(topic_id)

    async def adoptable(self, table: TableName, partitions: int) -> Begun | None:
        current = await self.commits.find(table)
        if current is None:
            return None
        frontier = self._left_frontier(current, partitions)
        await self._check_adoptable(current, self._first(current, "", frontier))
        return Begun(current.table_id, frontier)

    async def claim(self, table: TableName, name: str, begun: Begun) -> Begun:
        for _ in range(_CLAIM_ATTEMPTS):
            current = await self.commits.find(table)
            if current is None or current.table_id != begun.table_id:
                raise InvalidSetting("it was dropped or replaced in this moment")
            frontier = self._left_frontier(current, len(begun.frontier))
            first = self._first(current, name, frontier)
            await self._check_adoptable(current, first)
            with suppress(Conflict):
                if await self.commits.claim(table, current, first):
                    return Begun(current.table_id, frontier)
        raise InvalidSetting("others change it all the time: stop them, and create the topic again")

    async def adopt(self, topic_id: UUID, name: str, frontier: tuple[int, ...], *, table: TableName) -> bool:
        current = await self.commits.adopting(topic_id, table)
        if current is None:
            return False
        if not current.row.pointer.bound:
            await self.commits.replace(current, await self._adopted(current, name, frontier))
        return True

    async def _adopted(self, current: Current, name: str, frontier: tuple[int, ...]) -> TableMetadata:
        """The table as the topic's. Raises `StorageError` unless it can go on from this frontier."""
        topic_id = current.table_id
        try:
            found = self._left_frontier(current, len(frontier))
        except InvalidSetting as error:
            raise StorageError(f"{topic_id} can no longer be the table of topic {name}: {error}") from error
        if found != frontier:
            raise StorageError(
                f"{topic_id} was to be the table of topic {name} from {frontier_text(frontier)} on, and ends at"
                f" {frontier_text(found)} now: who else writes it?"
            )
        return await self._check_adopted(current, self._first(current, name, frontier))

    def _left_frontier(self, current: Current, partitions: int) -> tuple[int, ...]:
        return adopted_frontier(current.metadata, partitions, self._bucket_url, self.commits.left_frontier)

    def _first(self, current: Current, name: str, frontier: tuple[int, ...]) -> TableMetadata:
        """What a table of the topic would begin with at the same place."""
        properties = self.commits.frontier_properties(current.table_id, frontier_text(frontier))
        now_ms = self._runtime.clock.now_ms()
        return _first_metadata(current.table_id, name, current.metadata.location, properties, now_ms)

    async def _check_adoptable(self, current: Current, first: TableMetadata) -> None:
        try:
            await self._check_adopted(current, first)
        except StorageError as error:
            raise InvalidSetting(str(error)) from error

    async def _check_adopted(self, current: Current, first: TableMetadata) -> TableMetadata:
        """The table as the topic's. Raises `StorageError` if it shows what no log can have made."""
        metadata = self.commits.adopted(current, first)
        adopted = replace(current, metadata=metadata)
        view = await self.commits.run(lambda: self._read_view(current.table_id, "the table", adopted))
        check_view(view)
        named = chain((file.path for file in view.files), (delete.path for delete in view.deletes))
        outside = next((path for path in named if not is_inside(path, view.location)), None)
        if outside is not None:
            raise StorageError(f"its file {outside} is not in its location {view.location}, so it is another table's")
        return metadata

    async def reach(self, topic_id: UUID) -> Reach:
        """What the table names now, in any retained snapshot: a file it does not name is not in use by it.
        Raises `UnknownStream`, `StorageError`, `Unavailable`."""
        current = await self.commits.load(topic_id)
        if current is None:
            raise UnknownStream(f"topic {topic_id} has no table")
        return await self.commits.run(lambda: read_reach(self.commits.index, current.metadata, current.location))

    async def view_of(self, current: Current) -> View:
        """The view of this metadata, present or not. Raises as `load` does."""
        name = await self.commits.pointers.name_of(current.table_id)
        return await self.commits.run(lambda: self._read_view(current.table_id, str(name), current))

    async def _view(self, topic_id: UUID, current: Current | None) -> View:
        name = None if current is None else await self.commits.pointers.name_of(topic_id)
        if current is None or name is None or not current.row.pointer.bound:
            self._views.pop(topic_id, None)
            raise UnknownStream(f"no table is bound to topic {topic_id}")
        known = self._views.get(topic_id)
        if known is not None and (known.metadata_location, known.table) == (current.location, str(name)):
            return known
        return await self._remember(topic_id, str(name), current)

    async def _remember(self, topic_id: UUID, table: str, current: Current) -> View:
        view = await self.commits.run(lambda: self._read_view(topic_id, table, current))
        self._views[topic_id] = view
        return view

    def _read_view(self, topic_id: UUID, table: str, current: Current) -> View:
        metadata = current.metadata
        bound_to = metadata.properties.get(TOPIC_ID_PROPERTY)
        if bound_to != str(topic_id):
            raise StorageError(f"{table}: property {TOPIC_ID_PROPERTY} is {bound_to!r}, not {topic_id}")
        snapshot = metadata.current_snapshot()
        index = self.commits.index
        manifests = () if snapshot is None else index.manifests(snapshot.manifest_list)
        found = [index.get(manifest) for manifest in manifests]
        files = FileIndex(manifest.files for manifest in found)
        return View(
            topic_id=topic_id,
            table=table,
            location=metadata.location,
            metadata_location=current.location,
            snapshot_id=None if snapshot is None else snapshot.snapshot_id,
            frontier=self.commits.frontier(topic_id, table, metadata),
            files=files,
            deletes=placed(files, [file for manifest in found for file in manifest.deletes]),
            compression=chosen_or_default(metadata.properties),
            sequence_number=0 if snapshot is None else snapshot.sequence_number or 0,
            statistics=shown(metadata),
        )

    def _read_named(self, current: Current) -> Named:
        metadata = current.metadata
        return Named(
            frontier=self.commits.frontier(current.table_id, str(current.table_id), metadata),
            paths=read_reach(self.commits.index, metadata, current.location).files,
            collectable=self.commits.is_collectable(metadata),
            version=self.commits.version(current),
        )


def _requirements(view: View, metadata: TableMetadata) -> tuple[TableRequirement, ...]:
    return (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": view.snapshot_id}),
    )


def _first_metadata(
    topic_id: UUID, topic: str, location: str, frontier: Mapping[str, str], now_ms: int
) -> TableMetadata:
    """Built field by field: PyIceberg's own way in would number the columns anew."""
    properties = {key: value for key, value in PROPERTIES.items() if key != "format-version"}
    properties["write.metadata.path"] = f"{location}/_iceberg"
    properties["write.data.path"] = f"{location}/{DATA_FOLDER}"
    properties[TOPIC_PROPERTY] = topic
    properties[TOPIC_ID_PROPERTY] = str(topic_id)
    properties |= frontier
    return TableMetadataV2.model_validate(
        {
            "table-uuid": topic_id,
            "location": location,
            "schemas": [RAW_SCHEMA],
            "current-schema-id": RAW_SCHEMA.schema_id,
            "last-column-id": RAW_SCHEMA.highest_field_id,
            "partition-specs": [UNPARTITIONED, STREAM_SPEC],
            "default-spec-id": STREAM_SPEC.spec_id,
            "last-partition-id": STREAM_SPEC.last_assigned_field_id,
            "sort-orders": [UNSORTED_SORT_ORDER],
            "default-sort-order-id": UNSORTED_SORT_ORDER.order_id,
            "properties": properties,
            "last-updated-ms": now_ms,
        }
    )
