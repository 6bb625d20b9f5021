"""Topics on tables that are there already, through the real doors."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table
from support.worlds.files import FileWorld, file_world

from lakestream.node.bucket import join_bucket
from lakestream.settings import load
from lakestream.table.schema import iceberg_schema
from lakestream.table.shape import RAW


@contextmanager
def engine(house: FileWorld) -> Iterator[RestCatalog]:
    catalog = RestCatalog("lake", uri=house.catalog)
    yield catalog
    catalog.close()


def offsets(table: Table) -> list[tuple[int, int]]:
    rows = table.scan(selected_fields=("_stream_partition", "_offset")).to_arrow()
    return sorted(zip(rows["_stream_partition"].to_pylist(), rows["_offset"].to_pylist(), strict=True))


async def test_a_topic_fills_a_table_that_an_engine_made(tmp_path: Path) -> None:
    """The engine numbers columns in its own way; the table keeps its UUID and what its owner set."""
    with file_world(tmp_path) as house, engine(house) as rest:
        rest.create_namespace("crm")
        made = rest.create_table("crm.visits", iceberg_schema(RAW), properties={"owner": "ann"})
        assert made.schema().as_struct() != iceberg_schema(RAW).as_struct(), "so nothing rests on its numbers"
        house.create("visits", 2, lakestream_table_name="crm.visits")
        house.produce("visits", ["a", "b"], partition=1)
        assert await house.move() == 2
        table = rest.load_table("crm.visits")
        assert (table.metadata.table_uuid, table.location()) == (made.metadata.table_uuid, made.location())
        assert table.properties["owner"] == "ann"
        assert offsets(table) == [(1, 0), (1, 1)]
        assert house.consume("visits", 2) == [(1, 0, "a"), (1, 1, "b")]


async def test_the_stream_of_a_lost_cluster_goes_on_from_its_table(tmp_path: Path) -> None:
    """Its bucket is all that is left of it, and its owner begins another cluster there instead of recovering it."""
    with file_world(tmp_path) as old, engine(old) as rest:
        old.create("orders", 2)
        old.produce("orders", ["a", "b"])
        old.produce("orders", ["c"], partition=1)
        assert await old.move() == 3
        left = rest.load_table("default.orders").metadata_location
    for remains in tmp_path.glob("metadata*"):
        remains.unlink()
    await join_bucket(load(None, {}, {"data_dir": str(tmp_path)}))
    with file_world(tmp_path) as new, engine(new) as rest:
        rest.register_table("default.orders", left)
        new.create("orders", 2, lakestream_table_name="default.orders")
        new.produce("orders", ["d"])
        everything = [(0, 0, "a"), (0, 1, "b"), (0, 2, "d"), (1, 0, "c")]
        assert new.consume("orders", 2) == everything
        assert await new.move() == 1
        assert offsets(rest.load_table("default.orders")) == [(0, 0), (0, 1), (0, 2), (1, 0)]
        assert new.consume("orders", 2) == everything
