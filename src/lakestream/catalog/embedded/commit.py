"""The one way a table changes, for engines and brokers alike: load, stage new metadata, swing its pointer in the
metadata store. A commit is one attempt on the metadata that was loaded."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata

from lakestream.catalog.engines.changes import apply_updates, check_requirements
from lakestream.catalog.engines.locations.allowed import check_brought, check_paths
from lakestream.catalog.engines.properties import is_on
from lakestream.catalog.files import version_of
from lakestream.catalog.manifests.expiry import expired_files, unlogged
from lakestream.catalog.manifests.statistics import dropped
from lakestream.catalog.rules.outside import check_outside
from lakestream.catalog.rules.streams import check_change
from lakestream.catalog.staging import Change, Current, Prepare, Stager
from lakestream.errors import Conflict, LakestreamError, ObjectMissing, StorageError, Unavailable
from lakestream.metadata.names.pointers import Pointer, Pointers
from lakestream.metadata.store import Store
from lakestream.model import DataFile
from lakestream.table.schema import shape_of
from lakestream.table.shape import TableShape

_log = logging.getLogger(__name__)
T = TypeVar("T")

_LOAD_ATTEMPTS: Final = 5

Judge = Callable[[UUID, Sequence[DataFile], TableShape], Awaitable[None]]
"""Looks into files that an engine's commit adds to a topic's table of this shape. Raises `TableRefused`."""


@dataclass(frozen=True, slots=True)
class Staged:
    """New metadata that is written and that no pointer names yet."""

    metadata: TableMetadata
    location: str
    written: list[str]
    added: Sequence[DataFile] = ()
    """Files that an engine's commit adds to main of a stream's table."""


class Commits:
    """Implements `TableCommits` for any table, a topic's or an engine's. `stager` stays the caller's to close."""

    def __init__(self, store: Store, stager: Stager, judge: Judge | None = None) -> None:
        self.store: Final = store
        self.pointers: Final = Pointers(store)
        self.stager: Final = stager
        self.files: Final = stager.files
        self.index: Final = stager.index
        self.runtime: Final = stager.runtime
        self._judge = judge

    async def run(self, work: Callable[[], T]) -> T:
        """Runs blocking work on this room's threads."""
        return await self.stager.run(work)

    async def load(self, table_id: UUID) -> Current | None:
        """None: there is no such table."""
        row = await self.pointers.get(table_id)
        for attempt in range(_LOAD_ATTEMPTS):
            if row is None:
                return None
            location = row.pointer.metadata_location
            try:
                metadata = await self.run(lambda location=location: self.files.read(location))  # type: ignore[misc]
            except ObjectMissing:
                latest = await self.pointers.get(table_id)
                if latest == row or attempt == _LOAD_ATTEMPTS - 1:
                    raise
                row = latest
            else:
                return Current(table_id, row, metadata)
        return None

    async def create(self, table_id: UUID, metadata: TableMetadata, *, bound: bool) -> Current:
        """Stores the first metadata of a table. If the table is there already, that one is returned."""
        location = await self.stager.write(metadata, 0)
        pointer = Pointer(location, bound)
        row = await self.pointers.add(table_id, pointer)
        if row.pointer == pointer:
            return Current(table_id, row, metadata)
        await self.stager.discard([location], metadata.location)
        return Current(table_id, row, await self.run(lambda: self.files.read(row.pointer.metadata_location)))

    async def commit(self, current: Current, prepare: Prepare, *, outside: bool = False) -> Current:
        """One attempt on exactly `current`. Raises `Conflict` if the table is another by now (nothing changed),
        `TableRefused` or `RequestError` for a change that cannot be, `Unavailable` if the outcome is unknown.

        `outside`: the change is an engine's. Its result is checked as a whole, and the files of snapshots that it
        expires are left for that engine to delete: it still has to read them to know which."""
        staged = await self.stage(current, prepare, outside=outside)
        if staged is None:
            return current
        pointer = Pointer(staged.location, current.row.pointer.bound)
        try:
            row = await self.pointers.swing(current.table_id, current.row.version, pointer)
        except Conflict:
            await self.stager.discard(staged.written, staged.metadata.location)
            raise
        await self.clean(current, staged, outside=outside)
        return Current(current.table_id, row, staged.metadata)

    async def replace(self, current: Current, metadata: TableMetadata) -> None:
        """Makes a table a topic's, with this metadata. One attempt on exactly `current`, else `Conflict`."""
        location = await self.stager.write(metadata, version_of(current.location) + 1)
        try:
            await self.pointers.swing(current.table_id, current.row.version, Pointer(location, bound=True))
        except Conflict:
            await self.stager.discard([location], metadata.location)
            raise

    async def stage(self, current: Current, prepare: Prepare, *, outside: bool) -> Staged | None:
        """Everything of a commit but the swing of the pointer. None: there is nothing to change."""
        unique = self.runtime.new_id()
        staged = await self.run(lambda: self._stage(current, prepare, unique, outside))
        if staged is not None and self._judge is not None:
            try:
                await self._judge(current.table_id, staged.added, shape_of(staged.metadata.properties))
            except LakestreamError:
                await self.stager.discard(staged.written, staged.metadata.location)
                raise
        return staged

    async def clean(self, current: Current, staged: Staged, *, outside: bool) -> None:
        """What follows a swing."""
        await self.run(lambda: self._clean(current.metadata, staged.metadata, outside))

    def _stage(self, current: Current, prepare: Prepare, unique: UUID, outside: bool) -> Staged | None:
        def work(written: list[str]) -> Staged | None:
            change = prepare(current.metadata, written)
            metadata = apply_change(current.metadata, change, current.location, validate=outside)
            if metadata is current.metadata:
                self.files.delete(written, metadata.location)
                return None
            added: Sequence[DataFile] = ()
            if current.row.pointer.bound:
                check_change(current.metadata, metadata, outside=outside and not change.evolves)
            if outside:
                check_paths(current.metadata.properties, metadata.properties, metadata.location)
                check_brought(self.index, current.metadata, metadata)
                if current.row.pointer.bound:
                    added = check_outside(self.index, current.metadata, metadata)
            location = self.files.write(metadata, version_of(current.location) + 1, unique, written)
            written.append(location)
            return Staged(metadata, location, written, added)

        return self.stager.guarded(f"files of table {current.table_id}", current.metadata.location, work)

    def _clean(self, old: TableMetadata, new: TableMetadata, outside: bool) -> None:
        """Deletes what the commit made unreachable: metadata beyond the log's length, what only the expired snapshots
        named, and statistics that no snapshot has any more. A failure leaves orphans, never a broken table."""
        self.files.delete(unlogged(old, new), new.location)
        if outside or not is_on(new.properties, "gc.enabled", default=True):
            return
        try:
            self.files.delete((*expired_files(self.index, old, new), *dropped(old, new)), new.location)
        except (StorageError, Unavailable) as error:
            _log.warning("files of expired snapshots stay as orphans: %s", error)


def apply_change(base: TableMetadata, change: Change, location: str | None, *, validate: bool) -> TableMetadata:
    """The metadata after the change; `base` itself if nothing changes. Raises `Conflict`, `RequestError`."""
    check_requirements(base, change.requirements)
    return apply_updates(base, change.updates, location, validate=validate)
