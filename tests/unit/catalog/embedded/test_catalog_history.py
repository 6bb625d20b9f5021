"""A long life leaves a table as quick and as small as a short one."""

import random
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable
from pyiceberg.table.update import SetSnapshotRefUpdate
from support.tables.files import ORDERS, write_file
from support.tables.stream_table import StreamTable, run_with_table

from lakestream.catalog.embedded.tables import PyIcebergTables
from lakestream.catalog.staging import Change
from lakestream.runtime import Runtime
from lakestream.table.view import View


async def test_only_new_manifests_of_others_are_read(tmp_path: Path) -> None:
    async def test(table: StreamTable, view: View) -> None:
        for _ in range(5):
            view = await table.append(view)
        assert table.tables.commits.index.reads == 0
        other = PyIcebergTables(table.store, f"file://{table.folder}/bucket", Runtime(table.clock, random.Random(6)))
        try:
            await other.load(ORDERS)
            assert other.commits.index.reads == 5
            view = await table.append(view)
            assert await other.load(ORDERS) == view
            assert other.commits.index.reads == 6
            await other.load(ORDERS)
            assert other.commits.index.reads == 6
        finally:
            await other.close()

    await run_with_table(tmp_path, test)


async def test_manifests_are_merged_and_nothing_is_lost(tmp_path: Path) -> None:
    async def test(table: StreamTable, view: View) -> None:
        for number in range(24):
            view = await table.append(view, 1, spec_id=number % 2)
        current = await table.tables.commits.load(ORDERS)
        assert current is not None
        snapshot = current.metadata.current_snapshot()
        assert snapshot is not None
        assert len(table.tables.commits.index.manifests(snapshot.manifest_list)) < 24
        assert [file.offset_min for file in sorted(view.files, key=lambda file: file.offset_min or 0)] == list(
            range(24)
        )
        assert {file.offset_min: file.spec_id for file in view.files} == {n: n % 2 for n in range(24)}
        assert await table.offsets() == list(range(24))
        assert snapshot.summary is not None
        assert snapshot.summary["total-data-files"] == "24"
        assert snapshot.summary["total-records"] == "24"
        assert snapshot.summary["lakestream.frontier"] == "24"

        victims = [file for file in view.files if file.offset_min in (3, 4, 20)]
        view = await table.tables.commit(view, add=[], remove=victims, frontier=(24,))
        assert await table.offsets() == [n for n in range(24) if n not in (3, 4, 20)]
        assert len(view.files) == 21

    await run_with_table(tmp_path, test)


async def test_old_metadata_is_trimmed(tmp_path: Path) -> None:
    async def test(table: StreamTable, view: View) -> None:
        for _ in range(24):
            view = await table.tables.commit(view, add=[], remove=[], frontier=view.frontier)
        documents = {name for name in table.metadata_files() if name.endswith(".json")}
        assert sorted(int(name[:5]) for name in documents) == list(range(4, 25))

    await run_with_table(tmp_path, test)


async def test_snapshots_are_capped_and_take_their_files_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakestream.catalog.manifests.expiry.MAX_SNAPSHOTS", 8)
    monkeypatch.setattr("lakestream.catalog.manifests.expiry.KEPT_SNAPSHOTS", 5)

    async def test(table: StreamTable, view: View) -> None:
        view = await table.append(view)
        tagged = view.snapshot_id
        current = await table.tables.commits.load(ORDERS)
        assert current is not None
        tag = SetSnapshotRefUpdate.model_validate({"ref-name": "kept", "type": "tag", "snapshot-id": tagged})
        await table.tables.commits.commit(current, lambda _metadata, _written: Change((), (tag,)))
        view = await table.tables.load(ORDERS)
        for _ in range(30):
            view = await table.append(view, 1)
            current = await table.tables.commits.load(ORDERS)
            assert current is not None
            assert len(current.metadata.snapshots) <= 8
            assert {view.snapshot_id, tagged} <= {snapshot.snapshot_id for snapshot in current.metadata.snapshots}
        lists = {snapshot.manifest_list.rsplit("/", 1)[-1] for snapshot in current.metadata.snapshots}
        index = table.tables.commits.index
        manifests = {
            manifest.manifest_path.rsplit("/", 1)[-1]
            for snapshot in current.metadata.snapshots
            for manifest in index.manifests(snapshot.manifest_list)
        }
        assert {name for name in table.metadata_files() if name.endswith(".avro")} == lists | manifests
        assert await table.offsets() == list(range(32))
        assert len(list(table.data.iterdir())) == 31
        location = await table.tables.pointer(ORDERS)
        assert location is not None
        old = StaticTable.from_metadata(location).scan(snapshot_id=tagged).to_arrow()
        assert old["_offset"].to_pylist() == [0, 1]

    await run_with_table(tmp_path, test)


async def test_removed_files_go_when_no_snapshot_names_them_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakestream.catalog.manifests.expiry.MAX_SNAPSHOTS", 8)
    monkeypatch.setattr("lakestream.catalog.manifests.expiry.KEPT_SNAPSHOTS", 5)

    async def test(table: StreamTable, view: View) -> None:
        elsewhere = write_file(tmp_path / "elsewhere", 0, 2)
        view = await table.tables.commit(view, add=[elsewhere], remove=[], frontier=(2,))
        view = await table.append(view)
        small = view.files
        whole = write_file(table.data, 0, 4)
        view = await table.tables.commit(view, add=[whole], remove=small, frontier=(4,))
        paths = [Path(file.path.removeprefix("file://")) for file in small]
        for _ in range(20):
            view = await table.tables.commit(view, add=[], remove=[], frontier=view.frontier)
        assert all(path.exists() for path in paths), "a recent rewrite's files stay for engines that still read them"
        table.clock.ms += 3_700_000
        for _ in range(20):
            view = await table.tables.commit(view, add=[], remove=[], frontier=view.frontier)
        assert [path.exists() for path in paths if path.parent == table.data] == [False]
        assert Path(elsewhere.path.removeprefix("file://")).exists(), "outside the table's folder it is not ours"
        assert await table.offsets() == [0, 1, 2, 3]

    await run_with_table(tmp_path, test)


async def test_reach_names_what_is_in_use_and_knows_what_a_dead_attempt_left(tmp_path: Path) -> None:
    async def test(table: StreamTable, view: View) -> None:
        view = await table.append(view)
        old = view.files[0]
        view = await table.tables.commit(view, add=[write_file(table.data, 0, 2)], remove=[old], frontier=view.frontier)
        reach = await table.tables.reachable(ORDERS)
        on_disk = {f"file://{path}" for path in table.root.rglob("*") if path.is_file()}
        assert reach.files == on_disk
        assert old.path in reach.files
        assert reach.version == 2
        attempt = "01234567-89ab-4cde-8f01-23456789abcd"
        folder = f"file://{table.root}/_iceberg"
        for version, dead in ((1, True), (2, True), (3, False)):
            for name in (f"snap-77-{version:05d}-{attempt}.avro", f"{version:05d}-{attempt}-m0.avro"):
                assert reach.is_dead_metadata(f"{folder}/{name}") is dead
            assert reach.is_dead_metadata(f"{folder}/{version:05d}-{attempt}.metadata.json") is dead
        assert not any(reach.is_dead_metadata(path) for path in on_disk)
        assert not reach.is_dead_metadata(f"{folder}/{attempt}-m0.avro"), "another engine's"

    await run_with_table(tmp_path, test)
