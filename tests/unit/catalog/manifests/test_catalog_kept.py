"""What a commit keeps in memory of what it wrote is what anybody else reads in the files."""

import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.avro.file import AvroFile
from pyiceberg.io import InputFile
from pyiceberg.manifest import write_manifest, write_manifest_list
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.table.update import (
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
    update_table_metadata,
)
from pyiceberg.typedef import Record
from support.properties import examples
from support.tables.files import ORDERS
from support.tables.stream_table import StreamTable, run_with_table

from lakestream.catalog.engines.changes import apply_updates
from lakestream.catalog.files import MetadataFiles, metadata_json
from lakestream.catalog.manifests import expiry, merge
from lakestream.catalog.manifests.index import ManifestIndex, read_entries
from lakestream.catalog.staging import Change
from lakestream.errors import Conflict, Unavailable
from lakestream.table.shape import RAW
from lakestream.table.view import View

STEPS = ("append", "append", "append to a partition", "take out the oldest", "replace", "tag", "lose a race")


def plain(value: Any) -> Any:
    """Records compare themselves by their paths alone."""
    return [plain(value[place]) for place in range(len(value))] if isinstance(value, Record) else value


async def metadata_of(table: StreamTable) -> TableMetadata:
    current = await table.tables.commits.load(ORDERS)
    assert current is not None
    return current.metadata


async def step(table: StreamTable, view: View, kind: str) -> View:
    oldest = sorted(view.files, key=lambda file: file.offset_min or 0)[:3]
    match kind:
        case "append to a partition":
            return await table.append(view, spec_id=1)
        case "take out the oldest":
            return await table.tables.commit(view, add=[], remove=oldest, frontier=view.frontier)
        case "replace":
            start = view.frontier[0]
            appended = await table.append(view)
            newest = [file for file in appended.files if file.offset_min == start]
            return await table.tables.commit(appended, add=[], remove=newest, frontier=appended.frontier)
        case "tag" if view.snapshot_id is not None:
            tag = SetSnapshotRefUpdate.model_validate(
                {"ref-name": f"t{view.snapshot_id}", "type": "tag", "snapshot-id": view.snapshot_id}
            )
            current = await table.tables.commits.load(ORDERS)
            assert current is not None
            await table.tables.commits.commit(current, lambda _metadata, _written: Change((), (tag,)))
            return await table.tables.load(ORDERS)
        case "lose a race":

            async def faster() -> None:
                await table.append(view)

            table.store.before = faster
            with pytest.raises(Conflict):
                await table.append(view, 1)
            return await table.tables.load(ORDERS)
        case _:
            return await table.append(view)


async def check(table: StreamTable) -> None:
    """Beside a reader that knows nothing yet."""
    commits, files = table.tables.commits, MetadataFiles({}, "file:///")
    current = await commits.load(ORDERS)
    assert current is not None
    metadata = current.metadata
    assert files.read(current.location) == metadata
    assert json.loads(commits.files.json(metadata)) == json.loads(metadata_json(metadata))
    index = ManifestIndex(files.io)
    for snapshot in metadata.snapshots:
        kept, found = commits.index.manifests(snapshot.manifest_list), index.manifests(snapshot.manifest_list)
        assert [plain(manifest) for manifest in kept] == [plain(manifest) for manifest in found]
        for manifest in found:
            assert commits.index.get(manifest, RAW) == index.get(manifest, RAW)
            assert entries_kept(commits.index, manifest.manifest_path) in (
                None,
                plain_all(read_entries(files.io, manifest)),
            )


def entries_kept(index: ManifestIndex, path: str) -> list[Any] | None:
    known = index._entries.get(path)
    return None if known is None else plain_all(known)


def plain_all(records: Sequence[Record]) -> list[Any]:
    return [plain(record) for record in records]


@examples(15)
@given(kinds=st.lists(st.sampled_from(STEPS), min_size=1, max_size=24))
async def test_what_is_kept_is_what_is_stored(kinds: list[str]) -> None:
    async def test(table: StreamTable, view: View) -> None:
        for kind in kinds:
            view = await step(table, view, kind)
        await check(table)

    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(expiry, "MAX_SNAPSHOTS", 8)
        patch.setattr(expiry, "KEPT_SNAPSHOTS", 5)
        patch.setattr(merge, "FAN_IN", 3)
        await run_with_table(Path(folder), test)


async def test_merging_what_was_written_here_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(table: StreamTable, view: View) -> None:
        read: list[str] = []
        new_input = table.tables.commits.files.io.new_input
        monkeypatch.setattr(
            table.tables.commits.files.io, "new_input", lambda path: (read.append(path), new_input(path))[1]
        )
        for _ in range(25):
            view = await table.append(view, 1)
        metadata = await metadata_of(table)
        snapshot = metadata.current_snapshot()
        assert snapshot is not None
        assert len(table.tables.commits.index.manifests(snapshot.manifest_list)) < 10
        assert [path for path in read if not path.endswith(".parquet")] == []
        assert await table.offsets() == list(range(25))

    await run_with_table(tmp_path, test)


async def test_metadata_shares_what_did_not_change_and_is_what_pyiceberg_makes(tmp_path: Path) -> None:
    async def test(table: StreamTable, view: View) -> None:
        for _ in range(4):
            view = await table.append(view)
        base = await metadata_of(table)
        before = metadata_json(base)
        updates: list[TableUpdate] = [
            SetPropertiesUpdate(updates={"a": "b"}),
            SetSnapshotRefUpdate.model_validate(
                {"ref-name": "t", "type": "tag", "snapshot-id": base.snapshots[1].snapshot_id}
            ),
            RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [base.snapshots[0].snapshot_id]}),
        ]
        new = apply_updates(base, updates, "file:///t/1.json", validate=False)
        theirs = update_table_metadata(base, tuple(updates), metadata_location="file:///t/1.json")
        assert type(new) is TableMetadataV2
        assert new.model_copy(update={"last_updated_ms": 0}) == theirs.model_copy(update={"last_updated_ms": 0})
        assert new.snapshots[1] is base.snapshots[2]
        assert new.snapshots[0].parent_snapshot_id is None
        assert metadata_json(base) == before

    await run_with_table(tmp_path, test)


async def test_manifests_say_of_themselves_what_pyiceberg_says(tmp_path: Path) -> None:
    async def test(table: StreamTable, view: View) -> None:
        view = await table.append(await table.append(view, spec_id=1))
        metadata, index, io = await metadata_of(table), table.tables.commits.index, table.tables.commits.files.io
        snapshot = metadata.current_snapshot()
        assert snapshot is not None
        manifests = index.manifests(snapshot.manifest_list)
        assert {manifest.partition_spec_id for manifest in manifests} == {0, 1}
        for manifest in manifests:
            entries = read_entries(io, manifest)
            copied = io.new_output(f"file://{tmp_path}/manifest-{manifest.partition_spec_id}.avro")
            spec, snapshot_id = metadata.specs()[manifest.partition_spec_id], manifest.added_snapshot_id
            assert snapshot_id is not None
            with write_manifest(2, spec, metadata.schema(), copied, snapshot_id, "deflate") as theirs:
                for entry in entries:
                    theirs.add_entry(entry)
            assert header(io.new_input(manifest.manifest_path)) == header(io.new_input(copied.location))
        copied = io.new_output(f"file://{tmp_path}/list.avro")
        parent, number = snapshot.parent_snapshot_id, snapshot.sequence_number
        with write_manifest_list(2, copied, snapshot.snapshot_id, parent, number, "deflate") as writer:
            writer.add_manifests(list(manifests))
        assert header(io.new_input(snapshot.manifest_list)) == header(io.new_input(copied.location))

    await run_with_table(tmp_path, test)


def header(file: InputFile) -> dict[str, str]:
    with AvroFile[Record](file) as opened:
        return opened.header.meta


async def test_a_commit_whose_files_cannot_be_made_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that fails is not the last that is begun: the others are done before anything is deleted."""

    async def test(table: StreamTable, view: View) -> None:
        view = await table.append(view)
        before = table.metadata_files()
        io = table.tables.commits.files.io
        make, began = io.make, threading.Event()

        def failing(location: str) -> None:
            if "/snap-" in location:
                began.wait(5)
                raise OSError("disk full")
            began.set()
            time.sleep(0.05)
            make(location)

        for _ in range(2):
            began.clear()
            with monkeypatch.context() as patch:
                patch.setattr(io, "make", failing)
                with pytest.raises(Unavailable, match="disk full"):
                    await table.append(view)
            assert table.metadata_files() == before
            assert io._waiting == {}
        view = await table.append(view)
        assert len(view.files) == 2

    await run_with_table(tmp_path, test)
