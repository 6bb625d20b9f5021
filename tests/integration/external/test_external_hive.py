"""A real Hive Metastore: its lock alone fences nobody, so what a commit expects is compared, or none is made."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from unittest.mock import patch

import pytest
from conftest import need
from hive_metastore.ttypes import LockResponse, LockState, UnlockRequest
from support.servers.catalogs import Place, hive_place
from support.servers.hive import hive_archive, metastore, on_derby
from support.tables.files import ORDERS, write_file
from thrift.transport.TTransport import TTransportException

from lakestream.catalog.embedded.tables import PyIcebergTables
from lakestream.catalog.external.hive import _FencedClient
from lakestream.errors import Conflict, StorageError, Unavailable
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.runtime import system
from lakestream.table.view import View

pytestmark = pytest.mark.slow


async def run(place: Place, test: Callable[[PyIcebergTables, PyIcebergTables], Awaitable[None]]) -> None:
    """With two workers that share nothing but the metadata store and the catalog."""
    store = MemoryStore(system())
    workers = [place.tables(store, system()) for _ in range(2)]
    try:
        await test(workers[0], workers[1])
    finally:
        for worker in workers:
            await worker.close()


@pytest.fixture
def place(hive_uri: str, tmp_path: Path) -> Place:
    with hive_place(tmp_path, hive_uri).emptied() as place:
        return place


async def append(tables: PyIcebergTables, view: View, folder: Path) -> View:
    start = view.frontier[0]
    file = write_file(folder, start, start + 3)
    return await tables.commit(view, add=[file], remove=[], frontier=(start + 3,))


async def test_who_slept_through_the_end_of_his_lock_changes_nothing(place: Place, tmp_path: Path) -> None:
    """Between his look at the table and his alteration of it another has got the lock, and committed."""

    async def test(late: PyIcebergTables, other: PyIcebergTables) -> None:
        view = await late.create(ORDERS, "orders", 1)
        alter, loop = _FencedClient.alter_table_with_environment_context, asyncio.get_running_loop()
        between: list[View] = []

        def sleep_then_alter(client: _FencedClient, *arguments: object, **named: object) -> None:
            if named.get("tbl_name") == "orders" and not between:
                between.append(view)
                rival = asyncio.run_coroutine_threadsafe(append(other, view, tmp_path), loop)
                between[0] = rival.result(60)
            alter(client, *arguments, **named)

        ended = LockResponse(lockid=0, state=LockState.ACQUIRED)
        with (
            patch.object(_FencedClient, "lock", lambda *_: ended),
            patch.object(_FencedClient, "unlock", lambda *_: None),
            patch.object(_FencedClient, "alter_table_with_environment_context", sleep_then_alter),
        ):
            with pytest.raises(Conflict, match="has been modified"):
                await append(late, view, tmp_path)
        after = await late.load(ORDERS)
        assert after == between[0]
        assert (after.frontier, len(after.files)) == ((3,), 1)
        assert (await append(late, after, tmp_path)).frontier == (6,)

    await run(place, test)


async def test_a_commit_whose_answer_is_lost_is_found_by_the_next_look(place: Place, tmp_path: Path) -> None:
    """The lock stays until it ends by itself, so the table has a name that no other test uses."""

    async def test(tables: PyIcebergTables, other: PyIcebergTables) -> None:
        view = await tables.create(ORDERS, "cut-off", 1)
        view = await append(tables, view, tmp_path)
        alter = _FencedClient.alter_table_with_environment_context

        def cut_off(client: _FencedClient, *arguments: object, **named: object) -> None:
            """A client that is new to the Metastore alters another table first, to try it out."""
            alter(client, *arguments, **named)
            if named.get("tbl_name") == "cut_off":
                client._iprot.trans.close()
                raise TTransportException(message="gone")

        with patch.object(_FencedClient, "alter_table_with_environment_context", cut_off):
            with pytest.raises(Unavailable):
                await append(tables, view, tmp_path)
        found = await tables.load(ORDERS)
        assert (found.frontier, len(found.files)) == ((6,), 2)
        with pytest.raises(Conflict):
            await append(other, view, tmp_path)
        assert await other.load(ORDERS) == found

    await run(place, test)


async def test_a_lock_that_another_holds_is_a_conflict_that_leaves_nothing(place: Place, tmp_path: Path) -> None:
    """A worker that died with the lock has it until it ends by itself."""

    async def test(tables: PyIcebergTables, _: PyIcebergTables) -> None:
        view = await tables.create(ORDERS, "orders", 1)
        outsider = place.outsider()
        request = outsider._create_lock_request("default", "orders")  # type: ignore[attr-defined]
        with outsider._client as client:  # type: ignore[attr-defined]
            held = client.lock(request)
            before = set(tmp_path.rglob("*.avro"))
            with pytest.raises(Conflict, match="lock"):
                await append(tables, view, tmp_path)
            assert set(tmp_path.rglob("*.avro")) == before
            client.unlock(UnlockRequest(lockid=held.lockid))
        assert (await append(tables, view, tmp_path)).frontier == (3,)

    await run(place, test)


@pytest.mark.parametrize(("major", "words"), [("3", "does not compare"), ("4", "cannot compare")])
async def test_a_metastore_that_does_not_compare_is_refused(java: str, tmp_path: Path, major: str, words: str) -> None:
    archive = need(hive_archive(major), f"the Hive Metastore {major} (LAKESTREAM_HIVE_JARS)")

    async def test(tables: PyIcebergTables, _: PyIcebergTables) -> None:
        with pytest.raises(StorageError, match=f"{words} a table's metadata location"):
            await tables.create(ORDERS, "orders", 1)

    folder = tmp_path / "metastore"
    folder.mkdir()
    with metastore(java, archive, folder, on_derby(folder)) as uri:
        place = hive_place(tmp_path, uri)
        await run(place, test)
        with place.outsider()._client as client:  # type: ignore[attr-defined]
            assert client.get_all_tables("default") == []
