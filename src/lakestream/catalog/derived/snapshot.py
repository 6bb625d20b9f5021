"""A snapshot of a derived table: files of rows and of deleted places come and go together.

Blocking: called on the catalog's own threads only. A derived table has few files, so its manifests are written anew,
one of each kind, with every commit; those that are full and lose nothing stay.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import count
from typing import Final
from uuid import UUID

from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import (
    Operation,
    Snapshot,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update import (
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    TableUpdate,
)
from pyiceberg.typedef import Record

from lakestream.catalog.derived.metadata import said
from lakestream.catalog.derived.port import DerivedFile
from lakestream.catalog.engines.properties import metadata_folder
from lakestream.catalog.manifests.avro import list_writer, manifest_writer
from lakestream.catalog.manifests.datafile import iceberg_file
from lakestream.catalog.manifests.expiry import plan_expiry
from lakestream.catalog.manifests.merge import MAX_ENTRIES
from lakestream.catalog.manifests.snapshot import on_main
from lakestream.catalog.sealed import SealedOutput
from lakestream.catalog.staging import Stager
from lakestream.table.shape import RAW

_CONTENTS: Final = (ManifestContent.DATA, ManifestContent.DELETES)


@dataclass(frozen=True, slots=True)
class DerivedPlan:
    add: Sequence[DerivedFile]
    remove: AbstractSet[str]
    frontier: tuple[int, ...]
    snapshot_id: int
    timestamp_ms: int
    unique: UUID
    version: int


class DerivedSnapshot:
    """One attempt. `written` is told of every file before it is made."""

    def __init__(self, stager: Stager, metadata: TableMetadata, plan: DerivedPlan, written: list[str]) -> None:
        self._files = stager.files
        self._index = stager.index
        self._metadata = metadata
        self._plan = plan
        self._written = written
        self._folder = metadata_folder(metadata.location, metadata.properties)
        self._numbers = count()
        self._live: dict[str, list[ManifestEntry]] = {}

    def build(self) -> tuple[TableUpdate, ...]:
        """Raises ValueError if a file is to be removed that is not there."""
        plan, metadata = self._plan, self._metadata
        parent = metadata.current_snapshot()
        old = () if parent is None else self._index.manifests(parent.manifest_list)
        added = [_iceberg(metadata, file) for file in plan.add]
        removed: list[DataFile] = []
        manifests = [each for content in _CONTENTS for each in self._manifests(content, old, added, removed)]
        missing = plan.remove - {file.file_path for file in removed}
        if missing:
            raise ValueError(f"{', '.join(sorted(missing))} cannot be removed: the table does not have them")
        file = self._new_file(f"snap-{plan.snapshot_id}-{plan.version:05d}-{plan.unique}.avro")
        with list_writer(metadata, file, plan.snapshot_id, parent) as writer:
            manifests = [
                writer.prepare_manifest(each) if each.manifest_path in self._live else each for each in manifests
            ]
            writer.add_manifests(manifests)
        self._index.written(file.location, manifests, self._live, RAW)
        expired = plan_expiry(metadata, plan.timestamp_ms)
        return (
            *on_main(
                metadata, plan.snapshot_id, plan.timestamp_ms, file.location, self._summary(parent, added, removed)
            ),
            *([RemoveSnapshotsUpdate.model_validate({"snapshot-ids": expired})] if expired else []),
            SetPropertiesUpdate(updates=dict(said(plan.frontier))),
        )

    def _manifests(
        self, content: ManifestContent, old: Sequence[ManifestFile], added: Sequence[DataFile], removed: list[DataFile]
    ) -> list[ManifestFile]:
        """Of this content; what is gone is added to `removed`."""
        kept: list[ManifestFile] = []
        entries = [
            _entry(file, ManifestEntryStatus.ADDED, self._plan.snapshot_id)
            for file in added
            if _content(file) == content
        ]
        for manifest in old:
            if manifest.content != content:
                continue
            found = self._index.take_entries(manifest)
            if len(found) >= MAX_ENTRIES and not any(entry.data_file.file_path in self._plan.remove for entry in found):
                kept.append(manifest)
                continue
            for entry in found:
                is_gone = entry.data_file.file_path in self._plan.remove
                if is_gone:
                    removed.append(entry.data_file)
                entries.append(
                    _entry(
                        entry.data_file,
                        ManifestEntryStatus.DELETED if is_gone else ManifestEntryStatus.EXISTING,
                        self._plan.snapshot_id if is_gone else entry.snapshot_id,
                        entry,
                    )
                )
        chunks = [entries[start : start + MAX_ENTRIES] for start in range(0, len(entries), MAX_ENTRIES)]
        return [*(self._write(content, chunk) for chunk in chunks), *kept]

    def _write(self, content: ManifestContent, entries: Sequence[ManifestEntry]) -> ManifestFile:
        file = self._new_file(f"{self._plan.version:05d}-{self._plan.unique}-m{next(self._numbers)}.avro")
        deletes = content == ManifestContent.DELETES
        with manifest_writer(self._metadata, 0, file, self._plan.snapshot_id, deletes=deletes) as writer:
            for entry in entries:
                writer.add_entry(entry)
        self._live[file.location] = [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]
        return writer.to_manifest_file()

    def _new_file(self, name: str) -> SealedOutput:
        return self._files.io.new_sealed(f"{self._folder}/{name}", self._written.append)

    def _summary(self, parent: Snapshot | None, added: Sequence[DataFile], removed: Sequence[DataFile]) -> Summary:
        collector = SnapshotSummaryCollector()
        schema, spec = self._metadata.schema(), self._metadata.spec()
        for file in added:
            collector.add_file(file, schema, spec)
        for file in removed:
            collector.remove_file(file, schema, spec)
        # An engine that follows appends would read a value that was changed as one more row.
        plain = not removed and all(_content(file) == ManifestContent.DATA for file in added)
        operation = Operation.APPEND if plain else Operation.OVERWRITE
        summary = Summary(operation=operation, **collector.build(), **said(self._plan.frontier))
        return update_snapshot_summaries(summary, None if parent is None else parent.summary)


def _content(file: DataFile) -> ManifestContent:
    return ManifestContent.DATA if file.content == DataFileContent.DATA else ManifestContent.DELETES


def _iceberg(metadata: TableMetadata, file: DerivedFile) -> DataFile:
    content = DataFileContent.POSITION_DELETES if file.is_deletes else DataFileContent.DATA
    partition = Record() if metadata.spec().is_unpartitioned() else Record(file.bucket)
    return iceberg_file(
        metadata,
        file.path,
        file.metrics,
        content=content,
        record_count=file.record_count,
        size_bytes=file.size_bytes,
        partition=partition,
        spec_id=0,
    )


def _entry(
    file: DataFile, status: ManifestEntryStatus, snapshot_id: int | None, old: ManifestEntry | None = None
) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=None if old is None else old.sequence_number,
        file_sequence_number=None if old is None else old.file_sequence_number,
        data_file=file,
    )
