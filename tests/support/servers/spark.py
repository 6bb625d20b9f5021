"""A standalone Spark cluster on this machine: a master and one worker, each a process of its own."""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from lakestream.pipeline import find_java

START_S = 90.0
_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_DEPLOY = "org.apache.spark.deploy"


@contextmanager
def spark_cluster(folder: Path) -> Iterator[str]:
    """The master's URL. The worker has two cores and Spark's default environment, not this process's interpreter."""
    with ExitStack() as stack:
        ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        log = stack.enter_context(_started(folder / "master.log", f"{_DEPLOY}.master.Master", *ports))
        url = _wait_for(log, r"Starting Spark master at (spark://\S+)")
        size = ("--cores", "2", "--memory", "1g", "--work-dir", str(folder / "work"))
        log = stack.enter_context(_started(folder / "worker.log", f"{_DEPLOY}.worker.Worker", *ports, *size, url))
        _wait_for(log, "(Successfully registered with master)")
        yield url


@contextmanager
def _started(log: Path, *command: str) -> Iterator[Path]:
    environment = os.environ | {"JAVA_HOME": str(find_java()), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment.pop("PYSPARK_PYTHON", None)
    with log.open("wb") as output:
        process = subprocess.Popen([_CLASS, *command], stdout=output, stderr=output, env=environment)
    try:
        yield log
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + START_S
    while (found := re.search(pattern, log.read_text(errors="replace"))) is None:
        assert time.monotonic() < deadline, log.read_text(errors="replace")
        time.sleep(0.05)
    return found.group(1)
