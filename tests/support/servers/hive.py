"""A real Hive Metastore in a process of its own. On PostgreSQL it compares when it alters a table; on the database that
it brings along, Derby, no version can."""

import os
import socket
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg2

from support.worlds.processes import HOST, free_ports, served

START_S = 120.0
_CACHE = Path(__file__).parents[3] / ".cache" / "hive"
_TOOLS = "org.apache.hadoop.hive.metastore.tools"
_SCHEMA_TOOLS = {"3": f"{_TOOLS}.MetastoreSchemaTool", "4": f"{_TOOLS}.schematool.MetastoreSchemaTool"}


def hive_archive(major: str) -> str | None:
    """Of that major version, from the folder LAKESTREAM_HIVE_JARS, else from the repository's cache."""
    folder = Path(os.environ.get("LAKESTREAM_HIVE_JARS", _CACHE))
    return next(map(str, sorted(folder.glob(f"hive-standalone-metastore-*{major}.*-bin.tar.gz"))), None)


def client_jar(archive: str, folder: Path) -> Path:
    """The client of that version, unpacked. Spark's own, 2.3, asks for tables in a way that Hive 4 does not know."""
    with tarfile.open(archive, "r|gz") as packed:
        entry = next(entry for entry in packed if "/hive-standalone-metastore-common-" in entry.name)
        packed.extract(entry, folder, filter="data")
    return folder / entry.name


def on_derby(folder: Path) -> dict[str, str]:
    return {"javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/database;create=true"}


def on_postgres(uri: str) -> dict[str, str]:
    """In an empty database of its own on that server. `uri` is as SQLAlchemy has it."""
    address, database = urlsplit(uri), f"hive_{uuid4().hex}"
    connection = psycopg2.connect(host=address.hostname, port=address.port, user=address.username, dbname="postgres")
    try:
        connection.autocommit = True
        connection.cursor().execute(f"CREATE DATABASE {database}")
    finally:
        connection.close()
    return {
        "javax.jdo.option.ConnectionURL": f"jdbc:postgresql://{address.hostname}:{address.port}/{database}",
        "javax.jdo.option.ConnectionDriverName": "org.postgresql.Driver",
        "javax.jdo.option.ConnectionUserName": str(address.username),
    }


@contextmanager
def metastore(java: str, archive: str, folder: Path, database: Mapping[str, str]) -> Iterator[str]:
    """Its address. The archive is as released; the jars beside it are what it needs of Hadoop. `database` is what it
    keeps its tables in: `on_derby` or `on_postgres`."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    [home] = folder.glob("apache-hive-metastore-*")
    port = free_ports()
    settings = {
        "metastore.thrift.uris": f"thrift://{HOST}:{port}",
        "metastore.thrift.bind.host": HOST,
        "metastore.task.threads.always": "org.apache.hadoop.hive.metastore.events.EventCleanerTask",
        "metastore.expression.proxy": "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy",
        "metastore.warehouse.dir": f"file://{folder}/warehouse",
        **database,
    }
    entries = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items())
    (folder / "metastore-site.xml").write_text(f"<configuration>{''.join(entries)}</configuration>")
    command = [java, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", f"{folder}:{home}/lib/*:{Path(archive).parent}/*"]
    env = os.environ | {"METASTORE_HOME": str(home)}
    log = folder / "metastore.log"
    with log.open("wb") as output:
        major = home.name.removeprefix("apache-hive-metastore-")[0]
        kind = database["javax.jdo.option.ConnectionURL"].split(":")[1].removesuffix("ql")
        schema = [*command, _SCHEMA_TOOLS[major], "-dbType", kind, "-initSchema"]
        made = subprocess.run(schema, stdout=output, stderr=output, cwd=folder, env=env, timeout=START_S, check=False)
        assert made.returncode == 0, log.read_text(errors="replace")
        serve = [*command, "org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port)]
        server = subprocess.Popen(serve, stdout=output, stderr=output, cwd=folder, env=env)

    def ask() -> None:
        socket.create_connection((HOST, port), timeout=5).close()

    with served(server, log, ask, start_s=START_S):
        yield f"thrift://{HOST}:{port}"
