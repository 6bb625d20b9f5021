"""What a view must never be made of, and what it says instead."""

from pathlib import Path

import pytest
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus, write_manifest
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate
from pyiceberg.typedef import Record
from support.tables.files import ORDERS
from support.tables.stream_table import StreamTable, run_with_table

from lakestream.catalog.embedded.tables import PyIcebergTables
from lakestream.catalog.manifests.index import ManifestIndex
from lakestream.catalog.staging import Change
from lakestream.errors import CorruptObject, ObjectMissing, StorageError
from lakestream.metadata.names.pointers import Pointer
from lakestream.objects import MemoryObjects
from lakestream.table.parquet.files import ParquetFiles
from lakestream.table.reading.cache import SharedCache
from lakestream.table.reading.deletes import load_deletes
from lakestream.table.schema import UNPARTITIONED, iceberg_schema
from lakestream.table.shape import RAW
from lakestream.table.view import View


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
async def test_a_table_without_its_properties_is_an_alarm(
    tmp_path: Path, update: RemovePropertiesUpdate | SetPropertiesUpdate, word: str
) -> None:
    async def test(table: StreamTable, view: View) -> None:
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

    await run_with_table(tmp_path, test)


async def test_lost_metadata_is_an_alarm_that_names_the_file(tmp_path: Path) -> None:
    async def test(table: StreamTable, view: View) -> None:
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

    await run_with_table(tmp_path, test)


@pytest.mark.parametrize(
    ("content", "file_format", "word"),
    [
        (DataFileContent.EQUALITY_DELETES, FileFormat.PARQUET, "equality deletes"),
        (DataFileContent.POSITION_DELETES, FileFormat.PUFFIN, "deletion vectors"),
    ],
)
async def test_deletes_that_cannot_be_applied_are_an_alarm(
    tmp_path: Path, content: DataFileContent, file_format: FileFormat, word: str
) -> None:
    async def test(table: StreamTable, _view: View) -> None:
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
        with write_manifest(2, UNPARTITIONED, iceberg_schema(RAW), io.new_output(path), 1, "deflate") as writer:
            writer.add_entry(entry)
        [found] = ManifestIndex(io).get(writer.to_manifest_file(), RAW).deletes
        assert found.path == "file:///deletes"
        with pytest.raises(StorageError, match=word):
            await load_deletes([found], ParquetFiles(MemoryObjects(table.clock)), SharedCache(1))

    await run_with_table(tmp_path, test)


async def test_a_file_without_bounds_may_match_anything(tmp_path: Path) -> None:
    async def test(table: StreamTable, _view: View) -> None:
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
        with write_manifest(2, UNPARTITIONED, iceberg_schema(RAW), io.new_output(path), 1, "deflate") as writer:
            writer.add_entry(entry)
        [found] = ManifestIndex(io).get(writer.to_manifest_file(), RAW).files
        assert (found.path, found.record_count, found.size_bytes) == ("file:///data", 4, 9)
        assert {found.partition_min, found.partition_max, found.offset_min, found.offset_max} == {None}
        assert found.timestamp_max_ms is None

    await run_with_table(tmp_path, test)


async def test_the_index_is_bounded(tmp_path: Path) -> None:
    async def test(table: StreamTable, view: View) -> None:
        for _ in range(4):
            view = await table.append(view)
        current = await table.tables.commits.load(ORDERS)
        assert current is not None
        snapshot = current.metadata.current_snapshot()
        assert snapshot is not None
        manifests = table.tables.commits.index.manifests(snapshot.manifest_list)
        small = ManifestIndex(table.tables.commits.files.io, max_entries=4)
        for manifest in (*manifests, *manifests):
            small.get(manifest, RAW)
        assert small.reads == 2 * len(manifests)
        small.get(manifests[-1], RAW)
        assert small.reads == 2 * len(manifests)

    await run_with_table(tmp_path, test)
