"""Somebody upgrades a stream's table to format version 3 in a catalog that cannot refuse, and deletes rows with a real
Spark, which writes deletion vectors: consumers never see these rows again, and nothing is committed."""

import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from support.servers.catalogs import NAME, sql_place
from support.worlds.topic import TABLE, ExternalWorld, external_world

pytestmark = pytest.mark.spark
HALF = 6
TABLE_IN_SPARK = ".".join((NAME, *TABLE))
BACK = ("default", "back")
SEEN_S = 0.2
"""When a broker has looked at the catalog again for certain."""


@dataclass
class Engine:
    """Spark, with the catalog that the town's table is in."""

    spark: Any
    town: ExternalWorld

    def run(self, statement: str) -> list[Any]:
        """A statement on the table; brokers have looked at what it did when it returns."""
        found = list(self.spark.sql(statement.replace("TABLE_", TABLE_IN_SPARK)).collect())
        time.sleep(SEEN_S)
        return found

    def upgrade(self) -> None:
        properties = "'format-version'='3', 'write.delete.mode'='merge-on-read'"
        self.run(f"ALTER TABLE TABLE_ SET TBLPROPERTIES ({properties})")

    def vectors(self) -> list[tuple[str, int]]:
        """The Puffin files of the present vectors, and how many rows each deletes."""
        rows = self.run("SELECT file_path, file_format, record_count FROM TABLE_.delete_files")
        assert all(kind == "PUFFIN" for _, kind, _ in rows)
        return sorted((path, count) for path, _, count in rows)


@pytest.fixture
async def engine(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Engine]:
    place = sql_place(tmp_path)
    session = spark.newSession()
    session.conf.set(f"spark.sql.catalog.{NAME}", "org.apache.iceberg.spark.SparkCatalog")
    uri = place.properties["uri"].replace("sqlite:///", "jdbc:sqlite:")
    options = {"type": "jdbc", "uri": uri, "warehouse": place.properties["warehouse"], "cache-enabled": "false"}
    for name, value in options.items():
        session.conf.set(f"spark.sql.catalog.{NAME}.{name}", value)
    with external_world(place, tmp_path, monkeypatch) as town:
        for _ in range(2):
            town.produce_next(HALF)
            assert (await town.tick()).record_count == HALF
        town.check_all()
        yield Engine(session, town)


async def test_rows_that_are_deleted_in_format_3_leave_the_stream(engine: Engine) -> None:
    town = engine.town
    before = town.records()
    town.produce_next(HALF)
    engine.upgrade()
    engine.run("DELETE FROM TABLE_ WHERE _offset = 3")
    [(first, count)] = engine.vectors()
    assert (first.endswith(".puffin"), count) == (True, 1)
    town.check_all(without=(3,))

    # One more in the same file, whose vector takes the place of the first, and one in another.
    engine.run("DELETE FROM TABLE_ WHERE _offset IN (1, 8)")
    vectors = engine.vectors()
    assert sorted(count for _, count in vectors) == [1, 2]
    assert first not in {path for path, _ in vectors}
    gone = (1, 3, 8)
    after = town.records()
    assert {offset: after[offset] for offset in before if offset not in gone}.items() <= before.items()
    assert not after.keys() & {*gone}
    await town.check_commits_stopped("upgraded to format version 3, and the engine writes 2 only")


@pytest.mark.slow
async def test_what_was_deleted_in_format_3_stays_so_whatever_happens_then(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    town = engine.town
    past = town.table().metadata_location
    town.produce_next(HALF)
    engine.upgrade()
    town.check_all()
    engine.run("DELETE FROM TABLE_ WHERE _offset IN (1, 8)")
    gone = (1, 8)
    town.check_all(without=gone)

    # The catalog loses the table.
    present = town.table().metadata_location
    town.outsider.drop_table(TABLE)
    time.sleep(SEEN_S)
    town.check_all(without=gone)
    town.restart_broker()
    town.check_all(without=gone)
    town.outsider.register_table(TABLE, present)

    # Somebody appends rows that no producer sent.
    rows = "SELECT _offset + 1000 AS _offset, * EXCEPT (_offset) FROM TABLE_ WHERE _offset = 3"
    engine.run(f"INSERT INTO TABLE_ BY NAME {rows}")
    town.check_all(without=gone)
    town.restart_broker()
    town.check_all(without=gone)
    engine.run(f"CALL {NAME}.system.rollback_to_snapshot('default.orders', {town.table().history()[-2].snapshot_id})")

    # A vector is damaged: nobody is served from its table, and the tail goes on.
    puffin = Path(engine.vectors()[0][0].removeprefix("file:"))
    whole = puffin.read_bytes()
    puffin.write_bytes(whole[:20] + bytes([whole[20] ^ 1]) + whole[21:])
    town.restart_broker()
    with caplog.at_level(logging.ERROR):
        assert town.read_error() == KafkaError.INVALID_MSG
    assert "is damaged: its checksum does not hold" in caplog.text
    assert sorted(town.records(2 * HALF)) == [*range(2 * HALF, 3 * HALF)]
    puffin.write_bytes(whole)
    town.restart_broker()
    town.check_all(without=gone)

    # A rewrite makes new files without these rows.
    rewrite = "rewrite_data_files(table => 'default.orders', options => map('rewrite-all', 'true'))"
    engine.run(f"CALL {NAME}.system.{rewrite}")
    assert engine.vectors() == []
    town.check_all(without=gone)

    # There is no way back to format 2 but the table as it was before: rows are deleted from that under another name.
    await town.check_commits_stopped("upgraded to format version 3")
    town.outsider.register_table(BACK, past)
    engine.run(f"DELETE FROM {NAME}.{'.'.join(BACK)} WHERE _offset IN (1, 8)")
    location = town.outsider.load_table(BACK).metadata_location
    for name in (BACK, TABLE):
        town.outsider.drop_table(name)
    town.outsider.register_table(TABLE, location)
    time.sleep(SEEN_S)
    town.check_all(without=gone)
    assert (await town.tick()).record_count == HALF
    town.check_all(without=gone)
    assert town.rows() == [offset for offset in range(3 * HALF) if offset not in gone]
