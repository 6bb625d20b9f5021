"""What an engine's commit may do to a stream's table, and the sentence it gets otherwise."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import (
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertRefSnapshotId,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)
from pyiceberg.transforms import DayTransform, IdentityTransform, Transform, TruncateTransform, VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, StringType
from support.stream_table import StreamTable
from support.tables import ORDERS, write_file

from lakestream.catalog import View
from lakestream.catalog.commit import Change, Current
from lakestream.catalog.index import ManifestIndex
from lakestream.catalog.rules_outside import check_outside
from lakestream.catalog.rules_view import check_view
from lakestream.catalog.snapshot import Plan, SnapshotBuilder
from lakestream.errors import Conflict, StorageError, TableRefused
from lakestream.metadata.pointers import TableName
from lakestream.model import DataFile, PositionDeletes, WrittenFile
from lakestream.table.schema import FRONTIER_PROPERTY, OFFSET_WINDOW, UNPARTITIONED


@dataclass
class Outsider:
    """An engine that commits to the table of a topic with two partitions, 10 records each, in files of 5."""

    table: StreamTable
    view: View

    def file(self, first: int, end: int, *, partition: int = 0) -> WrittenFile:
        return write_file(self.table.data, first, end, partition=partition, spec_id=1)

    async def commit(
        self,
        *,
        add: Sequence[WrittenFile] = (),
        remove: Sequence[DataFile] = (),
        branch: str = "main",
        also: Sequence[TableUpdate] = (),
    ) -> Current:
        def prepare(metadata: TableMetadata, written: list[str]) -> Change:
            plan = Plan(add, {file.path for file in remove}, {}, uuid4().int >> 66, self._now_ms(), uuid4(), 7)
            commits = self.table.tables.commits
            added, _main, *expired = SnapshotBuilder(commits.files, commits.index, metadata, plan, written).build()
            assert not expired
            return Change((), (added, on(branch, plan.snapshot_id), *also))

        return await self._commit(prepare)

    async def commit_entries(self, *files: IcebergFile) -> Current:
        """A snapshot of nothing but these entries, added to what main has."""

        def prepare(metadata: TableMetadata, written: list[str]) -> Change:
            io, unique = self.table.tables.commits.files.io, uuid4()
            snapshot_id, folder = unique.int >> 66, f"file://{self.table.root}/_iceberg"
            parent = metadata.current_snapshot()
            assert parent is not None
            with write_manifest(
                2, UNPARTITIONED, metadata.schema(), io.new_output(f"{folder}/{unique}-m.avro"), snapshot_id, "deflate"
            ) as entries:
                for file in files:
                    status = ManifestEntryStatus.ADDED
                    entries.add_entry(ManifestEntry.from_args(status=status, snapshot_id=snapshot_id, data_file=file))
            manifest_list = f"{folder}/snap-{unique}.avro"
            sequence_number = metadata.next_sequence_number()
            with write_manifest_list(
                2, io.new_output(manifest_list), snapshot_id, parent.snapshot_id, sequence_number, "deflate"
            ) as manifests:
                old = self.table.tables.commits.index.manifests(parent.manifest_list)
                manifests.add_manifests([entries.to_manifest_file(), *old])
            written += [manifest_list, f"{folder}/{unique}-m.avro"]
            snapshot = Snapshot.model_validate(
                {
                    "snapshot-id": snapshot_id,
                    "parent-snapshot-id": parent.snapshot_id,
                    "manifest-list": manifest_list,
                    "sequence-number": sequence_number,
                    "timestamp-ms": self._now_ms(),
                    "summary": Summary(operation=Operation.DELETE),
                    "schema-id": metadata.current_schema_id,
                }
            )
            return Change((), (AddSnapshotUpdate(snapshot=snapshot), on("main", snapshot_id)))

        return await self._commit(prepare)

    async def update(self, *updates: TableUpdate) -> Current:
        return await self._commit(lambda _metadata, _written: Change((), updates))

    async def refused(self, work: Awaitable[object], match: str) -> None:
        """Also holds that nothing changed."""
        before, files = await self.table.tables.load(ORDERS), self.table.metadata_files()
        with pytest.raises(TableRefused, match=match):
            await work
        assert await self.table.tables.load(ORDERS) == before
        assert self.table.metadata_files() == files

    async def load(self) -> View:
        return await self.table.tables.load(ORDERS)

    async def _commit(self, prepare: Callable[[TableMetadata, list[str]], Change]) -> Current:
        current = await self.table.tables.commits.load(ORDERS)
        assert current is not None
        return await self.table.tables.commits.commit(current, prepare, outside=True)

    def _now_ms(self) -> int:
        self.table.clock.ms += 10
        return self.table.clock.ms


def on(branch: str, snapshot_id: int | None) -> SetSnapshotRefUpdate:
    return SetSnapshotRefUpdate.model_validate({"ref-name": branch, "type": "branch", "snapshot-id": snapshot_id})


def run(folder: Path, test: Callable[[Outsider], Awaitable[None]]) -> None:
    async def whole() -> None:
        table = StreamTable(folder)
        try:
            view = await table.tables.create(ORDERS, "orders", 2)
            for end in (5, 10):
                files = [write_file(table.data, end - 5, end, partition=partition, spec_id=1) for partition in (0, 1)]
                view = await table.tables.commit(view, add=files, remove=[], frontier=(end, end))
            await test(Outsider(table, view))
        finally:
            await table.tables.close()

    asyncio.run(whole())


def of(view: View, partition: int) -> list[DataFile]:
    return sorted(
        (file for file in view.files if file.partition_min == partition), key=lambda file: file.offset_min or 0
    )


def test_rows_may_move_change_and_go(tmp_path: Path) -> None:
    async def test(engine: Outsider) -> None:
        await engine.commit(add=[engine.file(0, 10)], remove=of(engine.view, 0))
        [moved] = of(await engine.load(), 0)
        assert (moved.offset_min, moved.offset_max) == (0, 9)
        await engine.commit(add=[engine.file(2, 8)], remove=[moved])
        await engine.commit(remove=of(engine.view, 1)[:1])
        after = await engine.load()
        assert after.frontier == (10, 10)
        assert [(file.partition_min, file.offset_min) for file in after.files] == [(0, 2), (1, 5)]
        assert (await engine.commit()).location != after.metadata_location

    run(tmp_path, test)


@pytest.mark.parametrize("where", ["in the table", "in a gap", "at the frontier"])
def test_an_append_is_refused(tmp_path: Path, where: str) -> None:
    async def test(engine: Outsider) -> None:
        if where == "in a gap":
            await engine.commit(remove=of(engine.view, 0)[1:])
        first = {"in the table": 3, "in a gap": 6, "at the frontier": 10}[where]
        word = "offset 11 where the table ends at 10" if where == "at the frontier" else "2 rows would be appended"
        await engine.refused(engine.commit(add=[engine.file(first, first + 2)]), f"{word}.*produce")

    run(tmp_path, test)


def test_more_rows_than_were_there_are_refused(tmp_path: Path) -> None:
    async def test(engine: Outsider) -> None:
        first, second = of(engine.view, 0)
        work = engine.commit(add=[engine.file(0, 6)], remove=[first])
        await engine.refused(work, "6 rows would be added where 5 are removed")
        work = engine.commit(add=[engine.file(4, 9)], remove=[first])
        await engine.refused(work, "offsets 4 to 8, beyond those that the commit removes")
        work = engine.commit(add=[engine.file(5, 8, partition=1)], remove=[first, second])
        await engine.refused(work, "partitions 1 to 1, offsets 5 to 7, beyond")
        work = engine.commit(add=[engine.file(0, 4), engine.file(1, 5)], remove=[first, *of(engine.view, 1)])
        await engine.refused(work, "8 rows of partition 0 would be added where 5 are removed.*twice")
        work = engine.commit(add=[engine.file(0, 5, partition=2)], remove=[first])
        await engine.refused(work, "partition 2, and the topic has 2")

    run(tmp_path, test)


def test_rows_in_too_few_offsets_are_refused(tmp_path: Path) -> None:
    async def test(engine: Outsider) -> None:
        twice = iceberg_file(f"file://{engine.table.data}/x.parquet", record_count=6, offsets=(0, 4))
        await engine.refused(engine.commit_entries(twice), "6 rows with only 5 offsets")

    run(tmp_path, test)


def iceberg_file(path: str, **given: object) -> IcebergFile:
    options = {"content": DataFileContent.DATA, "file_format": FileFormat.PARQUET, "record_count": 1, **given}
    offsets = options.pop("offsets", None)
    if isinstance(offsets, tuple):
        low, high = (number.to_bytes(8, "little") for number in offsets)
        options["lower_bounds"] = {1: bytes(4), 2: low}
        options["upper_bounds"] = {1: bytes(4), 2: high}
    return IcebergFile.from_args(file_path=path, partition=Record(), file_size_in_bytes=1, **options)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"content": DataFileContent.EQUALITY_DELETES, "equality_ids": [6]}, "equality deletes.*by position"),
        ({"content": DataFileContent.POSITION_DELETES, "file_format": FileFormat.AVRO}, "deletes that are not Parquet"),
        ({"file_format": FileFormat.ORC, "offsets": (0, 0)}, "is ORC.*Parquet only"),
        ({"null_value_counts": {2: 1}}, "1 rows without _offset.*produce"),
        ({"null_value_counts": {1: 1}}, "1 rows without _stream_partition"),
        ({}, "no bounds of _stream_partition and _offset"),
    ],
)
def test_files_that_no_stream_can_be_served_from_are_refused(
    tmp_path: Path, given: dict[str, object], word: str
) -> None:
    async def test(engine: Outsider) -> None:
        await engine.refused(engine.commit_entries(iceberg_file(f"file:{engine.table.data}/x", **given)), word)

    run(tmp_path, test)


def test_files_elsewhere_are_refused(tmp_path: Path) -> None:
    async def test(engine: Outsider) -> None:
        file = write_file(tmp_path / "elsewhere", 0, 5, spec_id=1)
        work = engine.commit(add=[file], remove=of(engine.view, 0)[:1])
        await engine.refused(work, "outside of the table's folder")

    run(tmp_path, test)


def test_an_update_by_position_passes(tmp_path: Path) -> None:
    async def test(engine: Outsider) -> None:
        deletes = iceberg_file("file:///deletes", content=DataFileContent.POSITION_DELETES, record_count=2)
        updated = iceberg_file(f"file:{engine.table.data}/new", record_count=2, offsets=(1, 3))
        await engine.commit_entries(deletes, updated)
        view = await engine.load()
        assert [(found.record_count, found.trouble) for found in view.deletes] == [(2, "")]
        inserted = iceberg_file(f"file:{engine.table.data}/newer", record_count=3, offsets=(1, 3))
        more = iceberg_file("file:///more", content=DataFileContent.POSITION_DELETES, record_count=2)
        await engine.refused(engine.commit_entries(more, inserted), "3 rows would be added where 2 are removed")

    run(tmp_path, test)


def test_a_rollback_is_a_delete_and_can_be_undone(tmp_path: Path) -> None:
    async def test(engine: Outsider) -> None:
        current = await engine.table.tables.commits.load(ORDERS)
        assert current is not None
        newest, oldest = engine.view.snapshot_id, current.metadata.snapshots[0].snapshot_id
        await engine.update(on("main", oldest))
        rolled_back = await engine.load()
        assert (rolled_back.snapshot_id, rolled_back.frontier) == (oldest, (10, 10))
        next_file = engine.file(10, 12)
        after = await engine.table.tables.commit(rolled_back, add=[next_file], remove=[], frontier=(12, 10))
        assert [(file.offset_min, file.offset_max) for file in of(after, 0)] == [(0, 4), (10, 11)]
        await engine.update(on("main", newest))
        assert (await engine.load()).frontier == (12, 10)
        await engine.update(on("main", after.snapshot_id))
        assert (await engine.load()).files == after.files

    run(tmp_path, test)


def test_a_branch_is_the_owners_until_main_shall_follow_it(tmp_path: Path) -> None:
    async def test(engine: Outsider) -> None:
        done = await engine.commit(add=[engine.file(20, 30)], branch="mine")
        [appended] = [ref.snapshot_id for name, ref in done.metadata.refs.items() if name == "mine"]
        assert (await engine.load()).files == engine.view.files
        await engine.refused(engine.update(on("main", appended)), "offset 29 where the table ends at 10")
        done = await engine.commit(remove=of(engine.view, 0)[:1], branch="cleaned")
        [cleaned] = [ref.snapshot_id for name, ref in done.metadata.refs.items() if name == "cleaned"]
        await engine.update(on("main", cleaned))
        assert len((await engine.load()).files) == 3

    run(tmp_path, test)


def test_the_frontier_is_not_an_engines_to_move(tmp_path: Path) -> None:
    async def test(engine: Outsider) -> None:
        for text, word in (("12,10", "by the pipeline alone"), ("10,9", "would fall"), ("10", "would fall")):
            move = SetPropertiesUpdate(updates={FRONTIER_PROPERTY: text})
            await engine.refused(engine.commit(also=[move]), word)
        away = SetPropertiesUpdate(updates={"write.metadata.path": "file:///elsewhere"})
        await engine.refused(engine.update(away), "write.metadata.path")

    run(tmp_path, test)


def test_a_change_that_still_holds_survives_a_commit_that_comes_first(tmp_path: Path) -> None:
    """Spark's ALTER TABLE gives up at the first conflict, and the table of a busy topic changes all the time."""

    async def test(engine: Outsider) -> None:
        table, name = engine.table, TableName(("default",), "orders")

        async def overtake() -> None:
            view = await table.tables.load(ORDERS)
            await table.tables.commit(view, add=[engine.file(10, 12)], remove=[], frontier=(12, 10))

        table.store.before = overtake
        update = SetPropertiesUpdate(updates={"comment": "mine"})
        done = await table.tables.engines.commit(name, [AssertCurrentSchemaId(current_schema_id=0)], [update])
        assert done.metadata.properties["comment"] == "mine"
        assert (await engine.load()).frontier == (12, 10)

        async def overtake_again() -> None:
            await table.tables.commit(await engine.load(), add=[], remove=[], frontier=(12, 10))

        table.store.before = overtake_again
        seen = AssertRefSnapshotId.model_validate({"ref": "main", "snapshot-id": (await engine.load()).snapshot_id})
        with pytest.raises(Conflict, match="main has changed"):
            await table.tables.engines.commit(name, [seen], [SetPropertiesUpdate(updates={"comment": "late"})])

    run(tmp_path, test)


def test_only_manifests_that_the_commit_changes_are_read(tmp_path: Path) -> None:
    async def test(engine: Outsider) -> None:
        for end in range(15, 40, 5):
            files = [engine.file(end - 5, end)]
            engine.view = await engine.table.tables.commit(engine.view, add=files, remove=[], frontier=(end, 10))
        before = await engine.table.tables.commits.load(ORDERS)
        [newest] = [file for file in engine.view.files if file.offset_min == 30]
        after = await engine.commit(add=[engine.file(30, 35)], remove=[newest])
        snapshot = after.metadata.current_snapshot()
        assert before is not None
        assert snapshot is not None
        assert len(engine.table.tables.commits.index.manifests(snapshot.manifest_list)) > 5
        cold = ManifestIndex(engine.table.tables.commits.files.io)
        check_outside(cold, before.metadata, after.metadata)
        assert cold.reads == 3, "the one that lost a file, and what it became: one without the file, one with the new"

    run(tmp_path, test)


def spec(*fields: tuple[int, Transform[Any, Any]]) -> tuple[TableUpdate, ...]:
    made = [PartitionField(source, 1000 + n, transform, f"f{n}") for n, (source, transform) in enumerate(fields)]
    return AddPartitionSpecUpdate(spec=PartitionSpec(*made, spec_id=2)), SetDefaultSpecUpdate(spec_id=-1)


def test_an_owners_spec_keeps_the_streams_own_fields(tmp_path: Path) -> None:
    async def test(engine: Outsider) -> None:
        partition, window = (1, IdentityTransform()), (2, TruncateTransform(OFFSET_WINDOW))
        for wrong in ((partition,), (window,), (partition, (2, TruncateTransform(10))), ((1, VoidTransform()), window)):
            await engine.refused(engine.update(*spec(*wrong)), "default partition spec")
        await engine.refused(engine.update(SetDefaultSpecUpdate(spec_id=0)), "default partition spec")
        await engine.update(*spec(partition, window, (3, DayTransform())))
        next_file = engine.file(10, 12)
        view = await engine.table.tables.commit(await engine.load(), add=[next_file], remove=[], frontier=(12, 10))
        assert len(view.files) == 5

    run(tmp_path, test)


def test_an_owners_columns_are_optional(tmp_path: Path) -> None:
    async def test(engine: Outsider) -> None:
        current = await engine.table.tables.commits.load(ORDERS)
        assert current is not None
        fields = current.metadata.schema().fields

        def add(*, required: bool) -> tuple[TableUpdate, ...]:
            mine = NestedField(100, "mine", StringType(), required=required)
            made = AddSchemaUpdate(schema=Schema(*fields, mine, schema_id=1))
            return made, SetCurrentSchemaUpdate(schema_id=-1)

        await engine.refused(engine.update(*add(required=True)), "mine must be optional")
        await engine.update(*add(required=False))
        next_file = engine.file(10, 12)
        view = await engine.table.tables.commit(await engine.load(), add=[next_file], remove=[], frontier=(12, 10))
        assert len(view.files) == 5

    run(tmp_path, test)


def test_what_a_catalog_without_rules_let_in_is_found_in_the_view(tmp_path: Path) -> None:
    async def test(engine: Outsider) -> None:
        view = engine.view
        check_view(view)
        [first, *_] = view.files
        cases = [
            (replace(view, deletes=(PositionDeletes("d", 1, "d has equality deletes"),)), "equality deletes"),
            (replace(view, files=(*view.files, replace(first, trouble="it is ORC"))), "it is ORC"),
            (replace(view, files=(*view.files, replace(first, offset_max=10))), "offset 10"),
            (replace(view, files=(*view.files, replace(first, partition_max=2))), "partition 2"),
            (replace(view, files=(*view.files, first)), "25 rows"),
        ]
        for wrong, word in cases:
            with pytest.raises(StorageError, match=f"default.orders.*{word}"):
                check_view(wrong)
        unbounded = replace(first, partition_min=None, partition_max=None, offset_min=None, offset_max=None)
        check_view(replace(view, files=(unbounded, *view.files[1:])))

    run(tmp_path, test)
