"""Tables as outside engines use them: by name, with their own schemas and their own commits.

Tables of living topics are among them and keep what `rules` says; everything else is the engine's own business.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import (
    AssertCreate,
    RemovePropertiesUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.utils.properties import property_as_bool

from lakestream.catalog.commit import Change, Commits, Current, apply_change
from lakestream.catalog.index import read_entries, read_manifests
from lakestream.catalog.stamp import stamped
from lakestream.errors import Conflict, RequestError, TableExists, TableRefused, UnknownNamespace, UnknownTable
from lakestream.metadata.pointers import TableName, check_names

_COMMIT_ATTEMPTS: Final = 10
_FORMATS: Final = ("1", "2")
_PLAIN: Final = re.compile(r"[^A-Za-z0-9._-]")


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
        self._bucket_url = bucket_url.rstrip("/")

    async def load(self, name: TableName) -> Current:
        """Raises `UnknownTable`."""
        current = await self.commits.load(await self.commits.pointers.resolve(name))
        if current is None:
            raise UnknownTable(f"Table does not exist: {name}")
        return current

    async def stage(self, table: NewTable) -> TableMetadata:
        """The metadata that the table would begin with; nothing is stored."""
        check_names((*table.name.namespace, table.name.name))
        await self.commits.pointers.namespace(table.name.namespace)
        await self._check_free(table.name)
        if table.properties.get("format-version", "2") not in _FORMATS:
            raise RequestError(f"tables can be made in format version {' or '.join(_FORMATS)} only")
        table_id = self.commits.runtime.new_id()
        folder = _PLAIN.sub("_", f"{'.'.join(table.name.namespace)}.{table.name.name}__{table_id.hex[:8]}")
        try:
            return new_table_metadata(
                table.schema,
                table.spec or UNPARTITIONED_PARTITION_SPEC,
                table.order or UNSORTED_SORT_ORDER,
                (table.location or f"{self._bucket_url}/warehouse/{folder}").rstrip("/"),
                dict(table.properties),
                table_id,
            )
        except ValueError as error:
            raise RequestError(f"table {table.name} cannot be made so: {error}") from error

    async def create(self, table: NewTable) -> Current:
        """Raises `TableExists`, `UnknownNamespace`, `RequestError`."""
        return await self._store(table.name, await self.stage(table))

    async def commit(
        self, name: TableName, requirements: Sequence[TableRequirement], updates: Sequence[TableUpdate]
    ) -> Current:
        """Changes the table's present state, or makes a table that was staged. What an engine relies on is
        in its requirements: as long as they hold, a commit of somebody else that comes first is no conflict."""
        if any(isinstance(requirement, AssertCreate) for requirement in requirements):
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
                return await self._commit(current, requirements, updates)
            except Conflict:
                if (await self.load(name)).location == current.location:
                    raise
        return await self._commit(await self.load(name), requirements, updates)

    async def _commit(
        self, current: Current, requirements: Sequence[TableRequirement], updates: Sequence[TableUpdate]
    ) -> Current:
        def prepare(metadata: TableMetadata, _written: list[str]) -> Change:
            possible = list(_without_absent_removals(metadata, updates))
            return Change(requirements, list(stamped(metadata, possible)) if current.row.pointer.bound else possible)

        return await self.commits.commit(current, prepare, outside=True)

    async def drop(self, name: TableName, *, purge: bool) -> None:
        """Takes the table off the catalog; `purge` deletes its files too. Raises `UnknownTable`, `TableRefused`."""
        current = await self.load(name)
        self._check_unbound(name, current)
        if purge and not property_as_bool(dict(current.metadata.properties), "gc.enabled", True):
            raise TableRefused(
                f"table {name} has gc.enabled=false: its files may belong to others and cannot be purged"
            )
        doomed = await self.commits.run(lambda: self._all_files(current)) if purge else []
        await self.commits.pointers.drop(current.table_id)
        await self.commits.run(lambda: self.commits.files.delete(doomed))

    async def rename(self, name: TableName, to: TableName) -> None:
        """Raises `UnknownTable`, `TableExists`, `UnknownNamespace`, `TableRefused`."""
        current = await self.load(name)
        self._check_unbound(name, current)
        await self.commits.pointers.rename(current.table_id, to)

    async def _store(self, name: TableName, metadata: TableMetadata) -> Current:
        table_id: UUID = metadata.table_uuid
        if await self.commits.pointers.get(table_id) is not None:
            raise Conflict(f"a table with UUID {table_id} is there already")
        current = await self.commits.create(table_id, metadata, bound=False)
        try:
            bound = await self.commits.pointers.bind(table_id, name)
        except (TableExists, UnknownNamespace):
            await self.commits.pointers.drop(table_id)
            await self.commits.run(lambda: self.commits.files.delete([current.location]))
            raise
        if bound != name:
            raise TableExists(f"a table with UUID {table_id} is there already under another name")
        return current

    async def _check_free(self, name: TableName) -> None:
        try:
            await self.commits.pointers.resolve(name)
        except UnknownTable:
            return
        raise TableExists(f"Table already exists: {name}")

    def _check_unbound(self, name: TableName, current: Current) -> None:
        if current.row.pointer.bound:
            raise TableRefused(f"{name} is the table of a living topic: delete the topic, and the table is yours")

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
        return [*sorted(data), *manifests, *lists, *logged, current.location]


def _without_absent_removals(metadata: TableMetadata, updates: Sequence[TableUpdate]) -> Iterator[TableUpdate]:
    """Removing a property that is not there is no error in the protocol."""
    present = set(metadata.properties)
    for update in updates:
        if isinstance(update, SetPropertiesUpdate):
            present |= set(update.updates)
        if isinstance(update, RemovePropertiesUpdate):
            removals = [key for key in update.removals if key in present]
            present -= set(removals)
            yield RemovePropertiesUpdate(removals=removals)
        else:
            yield update
