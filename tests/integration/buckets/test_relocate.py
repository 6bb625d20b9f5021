"""A copy of a data directory: refused as it is, and after `lakestream bucket relocate` a bucket of its own address that
never reaches into the original."""

import json
import shutil
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import pytest_asyncio
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.typedef import Record
from support.clients.commands import invoke
from support.clients.outsider import Outsider
from support.worlds.files import FileWorld, file_world

from lakestream.bucket.identity import read_identities
from lakestream.bucket.relocate import Place, relocate
from lakestream.cli.main import app
from lakestream.errors import RequestError, StorageError, Unavailable
from lakestream.metadata.counters import known_cluster
from lakestream.metadata.names.pointers import Pointers
from lakestream.metadata.store import Outcome, Transaction
from lakestream.metadata.topics.list import Topics
from lakestream.node.bucket import relocate_bucket
from lakestream.node.storage.backends import metadata_place, open_backends, open_unchecked
from lakestream.node.storage.tables import open_catalog
from lakestream.settings import Settings, load

pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option")


VIEW = {
    "name": "seen",
    "schema": {"type": "struct", "fields": [{"id": 1, "name": "n", "type": "int", "required": False}]},
    "view-version": {
        "version-id": 1,
        "timestamp-ms": 1,
        "schema-id": 0,
        "summary": {"engine-name": "test"},
        "default-namespace": ["lab"],
        "representations": [{"type": "sql", "sql": "select 1 as n", "dialect": "spark"}],
    },
    "properties": {},
}


def at(data: Path) -> Settings:
    return load(None, {}, {"data_dir": str(data)})


def tree(data: Path) -> dict[str, bytes]:
    """What is in a directory, but for the database's own files: a reader of it touches those."""
    return {
        str(path.relative_to(data)): blake2b(path.read_bytes()).digest()
        for path in sorted(data.rglob("*"))
        if path.is_file() and not path.name.startswith("metadata.db")
    }


PATH_COLUMN = 2147483546


async def delete_row(settings: Settings) -> None:
    """Offset 1 of partition 0, as engines do that rewrite no files: (path, position) pairs in a file of their own."""
    async with open_backends(settings) as backends, open_catalog(backends) as catalog:
        [topic] = await Topics(backends.store, backends.runtime).list()
        loaded = await catalog.load(topic.topic_id)
        [victim] = [
            file for file in loaded.files if file.offset_min == 0 and 0 in (file.partition_min, file.partition_max)
        ]
        path = f"{loaded.location}/data/deletes.parquet"
        columns = pa.schema(
            [
                pa.field("file_path", pa.string(), False, {"PARQUET:field_id": str(PATH_COLUMN)}),
                pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
            ]
        )
        data = pa.BufferOutputStream()
        pq.write_table(pa.table({"file_path": [victim.path], "pos": [1]}, schema=columns), data)
        written = data.getvalue().to_pybytes()
        await backends.objects.put(path.removeprefix(f"{backends.objects.url}/"), [written])
        bounds = {PATH_COLUMN: victim.path.encode()}
        file = IcebergFile.from_args(
            content=DataFileContent.POSITION_DELETES,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=1,
            file_size_in_bytes=len(written),
            lower_bounds=bounds,
            upper_bounds=bounds,
        )
        await Outsider(catalog, topic.topic_id, loaded).commit_entries(file)


def table_rows(house: FileWorld, table: str = "default.orders") -> list[tuple[int, int]]:
    scan = RestCatalog("x", uri=house.catalog).load_table(table).scan(selected_fields=("_stream_partition", "_offset"))
    return sorted((row["_stream_partition"], row["_offset"]) for row in scan.to_arrow().to_pylist())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records in the table, with a Delta mirror's worth of history, and in the tail; rows deleted by position; a view;
    an engine's own table; a namespace that says where it is."""
    data = tmp_path_factory.mktemp("original") / "data"
    with file_world(data) as house:
        house.create("orders", 2)
        for number in range(3):
            house.produce("orders", [f"{number}-{index}" for index in range(4)], partition=0)
            house.produce("orders", [f"{number}+{index}" for index in range(2)], partition=1)
            await house.move()
        await delete_row(house.settings)
        catalog = RestCatalog("x", uri=house.catalog)
        catalog.create_namespace("lab", {"location": f"file://{data}/bucket/warehouse/lab"})
        own = catalog.create_table("lab.own", catalog.load_table("default.orders").schema())
        own.append(catalog.load_table("default.orders").scan().to_arrow())
        assert httpx.post(f"{house.catalog}/v1/namespaces/lab/views", json=VIEW).status_code == 200
        house.consume_as("readers", "orders", 2)
        house.produce("orders", ["in the tail"], partition=0)
    return data


@pytest.fixture
def copy(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "copy")
    return tmp_path / "copy"


EXPECTED = [
    (0, 0, "0-0"),
    *((0, 4 * n + i, f"{n}-{i}") for n in range(3) for i in range(4) if (n, i) not in ((0, 0), (0, 1))),
    (0, 12, "in the tail"),
    *((1, 2 * n + i, f"{n}+{i}") for n in range(3) for i in range(2)),
]


@pytest.mark.parametrize("new_cluster", [False, True], ids=["moved", "cluster of its own"])
async def test_a_copy_lives_on_at_its_own_address_and_never_touches_the_original(
    original: Path, copy: Path, new_cluster: bool
) -> None:
    before = tree(original)
    refused = await invoke(app, ["table", "maintain", "--data", str(copy)])
    assert refused.exit_code == 1
    assert "lakestream bucket relocate" in refused.output
    arguments = ["bucket", "relocate", "--data", str(copy), "--json", *(["--new-cluster"] if new_cluster else [])]
    done = await invoke(app, arguments)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["tables"], told["views"], told["outside"]) == (2, 1, [])
    again = await invoke(app, arguments)
    assert "there is nothing to do" in again.output
    with file_world(copy) as house:
        assert house.consume("orders", 2) == EXPECTED
        house.produce("orders", ["after"], partition=1)
        assert await house.move() == 2
        assert house.consume_as("readers", "orders", 2) == [(0, 12, "in the tail"), (1, 6, "after")]
        assert len(table_rows(house)) == len(EXPECTED) + 1
        assert len(table_rows(house, "lab.own")) == len(EXPECTED) - 1
        catalog = RestCatalog("x", uri=house.catalog)
        assert catalog.load_namespace_properties("lab")["location"] == f"file://{copy}/bucket/warehouse/lab"
        seen = httpx.get(f"{house.catalog}/v1/namespaces/lab/views/seen").json()
        assert seen["metadata-location"].startswith(f"file://{copy}/")
        catalog.drop_table("lab.own", purge_requested=True)
    assert not names_of(original, copy)
    assert tree(original) == before
    with file_world(original) as house:
        assert house.consume("orders", 2) == EXPECTED


def names_of(original: Path, copy: Path) -> list[Path]:
    """Files of the copy that name the original: metadata is not compressed, and what is in manifests is read above."""
    return [path for path in copy.rglob("*.json") if str(original).encode() in path.read_bytes()]


async def test_a_cluster_of_its_own_collects_what_it_took_over(copy: Path) -> None:
    async with open_unchecked(at(copy)) as backends:
        old = await known_cluster(backends.store)
    done = await relocate_bucket(at(copy), new_cluster=True, old="", tell=lambda _: None)
    assert done.cluster_id != old
    async with open_backends(at(copy)) as backends:
        assert set(await read_identities(backends.objects)) == {done.cluster_id}


class Dying:
    """A bucket and a metadata store of a process that dies at its n-th change of either, before or after it."""

    def __init__(self, objects: Any, store: Any, changes: int) -> None:
        self.objects, self.store, self.left, self.after = objects, store, changes, bool(changes % 2)

    async def change(self, work: Any) -> Any:
        self.left -= 1
        if self.left == 0 and not self.after:
            work.close()
        else:
            done = await work
        if self.left == 0:
            raise Unavailable("it died")
        return done

    @property
    def url(self) -> str:
        return str(self.objects.url)

    async def put(self, key: str, parts: Any, *, overwrite: bool = False) -> None:
        await self.change(self.objects.put(key, parts, overwrite=overwrite))

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            await self.change(self.objects.delete([key]))

    async def transact(self, transactions: Sequence[Transaction]) -> list[Outcome]:
        return list(await self.change(self.store.transact(transactions)))


class Objects:
    """The bucket's half of it: both have a method `get`."""

    def __init__(self, dying: Dying) -> None:
        self.put, self.delete, self.url = dying.put, dying.delete, dying.url
        self.get, self.list = dying.objects.get, dying.objects.list


class Rows:
    def __init__(self, dying: Dying) -> None:
        self.transact = dying.transact
        self.get, self.range, self.shards = dying.store.get, dying.store.range, dying.store.shards
        self.leases = dying.store.leases


def deaths() -> Iterator[int]:
    return iter((*range(1, 30), *range(30, 200, 7)))


@pytest.mark.parametrize("new_cluster", [False, True], ids=["moved", "cluster of its own"])
async def test_it_may_die_anywhere_and_be_run_again(original: Path, tmp_path: Path, new_cluster: bool) -> None:
    before = tree(original)
    whole = 0
    for changes in deaths():
        copy = tmp_path / f"copy{changes}"
        shutil.copytree(original, copy)

        async def die(copy: Path = copy, changes: int = changes) -> bool:
            async with open_unchecked(at(copy)) as backends:
                dying = Dying(backends.objects, backends.store, changes)
                place = Place(Rows(dying), Objects(dying), backends.runtime, metadata_place(at(copy)))  # type: ignore[arg-type]
                try:
                    await relocate(place, new_cluster=new_cluster, tell=lambda _: None)
                except Unavailable:
                    return True
                return False

        async def check(copy: Path = copy) -> None:
            try:
                async with open_backends(at(copy)):
                    pass
            except RequestError as error:
                if "relocate" not in str(error):
                    raise
                await relocate_bucket(at(copy), new_cluster=new_cluster, old="", tell=lambda _: None)
            async with open_backends(at(copy)) as backends, open_catalog(backends) as catalog:
                here = f"{backends.objects.url}/"
                async for table_id, row in Pointers(backends.store).every():
                    assert row.pointer.metadata_location.startswith(here)
                    reachable = await catalog.reachable(table_id)
                    assert all(path.startswith(here) for path in reachable.files), reachable.files

        died = await die()
        await check()
        shutil.rmtree(copy)
        whole += not died
        if whole:
            break
    assert whole
    assert tree(original) == before


async def test_a_copy_that_is_not_whole_is_refused_before_anything_changes(copy: Path) -> None:
    for victims in ([*(copy / "bucket/wal").rglob("*.wal")], [*(copy / "bucket/tables").rglob("*.avro")]):
        assert victims
        kept = {victim: victim.read_bytes() for victim in victims}
        for victim in victims:
            victim.unlink()
        before = tree(copy)
        with pytest.raises((RequestError, StorageError), match=r"Copy it again"):
            await relocate_bucket(at(copy), new_cluster=False, old="", tell=lambda _: None)
        assert before.items() <= tree(copy).items()
        for victim, data in kept.items():
            victim.write_bytes(data)
    await relocate_bucket(at(copy), new_cluster=False, old="", tell=lambda _: None)


async def test_the_same_directory_under_another_name_is_not_moved(original: Path, tmp_path: Path) -> None:
    before = tree(original)
    (tmp_path / "copy").mkdir()
    shutil.copy(original / "metadata.db", tmp_path / "copy/metadata.db")
    (tmp_path / "copy/bucket").symlink_to(original / "bucket")
    with pytest.raises(RequestError, match="is the same directory as"):
        await relocate_bucket(at(tmp_path / "copy"), new_cluster=True, old="", tell=lambda _: None)
    assert tree(original) == before


async def test_a_copy_of_the_version_before_is_moved_from_where_its_owner_says(original: Path, copy: Path) -> None:
    shutil.rmtree(copy / "bucket/lakestream")
    with pytest.raises(RequestError, match="--from"):
        async with open_backends(at(copy)):
            pass
    await relocate_bucket(at(copy), new_cluster=True, old=f"file://{original}/bucket", tell=lambda _: None)
    with file_world(copy) as house:
        assert house.consume("orders", 2) == EXPECTED
