"""Statistics files of any engine stay with main's newest snapshot, and go when no snapshot has them any more."""

from pathlib import Path

import pytest
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.statistics import StatisticsFile as IcebergStatistics
from pyiceberg.table.update import (
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    SetStatisticsUpdate,
    TableUpdate,
)
from support.tables.files import ORDERS
from support.tables.simulated import SimulatedTables
from support.tables.stream_table import StreamTable, run_with_table

from lakestream.catalog.manifests.statistics import own_files
from lakestream.catalog.port import TableCatalog
from lakestream.catalog.staging import Change
from lakestream.errors import Conflict, TableRefused
from lakestream.metadata.names.rows import TableName
from lakestream.model import Blob, StatisticsFile
from lakestream.table.view import View


async def _metadata(table: StreamTable) -> TableMetadata:
    current = await table.tables.commits.load(ORDERS)
    assert current is not None
    return current.metadata


async def _change(table: StreamTable, *updates: TableUpdate, outside: bool = False) -> View:
    current = await table.tables.commits.load(ORDERS)
    assert current is not None
    await table.tables.commits.commit(current, lambda _metadata, _written: Change((), updates), outside=outside)
    return await table.tables.load(ORDERS)


def _file(table: StreamTable, name: str) -> Path:
    path = table.root / "_iceberg" / name
    path.write_bytes(b"PFA1")
    return path


def _statistics(path: str, snapshot_id: int | None) -> SetStatisticsUpdate:
    blob = {
        "type": "apache-datasketches-theta-v1",
        "snapshot-id": snapshot_id,
        "sequence-number": 1,
        "fields": [6],
        "properties": {"ndv": "7"},
    }
    entry = {
        "snapshot-id": snapshot_id,
        "statistics-path": path,
        "file-size-in-bytes": 4,
        "file-footer-size-in-bytes": 1,
        "blob-metadata": [blob],
    }
    return SetStatisticsUpdate(statistics=IcebergStatistics.model_validate(entry))


def _branch(name: str, snapshot_id: int | None, kind: str = "branch") -> SetSnapshotRefUpdate:
    return SetSnapshotRefUpdate.model_validate({"ref-name": name, "type": kind, "snapshot-id": snapshot_id})


def _places(metadata: TableMetadata) -> dict[int, str]:
    return {entry.snapshot_id: entry.statistics_path.rsplit("/", 1)[-1] for entry in metadata.statistics}


async def test_each_commit_takes_the_statistics_along_and_they_say_what_they_were_computed_from(tmp_path: Path) -> None:
    async def test(table: StreamTable, view: View) -> None:
        view = await table.append(view)
        computed_from = view.snapshot_id
        path = _file(table, "a.stats")
        view = await _change(table, _statistics(f"file://{path}", computed_from), outside=True)
        for _ in range(3):
            view = await table.append(view)
        metadata = await _metadata(table)
        assert _places(metadata) == {view.snapshot_id: "a.stats"}
        assert metadata.statistics[0].blob_metadata[0].snapshot_id == computed_from
        assert path.exists()
        assert await table.offsets() == list(range(8))

    await run_with_table(tmp_path, test)


async def test_an_expiry_takes_snapshots_but_not_the_statistics_of_main(tmp_path: Path) -> None:
    """Also by the very commit that takes the statistics along, from a snapshot that was not the last."""

    async def test(table: StreamTable, view: View) -> None:
        view = await table.append(view)
        computed_from = view.snapshot_id
        view = await table.append(view)
        path = _file(table, "a.stats")
        old = SetPropertiesUpdate(updates={"history.expire.max-snapshot-age-ms": "0"})
        view = await _change(table, _statistics(f"file://{path}", computed_from), old, outside=True)
        table.clock.ms = (await _metadata(table)).last_updated_ms + 60_000
        view = await table.append(view, 1)
        metadata = await _metadata(table)
        assert computed_from not in {snapshot.snapshot_id for snapshot in metadata.snapshots}
        assert _places(metadata) == {view.snapshot_id: "a.stats"}
        assert path.exists()

    await run_with_table(tmp_path, test)


@pytest.mark.parametrize("kind", ["tag", "branch"])
async def test_what_a_tag_or_branch_names_keeps_its_statistics_until_it_expires(tmp_path: Path, kind: str) -> None:
    async def test(table: StreamTable, view: View) -> None:
        view = await table.append(view)
        kept = view.snapshot_id
        first, second = _file(table, "a.stats"), _file(table, "b.stats")
        await _change(table, _statistics(f"file://{first}", kept), _branch("kept", kept, kind))
        view = await table.append(await table.tables.load(ORDERS))
        assert _places(await _metadata(table)) == {kept: "a.stats", view.snapshot_id: "a.stats"}
        view = await _change(table, _statistics(f"file://{second}", view.snapshot_id))
        assert first.exists(), "the tagged snapshot still has it"
        remove = RemoveSnapshotRefUpdate.model_validate({"ref-name": "kept"})
        old = SetPropertiesUpdate(updates={"history.expire.max-snapshot-age-ms": "0"})
        view = await _change(table, remove, old, outside=True)
        table.clock.ms = (await _metadata(table)).last_updated_ms + 60_000
        view = await table.append(view)
        assert _places(await _metadata(table)) == {view.snapshot_id: "b.stats"}
        assert not first.exists()
        assert second.exists()

    await run_with_table(tmp_path, test)


async def test_newer_statistics_are_those_that_go_along_and_replaced_files_are_deleted(tmp_path: Path) -> None:
    async def test(table: StreamTable, view: View) -> None:
        view = await table.append(view)
        first, second = _file(table, "a.stats"), _file(table, "b.stats")
        await _change(table, _statistics(f"file://{first}", view.snapshot_id))
        view = await table.append(await table.tables.load(ORDERS))
        await _change(table, _statistics(f"file://{second}", view.snapshot_id))
        assert not first.exists()
        view = await table.append(await table.tables.load(ORDERS))
        assert _places(await _metadata(table)) == {view.snapshot_id: "b.stats"}

    await run_with_table(tmp_path, test)


async def test_another_spelling_is_the_same_file(tmp_path: Path) -> None:
    async def test(table: StreamTable, view: View) -> None:
        view = await table.append(view)
        path, next_path = _file(table, "a.stats"), _file(table, "b.stats")
        await _change(table, _statistics(f"file:{path}", view.snapshot_id))
        await _change(table, _statistics(f"file://{path}", view.snapshot_id))
        assert path.exists()
        await _change(table, _statistics(f"file:{path}", view.snapshot_id))
        await _change(table, _statistics(f"file://{next_path}", view.snapshot_id))
        assert not path.exists()

    await run_with_table(tmp_path, test)


async def test_after_a_rollback_statistics_of_what_was_left_behind_are_not_used(tmp_path: Path) -> None:
    async def test(table: StreamTable, view: View) -> None:
        view = await table.append(view)
        back = view.snapshot_id
        view = await table.append(view)
        left = view.snapshot_id
        path = _file(table, "a.stats")
        await _change(table, _statistics(f"file://{path}", left))
        view = await _change(table, _branch("main", back), outside=True)
        assert view.snapshot_id == back
        table.clock.ms += 1_000
        view = await table.append(view)
        metadata = await _metadata(table)
        assert _places(metadata) == {left: "a.stats"}
        assert path.exists()

    await run_with_table(tmp_path, test)


async def test_the_owner_may_forbid_that_files_are_deleted(tmp_path: Path) -> None:
    async def test(table: StreamTable, view: View) -> None:
        view = await table.append(view)
        first, second = _file(table, "a.stats"), _file(table, "b.stats")
        await _change(table, SetPropertiesUpdate(updates={"gc.enabled": "false"}))
        await _change(table, _statistics(f"file://{first}", view.snapshot_id))
        await _change(table, _statistics(f"file://{second}", view.snapshot_id))
        assert first.exists()

    await run_with_table(tmp_path, test)


async def test_an_entry_that_names_something_else_deletes_nothing(tmp_path: Path) -> None:
    async def test(table: StreamTable, view: View) -> None:
        view = await table.append(view)
        beside = tmp_path / "beside.stats"
        beside.write_bytes(b"")
        data = view.files[0].path
        location = (await _metadata(table)).location
        outside = (f"file://{beside}", f"{location}/../../../beside.stats", f"{location}/%2e%2e/%2e%2e/beside.stats")
        for path in outside:
            with pytest.raises(TableRefused, match="a file belongs to one table"):
                await _change(table, _statistics(path, view.snapshot_id), outside=True)
        for path in (data, view.metadata_location, *outside):
            await _change(table, _statistics(path, view.snapshot_id), outside=path not in outside)
            assert own_files(await _metadata(table)) == []
            await _change(table, _statistics(f"{location}/_iceberg/none.stats", view.snapshot_id))
        assert beside.exists()
        assert await table.offsets() == [0, 1]

    await run_with_table(tmp_path, test)


async def test_a_purge_takes_the_statistics_too(tmp_path: Path) -> None:
    async def test(table: StreamTable, view: View) -> None:
        view = await table.append(view)
        path = _file(table, "a.stats")
        await _change(table, _statistics(f"file://{path}", view.snapshot_id))
        detached = await table.tables.detach(ORDERS)
        assert detached is not None
        await table.tables.engines.drop(TableName(("default",), detached.rsplit(".", 1)[-1]), purge=True)
        assert not path.exists()

    await run_with_table(tmp_path, test)


async def test_statistics_are_set_on_exactly_one_view(tmp_path: Path) -> None:
    async def check(catalog: TableCatalog, view: View) -> None:
        blob = Blob("apache-datasketches-theta-v1", (6,), view.snapshot_id or 0, view.sequence_number, {"ndv": "3"})
        made = StatisticsFile(f"{view.location}/_iceberg/a.stats", 9, 5, (blob,))
        done = await catalog.describe(view, made)
        assert (done.statistics, done.snapshot_id, done.frontier) == (made, view.snapshot_id, view.frontier)
        for stale in (catalog.describe(view, made), catalog.commit(view, add=[], remove=[], frontier=view.frontier)):
            with pytest.raises(Conflict):
                await stale
        later = await catalog.commit(done, add=[], remove=[], frontier=view.frontier)
        assert later.statistics == made
        assert later.sequence_number > view.sequence_number
        assert (await catalog.load(ORDERS)).statistics == made

    async def test(table: StreamTable, view: View) -> None:
        await check(table.tables, await table.append(view))
        simulated = SimulatedTables()
        first = await simulated.create(ORDERS, "orders", 1)
        await check(simulated, await simulated.commit(first, add=[], remove=[], frontier=(0,)))

    await run_with_table(tmp_path, test)
