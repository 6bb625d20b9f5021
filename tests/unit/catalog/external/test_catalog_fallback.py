"""Which views of tables in an external catalog are served: in another format too, and never one in which rows are
back that were served as deleted. On PyIceberg's SQL catalog."""

import json
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from support.servers.catalogs import Place, sql_place
from support.tables.files import ORDERS, write_file

from lakestream.catalog.external.fallback import FallbackViews
from lakestream.catalog.external.tables import ExternalTables
from lakestream.errors import StorageError
from lakestream.metadata.names.pointers import Pointer, PointerRow, Pointers
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.runtime import system
from lakestream.table.view import View

pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option")
NAME = ("default", "orders")
Run = Callable[[Callable[["Scene"], Awaitable[None]]], Awaitable[None]]


@dataclass
class Scene:
    place: Place
    folder: Path
    store: MemoryStore
    opened: list[ExternalTables]
    outsider: Catalog
    first: View

    @property
    def table(self) -> Table:
        return self.outsider.load_table(NAME)

    def broker(self) -> FallbackViews:
        """One that starts now, and shares nothing with others."""
        tables = self.place.tables(self.store, system())
        self.opened.append(tables)
        return tables.broker_views()

    def change(self, **changes: object) -> str:
        """Registers changed metadata instead of the present one; its location."""
        past = self.table.metadata_location.removeprefix("file://")
        metadata = json.loads(Path(past).read_text()) | {key.replace("_", "-"): value for key, value in changes.items()}
        location = Path(past).with_name(f"99999-{len(self.opened)}.metadata.json")
        location.write_text(json.dumps(metadata))
        self.point(f"file://{location}")
        return f"file://{location}"

    def point(self, location: str) -> None:
        with closing(sqlite3.connect(self.folder / "catalog.db")) as connection, connection:
            connection.execute("UPDATE iceberg_tables SET metadata_location = ?", (location,))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a test on a table with six records."""

    async def main(test: Callable[[Scene], Awaitable[None]]) -> None:
        place, store = sql_place(tmp_path), MemoryStore(system())
        tables, outsider = place.tables(store, system()), place.outsider()
        opened = [tables]
        try:
            view = await tables.create(ORDERS, "orders", 1)
            file = write_file(tmp_path, 0, 6)
            view = await tables.commit(view, add=[file], remove=[], frontier=(6,))
            await test(Scene(place, tmp_path, store, opened, outsider, view))
        finally:
            for each in opened:
                await each.close()
            outsider.close()

    return main


async def test_format_3_is_read_and_never_committed_to(run: Run) -> None:
    async def test(scene: Scene) -> None:
        location = scene.change(format_version=3, next_row_id=6)
        [tables] = scene.opened
        words = "it was upgraded to format version 3, and the engine writes 2 only"
        for work in (
            tables.load(ORDERS),
            tables.pointer(ORDERS),
            tables.named(ORDERS),
            tables.create(ORDERS, "orders", 1),
            tables.commit(scene.first, add=[], remove=[], frontier=(6,)),
        ):
            with pytest.raises(StorageError, match=words):
                await work
        for broker in (scene.broker(), scene.broker()):
            assert await broker.pointer(ORDERS) == location
            view = await broker.load(ORDERS)
            assert (view.metadata_location, view.frontier, list(view.files)) == (location, (6,), [*scene.first.files])

        # It is what is fallen back on from now on.
        scene.outsider.drop_table(NAME)
        for each in (broker, scene.broker()):
            assert (await each.load(ORDERS)).metadata_location == location

    await run(test)


async def test_a_format_that_nobody_knows_yet_is_not_read(run: Run) -> None:
    async def test(scene: Scene) -> None:
        scene.change(format_version=4)
        assert (await scene.broker().load(ORDERS)).metadata_location == scene.first.metadata_location

    await run(test)


async def test_a_view_is_served_only_when_the_note_says_so(run: Run) -> None:
    """Another broker notes the view before a delete, just when this one is about to note the view after it."""

    async def test(scene: Scene) -> None:
        with scene.table.transaction() as change:
            change.set_properties({"mine": "1"})
        older = scene.table.metadata_location
        scene.table.delete("_offset = 1")
        newer = scene.table.metadata_location
        swing, swung = Pointers.swing, list[Any]()

        async def rival_first(self: Pointers, table_id: Any, version: int, pointer: Pointer) -> PointerRow:
            if not swung:
                swung.append(await swing(self, table_id, version, Pointer(older, bound=True)))
            return await swing(self, table_id, version, pointer)

        broker = scene.broker()
        with patch.object(Pointers, "swing", rival_first):
            assert (await broker.load(ORDERS)).metadata_location == newer
        assert swung
        scene.outsider.drop_table(NAME)
        for each in (broker, scene.broker()):
            assert (await each.load(ORDERS)).metadata_location == newer

    await run(test)


async def test_an_older_view_is_not_fallen_back_on(run: Run) -> None:
    """This broker has it in memory; another has served a newer one, which cannot be read any more."""

    async def test(scene: Scene) -> None:
        slow = scene.broker()
        assert (await slow.load(ORDERS)).metadata_location == scene.first.metadata_location
        scene.table.delete("_offset = 1")
        newer = (await scene.broker().load(ORDERS)).metadata_location
        scene.outsider.drop_table(NAME)
        place = Path(newer.removeprefix("file://"))
        hidden = place.rename(place.with_suffix(".hidden"))
        for broker in (slow, scene.broker()):
            with pytest.raises(StorageError, match="so it was dropped or renamed"):
                await broker.load(ORDERS)
        hidden.rename(place)
        for broker in (slow, scene.broker()):
            assert (await broker.load(ORDERS)).metadata_location == newer

    await run(test)
