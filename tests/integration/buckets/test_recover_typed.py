"""Typed tables, and those derived of them, whose metadata store is lost and whose bucket is moved: columns, schemas and
letters are there again, and streams go on."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError
from support.clients.commands import invoke
from support.worlds.files import FileWorld, file_world

from lakestream.bucket.saved import Saver
from lakestream.cli.main import app
from lakestream.frontier.derived.deriving import Deriver
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.tiles.local import LocalTiles
from lakestream.frontier.moving.worker import Worker
from lakestream.frontier.settings import PipelineSettings
from lakestream.metadata.topics.list import Topics
from lakestream.node.storage.backends import open_backends
from lakestream.node.storage.schemas import make_schemas
from lakestream.node.storage.tables import open_catalog

pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option")

FIRST = ['{"id": 1, "item": "a"}', '{"id": 2}', "no json"]
SECOND = ['{"id": 1, "item": "b"}', '{"id":3,"note":"n"}', "none either"]


async def moved(house: FileWorld) -> None:
    """As a pipeline does: what is due, then what is derived of it."""
    async with open_backends(house.settings) as backends, open_catalog(backends) as catalog:
        tiles, runtime = LocalTiles(backends.objects, backends.runtime), backends.runtime
        derived: Any = catalog.derived  # type: ignore[attr-defined]
        schemas = make_schemas(backends)
        lake = Lake(
            backends.store, catalog, backends.objects, tiles, runtime, PipelineSettings(), None, derived, schemas
        )
        topics = Topics(backends.store, runtime)
        worker = Worker(lake, topics, name="tests")
        while (tick := await worker.tick()).topics:
            assert not tick.failures, tick.failures
        deriver = Deriver(lake, topics, derived, name="tests", respect_leases=False)
        while (done := await deriver.run()).more:
            pass
        assert not done.failures, done.failures
        await Saver(backends.store, backends.objects, runtime).save()


def columns(house: FileWorld, table: str, *names: str) -> list[tuple[Any, ...]]:
    catalog = RestCatalog("lake", uri=house.catalog)
    try:
        found: pa.Table = catalog.load_table(f"default.{table}").scan().to_arrow()
    except NoSuchTableError:
        return []
    finally:
        catalog.close()
    ordered = found.sort_by("_offset" if "_offset" in found.column_names else names[0])
    return [tuple(row[name] for name in names) for row in ordered.to_pylist()]


def make(house: FileWorld) -> None:
    """A stream that begins as a table, in plain JSON, with a table of latest rows."""
    catalog = RestCatalog("lake", uri=house.catalog)
    properties = {
        "lakestream.stream": "true",
        "lakestream.partitions": "1",
        "lakestream.value.format": "json",
        "lakestream.table.upsert": "id",
        "lakestream.table.freshness.ms": "-1",
    }
    fields = pa.schema([("id", pa.int64()), ("item", pa.string())])
    catalog.create_table("default.orders", fields, properties=properties)
    catalog.close()


def add_note(house: FileWorld) -> None:
    catalog = RestCatalog("lake", uri=house.catalog)
    with catalog.load_table("default.orders").update_schema() as change:
        change.union_by_name(pa.schema([("note", pa.string())]))
    catalog.close()


@pytest.mark.parametrize("loss", ["store", "place", "both"])
async def test_a_typed_table_goes_on(tmp_path: Path, loss: str) -> None:
    data = tmp_path / "data"
    with file_world(data) as house:
        make(house)
        house.produce("orders", FIRST)
        await moved(house)
        add_note(house)
        house.produce("orders", SECOND[:1])
    if loss != "store":
        shutil.copytree(data, tmp_path / "copy")
        shutil.rmtree(data)
        data = tmp_path / "copy"
    if loss != "place":
        for path in data.glob("metadata.db*"):
            path.unlink()
        done = await invoke(app, ["recover", "--data", str(data), "--json"])
        assert done.exit_code == 0, done.output
    if loss != "store":
        done = await invoke(app, ["bucket", "relocate", "--data", str(data), "--json"])
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["outside"] == []
    with file_world(data) as house:
        assert [value for _, _, value in house.consume("orders")] == [*FIRST, SECOND[0]]
        house.produce("orders", SECOND[1:])
        await moved(house)
        assert columns(house, "orders", "id", "item", "note", "_kind") == [
            (1, "a", None, 2),
            (2, None, None, 2),
            (None, None, None, 0),
            (1, "b", None, 2),
            (3, None, "n", 2),
            (None, None, None, 0),
        ]
        assert [value for _, _, value in house.consume("orders")] == [*FIRST, *SECOND]
        assert sorted(columns(house, "orders__latest", "id", "item", "note")) == [
            (1, "b", None),
            (2, None, None),
            (3, None, "n"),
        ]
        letters = [value for (value,) in columns(house, "orders__dlq", "_value")]
        assert sorted(letters) == [FIRST[2].encode(), SECOND[2].encode()]
