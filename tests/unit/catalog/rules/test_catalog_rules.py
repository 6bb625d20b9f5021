"""What an engine's commit may do to a stream's table, and the sentence it gets otherwise."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertRefSnapshotId,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    SetPropertiesUpdate,
    TableUpdate,
)
from pyiceberg.transforms import DayTransform, IdentityTransform, Transform, TruncateTransform, VoidTransform
from pyiceberg.types import NestedField, StringType
from support.clients.outsider import Outsider, iceberg_file, on
from support.tables.files import ORDERS, write_file
from support.tables.stream_table import StreamTable, run_with_table

from lakestream.catalog.manifests.index import ManifestIndex
from lakestream.catalog.rules.outside import check_outside
from lakestream.catalog.rules.views import check_view
from lakestream.errors import Conflict, StorageError, TableRefused
from lakestream.metadata.names.pointers import TableName
from lakestream.model import DataFile, PositionDeletes
from lakestream.table.schema import FRONTIER_PROPERTY, OFFSET_WINDOW
from lakestream.table.view import View


async def refused(engine: Outsider, work: Awaitable[object], match: str) -> None:
    """Also holds that nothing changed and nothing is left behind."""
    before, files = await engine.load(), set((engine.root / "_iceberg").iterdir())
    with pytest.raises(TableRefused, match=match):
        await work
    assert await engine.load() == before
    assert set((engine.root / "_iceberg").iterdir()) == files


async def run(folder: Path, test: Callable[[Outsider], Awaitable[None]]) -> None:
    table = StreamTable(folder)
    try:
        view = await table.tables.create(ORDERS, "orders", 2)
        for end in (5, 10):
            files = [write_file(table.data, end - 5, end, partition=partition, spec_id=1) for partition in (0, 1)]
            view = await table.tables.commit(view, add=files, remove=[], frontier=(end, end))
        await test(Outsider(table.tables, ORDERS, view))
    finally:
        await table.tables.close()


def of(view: View, partition: int) -> list[DataFile]:
    return sorted(
        (file for file in view.files if file.partition_min == partition), key=lambda file: file.offset_min or 0
    )


async def test_rows_may_move_change_and_go(tmp_path: Path) -> None:
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

    await run(tmp_path, test)


@pytest.mark.parametrize("where", ["in the table", "in a gap", "at the frontier"])
async def test_an_append_is_refused(tmp_path: Path, where: str) -> None:
    async def test(engine: Outsider) -> None:
        if where == "in a gap":
            await engine.commit(remove=of(engine.view, 0)[1:])
        first = {"in the table": 3, "in a gap": 6, "at the frontier": 10}[where]
        word = "offset 11 where the table ends at 10" if where == "at the frontier" else "2 rows would be appended"
        await refused(engine, engine.commit(add=[engine.file(first, first + 2)]), f"{word}.*produce")

    await run(tmp_path, test)


async def test_more_rows_than_were_there_are_refused(tmp_path: Path) -> None:
    async def test(engine: Outsider) -> None:
        first, second = of(engine.view, 0)
        work = engine.commit(add=[engine.file(0, 6)], remove=[first])
        await refused(engine, work, "6 rows would be added where 5 are removed")
        work = engine.commit(add=[engine.file(4, 9)], remove=[first])
        await refused(engine, work, "offsets 4 to 8, beyond those that the commit removes")
        work = engine.commit(add=[engine.file(5, 8, partition=1)], remove=[first, second])
        await refused(engine, work, "partitions 1 to 1, offsets 5 to 7, beyond")
        work = engine.commit(add=[engine.file(0, 4), engine.file(1, 5)], remove=[first, *of(engine.view, 1)])
        await refused(engine, work, "8 rows of partition 0 would be added where 5 are removed.*twice")
        work = engine.commit(add=[engine.file(0, 5, partition=2)], remove=[first])
        await refused(engine, work, "partition 2, and the topic has 2")

    await run(tmp_path, test)


async def test_rows_in_too_few_offsets_are_refused(tmp_path: Path) -> None:
    async def test(engine: Outsider) -> None:
        twice = iceberg_file(f"file://{engine.root}/data/x.parquet", record_count=6, offsets=(0, 4))
        await refused(engine, engine.commit_entries(twice), "6 rows with only 5 offsets")

    await run(tmp_path, test)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"content": DataFileContent.EQUALITY_DELETES, "equality_ids": [6]}, "equality deletes.*by position"),
        ({"content": DataFileContent.POSITION_DELETES, "file_format": FileFormat.AVRO}, "deletes that are not Parquet"),
        ({"file_format": FileFormat.ORC, "offsets": (0, 0)}, "is ORC.*Parquet only: set write.format.default=parquet"),
        ({"null_value_counts": {2: 1}}, "1 rows without _offset.*produce"),
        ({"null_value_counts": {1: 1}}, "1 rows without _stream_partition"),
        ({}, "no bounds of _stream_partition and _offset"),
    ],
)
async def test_files_that_no_stream_can_be_served_from_are_refused(
    tmp_path: Path, given: dict[str, object], word: str
) -> None:
    async def test(engine: Outsider) -> None:
        await refused(engine, engine.commit_entries(iceberg_file(f"file:{engine.root}/data/x", **given)), word)

    await run(tmp_path, test)


async def test_files_elsewhere_are_refused(tmp_path: Path) -> None:
    async def test(engine: Outsider) -> None:
        file = write_file(tmp_path / "elsewhere", 0, 5, spec_id=1)
        work = engine.commit(add=[file], remove=of(engine.view, 0)[:1])
        await refused(engine, work, "outside of the table's folder")

    await run(tmp_path, test)


async def test_an_update_by_position_passes(tmp_path: Path) -> None:
    async def test(engine: Outsider) -> None:
        deletes = iceberg_file("file:///deletes", content=DataFileContent.POSITION_DELETES, record_count=2)
        updated = iceberg_file(f"file:{engine.root}/data/new", record_count=2, offsets=(1, 3))
        await engine.commit_entries(deletes, updated)
        view = await engine.load()
        assert [(found.record_count, found.trouble) for found in view.deletes] == [(2, "")]
        inserted = iceberg_file(f"file:{engine.root}/data/newer", record_count=3, offsets=(1, 3))
        more = iceberg_file("file:///more", content=DataFileContent.POSITION_DELETES, record_count=2)
        await refused(engine, engine.commit_entries(more, inserted), "3 rows would be added where 2 are removed")

    await run(tmp_path, test)


async def test_a_rollback_is_a_delete_and_can_be_undone(tmp_path: Path) -> None:
    async def test(engine: Outsider) -> None:
        current = await engine.tables.commits.load(ORDERS)
        assert current is not None
        newest, oldest = engine.view.snapshot_id, current.metadata.snapshots[0].snapshot_id
        await engine.update(on("main", oldest))
        rolled_back = await engine.load()
        assert (rolled_back.snapshot_id, rolled_back.frontier) == (oldest, (10, 10))
        next_file = engine.file(10, 12)
        after = await engine.tables.commit(rolled_back, add=[next_file], remove=[], frontier=(12, 10))
        assert [(file.offset_min, file.offset_max) for file in of(after, 0)] == [(0, 4), (10, 11)]
        await engine.update(on("main", newest))
        assert (await engine.load()).frontier == (12, 10)
        await engine.update(on("main", after.snapshot_id))
        assert (await engine.load()).files == after.files

    await run(tmp_path, test)


async def test_a_branch_is_the_owners_until_main_shall_follow_it(tmp_path: Path) -> None:
    async def test(engine: Outsider) -> None:
        done = await engine.commit(add=[engine.file(20, 30)], branch="mine")
        [appended] = [ref.snapshot_id for name, ref in done.metadata.refs.items() if name == "mine"]
        assert (await engine.load()).files == engine.view.files
        await refused(engine, engine.update(on("main", appended)), "offset 29 where the table ends at 10")
        done = await engine.commit(remove=of(engine.view, 0)[:1], branch="cleaned")
        [cleaned] = [ref.snapshot_id for name, ref in done.metadata.refs.items() if name == "cleaned"]
        await engine.update(on("main", cleaned))
        assert len((await engine.load()).files) == 3

    await run(tmp_path, test)


async def test_the_frontier_is_not_an_engines_to_move(tmp_path: Path) -> None:
    async def test(engine: Outsider) -> None:
        for text, word in (("12,10", "by the pipeline alone"), ("10,9", "would fall"), ("10", "would fall")):
            move = SetPropertiesUpdate(updates={FRONTIER_PROPERTY: text})
            await refused(engine, engine.commit(also=[move]), word)
        away = SetPropertiesUpdate(updates={"write.metadata.path": "file:///elsewhere"})
        await refused(engine, engine.update(away), "write.metadata.path")

    await run(tmp_path, test)


async def test_a_change_that_still_holds_survives_a_commit_that_comes_first(tmp_path: Path) -> None:
    """Spark's ALTER TABLE gives up at the first conflict, and the table of a busy topic changes all the time."""

    async def test(table: StreamTable, view: View) -> None:
        name, engines = TableName(("default",), "orders"), table.tables.engines

        async def overtake() -> None:
            await table.append(view)

        table.store.before = overtake
        update = SetPropertiesUpdate(updates={"comment": "mine"})
        done = await engines.commit(name, [AssertCurrentSchemaId(current_schema_id=0)], [update])
        assert done.metadata.properties["comment"] == "mine"
        latest = await table.tables.load(ORDERS)
        assert latest.frontier == (2,)

        async def overtake_again() -> None:
            await table.append(latest)

        table.store.before = overtake_again
        seen = AssertRefSnapshotId.model_validate({"ref": "main", "snapshot-id": latest.snapshot_id})
        with pytest.raises(Conflict, match="main has changed"):
            await engines.commit(name, [seen], [SetPropertiesUpdate(updates={"comment": "late"})])

    await run_with_table(tmp_path, test)


async def test_only_manifests_that_the_commit_changes_are_read(tmp_path: Path) -> None:
    async def test(engine: Outsider) -> None:
        for end in range(15, 40, 5):
            files = [engine.file(end - 5, end)]
            engine.view = await engine.tables.commit(engine.view, add=files, remove=[], frontier=(end, 10))
        before = await engine.tables.commits.load(ORDERS)
        [newest] = [file for file in engine.view.files if file.offset_min == 30]
        after = await engine.commit(add=[engine.file(30, 35)], remove=[newest])
        snapshot = after.metadata.current_snapshot()
        assert before is not None
        assert snapshot is not None
        assert len(engine.tables.commits.index.manifests(snapshot.manifest_list)) > 5
        cold = ManifestIndex(engine.tables.commits.files.io)
        check_outside(cold, before.metadata, after.metadata)
        assert cold.reads == 3, "the one that lost a file, and what it became: one without the file, one with the new"

    await run(tmp_path, test)


def spec(*fields: tuple[int, Transform[Any, Any]]) -> tuple[TableUpdate, ...]:
    made = [PartitionField(source, 1000 + n, transform, f"f{n}") for n, (source, transform) in enumerate(fields)]
    return AddPartitionSpecUpdate(spec=PartitionSpec(*made, spec_id=2)), SetDefaultSpecUpdate(spec_id=-1)


async def test_an_owners_spec_keeps_the_streams_own_fields(tmp_path: Path) -> None:
    async def test(engine: Outsider) -> None:
        partition, window = (1, IdentityTransform()), (2, TruncateTransform(OFFSET_WINDOW))
        for wrong in ((partition,), (window,), (partition, (2, TruncateTransform(10))), ((1, VoidTransform()), window)):
            await refused(engine, engine.update(*spec(*wrong)), "default partition spec")
        await refused(engine, engine.update(SetDefaultSpecUpdate(spec_id=0)), "default partition spec")
        await engine.update(*spec(partition, window, (3, DayTransform())))
        next_file = engine.file(10, 12)
        view = await engine.tables.commit(await engine.load(), add=[next_file], remove=[], frontier=(12, 10))
        assert len(view.files) == 5

    await run(tmp_path, test)


async def test_an_owners_columns_are_optional(tmp_path: Path) -> None:
    async def test(engine: Outsider) -> None:
        current = await engine.tables.commits.load(ORDERS)
        assert current is not None
        fields = current.metadata.schema().fields

        def add(*, required: bool) -> tuple[TableUpdate, ...]:
            mine = NestedField(100, "mine", StringType(), required=required)
            made = AddSchemaUpdate(schema=Schema(*fields, mine, schema_id=1))
            return made, SetCurrentSchemaUpdate(schema_id=-1)

        await refused(engine, engine.update(*add(required=True)), "mine must be optional")
        await engine.update(*add(required=False))
        next_file = engine.file(10, 12)
        view = await engine.tables.commit(await engine.load(), add=[next_file], remove=[], frontier=(12, 10))
        assert len(view.files) == 5

    await run(tmp_path, test)


async def test_what_a_catalog_without_rules_let_in_is_found_in_the_view(tmp_path: Path) -> None:
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

    await run(tmp_path, test)
