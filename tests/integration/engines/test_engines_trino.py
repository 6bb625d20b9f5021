"""Trino on the embedded catalog, with a bucket on this machine's disk: what it makes, and what it does to a stream."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from conftest import need
from support.servers.trino import Trino, trino, trino_archive
from support.tables.files import Door, open_door

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with open_door(tmp_path_factory.mktemp("door")) as opened:
        opened.create()
        opened.append(30)
        yield opened


@pytest.fixture(scope="module")
def engine(door: Door, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trino]:
    archive = need(trino_archive(), "Trino (LAKESTREAM_TRINO_JARS)")
    with trino(archive, tmp_path_factory.mktemp("trino"), door.uri) as running:
        yield running


def test_a_table_of_its_own(engine: Trino, door: Door) -> None:
    engine.run("CREATE TABLE plain (n bigint, s varchar)")
    engine.run("INSERT INTO plain VALUES (1, 'a'), (2, 'b')")
    engine.run("UPDATE plain SET s = 'c' WHERE n = 1")
    engine.run(
        "MERGE INTO plain p USING (VALUES (2, 'z'), (3, 'y')) AS v(n, s) ON p.n = v.n"
        " WHEN MATCHED THEN UPDATE SET s = v.s WHEN NOT MATCHED THEN INSERT VALUES (v.n, v.s)"
    )
    assert engine.run("SELECT * FROM plain ORDER BY n") == [[1, "c"], [2, "z"], [3, "y"]]
    engine.run("ALTER TABLE plain EXECUTE optimize")
    assert engine.run("SELECT count(*) FROM plain") == [[3]]
    location = httpx.get(f"{door.uri}/v1/namespaces/default/tables/plain").json()["metadata"]["location"]
    assert location.startswith(f"file://{door.folder}/bucket/warehouse/default/plain-")
    engine.run("DROP TABLE plain")
    assert not any(path.is_file() for path in Path(location.removeprefix("file://")).rglob("*.parquet"))


def test_a_table_made_of_a_stream(engine: Trino) -> None:
    engine.run("CREATE SCHEMA sales")
    assert engine.run("CREATE TABLE sales.made AS SELECT _offset, _value FROM orders") == [[30]]
    assert engine.run("SELECT max(_offset) FROM sales.made") == [[29]]
    with pytest.raises(RuntimeError, match="already exists"):
        engine.run("CREATE TABLE sales.made AS SELECT 1 AS n")
    with pytest.raises(RuntimeError, match="Division by zero"):
        engine.run("CREATE TABLE sales.failed AS SELECT 1 / (_offset - 7) AS n FROM orders")
    assert engine.run("SHOW TABLES FROM sales") == [["made"]]
    engine.run("DROP TABLE sales.made")
    engine.run("DROP SCHEMA sales")


def test_views(engine: Trino) -> None:
    engine.run("CREATE VIEW newest AS SELECT max(_offset) AS o FROM orders")
    assert engine.run("SELECT o FROM newest") == [[29]]
    engine.run("DROP VIEW newest")


def test_a_stream_is_read_deleted_from_and_rewritten(engine: Trino, door: Door) -> None:
    assert engine.run("SELECT count(*), max(_offset) FROM orders") == [[30, 29]]
    engine.run("DELETE FROM orders WHERE _offset IN (3, 4)")
    assert engine.run("SELECT count(*) FROM orders") == [[28]]
    engine.run("ALTER TABLE orders EXECUTE optimize")
    assert engine.run("SELECT count(*) FROM orders") == [[28]]
    door.append(5)
    assert engine.run("SELECT count(*), max(_offset) FROM orders") == [[33, 34]]
    with pytest.raises(RuntimeError, match="produce new records to the topic instead"):
        engine.run("INSERT INTO orders SELECT * FROM orders WHERE _offset = 1")
