"""What the real tables do with the files of an attempt: none lost, none left behind."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest
from support.tables.files import ORDERS, write_file
from support.tables.stream_table import StreamTable, run_with_table

from lakestream.errors import Conflict, Unavailable
from lakestream.metadata.names.pointers import pointer_address
from lakestream.model import NO_METRICS
from lakestream.table.schema import OFFSET_WINDOW, iceberg_schema
from lakestream.table.shape import RAW
from lakestream.table.view import View


async def test_the_columns_keep_their_ids_and_specs(tmp_path: Path) -> None:
    async def test(table: StreamTable, _view: View) -> None:
        current = await table.tables.commits.load(ORDERS)
        assert current is not None
        metadata = current.metadata
        assert metadata.schema() == iceberg_schema(RAW)
        assert metadata.table_uuid == ORDERS
        assert {spec.spec_id for spec in metadata.partition_specs} == {0, 1}
        assert metadata.default_spec_id == 1
        assert metadata.properties["write.metadata.path"] == f"{metadata.location}/_iceberg"
        assert "format-version" not in metadata.properties

    await run_with_table(tmp_path, test)


async def test_a_lost_race_leaves_only_the_winners_files(tmp_path: Path) -> None:
    async def test(table: StreamTable, view: View) -> None:
        winner: list[tuple[View, set[str]]] = []

        async def overtake() -> None:
            winner.append((await table.append(view), table.metadata_files()))

        staged = write_file(table.data, 0, 2)
        table.store.before = overtake
        with pytest.raises(Conflict):
            await table.tables.commit(view, add=[staged], remove=[], frontier=(2,))
        won, files = winner[0]
        ours = {name for name in files if name not in table.metadata_files()}
        assert {name.rsplit(".", 2)[-1] for name in ours} == {"json", "avro"}
        assert len(ours) == 3
        assert Path(staged.path.removeprefix("file://")).exists()
        assert await table.tables.load(ORDERS) == won
        assert await table.offsets() == [0, 1]

    await run_with_table(tmp_path, test)


async def test_an_unknown_outcome_deletes_nothing(tmp_path: Path) -> None:
    async def test(table: StreamTable, view: View) -> None:
        table.store.lost = True
        with pytest.raises(Unavailable):
            await table.append(view)
        table.store.lost = False
        after = await table.tables.load(ORDERS)
        assert after.frontier == (2,)
        assert await table.offsets() == [0, 1]
        with pytest.raises(Conflict):
            await table.append(view)

    await run_with_table(tmp_path, test)


async def test_a_failed_attempt_cleans_up_after_itself(tmp_path: Path) -> None:
    async def test(table: StreamTable, view: View) -> None:
        before = table.metadata_files()
        first, good = write_file(table.data, 0, 2), write_file(table.data, 0, 2)
        spans = write_file(table.data, OFFSET_WINDOW - 1, OFFSET_WINDOW + 1)
        cases = [
            replace(good, metrics=NO_METRICS),
            replace(good, spec_id=7),
            replace(spans, spec_id=1),
            replace(good, spec_id=1, partition_max=1),
        ]
        for file in cases:
            with pytest.raises(ValueError, match=file.path):
                await table.tables.commit(view, add=[first, file], remove=[], frontier=(2,))
        assert table.metadata_files() == before
        assert await table.tables.load(ORDERS) == view

    await run_with_table(tmp_path, test)


async def test_no_data_file_is_read_back(tmp_path: Path) -> None:
    """What a manifest says of a file is what its writer told."""

    async def test(table: StreamTable, view: View) -> None:
        file = write_file(table.data, 0, 3)
        Path(file.path.removeprefix("file://")).unlink()
        [found] = (await table.tables.commit(view, add=[file], remove=[], frontier=(3,))).files
        assert (found.partition_min, found.partition_max, found.offset_min, found.offset_max) == (0, 0, 0, 2)
        assert (found.record_count, found.size_bytes, found.timestamp_max_ms) == (3, file.size_bytes, 2000)

    await run_with_table(tmp_path, test)


async def test_everything_is_synced_before_the_pointer_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    plain = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        plain(descriptor)

    async def test(table: StreamTable, view: View) -> None:
        at_swing: list[str] = []
        known = table.metadata_files()

        async def look() -> None:
            at_swing.extend(synced)

        monkeypatch.setattr(os, "fsync", fsync)
        table.store.before = look
        await table.append(view)
        new = {str(table.root / "_iceberg" / name) for name in table.metadata_files() - known}
        assert len(new) == 3
        assert new | {str(table.root / "_iceberg")} <= set(at_swing)

    await run_with_table(tmp_path, test)


async def test_a_clock_that_goes_back_keeps_history_in_order(tmp_path: Path) -> None:
    async def test(table: StreamTable, view: View) -> None:
        view = await table.append(view)
        table.clock.ms -= 86_400_000
        view = await table.append(view)
        current = await table.tables.commits.load(ORDERS)
        assert current is not None
        times = [entry.timestamp_ms for entry in current.metadata.snapshot_log]
        assert times == sorted(times)

    await run_with_table(tmp_path, test)


async def test_a_watch_on_the_pointer_wakes_for_a_commit(tmp_path: Path) -> None:
    async def test(table: StreamTable, view: View) -> None:
        address = pointer_address(ORDERS)
        [entry] = await table.store.get([address])
        assert entry is not None
        watching = asyncio.create_task(table.store.watch({address: entry.version}, timeout_ms=10_000))
        await asyncio.sleep(0)
        await table.append(view)
        assert await watching

    await run_with_table(tmp_path, test)
