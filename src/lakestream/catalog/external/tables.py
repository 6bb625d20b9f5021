"""The tables of topics in an external catalog: what `Commits` does with our pointers, done there.

The catalog has the tables, by name; the metadata store keeps which name is which topic's, whether the topic lives, and
the metadata location of the last table that was found good. The last is for reading when the catalog shows something
else (`served`); what is done is still read from the table alone. Nothing that this catalog cannot refuse is believed:
see `rules_external`, `rules_view` and `vector`.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, NoReturn, TypeVar
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    TableRequirement,
)

from lakestream.catalog.embedded import binding
from lakestream.catalog.embedded.commit import Change, Commits, Current, Prepare
from lakestream.catalog.engines.changes import apply_updates
from lakestream.catalog.external.claiming import (
    check_mark,
    claim_requirements,
    claim_updates,
    claimed_frontier,
    unless_columns,
)
from lakestream.catalog.external.client import CatalogClient, StoredTable
from lakestream.catalog.external.empty import empty_plan, empty_snapshot, write_first
from lakestream.catalog.external.rules import check_format, check_present, is_marked, is_of
from lakestream.catalog.manifests.expiry import delete_expired
from lakestream.catalog.rules.streams import falls
from lakestream.catalog.rules.vector import is_sealed, proven_frontier, sealed_frontier, signed_summary
from lakestream.catalog.rules.views import check_view
from lakestream.errors import (
    Conflict,
    InvalidSetting,
    RequestError,
    RetryableError,
    StorageError,
    TableExists,
    Unavailable,
)
from lakestream.metadata.counters import cluster_id
from lakestream.metadata.log.partition import decode_head, head_address
from lakestream.metadata.names.pointers import Pointer, PointerRow
from lakestream.metadata.names.rows import TableName
from lakestream.metadata.store import ABSENT, Store
from lakestream.metadata.topics.tables import detached_name
from lakestream.model import StreamPartition
from lakestream.runtime import Runtime
from lakestream.table.schema import CLUSTER_PROPERTY, FRONTIER_PROPERTY
from lakestream.table.view import View

_log = logging.getLogger(__name__)
T = TypeVar("T")

_ANSWER_S: Final = 60.0
_NEVER_MADE: Final = ""
"""The pointer of a topic whose table is named and not yet known to be in the catalog."""


class ExternalCommits(Commits):
    carries_statistics = False
    """Some do not: their tables keep what engines set, where they set it."""

    def __init__(
        self,
        store: Store,
        runtime: Runtime,
        io_properties: Mapping[str, str],
        client: CatalogClient,
        bucket_url: str,
    ) -> None:
        super().__init__(store, runtime, io_properties, bucket_url)
        self.place: Final = client.place
        self._store = store
        self._client = client
        self._bucket_url = bucket_url.rstrip("/")
        self._cluster = ""

    def close(self) -> None:
        super().close()
        self._client.close()

    async def bind(self, topic_id: UUID, wanted: TableName, first: Callable[[], TableMetadata]) -> None:
        """Name first, then the table, then the note that it was made: from then on one that is missing was taken away
        by somebody, and is not made again."""
        row, name = await self.pointers.get(topic_id), await self.pointers.name_of(topic_id)
        if row is not None and row.pointer.bound and name is not None and row.pointer.metadata_location != _NEVER_MADE:
            return
        await self.cluster()
        found = await self._ask(lambda: self._client.load(name or wanted))
        if found is not None and not is_of(topic_id, found.metadata):
            await self._refuse(topic_id, row, name or wanted)
        if found is not None:
            self._check_present(topic_id, name or wanted, found)

        async def make_pointer() -> PointerRow:
            return await self.pointers.add(topic_id, Pointer(_NEVER_MADE, bound=True))

        await binding.bind(self.pointers, topic_id, name or wanted, make_pointer)
        row, name = await self.pointers.get(topic_id), await self.pointers.name_of(topic_id)
        if row is None or name is None:
            raise Conflict(f"the table of topic {topic_id} was dropped while it was made")
        found = found or await self._register(topic_id, row, name, first())
        if row.pointer.metadata_location == _NEVER_MADE:
            await self._note_made(topic_id, row, name, found)

    async def _register(self, topic_id: UUID, row: PointerRow, name: TableName, metadata: TableMetadata) -> StoredTable:
        marked = metadata.model_copy(update={"properties": {**metadata.properties, CLUSTER_PROPERTY: self._cluster}})
        plan = empty_plan(self.runtime, self.summary(marked.properties[FRONTIER_PROPERTY]))
        written = await self.run(lambda: write_first(self.files, self.index, marked, plan))
        location = written[-1]
        try:
            return await self._ask(lambda: self._client.register(name, location))
        except (TableExists, Unavailable) as error:
            # Another worker may have been faster, which catalogs word in many ways.
            found = await self._ask(lambda: self._client.load(name))
            if found is None or (isinstance(error, Unavailable) and not is_of(topic_id, found.metadata)):
                raise
            if found.location != location:
                await self.run(lambda: self.files.delete(written, marked.location))
            if not is_of(topic_id, found.metadata):
                await self._refuse(topic_id, row, name)
            return found

    async def _refuse(self, topic_id: UUID, row: PointerRow | None, name: TableName) -> NoReturn:
        """The name is somebody else's. Raises `Conflict`; a topic that never had a table gets another name then."""
        if row is not None and row.pointer == Pointer(_NEVER_MADE, bound=True):
            await self.pointers.drop(topic_id)
        raise Conflict(f"table {name} of catalog {self.place} is not topic {topic_id}'s: rename or drop it first")

    async def _note_made(self, topic_id: UUID, row: PointerRow, name: TableName, found: StoredTable) -> None:
        try:
            await self.pointers.swing(topic_id, row.version, Pointer(found.location, bound=True))
        except Conflict:
            latest = await self.pointers.get(topic_id)
            if latest is None or not latest.pointer.bound:
                await self._free_name(topic_id, name)
                raise

    async def load(self, table_id: UUID) -> Current | None:
        """None: the topic never had a table, or is no more. Raises `StorageError` if the table is no longer there or no
        longer the topic's, or in a format that the engine does not write."""
        current = await self.readable(table_id)
        if current is not None:
            check_format(str(await self.pointers.name_of(table_id)), self.place, current.metadata)
        return current

    async def readable(self, table_id: UUID) -> Current | None:
        row, name = await self.pointers.get(table_id), await self.pointers.name_of(table_id)
        if row is None or name is None or not row.pointer.bound:
            return None
        found = await self._ask(lambda: self._client.load(name))
        if found is None:
            if row.pointer.metadata_location == _NEVER_MADE:
                return None
            raise StorageError(
                f"catalog {self.place} has no table {name} any more, so it was dropped or renamed; nothing is"
                f" committed until its owner brings it back under that name (its metadata was last seen at"
                f" {row.pointer.metadata_location})"
            )
        await self.cluster()
        self._check_present(table_id, name, found)
        return _current(table_id, row, found)

    def _check_present(self, table_id: UUID, name: TableName, found: StoredTable) -> None:
        check_present(table_id, self._cluster, str(name), self.place, self._bucket_url, found.metadata)

    async def cluster(self) -> str:
        """The id that marks the tables of this cluster. Asked for before anything that needs it."""
        if not self._cluster:
            self._cluster = await cluster_id(self._store, self.runtime)
        return self._cluster

    async def last_good(self, table_id: UUID) -> Current | None:
        """The table as it was when it was last found good, whatever the catalog shows now."""
        row = await self.pointers.get(table_id)
        if row is None or not row.pointer.bound or row.pointer.metadata_location == _NEVER_MADE:
            return None
        location = row.pointer.metadata_location
        await self.cluster()
        return Current(table_id, row, await self.run(lambda: self.files.read(location)))

    async def keep(self, table_id: UUID, version: int, location: str) -> None:
        """Notes that this table is good. Only over the note that was there when the table was loaded: a newer note is
        of a newer table."""
        with suppress(RetryableError):
            await self.pointers.swing(table_id, version, Pointer(location, bound=True))

    async def find(self, table: TableName) -> Current | None:
        if await binding.owner(self.pointers, table) is not None:
            raise InvalidSetting("it is the table of another topic")
        cluster = await self.cluster()
        found = await self._ask(lambda: self._client.load(table))
        if found is None:
            return None
        check_mark(cluster, found.metadata)
        return Current(found.metadata.table_uuid, PointerRow(Pointer(found.location), ABSENT), found.metadata)

    def left_frontier(self, metadata: TableMetadata) -> tuple[int, ...] | None:
        return claimed_frontier(metadata)

    def adopted(self, current: Current, first: TableMetadata) -> TableMetadata:
        updates = claim_updates(current.metadata, first, self._cluster)
        return apply_updates(current.metadata, updates, None, validate=False)

    async def claim(self, table: TableName, current: Current, first: TableMetadata) -> bool:
        """One commit that marks the table and adds an empty snapshot: see `claiming`. Whether it did is what the table
        then says, not the answer to the commit."""
        if is_marked(self._cluster, current.metadata) and is_sealed(current.table_id, self._cluster, current.metadata):
            return True
        plan = empty_plan(self.runtime, self.summary(first.properties[FRONTIER_PROPERTY]))

        def prepare(metadata: TableMetadata, written: list[str]) -> Change:
            updates = claim_updates(metadata, first, self._cluster)
            snapshot = empty_snapshot(self.files, self.index, self.adopted(current, first), plan, written)
            return Change(claim_requirements(metadata), (*updates, *snapshot))

        try:
            await self._attempt(table, current, prepare)
        except Unavailable as error:
            raise unless_columns(current.metadata, error) from error
        return False

    async def adopting(self, topic_id: UUID, table: TableName) -> Current | None:
        def missing() -> NoReturn:
            raise Conflict(f"table {table} was dropped while topic {topic_id} was made")

        found = await self._ask(lambda: self._client.load(table))
        if found is None or not is_of(topic_id, found.metadata):
            return None
        await self.bind(topic_id, table, missing)
        return await self.load(topic_id)

    async def location(self, topic_id: UUID) -> str | None:
        current = await self.load(topic_id)
        return None if current is None else current.location

    async def detach(self, topic_id: UUID) -> str | None:
        """The pointer says first that the topic is no more; then the catalog's table and the note get their name."""
        while True:
            row, name = await self.pointers.get(topic_id), await self.pointers.name_of(topic_id)
            if row is None or name is None:
                return await binding.detach(self.pointers, topic_id)
            if row.pointer.bound:
                await self.pointers.mark_leaving(topic_id)
                try:
                    await self.pointers.swing(topic_id, row.version, Pointer(row.pointer.metadata_location))
                except Conflict:
                    continue
            await self._free_name(topic_id, name)
            return await binding.detach(self.pointers, topic_id)

    async def _free_name(self, topic_id: UUID, name: TableName) -> None:
        """Idempotent. A catalog that does not rename keeps the table under its name; what another cluster has taken
        over keeps it too."""
        kept = TableName(name.namespace, detached_name(name.name, topic_id))
        found = None if kept == name else await self._ask(lambda: self._client.load(name))
        if found is None or not is_of(topic_id, found.metadata) or not is_marked(await self.cluster(), found.metadata):
            return
        try:
            await self._ask(lambda: self._client.rename(name, kept))
        except RequestError as error:
            _log.warning("the table of a deleted topic stays as %s: %s", name, error)

    def frontier(self, topic_id: UUID, table: str, metadata: TableMetadata) -> tuple[int, ...]:
        return proven_frontier(topic_id, self._cluster, table, metadata)

    def frontier_properties(self, topic_id: UUID, text: str) -> dict[str, str]:
        return sealed_frontier(topic_id, self._cluster, text)

    def summary(self, text: str) -> dict[str, str]:
        return signed_summary(self._cluster, text)

    async def check_view(self, view: View) -> None:
        """A table that is behind what the log was told was set back, or is not the newest: to load it again tells."""
        check_view(view)
        if falls(await self.told(view), view.frontier):
            raise Conflict(f"{view.table} has moved since it was loaded, or was set back: load it again")

    async def told(self, view: View) -> tuple[int, ...]:
        """How far the log was told that the table goes, by partition: from there on it may have forgotten the rest."""
        partitions = [StreamPartition(view.topic_id, index) for index in range(len(view.frontier))]
        entries = await self._store.get([head_address(partition) for partition in partitions])
        heads = [decode_head(*each) for each in zip(entries, partitions, strict=True)]
        return tuple(0 if found is None else found.head.frontier for found in heads)

    def version(self, current: Current) -> int:
        """Its numbers are the catalog's to choose."""
        return -1

    def is_collectable(self, metadata: TableMetadata) -> bool:
        """Not in a catalog that keeps a table's history to itself: files that only the past names are in use there."""
        if not super().is_collectable(metadata):
            return False
        snapshot = metadata.current_snapshot()
        parent = None if snapshot is None else snapshot.parent_snapshot_id
        if parent is None:
            return metadata.next_sequence_number() == len(metadata.snapshots) + 1
        return any(each.snapshot_id == parent for each in metadata.snapshots)

    async def commit(self, current: Current, prepare: Prepare, *, outside: bool = False) -> Current:
        """See `Commits.commit`. The catalog compares UUID and main's snapshot, so that nothing but properties, tags and
        branches can have changed in between; those do not make another view."""
        name = await self.pointers.name_of(current.table_id)
        if name is None:
            raise Conflict(f"table {current.table_id} was dropped: load it again")
        done, change = await self._attempt(name, current, prepare)
        if self.is_collectable(done.metadata):
            await self.run(lambda: self._delete_expired(current.metadata, done.metadata, change))
        return _current(current.table_id, current.row, await self._settled(name, done))

    async def _attempt(self, name: TableName, current: Current, prepare: Prepare) -> tuple[StoredTable, Change]:
        written: list[str] = []
        change = await self.run(lambda: self._prepare(current, prepare, written))
        base = StoredTable(current.metadata, current.location)
        requirements = [*change.requirements, *_same_shape(current.metadata)]
        try:
            done = await self._ask(lambda: self._client.commit(name, base, requirements, change.updates, self.files.io))
        except Conflict:
            landed = await self._landed(current, name, change, written)
            if landed is None:
                await self.run(lambda: self.files.delete(written, current.metadata.location))
                raise
            done = landed
        return done, change

    async def _settled(self, name: TableName, done: StoredTable) -> StoredTable:
        """What was just committed, as a load shows it: an answer to a commit may name its metadata in another way."""
        try:
            found = await self._ask(lambda: self._client.load(name))
        except (RetryableError, StorageError):
            return done
        same = found is not None and found.metadata.current_snapshot_id == done.metadata.current_snapshot_id
        return found if found is not None and same else done

    def _prepare(self, current: Current, prepare: Prepare, written: list[str]) -> Change:
        change = None
        try:
            change = prepare(current.metadata, written)
            self.files.sync(written)
        except OSError as error:
            change = None
            raise Unavailable(f"files of table {current.table_id} cannot be written now: {error}") from error
        finally:
            if change is None:
                self.files.delete(written, current.metadata.location)
        return change

    async def _landed(
        self, current: Current, name: TableName, change: Change, written: list[str]
    ) -> StoredTable | None:
        """The table, if the commit that was just refused is in it all the same: somebody between us and the catalog may
        have sent it twice, and then the second is refused because of the first. `Unavailable` if that stays unknown."""
        ours = {update.snapshot.snapshot_id for update in change.updates if isinstance(update, AddSnapshotUpdate)}
        found = await self._ask(lambda: self._client.load(name))
        if found is None or not is_of(current.table_id, found.metadata):
            return None
        if ours & {snapshot.snapshot_id for snapshot in found.metadata.snapshots}:
            return found
        snapshot = found.metadata.current_snapshot()
        if snapshot is None:
            return None
        manifests = await self.run(lambda: self.index.manifests(snapshot.manifest_list))
        return found if any(manifest.manifest_path in written for manifest in manifests) else None

    def _delete_expired(self, old: TableMetadata, new: TableMetadata, change: Change) -> None:
        delete_expired(self.files, self.index, old, new, change.updates, metadata_too=self._client.writes_metadata)

    async def _ask(self, work: Callable[[], T]) -> T:
        """A catalog that does not answer must not hold up whoever asks; what was asked may still be done later."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await self.run(work)
        except TimeoutError as error:
            raise Unavailable(f"catalog {self.place} has not answered for {_ANSWER_S:.0f} s") from error


def _current(table_id: UUID, row: PointerRow, found: StoredTable) -> Current:
    return Current(table_id, PointerRow(Pointer(found.location, bound=True), row.version), found.metadata)


def _same_shape(metadata: TableMetadata) -> list[TableRequirement]:
    return [
        AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
        AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id}),
    ]
