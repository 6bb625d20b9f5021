"""What the real tables do with their files: none lost, none left behind, none made for nothing."""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus, write_manifest
from pyiceberg.table import StaticTable
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate, SetSnapshotRefUpdate
from pyiceberg.typedef import Record
from support.tables import ORDERS, write_file

from lakestream.catalog import PyIcebergTables, View
from lakestream.catalog.commit import Change
from lakestream.catalog.index import ManifestIndex
from lakestream.errors import Conflict, CorruptObject, ObjectMissing, StorageError, Unavailable
from lakestream.metadata.memory import MemoryStore
from lakestream.metadata.pointers import Pointer, pointer_address
from lakestream.metadata.store import Outcome, Transaction
from lakestream.runtime import Runtime
from lakestream.table.schema import OFFSET_WINDOW, RAW_SCHEMA, UNPARTITIONED


@dataclass
class HandClock:
    ms: int = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms


class Store(MemoryStore):
    """`before` runs between staging and the change of the pointer; `lost` applies the change and does not answer."""

    before: Callable[[], Awaitable[None]] | None = None
    lost = False

    async def transact(self, transactions: Sequence[Transaction]) -> list[Outcome]:
        if self.before is not None:
            before, self.before = self.before, None
            await before()
        outcomes = await super().transact(transactions)
        if self.lost:
            raise Unavailable("no answer")
        return outcomes


class Table:
    """One stream's table in a folder."""

    def __init__(self, folder: Path) -> None:
        self.clock = HandClock()
        self.folder = folder
        runtime = Runtime(self.clock, random.Random(5))
        self.store = Store(runtime)
        self.tables = PyIcebergTables(self.store, f"file://{folder}/bucket", runtime)

    async def append(self, view: View, count: int = 2, *, spec_id: int = 0) -> View:
        start = view.frontier[0]
        file = write_file(self.data, start, start + count, spec_id=spec_id)
        return await self.tables.commit(view, add=[file], remove=[], frontier=(start + count,))

    @property
    def root(self) -> Path:
        return self.folder / "bucket/tables/orders__11111111"

    @property
    def data(self) -> Path:
        return self.root / "data"

    def metadata_files(self) -> set[str]:
        return {path.name for path in (self.root / "_iceberg").iterdir()}

    async def offsets(self) -> list[int]:
        """What another reader of the same metadata sees."""
        location = await self.tables.pointer(ORDERS)
        assert location is not None
        return sorted(StaticTable.from_metadata(location).scan().to_arrow()["_offset"].to_pylist())


def run(folder: Path, test: Callable[[Table, View], Awaitable[None]]) -> None:
    async def whole() -> None:
        table = Table(folder)
        try:
            await test(table, await table.tables.create(ORDERS, "orders", 1))
        finally:
            await table.tables.close()

    asyncio.run(whole())


def test_the_columns_keep_their_ids_and_specs(tmp_path: Path) -> None:
    async def test(table: Table, _view: View) -> None:
        current = await table.tables.commits.load(ORDERS)
        assert current is not None
        metadata = current.metadata
        assert metadata.schema() == RAW_SCHEMA
        assert metadata.table_uuid == ORDERS
        assert {spec.spec_id for spec in metadata.partition_specs} == {0, 1}
        assert metadata.default_spec_id == 1
        assert metadata.properties["write.metadata.path"] == f"{metadata.location}/_iceberg"
        assert "format-version" not in metadata.properties

    run(tmp_path, test)


def test_a_lost_race_leaves_only_the_winners_files(tmp_path: Path) -> None:
    async def test(table: Table, view: View) -> None:
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

    run(tmp_path, test)


def test_an_unknown_outcome_deletes_nothing(tmp_path: Path) -> None:
    async def test(table: Table, view: View) -> None:
        table.store.lost = True
        with pytest.raises(Unavailable):
            await table.append(view)
        table.store.lost = False
        after = await table.tables.load(ORDERS)
        assert after.frontier == (2,)
        assert await table.offsets() == [0, 1]
        with pytest.raises(Conflict):
            await table.append(view)

    run(tmp_path, test)


def test_a_failed_attempt_cleans_up_after_itself(tmp_path: Path) -> None:
    async def test(table: Table, view: View) -> None:
        before = table.metadata_files()
        first, good = write_file(table.data, 0, 2), write_file(table.data, 0, 2)
        spans = write_file(table.data, OFFSET_WINDOW - 1, OFFSET_WINDOW + 1)
        cases = [
            (replace(good, record_count=3), CorruptObject),
            (replace(good, size_bytes=1), CorruptObject),
            (replace(good, path=good.path + ".gone"), ObjectMissing),
            (replace(good, spec_id=7), ValueError),
            (replace(spans, spec_id=1), ValueError),
            (replace(good, spec_id=1, partition_max=1), ValueError),
        ]
        (table.data / "junk.parquet").write_bytes(b"no parquet at all")
        cases.append((replace(good, path=f"file://{table.data}/junk.parquet"), CorruptObject))
        for file, error in cases:
            with pytest.raises(error):
                await table.tables.commit(view, add=[first, file], remove=[], frontier=(2,))
        assert table.metadata_files() == before
        assert await table.tables.load(ORDERS) == view

    run(tmp_path, test)


def test_everything_is_synced_before_the_pointer_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    plain = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        plain(descriptor)

    async def test(table: Table, view: View) -> None:
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

    run(tmp_path, test)


def test_only_new_manifests_are_read(tmp_path: Path) -> None:
    async def test(table: Table, view: View) -> None:
        for _ in range(5):
            view = await table.append(view)
        index = table.tables.commits.index
        before = index.reads
        view = await table.append(view)
        assert index.reads == before + 1
        await table.tables.load(ORDERS)
        assert index.reads == before + 1

    run(tmp_path, test)


def test_manifests_are_merged_and_nothing_is_lost(tmp_path: Path) -> None:
    async def test(table: Table, view: View) -> None:
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

    run(tmp_path, test)


def test_old_metadata_is_trimmed(tmp_path: Path) -> None:
    async def test(table: Table, view: View) -> None:
        for _ in range(24):
            view = await table.tables.commit(view, add=[], remove=[], frontier=view.frontier)
        documents = {name for name in table.metadata_files() if name.endswith(".json")}
        assert sorted(int(name[:5]) for name in documents) == list(range(4, 25))

    run(tmp_path, test)


def test_snapshots_are_capped_and_take_their_files_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakestream.catalog.expiry.MAX_SNAPSHOTS", 8)
    monkeypatch.setattr("lakestream.catalog.expiry.KEPT_SNAPSHOTS", 5)

    async def test(table: Table, view: View) -> None:
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

    run(tmp_path, test)


def test_removed_files_go_when_no_snapshot_names_them_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakestream.catalog.expiry.MAX_SNAPSHOTS", 8)
    monkeypatch.setattr("lakestream.catalog.expiry.KEPT_SNAPSHOTS", 5)

    async def test(table: Table, view: View) -> None:
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

    run(tmp_path, test)


def test_a_clock_that_goes_back_keeps_history_in_order(tmp_path: Path) -> None:
    async def test(table: Table, view: View) -> None:
        view = await table.append(view)
        table.clock.ms -= 86_400_000
        view = await table.append(view)
        current = await table.tables.commits.load(ORDERS)
        assert current is not None
        times = [entry.timestamp_ms for entry in current.metadata.snapshot_log]
        assert times == sorted(times)

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("update", "word"),
    [
        (RemovePropertiesUpdate(removals=["lakestream.frontier"]), "missing"),
        (SetPropertiesUpdate(updates={"lakestream.frontier": "1,x"}), "no frontier"),
        (SetPropertiesUpdate(updates={"lakestream.frontier": "-1"}), "no frontier"),
        (RemovePropertiesUpdate(removals=["lakestream.topic-id"]), "topic-id"),
        (SetPropertiesUpdate(updates={"lakestream.topic-id": "x"}), "topic-id"),
    ],
)
def test_a_table_without_its_properties_is_an_alarm(
    tmp_path: Path, update: RemovePropertiesUpdate | SetPropertiesUpdate, word: str
) -> None:
    async def test(table: Table, view: View) -> None:
        commits = table.tables.commits
        current = await commits.load(ORDERS)
        assert current is not None
        # Only a table that no topic holds can be damaged so; bind it again behind the catalog's back.
        await commits.pointers.swing(ORDERS, current.row.version, Pointer(current.location, bound=False))
        current = await commits.load(ORDERS)
        assert current is not None
        damaged = await commits.commit(current, lambda _metadata, _written: Change((), (update,)))
        await commits.pointers.swing(ORDERS, damaged.row.version, Pointer(damaged.location, bound=True))
        with pytest.raises(StorageError, match=word) as caught:
            await table.tables.load(ORDERS)
        assert view.table in str(caught.value)

    run(tmp_path, test)


def test_lost_metadata_is_an_alarm_that_names_the_file(tmp_path: Path) -> None:
    async def test(table: Table, view: View) -> None:
        view = await table.append(view)

        async def load_anew(error: type[Exception], match: str) -> None:
            other = PyIcebergTables(table.store, f"file://{tmp_path}/bucket", table.tables.commits.runtime)
            with pytest.raises(error, match=match):
                await other.load(ORDERS)
            await other.close()

        [manifest_list] = (table.root / "_iceberg").glob("snap-*.avro")
        manifest_list.write_bytes(b"no avro at all")
        await load_anew(CorruptObject, r"snap-.*\.avro")
        manifest_list.unlink()
        await load_anew(ObjectMissing, r"snap-.*\.avro")
        document = Path(view.metadata_location.removeprefix("file://"))
        document.write_text("{")
        await load_anew(CorruptObject, r"metadata\.json")
        document.unlink()
        await load_anew(ObjectMissing, r"metadata\.json")

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("content", "file_format", "word"),
    [
        (DataFileContent.EQUALITY_DELETES, FileFormat.PARQUET, "equality deletes"),
        (DataFileContent.POSITION_DELETES, FileFormat.PUFFIN, "deletion vectors"),
    ],
)
def test_deletes_that_cannot_be_applied_are_an_alarm(
    tmp_path: Path, content: DataFileContent, file_format: FileFormat, word: str
) -> None:
    async def test(table: Table, _view: View) -> None:
        io = table.tables.commits.files.io
        path = f"file://{tmp_path}/foreign.avro"
        entry = ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED,
            snapshot_id=1,
            data_file=IcebergFile.from_args(
                content=content,
                file_path="file:///deletes",
                file_format=file_format,
                partition=Record(),
                record_count=1,
                file_size_in_bytes=1,
            ),
        )
        with write_manifest(2, UNPARTITIONED, RAW_SCHEMA, io.new_output(path), 1, "deflate") as writer:
            writer.add_entry(entry)
        with pytest.raises(StorageError, match=word):
            ManifestIndex(io).get(writer.to_manifest_file())

    run(tmp_path, test)


def test_a_file_without_bounds_may_match_anything(tmp_path: Path) -> None:
    async def test(table: Table, _view: View) -> None:
        io = table.tables.commits.files.io
        path = f"file://{tmp_path}/foreign.avro"
        file = IcebergFile.from_args(
            content=DataFileContent.DATA,
            file_path="file:///data",
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=4,
            file_size_in_bytes=9,
            lower_bounds={2: b"\x01"},
        )
        entry = ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=1, data_file=file)
        with write_manifest(2, UNPARTITIONED, RAW_SCHEMA, io.new_output(path), 1, "deflate") as writer:
            writer.add_entry(entry)
        [found] = ManifestIndex(io).get(writer.to_manifest_file()).files
        assert (found.path, found.record_count, found.size_bytes) == ("file:///data", 4, 9)
        assert {found.partition_min, found.partition_max, found.offset_min, found.offset_max} == {None}
        assert found.timestamp_max_ms is None

    run(tmp_path, test)


def test_the_index_is_bounded(tmp_path: Path) -> None:
    async def test(table: Table, view: View) -> None:
        for _ in range(4):
            view = await table.append(view)
        current = await table.tables.commits.load(ORDERS)
        assert current is not None
        snapshot = current.metadata.current_snapshot()
        assert snapshot is not None
        manifests = table.tables.commits.index.manifests(snapshot.manifest_list)
        small = ManifestIndex(table.tables.commits.files.io, max_entries=4)
        for manifest in (*manifests, *manifests):
            small.get(manifest)
        assert small.reads == 2 * len(manifests)
        small.get(manifests[-1])
        assert small.reads == 2 * len(manifests)

    run(tmp_path, test)


def test_a_watch_on_the_pointer_wakes_for_a_commit(tmp_path: Path) -> None:
    async def test(table: Table, view: View) -> None:
        address = pointer_address(ORDERS)
        [entry] = await table.store.get([address])
        assert entry is not None
        watching = asyncio.create_task(table.store.watch({address: entry.version}, timeout_ms=10_000))
        await asyncio.sleep(0)
        await table.append(view)
        assert await watching

    run(tmp_path, test)
