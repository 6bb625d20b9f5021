"""Building a snapshot: manifests, manifest list, and the updates that put it on main.

Blocking: called on the catalog's own threads only. Nothing here touches the table's pointer.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import count
from uuid import UUID

from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import (
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import (
    Operation,
    Snapshot,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update import AddSnapshotUpdate, RemoveSnapshotsUpdate, SetSnapshotRefUpdate, TableUpdate

from lakestream.catalog.engines.properties import metadata_folder
from lakestream.catalog.files import MetadataFiles
from lakestream.catalog.manifests.avro import list_writer, manifest_writer
from lakestream.catalog.manifests.datafile import to_iceberg
from lakestream.catalog.manifests.expiry import plan_expiry
from lakestream.catalog.manifests.index import ManifestIndex
from lakestream.catalog.manifests.merge import MAX_ENTRIES, Size, plan_merges
from lakestream.catalog.manifests.statistics import carried
from lakestream.catalog.sealed import SealedOutput
from lakestream.model import WrittenFile
from lakestream.table.schema import shape_of


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """What the new snapshot shall be. `version` is the metadata version it is built for: file names carry it,
    so that whoever finds a file that no metadata names knows which attempt it belonged to."""

    add: Sequence[WrittenFile]
    remove: AbstractSet[str]
    summary: Mapping[str, str]
    snapshot_id: int
    timestamp_ms: int
    unique: UUID
    version: int
    carries_statistics: bool = False
    """Whether the snapshot gets the statistics of the nearest before it: see `statistics`."""


def on_main(
    metadata: TableMetadata, snapshot_id: int, timestamp_ms: int, manifest_list: str, summary: Summary
) -> tuple[AddSnapshotUpdate, SetSnapshotRefUpdate]:
    """A snapshot of this manifest list that follows main's, and is main's from then on. Times grow from each to the
    next."""
    parent = metadata.current_snapshot()
    snapshot = Snapshot.model_validate(
        {
            "snapshot-id": snapshot_id,
            "parent-snapshot-id": None if parent is None else parent.snapshot_id,
            "manifest-list": manifest_list,
            "sequence-number": metadata.next_sequence_number(),
            "timestamp-ms": max(timestamp_ms, metadata.last_updated_ms + 1),
            "summary": summary,
            "schema-id": metadata.current_schema_id,
        }
    )
    ref = {"ref-name": MAIN_BRANCH, "type": SnapshotRefType.BRANCH, "snapshot-id": snapshot_id}
    return AddSnapshotUpdate(snapshot=snapshot), SetSnapshotRefUpdate.model_validate(ref)


class SnapshotBuilder:
    """One attempt. `written` is told of every file before it is made."""

    def __init__(
        self,
        files: MetadataFiles,
        index: ManifestIndex,
        metadata: TableMetadata,
        plan: SnapshotPlan,
        written: list[str],
    ) -> None:
        self._files = files
        self._index = index
        self._metadata = metadata
        self._plan = plan
        self._written = written
        self._folder = metadata_folder(metadata.location, metadata.properties)
        self._shape = shape_of(metadata.properties)
        self._numbers = count()
        self._live: dict[str, list[ManifestEntry]] = {}
        """The live entries of the manifests that were written."""

    def build(self) -> tuple[TableUpdate, ...]:
        plan, metadata = self._plan, self._metadata
        parent = metadata.current_snapshot()
        added = [to_iceberg(metadata, file) for file in plan.add]
        old = () if parent is None else self._index.manifests(parent.manifest_list)
        kept, rewritten, removed = self._without_removed([manifest for manifest in old if _live_count(manifest)])
        manifests = [*self._added_manifests(added), *rewritten, *self._merged(kept)]

        file = self._new_file(f"snap-{plan.snapshot_id}-{plan.version:05d}-{plan.unique}.avro")
        with list_writer(metadata, file, plan.snapshot_id, parent) as writer:
            # What is new gets its sequence number here.
            manifests = [
                writer.prepare_manifest(manifest) if manifest.manifest_path in self._live else manifest
                for manifest in manifests
            ]
            writer.add_manifests(manifests)
        if metadata.format_version > 1:
            self._index.written(file.location, manifests, self._live, self._shape)
        expired = plan_expiry(metadata, plan.timestamp_ms)
        return (
            *on_main(
                metadata, plan.snapshot_id, plan.timestamp_ms, file.location, self._summary(parent, added, removed)
            ),
            # Before snapshots go: statistics go with theirs.
            *(carried(metadata, plan.snapshot_id) if plan.carries_statistics else ()),
            *([RemoveSnapshotsUpdate.model_validate({"snapshot-ids": expired})] if expired else []),
        )

    def _without_removed(
        self, manifests: Iterable[ManifestFile]
    ) -> tuple[list[ManifestFile], list[ManifestFile], list[IcebergFile]]:
        """Manifests that stay as they are, those rewritten without the removed files, and those files."""
        if not self._plan.remove:
            return list(manifests), [], []
        kept, rewritten, removed = [], [], []
        for manifest in manifests:
            if manifest.content != ManifestContent.DATA or not any(
                file.path in self._plan.remove for file in self._index.get(manifest, self._shape).files
            ):
                kept.append(manifest)
                continue
            entries = []
            for entry in self._index.take_entries(manifest):
                if entry.data_file.file_path in self._plan.remove:
                    removed.append(entry.data_file)
                    entries.append(_with_status(entry, ManifestEntryStatus.DELETED, self._plan.snapshot_id))
                else:
                    entries.append(_with_status(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id))
            rewritten.append(self._write(manifest.partition_spec_id, entries))
        return kept, rewritten, removed

    def _merged(self, manifests: Sequence[ManifestFile]) -> list[ManifestFile]:
        sizes = [
            Size(position, manifest.partition_spec_id, _live_count(manifest))
            for position, manifest in enumerate(manifests)
            if manifest.content == ManifestContent.DATA
        ]
        groups = plan_merges(sizes)
        replaced = {position for group in groups for position in group}
        result = [manifest for position, manifest in enumerate(manifests) if position not in replaced]
        for group in groups:
            entries = [entry for position in group for entry in self._index.take_entries(manifests[position])]
            entries.sort(key=_place)
            kept = [_with_status(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id) for entry in entries]
            result += self._write_chunks(manifests[group[0]].partition_spec_id, kept)
        return result

    def _added_manifests(self, files: Iterable[IcebergFile]) -> list[ManifestFile]:
        by_spec: dict[int, list[ManifestEntry]] = defaultdict(list)
        for file in files:
            by_spec[file.spec_id].append(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=self._plan.snapshot_id,
                    sequence_number=None,
                    file_sequence_number=None,
                    data_file=file,
                )
            )
        return [manifest for spec_id, new in sorted(by_spec.items()) for manifest in self._write_chunks(spec_id, new)]

    def _write_chunks(self, spec_id: int, entries: Sequence[ManifestEntry]) -> list[ManifestFile]:
        return [
            self._write(spec_id, entries[start : start + MAX_ENTRIES]) for start in range(0, len(entries), MAX_ENTRIES)
        ]

    def _write(self, spec_id: int, entries: Sequence[ManifestEntry]) -> ManifestFile:
        file = self._new_file(f"{self._plan.version:05d}-{self._plan.unique}-m{next(self._numbers)}.avro")
        with manifest_writer(self._metadata, spec_id, file, self._plan.snapshot_id) as writer:
            for entry in entries:
                writer.add_entry(entry)
        self._live[file.location] = [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]
        return writer.to_manifest_file()

    def _new_file(self, name: str) -> SealedOutput:
        return self._files.io.new_sealed(f"{self._folder}/{name}", self._written.append)

    def _summary(
        self, parent: Snapshot | None, added: Sequence[IcebergFile], removed: Sequence[IcebergFile]
    ) -> Summary:
        collector = SnapshotSummaryCollector()
        schema, specs = self._metadata.schema(), self._metadata.specs()
        for file in added:
            collector.add_file(file, schema, specs[file.spec_id])
        for file in removed:
            collector.remove_file(file, schema, specs[file.spec_id])
        operation = Operation.OVERWRITE if removed else Operation.APPEND
        summary = update_snapshot_summaries(
            Summary(operation=operation, **collector.build(), **self._plan.summary),
            None if parent is None else _counted(parent.summary),
        )
        # PyIceberg would add up what a replacement does, yet refuses its name.
        return Summary(operation=_operation(added, removed), **summary.additional_properties)


def _counted(summary: Summary | None) -> Summary | None:
    """Without totals that are no numbers: nobody vouches for what another engine wrote there."""
    if summary is None:
        return None
    said = summary.additional_properties.items()
    plain = {name: text for name, text in said if not name.startswith("total-") or (text.isascii() and text.isdigit())}
    return Summary(operation=summary.operation, **plain)


def _operation(added: Sequence[IcebergFile], removed: Sequence[IcebergFile]) -> Operation:
    """For engines that follow a table's changes: rows that only moved to other files are none. Rows are never changed
    here, so as many as before are the same."""
    if not removed:
        return Operation.APPEND
    if not added:
        return Operation.DELETE
    same = sum(file.record_count for file in added) == sum(file.record_count for file in removed)
    return Operation.REPLACE if same else Operation.OVERWRITE


def _live_count(manifest: ManifestFile) -> int:
    """Manifests of old formats may not say how many entries they have: they are taken as full."""
    if manifest.added_files_count is None or manifest.existing_files_count is None:
        return MAX_ENTRIES
    return manifest.added_files_count + manifest.existing_files_count


def _place(entry: ManifestEntry) -> tuple[object, ...]:
    """Entries of one partition of the spec stay together, oldest first."""
    partition = entry.data_file.partition
    values = [partition[position] for position in range(len(partition))]
    return (*((value is not None, value) for value in values), entry.sequence_number or 0)


def _with_status(entry: ManifestEntry, status: ManifestEntryStatus, snapshot_id: int | None) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )
