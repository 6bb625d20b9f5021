"""The one way a table changes, for engines and brokers alike: load, stage new metadata, swing the pointer.

A commit is one attempt on the metadata that was loaded. PyIceberg and file access block, so
they run on threads that this object owns; the store is asked from the event loop. Here the pointers are in the metadata
store; `external.ExternalCommits` does the same in a catalog of somebody else.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple, TypeVar
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate

from lakestream.catalog.embedded import binding
from lakestream.catalog.embedded.adopting import adopted_metadata, said_frontier
from lakestream.catalog.embedded.files import MetadataFiles, version_of
from lakestream.catalog.engines.changes import apply_updates, check_requirements
from lakestream.catalog.engines.homes import check_brought, check_paths
from lakestream.catalog.engines.properties import is_on
from lakestream.catalog.manifests.expiry import expired_files, unlogged
from lakestream.catalog.manifests.index import ManifestIndex
from lakestream.catalog.manifests.statistics import dropped
from lakestream.catalog.rules.outside import check_outside
from lakestream.catalog.rules.streams import check_change
from lakestream.catalog.threads import Threads
from lakestream.errors import (
    Conflict,
    InvalidSetting,
    LakestreamError,
    ObjectMissing,
    StorageError,
    Unavailable,
    UnknownTable,
)
from lakestream.metadata.names.pointers import Pointer, PointerRow, Pointers
from lakestream.metadata.names.rows import TableName
from lakestream.metadata.store import Store
from lakestream.model import DataFile
from lakestream.runtime import Runtime
from lakestream.table.schema import FRONTIER_PROPERTY, parse_frontier
from lakestream.table.view import View

_log = logging.getLogger(__name__)
T = TypeVar("T")

_LOAD_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class Current:
    """A table as it was when its pointer was read. `metadata` is shared: never change it."""

    table_id: UUID
    row: PointerRow
    metadata: TableMetadata

    @property
    def location(self) -> str:
        """Where its metadata is."""
        return self.row.pointer.metadata_location


class Change(NamedTuple):
    requirements: Sequence[TableRequirement]
    updates: Sequence[TableUpdate]


Prepare = Callable[[TableMetadata, list[str]], Change]
"""Blocking. Gets the metadata to build on; names each file in the list before it makes it."""

Judge = Callable[[UUID, Sequence[DataFile]], Awaitable[None]]
"""Looks into files that an engine's commit adds to a topic's table. Raises `TableRefused`."""


@dataclass(frozen=True, slots=True)
class Staged:
    """New metadata that is written and that no pointer names yet."""

    metadata: TableMetadata
    location: str
    written: list[str]
    added: Sequence[DataFile] = ()
    """Files that an engine's commit adds to main of a stream's table."""


class Commits:
    carries_statistics: ClassVar[bool] = True
    """Whether this catalog knows statistics files."""

    def __init__(
        self,
        store: Store,
        runtime: Runtime,
        io_properties: Mapping[str, str],
        bucket_url: str,
        judge: Judge | None = None,
    ) -> None:
        self.pointers: Final = Pointers(store)
        self.files: Final = MetadataFiles(io_properties, bucket_url)
        self.index: Final = ManifestIndex(self.files.io)
        self.runtime: Final = runtime
        self._judge = judge
        self._threads = Threads()

    async def run(self, work: Callable[[], T]) -> T:
        """Runs blocking work on this room's threads."""
        return await self._threads.run(work)

    def close(self) -> None:
        self._threads.close()
        self.files.close()

    # The tables of topics

    async def bind(self, topic_id: UUID, wanted: TableName, first: Callable[[], TableMetadata]) -> None:
        """Makes the table of a topic, beginning with that metadata, unless it is there. See `TableCatalog.create`."""

        async def make_pointer() -> PointerRow:
            return (await self.create(topic_id, first(), bound=True)).row

        await binding.bind(self.pointers, topic_id, wanted, make_pointer)

    async def find(self, table: TableName) -> Current | None:
        """The table of that name, for a topic to go on in; None: there is none. Raises `InvalidSetting` if it is
        another topic's."""
        try:
            current = await self.load(await self.pointers.resolve(table))
        except UnknownTable:
            return None
        if current is None or current.row.pointer.bound:
            raise InvalidSetting("it is the table of another topic")
        return current

    def left_frontier(self, metadata: TableMetadata) -> tuple[int, ...] | None:
        """Of a table that `find` found. None: no rows were ever in it. Raises `InvalidSetting`."""
        return said_frontier(metadata)

    def adopted(self, current: Current, first: TableMetadata) -> TableMetadata:
        """The table as the topic's, whose own would begin with `first`."""
        return adopted_metadata(current.metadata, first, current.location)

    async def claim(self, table: TableName, current: Current, first: TableMetadata) -> bool:
        """Before the topic is listed: whether nobody but this cluster can commit to the table from now on. Here nobody
        can: the swing of its pointer will take it. False: it has to be found again."""
        return True

    async def adopting(self, topic_id: UUID, table: TableName) -> Current | None:
        """The table that a listed topic goes on in, bound to it or to be bound now. None: there is none."""
        return None if await self.pointers.is_leaving(topic_id) else await self.load(topic_id)

    async def location(self, topic_id: UUID) -> str | None:
        """See `TableViews.pointer`."""
        return await binding.location(self.pointers, topic_id)

    async def detach(self, topic_id: UUID) -> str | None:
        """See `TableViews.detach`."""
        return await binding.detach(self.pointers, topic_id)

    def frontier(self, topic_id: UUID, table: str, metadata: TableMetadata) -> tuple[int, ...]:
        """As the metadata says it. Raises `StorageError`."""
        text = metadata.properties.get(FRONTIER_PROPERTY)
        try:
            frontier = parse_frontier(text or "")
        except ValueError as error:
            raise StorageError(f"{table}: property {FRONTIER_PROPERTY} is no frontier: {text!r}") from error
        if not frontier:
            raise StorageError(f"{table}: property {FRONTIER_PROPERTY} is missing")
        return frontier

    def frontier_properties(self, topic_id: UUID, text: str) -> dict[str, str]:
        """What a commit says the frontier with."""
        return {FRONTIER_PROPERTY: text}

    def summary(self, text: str) -> dict[str, str]:
        """The same for the summary of its snapshot."""
        return {FRONTIER_PROPERTY: text}

    async def check_view(self, view: View) -> None:
        """Before a commit on it. Here nothing gets into a table that must not be in it."""

    async def keep(self, table_id: UUID, version: int, location: str) -> None:
        """Told of the metadata of each commit, and the version of the pointer before. The pointer says it already."""

    def version(self, current: Current) -> int:
        """See `Named`."""
        return version_of(current.location)

    def is_collectable(self, metadata: TableMetadata) -> bool:
        """See `Named`."""
        return is_on(metadata.properties, "gc.enabled", default=True)

    # Any table

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

    async def readable(self, table_id: UUID) -> Current | None:
        """What `load` gives, or refuses for a reason that does not keep anybody from reading."""
        return await self.load(table_id)

    async def create(self, table_id: UUID, metadata: TableMetadata, *, bound: bool) -> Current:
        """Stores the first metadata of a table. If the table is there already, that one is returned."""
        unique = self.runtime.new_id()
        location = await self.run(lambda: self.files.write(metadata, 0, unique))
        pointer = Pointer(location, bound)
        row = await self.pointers.add(table_id, pointer)
        if row.pointer == pointer:
            return Current(table_id, row, metadata)
        await self.run(lambda: self.files.delete([location], metadata.location))
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
            # Refused for certain, so nobody can ever name what was written for this attempt.
            await self.run(lambda: self.files.delete(staged.written, staged.metadata.location))
            raise
        await self.clean(current, staged, outside=outside)
        return Current(current.table_id, row, staged.metadata)

    async def replace(self, current: Current, metadata: TableMetadata) -> None:
        """Makes a table a topic's, with this metadata. One attempt on exactly `current`, else `Conflict`."""
        version, unique = version_of(current.location) + 1, self.runtime.new_id()
        location = await self.run(lambda: self.files.write(metadata, version, unique))
        try:
            await self.pointers.swing(current.table_id, current.row.version, Pointer(location, bound=True))
        except Conflict:
            await self.run(lambda: self.files.delete([location], metadata.location))
            raise

    async def stage(self, current: Current, prepare: Prepare, *, outside: bool) -> Staged | None:
        """Everything of a commit but the swing of the pointer. None: there is nothing to change."""
        unique = self.runtime.new_id()
        staged = await self.run(lambda: self._stage(current, prepare, unique, outside))
        if staged is not None and self._judge is not None:
            try:
                await self._judge(current.table_id, staged.added)
            except LakestreamError:
                await self.run(lambda: self.files.delete(staged.written, staged.metadata.location))
                raise
        return staged

    async def clean(self, current: Current, staged: Staged, *, outside: bool) -> None:
        """What follows a swing."""
        await self.run(lambda: self._clean(current.metadata, staged.metadata, outside))

    def _stage(self, current: Current, prepare: Prepare, unique: UUID, outside: bool) -> Staged | None:
        written: list[str] = []
        staged = None
        added: Sequence[DataFile] = ()
        try:
            change = prepare(current.metadata, written)
            metadata = apply_change(current.metadata, change, current.location, validate=outside)
            if metadata is current.metadata:
                return None
            if current.row.pointer.bound:
                check_change(current.metadata, metadata)
            if outside:
                check_paths(current.metadata.properties, metadata.properties, metadata.location)
                check_brought(self.index, current.metadata, metadata)
                if current.row.pointer.bound:
                    added = check_outside(self.index, current.metadata, metadata)
            location = self.files.write(metadata, version_of(current.location) + 1, unique, written)
            written.append(location)
            staged = Staged(metadata, location, written, added)
        except OSError as error:
            raise Unavailable(f"files of table {current.table_id} cannot be written now: {error}") from error
        finally:
            if staged is None:
                self.files.delete(written, current.metadata.location)
        return staged

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
