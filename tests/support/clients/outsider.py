"""An engine that commits to a stream's table with manifests of its own making."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import (
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, TableUpdate
from pyiceberg.typedef import Record

from lakestream.catalog.embedded.tables import PyIcebergTables
from lakestream.catalog.manifests.snapshot import SnapshotBuilder, SnapshotPlan
from lakestream.catalog.staging import Change, Current
from lakestream.model import DataFile, WrittenFile
from lakestream.table.schema import UNPARTITIONED
from lakestream.table.view import View
from support.tables.files import write_file


@dataclass
class Outsider:
    """`ruled`: through the embedded catalog's rules; otherwise as an external catalog would take it."""

    tables: PyIcebergTables
    topic_id: UUID
    view: View
    ruled: bool = True

    @property
    def root(self) -> Path:
        return Path(self.view.location.removeprefix("file://"))

    def file(self, first: int, end: int, *, partition: int = 0) -> WrittenFile:
        return write_file(self.root / "data", first, end, partition=partition, spec_id=1)

    async def load(self) -> View:
        return await self.tables.load(self.topic_id)

    async def update(self, *updates: TableUpdate) -> Current:
        return await self._commit(lambda _metadata, _written: Change((), updates))

    async def commit(
        self,
        *,
        add: Sequence[WrittenFile] = (),
        remove: Sequence[DataFile] = (),
        branch: str = "main",
        also: Sequence[TableUpdate] = (),
    ) -> Current:
        def prepare(metadata: TableMetadata, written: list[str]) -> Change:
            now_ms = metadata.last_updated_ms + 1
            plan = SnapshotPlan(add, {file.path for file in remove}, {}, uuid4().int >> 66, now_ms, uuid4(), 7)
            commits = self.tables.commits
            added, *_ = SnapshotBuilder(commits.files, commits.index, metadata, plan, written).build()
            return Change((), (added, on(branch, plan.snapshot_id), *also))

        return await self._commit(prepare)

    async def commit_entries(self, *files: IcebergFile) -> Current:
        """A snapshot with nothing but these entries beside what main has."""

        def prepare(metadata: TableMetadata, written: list[str]) -> Change:
            io, unique = self.tables.commits.files.io, uuid4()
            snapshot_id, folder = unique.int >> 66, f"file://{self.root}/_iceberg"
            manifest, manifest_list = f"{folder}/{unique}-m.avro", f"{folder}/snap-{unique}.avro"
            written += [manifest, manifest_list]
            parent = metadata.current_snapshot()
            assert parent is not None
            with write_manifest(
                2, UNPARTITIONED, metadata.schema(), io.new_output(manifest), snapshot_id, "deflate"
            ) as entries:
                for file in files:
                    status = ManifestEntryStatus.ADDED
                    entries.add_entry(ManifestEntry.from_args(status=status, snapshot_id=snapshot_id, data_file=file))
            sequence_number = metadata.next_sequence_number()
            with write_manifest_list(
                2, io.new_output(manifest_list), snapshot_id, parent.snapshot_id, sequence_number, "deflate"
            ) as manifests:
                old = self.tables.commits.index.manifests(parent.manifest_list)
                manifests.add_manifests([entries.to_manifest_file(), *old])
            snapshot = Snapshot.model_validate(
                {
                    "snapshot-id": snapshot_id,
                    "parent-snapshot-id": parent.snapshot_id,
                    "manifest-list": manifest_list,
                    "sequence-number": sequence_number,
                    "timestamp-ms": metadata.last_updated_ms + 1,
                    "summary": Summary(operation=Operation.DELETE),
                    "schema-id": metadata.current_schema_id,
                }
            )
            return Change((), (AddSnapshotUpdate(snapshot=snapshot), on("main", snapshot_id)))

        return await self._commit(prepare)

    async def _commit(self, prepare: Callable[[TableMetadata, list[str]], Change]) -> Current:
        current = await self.tables.commits.load(self.topic_id)
        assert current is not None
        return await self.tables.commits.commit(current, prepare, outside=self.ruled)


def on(branch: str, snapshot_id: int | None) -> SetSnapshotRefUpdate:
    return SetSnapshotRefUpdate.model_validate({"ref-name": branch, "type": "branch", "snapshot-id": snapshot_id})


def iceberg_file(path: str, **given: object) -> IcebergFile:
    """`offsets`: bounds of partition 0."""
    options = {"content": DataFileContent.DATA, "file_format": FileFormat.PARQUET, "record_count": 1, **given}
    offsets = options.pop("offsets", None)
    if isinstance(offsets, tuple):
        low, high = (number.to_bytes(8, "little") for number in offsets)
        options["lower_bounds"] = {1: bytes(4), 2: low}
        options["upper_bounds"] = {1: bytes(4), 2: high}
    return IcebergFile.from_args(file_path=path, partition=Record(), file_size_in_bytes=1, **options)
