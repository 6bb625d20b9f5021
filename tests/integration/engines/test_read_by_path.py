"""Tables read by the path of their metadata, as docs/FORMATS.md says, with no catalog; and readers of the catalog."""

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import duckdb
import polars as pl
import pytest
from duckdb_extensions import import_extension
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import StaticTable
from support.tables.files import Door, open_door

from lakestream.table.view import View

ROWS = (7, 6)
"""How many there are, and the greatest offset."""


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with open_door(tmp_path_factory.mktemp("door")) as opened:
        opened.create()
        opened.append(3)
        opened.append(4)
        yield opened


@pytest.fixture
def view(door: Door) -> View:
    return door.load()


def files_of(view: View) -> set[Path]:
    return {path for path in Path(view.location.removeprefix("file://")).rglob("*") if path.is_file()}


def test_the_present_metadata_is_the_one_with_the_highest_version(view: View) -> None:
    found = sorted(Path(view.location.removeprefix("file://"), "_iceberg").glob("*.metadata.json"))
    assert f"file://{found[-1]}" == view.metadata_location


def test_duckdb(view: View) -> None:
    with duckdb.connect() as connection:
        for extension in ("avro", "iceberg"):
            import_extension(extension)
            connection.load_extension(extension)
        sql = f"SELECT count(*), max(_offset) FROM iceberg_scan('{view.metadata_location}')"
        assert connection.execute(sql).fetchall() == [ROWS]


def test_polars(view: View) -> None:
    with warnings.catch_warnings(action="ignore"):  # it recommends another planner
        rows = pl.scan_iceberg(view.metadata_location).select(pl.len(), pl.col("_offset").max()).collect()
    assert rows.rows() == [ROWS]


def test_pyiceberg(view: View) -> None:
    assert StaticTable.from_metadata(view.metadata_location).scan().to_arrow().num_rows == ROWS[0]


def alone(code: str, folder: Path) -> str:
    """What a program of its own says: these libraries keep threads, and chdb reads below its working directory only."""
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_chdb(door: Door, view: View) -> None:
    table = view.location.removeprefix("file://")
    path = view.metadata_location.removeprefix(f"{view.location}/")
    sql = (
        f"SELECT count(), max(_offset), countIf(_value LIKE 'v%') FROM"
        f" icebergLocal('{table}', SETTINGS iceberg_metadata_file_path = '{path}')"
    )
    assert alone(f"import chdb; print(chdb.query({sql!r}))", door.folder) == "7,6,7"


@pytest.mark.slow
def test_daft(door: Door, view: View) -> None:
    code = f"""
import daft
from pyiceberg.catalog.rest import RestCatalog
for table in ({view.metadata_location!r}, RestCatalog("lake", uri={door.uri!r}).load_table("default.orders")):
    rows = daft.read_iceberg(table)
    print(rows.count_rows(), rows.agg(daft.col("_offset").max()).to_pydict()["_offset"][0])
"""
    assert alone(code, door.folder).split() == ["7", "6", "7", "6"]


def test_a_file_is_registered_in_a_catalog_of_its_own(view: View, tmp_path: Path) -> None:
    """That of another cluster, say: which reads the bucket if its operator lists it."""
    bucket = view.location.rsplit("/tables/", 1)[0]
    with open_door(tmp_path, locations=[bucket]) as other:
        catalog = RestCatalog("other", uri=other.uri)
        catalog.create_namespace("mine")
        table = catalog.register_table("mine.orders", view.metadata_location)
        assert table.scan().to_arrow().num_rows == ROWS[0]
        before = files_of(view)
        catalog.purge_table("mine.orders")
        assert files_of(view) == before, "they are the stream's"
        catalog.close()
