"""How a table changes in an external catalog: load what it shows, stage a snapshot, have the catalog take the commit.

The catalog has the tables, by name; the metadata store keeps which name is which topic's, whether the topic lives, and
the metadata location of the last table that was found good. The last is for reading when the catalog shows something
else (`fallback`); what is done is still read from the table alone. Nothing that this catalog cannot refuse is believed:
see `external.rules`, `rules.views` and `rules.vector`.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AddSnapshotUpdate, AssertCurrentSchemaId, AssertDefaultSpecId, TableRequirement

from lakestream.catalog.engines.properties import is_on
from lakestream.catalog.external.client import CatalogClient, StoredTable
from lakestream.catalog.external.rules import check_format, check_present, is_of
from lakestream.catalog.manifests.expiry import delete_expired
from lakestream.catalog.rules.vector import proven_frontier, sealed_frontier, signed_summary
from lakestream.catalog.staging import Change, Current, FrontierText, Prepare, Stager
from lakestream.errors import Conflict, RetryableError, StorageError, Unavailable
from lakestream.metadata.counters import cluster_id
from lakestream.metadata.log.partition import decode_head, head_address
from lakestream.metadata.names.pointers import Pointer, PointerRow, Pointers
from lakestream.metadata.names.rows import TableName
from lakestream.metadata.store import Store
from lakestream.model import StreamPartition
from lakestream.table.view import View

T = TypeVar("T")

_ANSWER_S: Final = 60.0
NEVER_MADE: Final = ""
"""The pointer of a topic whose table is named and not yet known to be in the catalog."""


class ExternalCommits:
    """Implements `TableCommits` for the tables of topics. `stager` and `client` stay the caller's to close."""

    def __init__(self, store: Store, stager: Stager, client: CatalogClient) -> None:
        self.pointers: Final = Pointers(store)
        self.stager: Final = stager
        self.client: Final = client
        self.place: Final = client.place
        self._store = store
        self._cluster = ""

    async def ask(self, work: Callable[[], T]) -> T:
        """A catalog that does not answer must not hold up whoever asks; what was asked may still be done later."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await self.stager.run(work)
        except TimeoutError as error:
            raise Unavailable(f"catalog {self.place} has not answered for {_ANSWER_S:.0f} s") from error

    async def load(self, table_id: UUID) -> Current | None:
        """None: the topic never had a table, or is no more. Raises `StorageError` if the table is no longer there or no
        longer the topic's, or in a format that the engine does not write."""
        current = await self.readable(table_id)
        if current is not None:
            check_format(str(await self.pointers.name_of(table_id)), self.place, current.metadata)
        return current

    async def readable(self, table_id: UUID) -> Current | None:
        """What `load` gives, or refuses for a reason that does not keep anybody from reading."""
        row, name = await self.pointers.get(table_id), await self.pointers.name_of(table_id)
        if row is None or name is None or not row.pointer.bound:
            return None
        found = await self.ask(lambda: self.client.load(name))
        if found is None:
            if row.pointer.metadata_location == NEVER_MADE:
                return None
            raise StorageError(
                f"catalog {self.place} has no table {name} any more, so it was dropped or renamed; nothing is"
                f" committed until its owner brings it back under that name (its metadata was last seen at"
                f" {row.pointer.metadata_location})"
            )
        await self.cluster()
        self.check_present(table_id, name, found)
        return _current(table_id, row, found)

    def check_present(self, table_id: UUID, name: TableName, found: StoredTable) -> None:
        check_present(table_id, self._cluster, str(name), self.place, self.stager.bucket_url, found.metadata)

    async def cluster(self) -> str:
        """The id that marks the tables of this cluster. Asked for before anything that needs it."""
        if not self._cluster:
            self._cluster = await cluster_id(self._store, self.stager.runtime)
        return self._cluster

    async def last_good(self, table_id: UUID) -> Current | None:
        """The table as it was when it was last found good, whatever the catalog shows now."""
        row = await self.pointers.get(table_id)
        if row is None or not row.pointer.bound or row.pointer.metadata_location == NEVER_MADE:
            return None
        location = row.pointer.metadata_location
        await self.cluster()
        return Current(table_id, row, await self.stager.run(lambda: self.stager.files.read(location)))

    async def keep(self, table_id: UUID, version: int, location: str) -> None:
        """Notes that this table is good. Only over the note that was there when the table was loaded: a newer note is
        of a newer table."""
        with suppress(RetryableError):
            await self.pointers.swing(table_id, version, Pointer(location, bound=True))

    def frontier(self, topic_id: UUID, table: str, metadata: TableMetadata) -> tuple[int, ...]:
        """Once `cluster` is known. Raises `StorageError`."""
        return proven_frontier(topic_id, self._cluster, table, metadata)

    def said(self, topic_id: UUID, text: str) -> FrontierText:
        """Once `cluster` is known."""
        return FrontierText(sealed_frontier(topic_id, self._cluster, text), signed_summary(self._cluster, text))

    async def reported_frontier(self, view: View) -> tuple[int, ...]:
        """How far the log was told that the table goes, by partition: from there on it may have forgotten the rest."""
        partitions = [StreamPartition(view.topic_id, index) for index in range(len(view.frontier))]
        entries = await self._store.get([head_address(partition) for partition in partitions])
        heads = [decode_head(*each) for each in zip(entries, partitions, strict=True)]
        return tuple(0 if found is None else found.head.frontier for found in heads)

    async def commit(self, current: Current, prepare: Prepare) -> Current:
        """The catalog compares UUID and main's snapshot, so that nothing but properties, tags and branches can have
        changed in between; those do not make another view."""
        name = await self.pointers.name_of(current.table_id)
        if name is None:
            raise Conflict(f"table {current.table_id} was dropped: load it again")
        done, change = await self.attempt(name, current, prepare)
        if is_collectable(done.metadata):
            await self.stager.run(lambda: self._delete_expired(current.metadata, done.metadata, change))
        return _current(current.table_id, current.row, await self._settled(name, done))

    async def attempt(self, name: TableName, current: Current, prepare: Prepare) -> tuple[StoredTable, Change]:
        """Without what follows a commit. The change that was made is part of the answer."""
        change, written = await self.stager.run(lambda: self._prepared(current, prepare))
        base = StoredTable(current.metadata, current.location)
        requirements = [*change.requirements, *_same_shape(current.metadata)]
        try:
            io = self.stager.files.io
            done = await self.ask(lambda: self.client.commit(name, base, requirements, change.updates, io))
        except Conflict:
            landed = await self._landed(current, name, change, written)
            if landed is None:
                await self.stager.discard(written, current.metadata.location)
                raise
            done = landed
        return done, change

    async def _settled(self, name: TableName, done: StoredTable) -> StoredTable:
        """What was just committed, as a load shows it: an answer to a commit may name its metadata in another way."""
        try:
            found = await self.ask(lambda: self.client.load(name))
        except (RetryableError, StorageError):
            return done
        same = found is not None and found.metadata.current_snapshot_id == done.metadata.current_snapshot_id
        return found if found is not None and same else done

    def _prepared(self, current: Current, prepare: Prepare) -> tuple[Change, list[str]]:
        def work(written: list[str]) -> tuple[Change, list[str]]:
            change = prepare(current.metadata, written)
            self.stager.files.sync(written)
            return change, written

        return self.stager.guarded(f"files of table {current.table_id}", current.metadata.location, work)

    async def _landed(
        self, current: Current, name: TableName, change: Change, written: list[str]
    ) -> StoredTable | None:
        """The table, if the commit that was just refused is in it all the same: somebody between us and the catalog may
        have sent it twice, and then the second is refused because of the first. `Unavailable` if that stays unknown."""
        ours = {update.snapshot.snapshot_id for update in change.updates if isinstance(update, AddSnapshotUpdate)}
        found = await self.ask(lambda: self.client.load(name))
        if found is None or not is_of(current.table_id, found.metadata):
            return None
        if ours & {snapshot.snapshot_id for snapshot in found.metadata.snapshots}:
            return found
        snapshot = found.metadata.current_snapshot()
        if snapshot is None:
            return None
        manifests = await self.stager.run(lambda: self.stager.index.manifests(snapshot.manifest_list))
        return found if any(manifest.manifest_path in written for manifest in manifests) else None

    def _delete_expired(self, old: TableMetadata, new: TableMetadata, change: Change) -> None:
        files, index = self.stager.files, self.stager.index
        delete_expired(files, index, old, new, change.updates, metadata_too=self.client.writes_metadata)


def is_collectable(metadata: TableMetadata) -> bool:
    """See `Named`. Not in a catalog that keeps a table's history to itself: files that only the past names are in use
    there."""
    if not is_on(metadata.properties, "gc.enabled", default=True):
        return False
    snapshot = metadata.current_snapshot()
    parent = None if snapshot is None else snapshot.parent_snapshot_id
    if parent is None:
        return metadata.next_sequence_number() == len(metadata.snapshots) + 1
    return any(each.snapshot_id == parent for each in metadata.snapshots)


def _current(table_id: UUID, row: PointerRow, found: StoredTable) -> Current:
    return Current(table_id, PointerRow(Pointer(found.location, bound=True), row.version), found.metadata)


def _same_shape(metadata: TableMetadata) -> list[TableRequirement]:
    return [
        AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
        AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id}),
    ]
