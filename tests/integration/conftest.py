"""One Spark session for all tests that want one, for it costs seconds and a gigabyte; a broker and a door of a file."""

import gc
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.clients.java_programs import spark_kafka_jars
from support.servers.hive import client_jar, hive_archive
from support.servers.s3 import spark_s3_jar
from support.worlds.doors import http_door
from support.worlds.embedded import Embedded, embedded

_SLOPPY = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
_CACHE = Path(__file__).parents[2] / ".cache" / "jars"
_JARS = ("delta-spark_", "delta-storage-", "iceberg-spark-runtime-", "sqlite-jdbc-")
_EXTENSIONS = (
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "io.delta.sql.DeltaSparkSessionExtension",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark leaves the sockets it collects results from to the garbage collector."""
    for item in items:
        if item.get_closest_marker("spark"):
            for rule in _SLOPPY:
                item.add_marker(pytest.mark.filterwarnings(rule))


@pytest.fixture(autouse=True)
def _garbage_stays_in_its_test(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if request.node.get_closest_marker("spark"):
        gc.collect()


def spark_jars() -> list[Path]:
    """From LAKESTREAM_SPARK_JARS (paths or folders; colons or spaces between), else from the repository's cache."""
    places = os.environ.get("LAKESTREAM_SPARK_JARS")
    roots = [Path(place) for place in re.split(r"[:\s]+", places) if place] if places else [_CACHE]
    return [jar for root in roots for jar in (sorted(root.glob("*.jar")) if root.is_dir() else [root]) if jar.exists()]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of `broker` and `door`, which the tests of a file share."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def broker(data: Path) -> Iterator[Embedded]:
    with embedded(data) as brokers:
        yield brokers


@pytest.fixture(scope="module")
def door(data: Path, broker: Embedded) -> Iterator[str]:
    """The address of the HTTP door beside `broker`. It has no pipeline."""
    with http_door(data) as address:
        yield address


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A local session with Iceberg and Delta on its class path. Each test adds a catalog of its own with
    `spark.conf.set("spark.sql.catalog.<name>…")`."""
    jars = [jar for jar in spark_jars() if jar.name.startswith(_JARS)]
    if len(jars) != len(_JARS):
        pytest.fail(
            f"jars are missing of {', '.join(_JARS)}: set LAKESTREAM_SPARK_JARS or fill .cache/jars (make jars)"
        )
    jars += [Path(jar) for jar in [spark_s3_jar()] if jar]
    jars += spark_kafka_jars()
    hive = hive_archive("4")
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[1]")
        .appName("tests")
        .config("spark.jars", ",".join(map(str, jars)))
        .config("spark.driver.extraClassPath", str(client_jar(hive, folder)) if hive else "")
        .config("spark.sql.extensions", ",".join(_EXTENSIONS))
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder))
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    # Python data sources run in workers of their own, which need what this interpreter has.
    session.sparkContext.pythonExec = sys.executable
    yield session
    session.stop()
