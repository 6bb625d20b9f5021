"""A real Spark reads and maintains the table of a stream through a real Nessie and through a real Hive Metastore, while
the pipeline commits: rows stay what they are, and consumers see each offset once."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from conftest import need
from py4j.protocol import Py4JJavaError
from support.servers.catalogs import external_place, own_folder
from support.servers.s3 import environment, spark_s3_jar
from support.worlds.topic import ExternalWorld, external_world

from lakestream.errors import Conflict

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.xdist_group("spark")]
HALF = 6
EVERYTHING = "options => map('rewrite-all', 'true')"
SEEN_S = 0.2
"""When a broker has looked at the catalog again for certain."""
REST_S = 0.3
_TRIES = 20
_names = count()


@dataclass
class Engine:
    spark: Any
    town: ExternalWorld
    catalog: str
    trouble: list[BaseException] = field(default_factory=list)
    commits: int = 0

    def run(self, statement: str) -> list[Any]:
        return list(self.spark.sql(statement.replace("CATALOG_", self.catalog)).collect())

    def run_often(self, statement: str) -> None:
        for _ in range(_TRIES):
            self.run(statement)

    def rows(self) -> list[tuple[int, bytes]]:
        found = self.run("SELECT _offset, _value FROM CATALOG_.default.orders ORDER BY 1")
        return [(offset, bytes(value)) for offset, value in found]

    def fill(self) -> None:
        """Records that are in the table when this returns. A commit of Spark's may come first, and cost a try."""
        self.town.produce_next(HALF)
        moved = 0
        for _ in range(_TRIES):
            tick = asyncio.run(self.town.tick())
            assert all(isinstance(failure.error, Conflict) for failure in tick.failures), tick.failures
            moved += tick.record_count
            if moved == HALF:
                break
        assert moved == HALF
        self.commits += 1

    @contextmanager
    def filling(self) -> Iterator[None]:
        """A pipeline that commits all the while, at least twice."""
        stop, before = threading.Event(), self.commits

        def work() -> None:
            try:
                while not stop.is_set() or self.commits < before + 2:
                    self.fill()
                    # A table keeps 80 to 100 snapshots: without a rest those that Spark began from would be among the
                    # oldest before it is done, on a fast machine.
                    stop.wait(REST_S)
            except BaseException as error:
                self.trouble.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        assert not self.trouble, self.trouble


@contextmanager
def opened(
    kind: str, request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Engine]:
    with external_place(kind, request, folder) as place:
        options = {"type": place.properties["type"], "uri": place.properties["uri"], "cache-enabled": "false"}
        if place.io:
            need(spark_s3_jar(), "Iceberg's S3 for Spark (LAKESTREAM_SPARK_S3_JARS)")
            for name, value in environment(place.io["s3.endpoint"]).items():
                monkeypatch.setenv(name, value)
            options |= {**place.io, "s3.path-style-access": "true", "client.region": place.io["s3.region"]}
        spark = request.getfixturevalue("spark")
        catalog = f"{kind}{next(_names)}"
        spark.conf.set(f"spark.sql.catalog.{catalog}", "org.apache.iceberg.spark.SparkCatalog")
        for name, value in options.items():
            spark.conf.set(f"spark.sql.catalog.{catalog}.{name}", value)
        if place.io:
            # Its bucket is shared with tests that leave data of their clusters there.
            place = replace(place, bucket_url=f"s3://{own_folder()}")
        with external_world(place, folder, monkeypatch) as town:
            engine = Engine(spark, town, catalog)
            for _ in range(3):
                engine.fill()
            assert engine.rows() == [(offset, b"v%d" % offset) for offset in range(3 * HALF)]
            yield engine


def check_same(engine: Engine, gone: tuple[int, ...]) -> None:
    """For Spark, for PyIceberg and for consumers, who see no offset twice; after one more commit, too."""
    for _ in range(2):
        left = [offset for offset in range(engine.town.produced) if offset not in gone]
        assert engine.rows() == [(offset, b"v%d" % offset) for offset in left]
        assert engine.town.rows() == left
        engine.town.check_all(without=gone)
        engine.fill()
    engine.town.restart_broker()
    engine.town.check_all(without=gone)


def test_spark_maintains_a_table_in_a_metastore_that_the_pipeline_fills(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened("hive", request, tmp_path, monkeypatch) as engine:
        with engine.filling():
            [done] = engine.run(f"CALL CATALOG_.system.rewrite_data_files(table => 'default.orders', {EVERYTHING})")
        assert done["rewritten_data_files_count"] >= 3
        engine.town.check_all()
        with engine.filling():
            engine.run("DELETE FROM CATALOG_.default.orders WHERE _offset IN (1, 9)")
        engine.town.check_all(without=(1, 9))
        engine.run("ALTER TABLE CATALOG_.default.orders SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
        with engine.filling():
            engine.run("DELETE FROM CATALOG_.default.orders WHERE _offset = 4")
        engine.town.check_all(without=(1, 4, 9))
        before = len(engine.town.table().snapshots())
        with engine.filling():
            expiry = "older_than => now(), retain_last => 2"
            engine.run(f"CALL CATALOG_.system.expire_snapshots(table => 'default.orders', {expiry})")
        assert len(engine.town.table().snapshots()) < before
        check_same(engine, (1, 4, 9))

        # Format 3 stops the commits; a delete there, now by vectors, reaches the stream all the same.
        engine.run("ALTER TABLE CATALOG_.default.orders SET TBLPROPERTIES ('format-version'='3')")
        engine.town.produce_next(HALF)
        engine.run("DELETE FROM CATALOG_.default.orders WHERE _offset = 7")
        time.sleep(SEEN_S)
        engine.town.check_all(without=(1, 4, 7, 9))
        asyncio.run(engine.town.check_commits_stopped("upgraded to format version 3"))


def test_spark_maintains_a_table_in_nessie_when_nobody_commits_meanwhile(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nessie shows one snapshot: Iceberg cannot tell what was committed since an engine began, and gives up. Nothing
    has changed then, so it is tried again."""
    with opened("nessie", request, tmp_path, monkeypatch) as engine:
        rewrite = f"CALL CATALOG_.system.rewrite_data_files(table => 'default.orders', {EVERYTHING})"
        with engine.filling(), pytest.raises(Py4JJavaError, match="Cannot determine history between starting snapshot"):
            engine.run_often(rewrite)
        engine.town.check_all()
        [done] = engine.run(rewrite)
        assert done["rewritten_data_files_count"] >= 3
        engine.fill()
        engine.run("DELETE FROM CATALOG_.default.orders WHERE _offset IN (1, 9)")
        engine.fill()
        engine.run("ALTER TABLE CATALOG_.default.orders SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
        engine.run("DELETE FROM CATALOG_.default.orders WHERE _offset = 4")
        with engine.filling(), pytest.raises(Py4JJavaError, match="GC is disabled"):
            engine.run("CALL CATALOG_.system.expire_snapshots(table => 'default.orders')")
        with pytest.raises(Py4JJavaError, match="Implement format version update"):
            engine.run("ALTER TABLE CATALOG_.default.orders SET TBLPROPERTIES ('format-version'='3')")
        check_same(engine, (1, 4, 9))
