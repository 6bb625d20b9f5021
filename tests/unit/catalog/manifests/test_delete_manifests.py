"""Manifests of deletes as format version 3 has them: where a vector is, and nothing that ends this process."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.typedef import Record
from pyiceberg.types import StructType
from support.clients.outsider import Outsider, iceberg_file
from support.tables.files import ORDERS
from support.tables.stream_table import StreamTable, run_with_table

from lakestream.catalog.manifests.index import ManifestIndex
from lakestream.catalog.rules.views import check_view
from lakestream.catalog.sealed import SealedIO
from lakestream.errors import CorruptObject, StorageError, TableRefused
from lakestream.model import DeletionVector, PositionDeletes
from lakestream.table.sandbox import SANDBOX
from lakestream.table.shape import RAW
from lakestream.table.view import View

MUTATIONS = 300
DATA = "s3://lake/tables/t/0.parquet"
PUFFIN = "s3://lake/tables/t/0.puffin"
VECTOR = {"file_format": FileFormat.PUFFIN, "referenced_data_file": DATA, "content_offset": 4}
WHOLE = VECTOR | {"content_size_in_bytes": 40}


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    yield
    SANDBOX.close()


def write(path: Path, *files: dict[str, Any], status: ManifestEntryStatus = ManifestEntryStatus.ADDED) -> ManifestFile:
    schema = manifest_entry_schema_with_data_file(3, data_file_with_partition(StructType(), 3))
    with AvroOutputFile[ManifestEntry](SealedIO({}).new_output(f"file://{path}"), schema, "manifest_entry") as output:
        for file in files:
            known = {
                "content": DataFileContent.POSITION_DELETES,
                "file_path": PUFFIN,
                "partition": Record(),
                "record_count": 2,
                "file_size_in_bytes": 400,
            }
            data_file = DataFile.from_args(3, **(known | file))
            output.write_block([ManifestEntry.from_args(3, status=status, snapshot_id=1, data_file=data_file)])
    return named(path)


def named(path: Path) -> ManifestFile:
    return ManifestFile.from_args(
        manifest_path=f"file://{path}",
        manifest_length=len(path.read_bytes()),
        partition_spec_id=0,
        content=ManifestContent.DELETES,
        sequence_number=1,
        min_sequence_number=1,
        added_snapshot_id=1,
    )


def deletes(manifest: ManifestFile) -> tuple[PositionDeletes, ...]:
    return ManifestIndex(SealedIO({})).get(manifest, RAW).deletes


def test_vectors_are_known_by_their_place(tmp_path: Path) -> None:
    plain = {
        "file_format": FileFormat.PARQUET,
        "file_path": "s3://lake/tables/t/1.parquet",
        "referenced_data_file": DATA,
    }
    found = deletes(write(tmp_path / "m.avro", WHOLE, plain))
    vector = PositionDeletes(PUFFIN, 2, vector=DeletionVector(DATA, 4, 40, 400))
    assert found == (vector, PositionDeletes("s3://lake/tables/t/1.parquet", 2))
    assert deletes(write(tmp_path / "gone.avro", WHOLE, status=ManifestEntryStatus.DELETED)) == ()


@pytest.mark.parametrize("absent", ["referenced_data_file", "content_offset", "content_size_in_bytes"])
def test_a_vector_without_a_place_cannot_be_applied(tmp_path: Path, absent: str) -> None:
    [found] = deletes(write(tmp_path / "m.avro", WHOLE | {absent: None}))
    assert "does not tell where they are and of which data file" in found.trouble
    assert found.vector is None


def test_no_manifest_of_deletes_ends_this_process(tmp_path: Path) -> None:
    path = tmp_path / "m.avro"
    write(path, WHOLE, WHOLE | {"content_offset": 44})
    whole = path.read_bytes()
    rng = random.Random(9)
    refused = 0
    for _ in range(MUTATIONS):
        damaged = bytearray(whole)
        for _ in range(rng.choice([1, 2, 6])):
            damaged[rng.randrange(len(whole))] = rng.choice([0, 255, rng.randrange(256)])
        path.write_bytes(damaged)
        try:
            deletes(named(path))
        except CorruptObject:
            refused += 1
    assert refused > MUTATIONS / 4


async def test_vectors_are_never_committed_nor_committed_upon(tmp_path: Path) -> None:
    """Not by engines through the embedded catalog, and not by the pipeline in one that takes everything."""
    vector = PositionDeletes(PUFFIN, 1, vector=DeletionVector(DATA, 4, 40, 400))

    async def test(table: StreamTable, view: View) -> None:
        engine = Outsider(table.tables, ORDERS, await table.append(view))
        file = iceberg_file(PUFFIN, content=DataFileContent.POSITION_DELETES)
        with patch("lakestream.catalog.manifests.index.to_deletes", lambda _: vector):
            with pytest.raises(TableRefused, match=r"0\.puffin has deletion vectors.*stays in format version 2"):
                await engine.commit_entries(file)
        with pytest.raises(StorageError, match="it has deletion vectors, which are read and never written"):
            check_view(replace(engine.view, deletes=(vector,)))

    await run_with_table(tmp_path, test)
