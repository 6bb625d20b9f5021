"""A bucket says whose it is and where; every start compares that with what it was given."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from lakestream.bucket.identity import Identity, decode, encode, key_of, read_identities
from lakestream.errors import RequestError
from lakestream.metadata.counters import known_cluster
from lakestream.metadata.names.pointers import Pointer, Pointers
from lakestream.node.storage.backends import open_backends, open_unchecked
from lakestream.runtime import system
from lakestream.settings import Settings, load


def at(data: Path | str, **more: str) -> Settings:
    return load(None, {}, {"data_dir": str(data), **more})


async def start(settings: Settings) -> str:
    async with open_backends(settings) as backends:
        known = await known_cluster(backends.store)
        assert known is not None
        return known


async def begin(settings: Settings) -> str:
    return await start(settings)


async def test_a_new_bucket_gets_an_identity_and_keeps_it(tmp_path: Path) -> None:
    cluster = await begin(at(tmp_path / "data"))
    assert await begin(at(tmp_path / "data")) == cluster
    path = tmp_path / "data/bucket" / key_of(cluster)
    assert decode(path.read_bytes(), "it").bucket == f"file://{tmp_path}/data/bucket"


async def test_two_processes_that_begin_at_once_agree(tmp_path: Path) -> None:
    found = await asyncio.gather(*(start(at(tmp_path / "data")) for _ in range(8)))
    assert len(set(found)) == 1


@pytest.mark.parametrize("how", ["copy", "move"])
async def test_a_copied_or_moved_directory_is_refused(tmp_path: Path, how: str) -> None:
    await begin(at(tmp_path / "data"))
    if how == "copy":
        shutil.copytree(tmp_path / "data", tmp_path / "other")
    else:
        (tmp_path / "data").rename(tmp_path / "other")
    with pytest.raises(RequestError, match=r"lakestream bucket relocate.*--new-cluster"):
        await begin(at(tmp_path / "other"))


async def test_other_names_of_the_same_directory_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = await begin(at(tmp_path / "data"))
    (tmp_path / "link").symlink_to(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    for name in (tmp_path / "link", "data", "./data/", f"{tmp_path}/data/", "link/../data"):
        assert await begin(at(name)) == cluster
    assert await begin(
        at("x", bucket_url=f"file://{tmp_path}/data/bucket/", metadata_url=f"sqlite://{tmp_path}/link/metadata.db")
    )


async def test_a_copy_whose_bucket_is_a_link_to_the_original_is_refused(tmp_path: Path) -> None:
    await begin(at(tmp_path / "data"))
    (tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / "data/metadata.db", tmp_path / "copy/metadata.db")
    (tmp_path / "copy/bucket").symlink_to(tmp_path / "data/bucket")
    with pytest.raises(RequestError, match="relocate"):
        await begin(at(tmp_path / "copy"))


async def test_a_second_metadata_file_on_the_same_bucket_is_refused(tmp_path: Path) -> None:
    await begin(at(tmp_path / "data"))
    shutil.copy(tmp_path / "data/metadata.db", tmp_path / "second.db")
    with pytest.raises(RequestError, match=r"has its metadata in .*data/metadata\.db"):
        await begin(at(tmp_path / "data", metadata_url=f"sqlite://{tmp_path}/second.db"))


async def test_a_lost_metadata_file_begins_no_second_life(tmp_path: Path) -> None:
    await begin(at(tmp_path / "data"))
    for path in tmp_path.glob("data/metadata.db*"):
        path.unlink()
    for _ in range(2):
        with pytest.raises(RequestError, match="lakestream recover"):
            await begin(at(tmp_path / "data"))


async def test_metadata_of_another_cluster_is_refused(tmp_path: Path) -> None:
    await begin(at(tmp_path / "a"))
    await begin(at(tmp_path / "b"))
    with pytest.raises(RequestError, match="give both of one cluster"):
        await begin(at(tmp_path / "a", metadata_url=f"sqlite://{tmp_path}/b/metadata.db"))


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "newer"])
async def test_a_damaged_identity_is_refused_and_said_how_to_mend(tmp_path: Path, damage: str) -> None:
    cluster = await begin(at(tmp_path / "data"))
    path = tmp_path / "data/bucket" / key_of(cluster)
    text = path.read_bytes()
    changed = {
        "cut": text[:40],
        "changed": text.replace(b"/data/bucket", b"/date/bucket"),
        "empty": b"",
        "newer": text.replace(b'"format": 1', b'"format": 2'),
    }
    path.write_bytes(changed[damage])
    with pytest.raises(RequestError, match="format 2" if damage == "newer" else "delete that object"):
        await begin(at(tmp_path / "data"))


async def version_before(data: Path, table_at: Path) -> None:
    """As the version before left it: a cluster, a table, an object, no identity."""
    async with open_backends(at(data)) as backends:
        place = Pointer(f"file://{table_at}/bucket/tables/t/_iceberg/00001-a.metadata.json", bound=True)
        await Pointers(backends.store).add(system().new_id(), place)
        await backends.objects.put("tables/t/_iceberg/00001-a.metadata.json", [b"{}"])
    shutil.rmtree(data / "bucket/lakestream")


async def test_a_directory_of_the_version_before_gets_its_identity(tmp_path: Path) -> None:
    await version_before(tmp_path / "data", tmp_path / "data")
    cluster = await begin(at(tmp_path / "data"))
    assert (tmp_path / "data/bucket" / key_of(cluster)).exists()


async def test_a_copied_directory_of_the_version_before_is_refused(tmp_path: Path) -> None:
    await version_before(tmp_path / "data", tmp_path / "somewhere")
    with pytest.raises(RequestError, match=r"relocate --from"):
        await begin(at(tmp_path / "data"))
    assert not (tmp_path / "data/bucket/lakestream").exists()


async def test_a_lost_metadata_file_of_the_version_before_is_noticed(tmp_path: Path) -> None:
    await version_before(tmp_path / "data", tmp_path / "data")
    os.unlink(tmp_path / "data/metadata.db")
    with pytest.raises(RequestError, match="lakestream recover"):
        await begin(at(tmp_path / "data"))


async def test_a_store_that_has_lived_is_refused_on_an_empty_bucket(tmp_path: Path) -> None:
    await version_before(tmp_path / "data", tmp_path / "data")
    shutil.rmtree(tmp_path / "data/bucket")
    with pytest.raises(RequestError, match="is it the right one"):
        await begin(at(tmp_path / "data"))


async def test_what_is_written_reads_back(tmp_path: Path) -> None:
    identity = Identity("abc", "s3://lake", "sqlite:///m.db")
    assert decode(encode(identity), "it") == identity
    async with open_unchecked(at(tmp_path / "data")) as backends:
        await backends.objects.put(key_of("xyz"), [encode(identity)])
        with pytest.raises(RequestError, match="delete it"):
            await read_identities(backends.objects)
