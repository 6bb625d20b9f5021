"""A flipped bit in a metadata file of ours is found before it is parsed; other engines' files are read with care."""

import random
from pathlib import Path

import pytest
from support.tables.files import ORDERS
from support.tables.stream_table import StreamTable, renamed, run_with_table

from lakestream.catalog.embedded.tables import PyIcebergTables
from lakestream.catalog.manifests.index import read_entries, read_manifests
from lakestream.catalog.sealed import SealedIO
from lakestream.errors import CorruptObject
from lakestream.table.view import View


async def test_every_kind_of_metadata_file_is_checked_by_its_name(tmp_path: Path) -> None:
    async def test(table: StreamTable, view: View) -> None:
        view = await table.append(await table.append(view))
        folder = table.root / "_iceberg"
        current = Path(view.metadata_location.removeprefix("file://"))
        manifest_list = max(folder.glob("snap-*.avro"), key=lambda path: path.name.split("-")[2])
        manifests = sorted(folder.glob("*-m0*.avro"))
        assert len(manifests) == 2
        rng = random.Random(1)
        for path in (current, manifest_list, *manifests):
            data = path.read_bytes()
            for position in rng.sample(range(len(data)), 40):
                damaged = bytearray(data)
                damaged[position] ^= 1 << rng.randrange(8)
                path.write_bytes(damaged)
                other = PyIcebergTables(table.store, f"file://{tmp_path}/bucket", table.tables.commits.runtime)
                with pytest.raises(CorruptObject, match="do not have the checksum that is in its name") as caught:
                    await other.load(ORDERS)
                assert path.name in str(caught.value)
                await other.close()
            path.write_bytes(data)
        assert await table.offsets() == [0, 1, 2, 3]

    await run_with_table(tmp_path, test)


async def test_manifests_of_other_engines_that_are_cut_short_or_lack_a_field_are_an_error(tmp_path: Path) -> None:
    async def test(table: StreamTable, view: View) -> None:
        await table.append(view)
        folder = table.root / "_iceberg"
        [manifest_list], [manifest] = folder.glob("snap-*.avro"), folder.glob("*-m0*.avro")
        files = SealedIO({})
        [entry] = read_manifests(files, f"file://{manifest_list}")
        foreign = folder / "foreign.avro"
        whole = manifest_list.read_bytes()
        for damaged in (
            b"",
            b"Obj",
            whole[:200],
            whole[:-20],
            whole.replace(b'"partition_spec_id"', b'"partition_spec_ie"'),
        ):
            foreign.write_bytes(damaged.replace(b'"field-id": 502', b'"field-id": 992'))
            with pytest.raises(CorruptObject, match=r"manifest list .*foreign\.avro"):
                read_manifests(files, f"file://{foreign}")
        foreign.write_bytes(manifest.read_bytes()[:-20])
        with pytest.raises(CorruptObject, match=r"manifest .*foreign\.avro"):
            read_entries(files, renamed(entry, f"file://{foreign}", entry.manifest_length))

    await run_with_table(tmp_path, test)
