"""An S3 server in a process of its own, on a free loopback port; it is AWS's Glue as well.

Its requests take turns: moto looks for an object and then stores it, and two rivals could both find nothing there,
which S3 never lets happen. And like Glue, unlike moto, it refuses to update a version of a table that is not the last.
"""

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SPARK_CACHE = Path(__file__).parents[3] / ".cache" / "spark-s3"

_SERVER = """
import sys
import threading
from moto.glue.exceptions import GlueClientError
from moto.glue.responses import GlueResponse
from moto.moto_server.werkzeug_app import DomainDispatcherApplication
from moto.server import ThreadedMotoServer

serve, turn = DomainDispatcherApplication.__call__, threading.Lock()

def one_at_a_time(self, environ, start_response):
    with turn:
        return serve(self, environ, start_response)

update = GlueResponse.update_table

def last_version_only(self):
    table = self.glue_backend.get_table(self.parameters["DatabaseName"], self.parameters["TableInput"]["Name"])
    if self.parameters.get("VersionId", table.as_dict()["VersionId"]) != table.as_dict()["VersionId"]:
        raise GlueClientError("ConcurrentModificationException", "Update table failed due to concurrent modifications.")
    return update(self)

GlueResponse.update_table = last_version_only
DomainDispatcherApplication.__call__ = one_at_a_time
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
server.stop()
"""


def spark_s3_jar() -> str | None:
    """With which Spark gets at S3: from the folder LAKESTREAM_SPARK_S3_JARS, else from the repository's cache."""
    folder = Path(os.environ.get("LAKESTREAM_SPARK_S3_JARS", _SPARK_CACHE))
    return next(map(str, sorted(folder.glob("iceberg-aws-bundle-*.jar"))), None)


@contextmanager
def s3_server() -> Iterator[str]:
    """Its address. It ends with its standard input, so also when the tests are killed."""
    command = [sys.executable, "-W", "ignore", "-c", _SERVER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()


def make_bucket(address: str, name: str) -> None:
    with urllib.request.urlopen(urllib.request.Request(f"{address}/{name}", method="PUT"), timeout=30):
        pass


def environment(address: str) -> dict[str, str]:
    """What a process needs in its environment to use the server."""
    return {
        "AWS_ENDPOINT": address,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }
