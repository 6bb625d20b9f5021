"""Tables as outside engines use them: by name, with their own schemas and their own commits.

Tables of living topics are among them and keep what `rules` says; everything else is the engine's own business.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1, TableMetadataV3, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCreate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from lakestream.catalog.embedded.commit import Commits, apply_change
from lakestream.catalog.engines.changes import check_requirements
from lakestream.catalog.engines.defaults import with_defaults
from lakestream.catalog.engines.locations.allowed import Locations, check_brought, check_own, check_paths, moved_to
from lakestream.catalog.engines.locations.claims import Claims
from lakestream.catalog.engines.locations.naming import folder_of
from lakestream.catalog.engines.properties import is_on, metadata_folder
from lakestream.catalog.engines.unplaced import TakeRows, appended, find_unplaced, placing
from lakestream.catalog.engines.views.views import EngineViews
from lakestream.catalog.manifests.index import read_entries, read_manifests
from lakestream.catalog.manifests.statistics import own_files
from lakestream.catalog.rules.stamp import stamped
from lakestream.catalog.staging import Change, Current, Prepare
from lakestream.errors import (
    Conflict,
    CorruptObject,
    ObjectMissing,
    RequestError,
    TableExists,
    TableRefused,
    UnknownNamespace,
    UnknownTable,
    UnknownView,
)
from lakestream.metadata.names.pointers import Pointer, PointerRow, TableName, check_names
from lakestream.metadata.store import ABSENT
from lakestream.objects.paths import is_inside
from lakestream.table.schema import SHAPE_PROPERTY

_COMMIT_ATTEMPTS: Final = 10
_FORMATS: Final = ("1", "2", "3")


@dataclass(frozen=True, slots=True)
class NewTable:
    """What an engine asks for. Without a location the table goes under the bucket."""

    name: TableName
    schema: Schema
    spec: PartitionSpec | None
    order: SortOrder | None
    location: str | None
    properties: Mapping[str, str]


class EngineTables:
    """`locations`: folders beside the bucket's warehouse where engines may put tables and views. `rows`: takes rows
    that are to become records; None: there is nobody who does."""

    def __init__(
        self, commits: Commits, bucket_url: str, locations: Sequence[str] = (), rows: TakeRows | None = None
    ) -> None:
        self.commits: Final = commits
        self._rows = rows
        self.bucket_url: Final = bucket_url.rstrip("/")
        self.locations: Final = Locations(bucket_url, locations)
        self.views: Final = EngineViews(commits, self.locations)
        self.claims: Final = Claims(commits, self.locations)

    async def load(self, name: TableName) -> Current:
        """Raises `UnknownTable`."""
        current = await self.commits.load(await self.commits.pointers.resolve(name))
        if current is None:
            raise UnknownTable(f"Table does not exist: {name}")
        return current

    async def check_readable(self, current: Current) -> None:
        """Raises `ObjectMissing` if the metadata that the pointer names is gone, even if this process remembers it."""
        file = self.commits.files.io.new_input(current.location)
        if not await self.commits.run(file.exists):
            raise ObjectMissing(
                f"Failed to open input stream for file: {current.location} is missing; restore it from a backup"
            )

    async def stage(self, table: NewTable) -> TableMetadata:
        """The metadata that the table would begin with; nothing is stored."""
        check_names((*table.name.namespace, table.name.name))
        await self.commits.pointers.namespace(table.name.namespace)
        await self.check_free(table.name)
        table_id = self.commits.runtime.new_id()
        location = (table.location or f"{self.locations.warehouse}/{folder_of(table.name, table_id)}").rstrip("/")
        await self.commits.run(lambda: self.check_home(location, table.properties))
        return self.made(table, table_id, location)

    def made(self, table: NewTable, table_id: UUID, location: str) -> TableMetadata:
        """The metadata of such a table at this place. Raises `RequestError`."""
        if table.properties.get("format-version", "2") not in _FORMATS:
            raise RequestError(f"tables can be made in format version {', '.join(_FORMATS)} only")
        try:
            metadata = new_table_metadata(
                table.schema,
                table.spec or UNPARTITIONED_PARTITION_SPEC,
                table.order or UNSORTED_SORT_ORDER,
                location,
                dict(table.properties),
                table_id,
            )
        except ValueError as error:
            raise RequestError(f"table {table.name} cannot be made so: {error}") from error
        if not isinstance(metadata, TableMetadataV3):
            return metadata
        return with_defaults(metadata.model_copy(update={"next_row_id": 0}), table.schema)

    async def make_folder(self, staged: TableMetadata) -> None:
        """The one for manifests, empty, where folders have to be made. Only for whoever needs it: to some engines a
        folder that is there is in use."""
        folder = metadata_folder(staged.location, staged.properties)
        await self.commits.run(lambda: self.commits.files.make_folder(folder))

    async def create(self, table: NewTable) -> Current:
        """Raises `TableExists`, `UnknownNamespace`, `RequestError`."""
        return await self._store(table.name, await self.stage(table))

    async def register(self, name: TableName, metadata_location: str, *, overwrite: bool = False) -> Current:
        """Takes a table whose metadata is there already. `overwrite` moves a table of that name, if it has the same
        UUID. Raises `TableExists`, `UnknownNamespace`, `RequestError`, `TableRefused`."""
        check_names((*name.namespace, name.name))
        await self.commits.pointers.namespace(name.namespace)
        metadata = await self.commits.run(lambda: self._read_registered(name, metadata_location))
        present = await self._find(name)
        if present is not None and overwrite and present.table_id == metadata.table_uuid:
            await self._unbound(name)
            await self.claims.take(metadata)
            pointer = Pointer(metadata_location)
            row = await self.commits.pointers.swing(present.table_id, present.row.version, pointer)
            return Current(present.table_id, row, metadata)
        await self.check_free(name)
        await self.claims.take(metadata)
        row = await self._adopt(metadata.table_uuid, Pointer(metadata_location))
        await self._name(name, metadata)
        return Current(metadata.table_uuid, row, metadata)

    async def commit(
        self,
        name: TableName,
        requirements: Sequence[TableRequirement],
        updates: Sequence[TableUpdate],
        shape_text: str | None = None,
    ) -> Current:
        """Changes the table's present state, or makes a table that was staged. What an engine relies on is
        in its requirements: as long as they hold, a commit of somebody else that comes first is no conflict."""
        if any(isinstance(requirement, AssertCreate) for requirement in requirements):
            if await self._find(name) is not None:
                raise TableExists("Requirement failed: table already exists")
            await self.check_free(name)
            empty = _empty()
            others = [requirement for requirement in requirements if not isinstance(requirement, AssertCreate)]
            return await self._store(name, await self.commits.run(lambda: self._made(empty, Change(others, updates))))
        for _ in range(_COMMIT_ATTEMPTS - 1):
            current = await self.loaded_for(name, updates)
            if await self.take_rows(current, requirements, updates):
                return await self.load(name)
            try:
                return await self.commits.commit(
                    current, prepared(current, requirements, updates, shape_text), outside=True
                )
            except Conflict:
                if (await self.load(name)).location == current.location:
                    raise
        current = await self.loaded_for(name, updates)
        return await self.commits.commit(current, prepared(current, requirements, updates, shape_text), outside=True)

    def asked(self, name: TableName, updates: Sequence[TableUpdate]) -> tuple[NewTable, UUID]:
        """What a commit that makes a table asks for, whatever snapshots it brings, and the UUID that it has for it.
        Raises `RequestError`."""
        wanted = [update for update in updates if not isinstance(update, AddSnapshotUpdate | SetSnapshotRefUpdate)]
        made = apply_change(_empty(), Change((), wanted), None, validate=True)
        properties = {"format-version": str(made.format_version), **made.properties}
        return NewTable(name, made.schema(), made.spec(), made.sort_order(), made.location, properties), made.table_uuid

    async def loaded_for(self, name: TableName, updates: Sequence[TableUpdate]) -> Current:
        """The table that a commit is for. One that moves it takes the new folder first. Raises `TableRefused`."""
        current = await self.load(name)
        await self._check_own(name, current.table_id)
        place = moved_to(current.metadata, updates)
        if place is not None and not current.row.pointer.bound:
            await self.commits.run(lambda: self.locations.check_location(place))
            await self.claims.take(current.metadata.model_copy(update={"location": place}))
        return current

    async def take_rows(
        self, current: Current, requirements: Sequence[TableRequirement], updates: Sequence[TableUpdate]
    ) -> bool:
        """Whether the commit is one of rows that are to become records, which they are then. Raises what `TakeRows`
        does, `Conflict`."""
        added = appended(current.metadata, updates) if current.row.pointer.bound else []
        if self._rows is None or not added:
            return False
        if await self._rows.is_taken(current.table_id, added[-1].snapshot_id):
            return True
        commits = self.commits
        found = await commits.run(lambda: find_unplaced(commits.files.io, commits.index, current.metadata, updates))
        if found is None:
            return False
        check_requirements(current.metadata, placing(requirements))
        await self._rows.take(found)
        return True

    async def drop(self, name: TableName, *, purge: bool) -> None:
        """Takes the table off the catalog; `purge` deletes its files too, and only that needs its metadata. Raises
        `UnknownTable`, `TableRefused`."""
        for attempt in range(_COMMIT_ATTEMPTS):
            table_id, row = await self._unbound(name)
            current = await self._purged(name) if purge else None
            doomed = [] if current is None else await self.commits.run(lambda: self._own_files(current))  # noqa: B023
            version = ABSENT if row is None else row.version
            try:
                # On exactly the pointer whose files were listed: a topic that takes the table over now keeps it.
                await self.commits.pointers.drop(table_id, version if current is None else current.row.version)
                break
            except Conflict:
                if attempt == _COMMIT_ATTEMPTS - 1:
                    raise
        if current is not None:
            await self.commits.run(lambda: self.commits.files.delete(doomed, current.metadata.location))
            await self.claims.release(current.metadata)

    async def _purged(self, name: TableName) -> Current:
        current = await self.load(name)
        if current.row.pointer.bound:
            raise _living(name)
        if not is_on(current.metadata.properties, "gc.enabled", default=True):
            raise TableRefused(
                f"table {name} has gc.enabled=false: its files may belong to others and cannot be purged"
            )
        return current

    async def rename(self, name: TableName, to: TableName) -> None:
        """Raises `UnknownTable`, `TableExists`, `UnknownNamespace`, `TableRefused`."""
        table_id, _row = await self._unbound(name)
        await self.commits.pointers.rename(table_id, to)

    async def _store(self, name: TableName, metadata: TableMetadata) -> Current:
        table_id: UUID = metadata.table_uuid
        if await self.commits.pointers.get(table_id) is not None:
            raise Conflict(f"a table with UUID {table_id} is there already")
        await self.claims.take(metadata)
        current = await self.commits.create(table_id, metadata, bound=False)
        if current.metadata is not metadata:
            raise Conflict(f"a table with UUID {table_id} was made by somebody else just now")
        try:
            await self._name(name, metadata)
        except (TableExists, TableRefused, UnknownNamespace):
            await self.commits.pointers.drop(table_id)
            await self.commits.run(lambda: self.commits.files.delete([current.location], metadata.location))
            raise
        return current

    async def _adopt(self, table_id: UUID, pointer: Pointer) -> PointerRow:
        """A pointer that nobody has named yet is what an earlier attempt left behind. Raises `TableExists`."""
        row = await self.commits.pointers.add(table_id, pointer)
        if row.pointer == pointer:
            return row
        if row.pointer.bound or await self.commits.pointers.name_of(table_id) is not None:
            raise TableExists(f"Table already exists: one with the UUID {table_id}, under another name")
        return await self.commits.pointers.swing(table_id, row.version, pointer)

    async def _name(self, name: TableName, metadata: TableMetadata) -> None:
        table_id = metadata.table_uuid
        bound = await self.commits.pointers.bind(table_id, name)
        if bound != name:
            raise TableExists(f"Table already exists: one with the UUID {table_id}, as {bound}")
        if not await self.claims.hold(metadata):
            raise TableRefused(f"{metadata.location} was taken by another table just now: choose another location")

    async def _find(self, name: TableName) -> Current | None:
        try:
            return await self.load(name)
        except UnknownTable:
            return None

    async def check_free(self, name: TableName) -> None:
        """Raises `TableExists` if a table or a view has that name."""
        try:
            await self.commits.pointers.resolve(name)
        except UnknownTable:
            pass
        else:
            raise TableExists(f"Table already exists: {name}")
        try:
            await self.commits.pointers.views.get(name)
        except UnknownView:
            return
        raise TableExists(f"View with same name already exists: {name}")

    def check_home(self, location: str, properties: Mapping[str, str]) -> None:
        """Of a table that an engine makes. Raises `TableRefused`. Blocking."""
        self.locations.check_location(location)
        check_paths({}, properties, location)

    def _made(self, empty: TableMetadata, change: Change) -> TableMetadata:
        metadata = apply_change(empty, change, None, validate=True)
        self.check_home(metadata.location, metadata.properties)
        check_brought(self.commits.index, None, metadata)
        return metadata

    def _read_registered(self, name: TableName, metadata_location: str) -> TableMetadata:
        """Raises `RequestError`, `TableRefused` for one that is, or has files, where it must not."""
        self.locations.check_registered(metadata_location)
        try:
            metadata = self.commits.files.read(metadata_location)
            self._check_plain(metadata_location)
        except (ObjectMissing, CorruptObject) as error:
            raise RequestError(f"table {name} cannot be registered: {error}") from error
        if not self.locations.is_streams(metadata.location, metadata.table_uuid):
            self.locations.check_location(metadata.location)
        check_own(metadata, metadata_location)
        return metadata

    def _check_plain(self, metadata_location: str) -> None:
        with self.commits.files.io.new_input(metadata_location).open() as stream:
            if json.loads(stream.read()).get("encryption-keys"):
                raise RequestError("a table with encryption keys cannot be registered: the catalog would lose them")

    async def _unbound(self, name: TableName) -> tuple[UUID, PointerRow | None]:
        """Raises `UnknownTable`, or `TableRefused` for the table of a living topic."""
        table_id = await self.commits.pointers.resolve(name)
        row = await self.commits.pointers.get(table_id)
        if row is not None and row.pointer.bound:
            raise _living(name)
        await self._check_own(name, table_id)
        return table_id, row

    async def _check_own(self, name: TableName, table_id: UUID) -> None:
        """Raises `TableRefused` for a table that the pipeline derives from a topic's."""
        found = (await self.commits.pointers.derived.topics_of([table_id])).get(table_id)
        if found is not None:
            setting = "lakestream.table.upsert" if found.kind == "latest" else "lakestream.errors"
            raise TableRefused(
                f"{name} is derived from the table of a topic, row by row, by the pipeline alone: it can be read, not"
                f" changed. Change the topic's rows, or take the topic's setting {setting} back, and the table is yours"
            )

    def _own_files(self, current: Current) -> list[str]:
        """Every file that the table's metadata can reach in its own location, metadata last. What lies elsewhere is not
        even read."""
        io, home = self.commits.files.io, current.metadata.location
        lists = [found.manifest_list for found in current.metadata.snapshots if is_inside(found.manifest_list, home)]
        named = {found.manifest_path: found for path in lists for found in read_manifests(io, path)}
        manifests = {path: found for path, found in named.items() if is_inside(path, home)}
        data = {
            entry.data_file.file_path
            for manifest in manifests.values()
            for entry in read_entries(io, manifest, live=False)
        }
        logged = [entry.metadata_file for entry in current.metadata.metadata_log]
        return [*sorted(data), *own_files(current.metadata), *manifests, *lists, *logged, current.location]


def _living(name: TableName) -> TableRefused:
    return TableRefused(f"{name} is the table of a living topic: delete the topic, and the table is yours")


def _empty() -> TableMetadata:
    """What a table is made of by updates alone."""
    return TableMetadataV1.model_construct(last_column_id=-1, schema=Schema())


def prepared(
    current: Current,
    requirements: Sequence[TableRequirement],
    updates: Sequence[TableUpdate],
    shape_text: str | None = None,
) -> Prepare:
    """An engine's commit. Snapshots of a stream's table get its offset vector. `shape_text`: of the shape that the
    updates were made for, if they change it."""

    def prepare(metadata: TableMetadata, _written: list[str]) -> Change:
        if shape_text not in (None, metadata.properties.get(SHAPE_PROPERTY)):
            raise Conflict("Requirement failed: the stream's schema changed meanwhile: load the table again")
        wanted = list(stamped(metadata, updates)) if current.row.pointer.bound else updates
        return Change(requirements, wanted, evolves=shape_text is not None)

    return prepare
