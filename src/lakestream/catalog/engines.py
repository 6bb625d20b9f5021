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
from pyiceberg.table.update import AssertCreate, TableRequirement, TableUpdate

from lakestream.catalog.commit import Change, Commits, Current, Prepare, apply_change
from lakestream.catalog.defaults import with_defaults
from lakestream.catalog.engine_views import EngineViews
from lakestream.catalog.folders import folder_of
from lakestream.catalog.index import read_entries, read_manifests
from lakestream.catalog.owned import is_on
from lakestream.catalog.stamp import stamped
from lakestream.catalog.statistics import own_files
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
from lakestream.metadata.pointers import Pointer, PointerRow, TableName, check_names

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
    def __init__(self, commits: Commits, bucket_url: str) -> None:
        self.commits: Final = commits
        self.views: Final = EngineViews(commits, bucket_url)
        self.bucket_url: Final = bucket_url.rstrip("/")

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
        await self._check_free(table.name)
        if table.properties.get("format-version", "2") not in _FORMATS:
            raise RequestError(f"tables can be made in format version {', '.join(_FORMATS)} only")
        table_id = self.commits.runtime.new_id()
        try:
            metadata = new_table_metadata(
                table.schema,
                table.spec or UNPARTITIONED_PARTITION_SPEC,
                table.order or UNSORTED_SORT_ORDER,
                (table.location or f"{self.bucket_url}/warehouse/{folder_of(table.name, table_id)}").rstrip("/"),
                dict(table.properties),
                table_id,
            )
        except ValueError as error:
            raise RequestError(f"table {table.name} cannot be made so: {error}") from error
        if not isinstance(metadata, TableMetadataV3):
            return metadata
        return with_defaults(metadata.model_copy(update={"next_row_id": 0}), table.schema)

    async def create(self, table: NewTable) -> Current:
        """Raises `TableExists`, `UnknownNamespace`, `RequestError`."""
        return await self._store(table.name, await self.stage(table))

    async def register(self, name: TableName, metadata_location: str, *, overwrite: bool = False) -> Current:
        """Takes a table whose metadata is there already. `overwrite` moves a table of that name, if it has the same
        UUID. Raises `TableExists`, `UnknownNamespace`, `RequestError`, `TableRefused`."""
        check_names((*name.namespace, name.name))
        await self.commits.pointers.namespace(name.namespace)
        try:
            metadata = await self.commits.run(lambda: self.commits.files.read(metadata_location))
            await self.commits.run(lambda: self._check_plain(metadata_location))
        except (ObjectMissing, CorruptObject) as error:
            raise RequestError(f"table {name} cannot be registered: {error}") from error
        present = await self._find(name)
        if present is not None and overwrite and present.table_id == metadata.table_uuid:
            await self._unbound(name)
            pointer = Pointer(metadata_location)
            row = await self.commits.pointers.swing(present.table_id, present.row.version, pointer)
            return Current(present.table_id, row, metadata)
        await self._check_free(name)
        row = await self._adopt(metadata.table_uuid, Pointer(metadata_location))
        await self._name(name, metadata.table_uuid)
        return Current(metadata.table_uuid, row, metadata)

    async def commit(
        self, name: TableName, requirements: Sequence[TableRequirement], updates: Sequence[TableUpdate]
    ) -> Current:
        """Changes the table's present state, or makes a table that was staged. What an engine relies on is
        in its requirements: as long as they hold, a commit of somebody else that comes first is no conflict."""
        if any(isinstance(requirement, AssertCreate) for requirement in requirements):
            if await self._find(name) is not None:
                raise TableExists("Requirement failed: table already exists")
            await self._check_free(name)
            empty = TableMetadataV1.model_construct(last_column_id=-1, schema=Schema())
            others = [requirement for requirement in requirements if not isinstance(requirement, AssertCreate)]
            change = Change(others, updates)
            return await self._store(
                name, await self.commits.run(lambda: apply_change(empty, change, None, validate=True))
            )
        for _ in range(_COMMIT_ATTEMPTS - 1):
            current = await self.load(name)
            try:
                return await self.commits.commit(current, prepared(current, requirements, updates), outside=True)
            except Conflict:
                if (await self.load(name)).location == current.location:
                    raise
        current = await self.load(name)
        return await self.commits.commit(current, prepared(current, requirements, updates), outside=True)

    async def drop(self, name: TableName, *, purge: bool) -> None:
        """Takes the table off the catalog; `purge` deletes its files too, and only that needs its metadata. Raises
        `UnknownTable`, `TableRefused`."""
        table_id = await self._unbound(name)
        doomed: list[str] = []
        if purge:
            current = await self.load(name)
            if not is_on(current.metadata.properties, "gc.enabled", default=True):
                raise TableRefused(
                    f"table {name} has gc.enabled=false: its files may belong to others and cannot be purged"
                )
            doomed = await self.commits.run(lambda: self._all_files(current))
        await self.commits.pointers.drop(table_id)
        await self.commits.run(lambda: self.commits.files.delete(doomed))

    async def rename(self, name: TableName, to: TableName) -> None:
        """Raises `UnknownTable`, `TableExists`, `UnknownNamespace`, `TableRefused`."""
        await self.commits.pointers.rename(await self._unbound(name), to)

    async def _store(self, name: TableName, metadata: TableMetadata) -> Current:
        table_id: UUID = metadata.table_uuid
        if await self.commits.pointers.get(table_id) is not None:
            raise Conflict(f"a table with UUID {table_id} is there already")
        current = await self.commits.create(table_id, metadata, bound=False)
        if current.metadata is not metadata:
            raise Conflict(f"a table with UUID {table_id} was made by somebody else just now")
        try:
            await self._name(name, table_id)
        except (TableExists, UnknownNamespace):
            await self.commits.pointers.drop(table_id)
            await self.commits.run(lambda: self.commits.files.delete([current.location]))
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

    async def _name(self, name: TableName, table_id: UUID) -> None:
        bound = await self.commits.pointers.bind(table_id, name)
        if bound != name:
            raise TableExists(f"Table already exists: one with the UUID {table_id}, as {bound}")

    async def _find(self, name: TableName) -> Current | None:
        try:
            return await self.load(name)
        except UnknownTable:
            return None

    async def _check_free(self, name: TableName) -> None:
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

    def _check_plain(self, metadata_location: str) -> None:
        with self.commits.files.io.new_input(metadata_location).open() as stream:
            if json.loads(stream.read()).get("encryption-keys"):
                raise RequestError("a table with encryption keys cannot be registered: the catalog would lose them")

    async def _unbound(self, name: TableName) -> UUID:
        """Raises `UnknownTable`, or `TableRefused` for the table of a living topic."""
        table_id = await self.commits.pointers.resolve(name)
        row = await self.commits.pointers.get(table_id)
        if row is not None and row.pointer.bound:
            raise TableRefused(f"{name} is the table of a living topic: delete the topic, and the table is yours")
        return table_id

    def _all_files(self, current: Current) -> list[str]:
        """Every file that the table's metadata can reach, metadata last."""
        io = self.commits.files.io
        lists = [snapshot.manifest_list for snapshot in current.metadata.snapshots]
        manifests = {found.manifest_path: found for path in lists for found in read_manifests(io, path)}
        data = {
            entry.data_file.file_path
            for manifest in manifests.values()
            for entry in read_entries(io, manifest, live=False)
        }
        logged = [entry.metadata_file for entry in current.metadata.metadata_log]
        return [*sorted(data), *own_files(current.metadata), *manifests, *lists, *logged, current.location]


def prepared(current: Current, requirements: Sequence[TableRequirement], updates: Sequence[TableUpdate]) -> Prepare:
    """An engine's commit. Snapshots of a stream's table get its offset vector."""

    def prepare(metadata: TableMetadata, _written: list[str]) -> Change:
        return Change(requirements, list(stamped(metadata, updates)) if current.row.pointer.bound else updates)

    return prepare
