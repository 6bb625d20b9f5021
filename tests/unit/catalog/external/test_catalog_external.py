"""Tables in a catalog that cannot refuse: what somebody did to one is found, nothing is committed on top, and what was
good is served on. On PyIceberg's SQL catalog."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ServiceUnavailableError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import SetLocationUpdate, SetSnapshotRefUpdate
from pyiceberg.types import LongType, NestedField
from support.servers.catalogs import Place, sql_place
from support.tables.files import ORDERS, write_file

from lakestream.catalog.external.client import CatalogClient
from lakestream.catalog.external.fallback import FallbackViews
from lakestream.catalog.external.tables import ExternalTables
from lakestream.errors import Conflict, RequestError, StorageError, Unavailable
from lakestream.metadata import codec
from lakestream.metadata.log.head import HEAD, Head, shard_of
from lakestream.metadata.log.partition import head_address
from lakestream.metadata.store import Transaction
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.model import StreamPartition
from lakestream.runtime import system
from lakestream.table.schema import CLUSTER_PROPERTY, FRONTIER_PROPERTY, TOPIC_ID_PROPERTY
from lakestream.table.view import View

Run = Callable[[Callable[["Scene"], Awaitable[None]]], Awaitable[None]]
NAME = ("default", "orders")
SQL = "pyiceberg.catalog.sql.SqlCatalog"


@dataclass
class Scene:
    place: Place
    folder: Path
    store: MemoryStore
    tables: ExternalTables
    views: FallbackViews
    outsider: Catalog

    @property
    def table(self) -> Table:
        return self.outsider.load_table(NAME)

    async def append(self, count: int = 3) -> View:
        view = await self.tables.load(ORDERS)
        start = view.frontier[0]
        file = write_file(self.folder, start, start + count)
        return await self.tables.commit(view, add=[file], remove=[], frontier=(start + count,))

    async def tell_log(self, frontier: int) -> None:
        """That the table holds everything below."""
        partition = StreamPartition(ORDERS, 0)
        row = codec.encode(Head(next_offset=frontier, frontier=frontier), head_address(partition))
        await self.store.transact([Transaction(shard_of(partition), {}, {HEAD: row})])

    def restarted(self) -> FallbackViews:
        """A broker that starts now."""
        return self.tables.broker_views()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a test on a table with three records that brokers have seen."""

    async def main(test: Callable[[Scene], Awaitable[None]]) -> None:
        place, store = sql_place(tmp_path), MemoryStore(system())
        tables, outsider = place.tables(store, system()), place.outsider()
        scene = Scene(place, tmp_path, store, tables, tables.broker_views(), outsider)
        try:
            await tables.create(ORDERS, "orders", 1)
            await scene.append()
            await scene.views.load(ORDERS)
            await test(scene)
        finally:
            await tables.close()
            outsider.close()

    return main


def drop_column(scene: Scene) -> None:
    with scene.table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("_value")


def rename_column(scene: Scene) -> None:
    with scene.table.update_schema() as update:
        update.rename_column("_key", "mine")


def unbind(scene: Scene) -> None:
    with scene.table.transaction() as change:
        change.remove_properties(TOPIC_ID_PROPERTY)


def unmark(scene: Scene) -> None:
    with scene.table.transaction() as change:
        change.remove_properties(CLUSTER_PROPERTY)


def take_over(scene: Scene) -> None:
    with scene.table.transaction() as change:
        change.set_properties({CLUSTER_PROPERTY: "another"})


def move(scene: Scene) -> None:
    scene.outsider.commit_table(scene.table, (), (SetLocationUpdate(location="file:///elsewhere"),))


def replace(scene: Scene) -> None:
    scene.outsider.drop_table(NAME)
    scene.outsider.create_table(NAME, Schema(NestedField(1, "mine", LongType())))


def rename(scene: Scene) -> None:
    scene.outsider.rename_table(NAME, ("default", "renamed"))


def drop(scene: Scene) -> None:
    scene.outsider.drop_table(NAME)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (drop_column, "column _value of a stream's table cannot be dropped"),
        (rename_column, "column _key of a stream's table cannot be dropped, renamed"),
        (unbind, "property lakestream.topic-id is None"),
        (unmark, "property lakestream.cluster-id was removed, so the table may be anybody's"),
        (take_over, "cluster another has taken it over"),
        (move, "its location was moved to file:///elsewhere"),
        (replace, "another table has taken its place"),
        (rename, "so it was dropped or renamed"),
        (drop, "so it was dropped or renamed"),
    ],
)
async def test_damage_stops_commits_and_the_last_good_view_is_served(
    run: Run, damage: Callable[[Scene], None], words: str
) -> None:
    async def test(scene: Scene) -> None:
        good = await scene.append()
        assert await scene.views.load(ORDERS) == good
        damage(scene)
        for work in (scene.tables.load(ORDERS), scene.tables.pointer(ORDERS), scene.tables.named(ORDERS)):
            with pytest.raises(StorageError, match=words):
                await work
        with pytest.raises(StorageError, match=words):
            await scene.tables.commit(good, add=[], remove=[], frontier=(7,))
        with pytest.raises(StorageError, match=words):
            await scene.tables.create(ORDERS, "orders", 1)
        assert await scene.views.load(ORDERS) == good
        served = await scene.restarted().load(ORDERS)
        assert (list(served.files), served.frontier) == (list(good.files), (6,))

    await run(test)


async def test_a_table_that_went_back_is_not_served(run: Run) -> None:
    async def test(scene: Scene) -> None:
        past = scene.table.metadata_location
        good = await scene.append()
        await scene.tell_log(6)
        scene.outsider.drop_table(NAME)
        scene.outsider.register_table(NAME, past)
        back = await scene.tables.load(ORDERS)
        assert back.frontier == (3,)
        with pytest.raises(Conflict, match="set back"):
            await scene.tables.commit(back, add=[], remove=[], frontier=(3,))
        for views in (scene.views, scene.restarted()):
            assert (await views.load(ORDERS)).frontier == good.frontier

    await run(test)


@pytest.mark.parametrize("frontier", ["99", "0", None, "nonsense"])
async def test_the_frontier_outlives_a_change_of_its_property(run: Run, frontier: str | None) -> None:
    async def test(scene: Scene) -> None:
        with scene.table.transaction() as change:
            if frontier is None:
                change.remove_properties(FRONTIER_PROPERTY)
            else:
                change.set_properties({FRONTIER_PROPERTY: frontier})
        assert (await scene.tables.load(ORDERS)).frontier == (3,)
        assert (await scene.append()).frontier == (6,)
        assert scene.table.properties[FRONTIER_PROPERTY] == "6"

    await run(test)


async def test_a_frontier_that_nothing_proves_is_an_alarm(run: Run) -> None:
    async def test(scene: Scene) -> None:
        with scene.table.transaction() as change:
            change.set_properties({FRONTIER_PROPERTY: "99"})
        with (
            patch("lakestream.catalog.rules.vector.vector_of", return_value=None),
            pytest.raises(StorageError, match="99"),
        ):
            await scene.place.tables(scene.store, system()).load(ORDERS)

    await run(test)


async def test_a_rollback_is_a_delete(run: Run) -> None:
    async def test(scene: Scene) -> None:
        first = scene.table.metadata.current_snapshot_id
        await scene.append()
        back = SetSnapshotRefUpdate.model_validate({"ref-name": "main", "type": "branch", "snapshot-id": first})
        scene.outsider.commit_table(scene.table, (), (back,))
        view = await scene.views.load(ORDERS)
        assert (view.frontier, len(view.files)) == ((6,), 1)
        assert (await scene.append()).frontier == (9,)

    await run(test)


async def test_a_commit_between_load_and_commit_is_a_conflict(
    run: Run,
) -> None:
    async def test(scene: Scene) -> None:
        view = await scene.tables.load(ORDERS)
        current = await scene.tables.commits.load(ORDERS)
        assert current is not None
        await scene.append()
        file = write_file(scene.folder, 3, 5)
        with patch.object(scene.tables.commits, "load", return_value=current), pytest.raises(Conflict):
            await scene.tables.commit(view, add=[file], remove=[], frontier=(5,))
        assert (await scene.tables.load(ORDERS)).frontier == (6,)

    await run(test)


async def test_a_commit_that_was_sent_twice_is_one_commit(run: Run) -> None:
    """The second is refused because of the first; nothing of the first may be deleted for that."""

    async def test(scene: Scene) -> None:
        commit_table = type(scene.outsider).commit_table

        def twice(catalog: Catalog, *arguments: object) -> object:
            commit_table(catalog, *arguments)  # type: ignore[arg-type]
            return commit_table(catalog, *arguments)  # type: ignore[arg-type]

        with patch(f"{SQL}.commit_table", twice):
            view = await scene.append()
        assert (view.frontier, len(view.files)) == ((6,), 2)
        assert list((await scene.tables.load(ORDERS)).files) == list(view.files)
        assert (await scene.append()).frontier == (9,)
        assert scene.table.scan(selected_fields=("_offset",)).to_arrow().num_rows == 9

    await run(test)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (CommitStateUnknownException("gateway"), Unavailable),
        (ServiceUnavailableError("later"), Unavailable),
        (ConnectionResetError("gone"), Unavailable),
        (CommitFailedException("no"), Conflict),
    ],
)
async def test_outcomes_are_told_apart(run: Run, error: Exception, expected: type[Exception]) -> None:
    async def test(scene: Scene) -> None:
        with patch(f"{SQL}.commit_table", side_effect=error), pytest.raises(expected):
            await scene.append()
        assert (await scene.append()).frontier == (6,)

    await run(test)


async def test_a_catalog_that_does_not_answer_stops_no_reader(
    run: Run,
) -> None:
    async def test(scene: Scene) -> None:
        good = await scene.append()
        with patch(f"{SQL}.load_table", side_effect=ConnectionRefusedError("no")):
            with pytest.raises(Unavailable, match="asked for table"):
                await scene.tables.load(ORDERS)
            assert (await scene.restarted().load(ORDERS)).frontier == good.frontier
            assert await scene.restarted().pointer(ORDERS) == good.metadata_location
        assert await scene.views.load(ORDERS) == good

    await run(test)


def test_settings_that_name_no_catalog_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RequestError, match="have no catalog 'nowhere': set PYICEBERG_CATALOG__NOWHERE__URI"):
        CatalogClient("nowhere", {})
    monkeypatch.setenv("PYICEBERG_CATALOG__ODD__TYPE", "oddity")
    with pytest.raises(RequestError, match="cannot be used"):
        CatalogClient("odd", {})
    monkeypatch.setenv("PYICEBERG_CATALOG__HONEY__TYPE", "hive")
    monkeypatch.setenv("PYICEBERG_CATALOG__HONEY__URI", "thrift://127.0.0.1:9083")
    with patch("lakestream.catalog.external.client.find_spec", return_value=None):
        with pytest.raises(RequestError, match="type hive, which needs more than is installed: pip install"):
            CatalogClient("honey", {})
    monkeypatch.setenv("PYICEBERG_CATALOG__BOOKS__URI", "postgresql+psycopg2://user:secret@127.0.0.1/books")
    assert CatalogClient("books", {}).place == "books (sql, postgresql+psycopg2://127.0.0.1/books)"


async def test_a_commit_that_comes_before_the_rename_of_a_detached_table_costs_a_try(run: Run) -> None:
    """A Metastore compares when it renames, too."""

    async def test(scene: Scene) -> None:
        refusals = [CommitFailedException("the table has been modified")] * 2
        with patch(f"{SQL}.rename_table", side_effect=[*refusals, None]) as rename:
            assert await scene.tables.detach(ORDERS) == "default.orders__11111111"
        assert rename.call_count == 3

    await run(test)


async def test_a_table_that_changes_all_the_time_is_left_to_the_next_who_detaches(run: Run) -> None:
    async def test(scene: Scene) -> None:
        with patch(f"{SQL}.rename_table", side_effect=CommitFailedException("the table has been modified")):
            with pytest.raises(Conflict):
                await scene.tables.detach(ORDERS)
        assert await scene.tables.detach(ORDERS) == "default.orders__11111111"
        assert ("default", "orders__11111111") in scene.outsider.list_tables("default")

    await run(test)
