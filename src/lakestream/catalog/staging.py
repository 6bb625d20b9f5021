"""What a commit to a table is made of, wherever the table's pointer is: a commit is one attempt on metadata that was
loaded, its files are written and durable before anybody names them, and deleted again once nobody can.

PyIceberg and file access block, so they run on threads that the stager owns. `embedded` swings pointers in the metadata
store to what was staged, `external` hands it to a catalog of somebody else.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeVar
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertLastAssignedFieldId,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
)

from lakestream.catalog.engines.changes import apply_updates
from lakestream.catalog.files import MetadataFiles
from lakestream.catalog.manifests.index import ManifestIndex
from lakestream.catalog.manifests.snapshot import SnapshotBuilder, SnapshotPlan
from lakestream.catalog.rules.evolving import evolved_schema
from lakestream.catalog.rules.lineage import intact_summary
from lakestream.catalog.rules.stamp import split_summary
from lakestream.catalog.threads import Threads
from lakestream.errors import Unavailable
from lakestream.metadata.names.pointers import PointerRow
from lakestream.model import DataFile, WrittenFile
from lakestream.runtime import Runtime
from lakestream.table.schema import SHAPE_PROPERTY
from lakestream.table.shape import TableShape, shape_text
from lakestream.table.view import View

T = TypeVar("T")

_LAST_ADDED: Final = -1


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
    """`evolves`: the updates change the shape of a stream's table, which no engine may by itself."""

    requirements: Sequence[TableRequirement]
    updates: Sequence[TableUpdate]
    evolves: bool = False


Prepare = Callable[[TableMetadata, list[str]], Change]
"""Blocking. Gets the metadata to build on; names each file in the list before it makes it."""


class FrontierText(NamedTuple):
    """How a commit says its frontier."""

    properties: Mapping[str, str]
    summary: Mapping[str, str]
    """The snapshot's."""


def told_split(said: FrontierText, split: Sequence[str]) -> FrontierText:
    """The snapshot also names the transactions of which it has a part."""
    return said._replace(summary={**said.summary, **split_summary(split)}) if split else said


class TableCommits(Protocol):
    """How tables change, in one catalog or another."""

    @property
    def stager(self) -> "Stager": ...

    async def load(self, table_id: UUID) -> Current | None:
        """None: there is no such table. Raises `StorageError` for one that nothing may be committed to."""
        ...

    async def commit(self, current: Current, prepare: Prepare) -> Current:
        """One attempt on exactly `current`. Raises `Conflict` if the table is another by now (nothing changed),
        `Unavailable` if the outcome is unknown."""
        ...


class Stager:
    """Makes, keeps and deletes the files of commits. `close` ends its threads."""

    def __init__(self, runtime: Runtime, io_properties: Mapping[str, str], bucket_url: str) -> None:
        self.runtime: Final = runtime
        self.bucket_url: Final = bucket_url.rstrip("/")
        self.files: Final = MetadataFiles(io_properties, bucket_url)
        self.index: Final = ManifestIndex(self.files.io)
        self._threads = Threads()

    async def run(self, work: Callable[[], T]) -> T:
        """Runs blocking work on this room's threads."""
        return await self._threads.run(work)

    def close(self) -> None:
        self._threads.close()
        self.files.close()

    def guarded(self, what: str, home: str, work: Callable[[list[str]], T]) -> T:
        """What `work` makes, which names each file in the list before it makes it: when it fails, they are deleted.
        Blocking. Raises `Unavailable` if files cannot be written now."""
        written: list[str] = []
        try:
            return work(written)
        except BaseException as error:
            self.files.delete(written, home)
            if isinstance(error, OSError):
                raise Unavailable(f"{what} cannot be written now: {error}") from error
            raise

    async def discard(self, written: Iterable[str], home: str) -> None:
        """Of an attempt that was refused for certain, so that nobody can ever name them."""
        await self.run(lambda: self.files.delete(written, home))

    async def write(self, metadata: TableMetadata, version: int) -> str:
        """Stores metadata that no pointer names yet; its location."""
        unique = self.runtime.new_id()
        return await self.run(lambda: self.files.write(metadata, version, unique))

    def plan(
        self,
        said: FrontierText,
        *,
        add: Sequence[WrittenFile] = (),
        remove: Sequence[DataFile] = (),
        intact_from: tuple[int, ...] | None = None,
        version: int = 0,
        carries_statistics: bool = False,
    ) -> SnapshotPlan:
        """`intact_from`: of the table with this snapshot (`rules.lineage`). None: it is not known."""
        snapshot_id = self.runtime.random.getrandbits(62) + 1
        intact = {} if intact_from is None else intact_summary(snapshot_id, intact_from)
        return SnapshotPlan(
            add=add,
            remove={file.path for file in remove},
            summary={**said.summary, **intact},
            snapshot_id=snapshot_id,
            timestamp_ms=self.runtime.clock.now_ms(),
            unique=self.runtime.new_id(),
            version=version,
            carries_statistics=carries_statistics,
        )

    def snapshot(self, metadata: TableMetadata, plan: SnapshotPlan, written: list[str]) -> tuple[TableUpdate, ...]:
        """Writes the planned snapshot on top of this metadata. Blocking."""
        return SnapshotBuilder(self.files, self.index, metadata, plan, written).build()

    def prepared(self, view: View, plan: SnapshotPlan, said: FrontierText) -> Prepare:
        """The planned snapshot, with the frontier that it reaches, on exactly what the view shows."""

        def prepare(metadata: TableMetadata, written: list[str]) -> Change:
            updates = self.snapshot(metadata, plan, written)
            return Change(exactly(view, metadata), (*updates, SetPropertiesUpdate(updates=dict(said.properties))))

        return prepare

    def evolving(
        self, view: View, shape: TableShape, plan: SnapshotPlan, said: FrontierText, *, keeps_order: bool = False
    ) -> Prepare:
        """The same with another shape of the table, and rows as they are. The snapshot is what makes the commit fail
        wherever another came first: not every catalog compares properties."""

        def prepare(metadata: TableMetadata, written: list[str]) -> Change:
            schema = evolved_schema(metadata, shape, keeps_order=keeps_order)
            requirements, updates = exactly(view, metadata), [*said_shape(shape)]
            if schema != metadata.schema():
                last = {"last-assigned-field-id": metadata.last_column_id}
                requirements = (*requirements, AssertLastAssignedFieldId.model_validate(last))
                added = AddSchemaUpdate.model_validate({"schema": schema})
                updates = [added, SetCurrentSchemaUpdate.model_validate({"schema-id": _LAST_ADDED}), *updates]
            evolved = apply_updates(metadata, updates, None, validate=False)
            snapshot = self.snapshot(evolved, plan, written)
            return Change(requirements, (*updates, *snapshot, SetPropertiesUpdate(updates=dict(said.properties))))

        return prepare


def said_shape(shape: TableShape) -> tuple[TableUpdate, ...]:
    """How a table's properties say its shape."""
    return (SetPropertiesUpdate(updates={SHAPE_PROPERTY: shape_text(shape)}),)


def exactly(view: View, metadata: TableMetadata) -> tuple[TableRequirement, ...]:
    """What a commit on this view demands."""
    return (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": view.snapshot_id}),
    )
