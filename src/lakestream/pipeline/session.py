"""A Spark driver for the pipeline: started, watched and stopped without blocking the event loop."""

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import psutil
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from lakestream.errors import Unavailable
from lakestream.pipeline.java import find_java
from lakestream.pipeline.scratch import Scratch
from lakestream.pipeline.thread import OneThread

_LOG4J: Final = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""
_DAEMON: Final = "lakestream.pipeline.daemon"
WORKER_ENVIRONMENT: Final = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "TOKIO_WORKER_THREADS": "1",
}
"""Workers fill and free the same large buffers over and over: keep the pages instead of giving them back. One thread
serves the sockets of one worker: more would wake each other up for every piece of an answer."""
_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The JVM only hands tiles out: what its second compiler would speed up is less than a fifth of what it costs, and it
makes so little garbage that a collector with threads of its own costs more than the pauses it saves."""
_STOP_S: Final = 3.0
_POLL_S: Final = 0.05
_LAST_WORDS: Final = 600


class DriverSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`master`: local[*], spark://…, yarn or k8s://…. `options` are Spark's own and win over ours."""

    master: str = "local[*]"
    driver_memory: str = "1g"
    ui: bool = False
    options: dict[str, str] = {}


class SparkDriver:
    """One JVM and its context. Started once, stopped once; one at a time in a process, as PySpark has it."""

    def __init__(self, settings: DriverSettings) -> None:
        self.thread: Final = OneThread("spark")
        self._settings = settings
        self._directory = Scratch()
        self._scratch = self._directory.path
        self._context: SparkContext | None = None

    @property
    def context(self) -> SparkContext:
        """Only for calls on `thread`."""
        if self._context is None:
            raise Unavailable("Spark is not running")
        return self._context

    @property
    def alive(self) -> bool:
        return self._context is not None and any(map(_lives, self._processes()))

    async def start(self) -> None:
        """Takes seconds. `RequestError` without a Java that fits, `Unavailable` if Spark does not come up."""
        self._context = await self.thread.call(self._start)

    async def stop(self) -> None:
        """Within seconds, whatever Spark is doing, starting included. A job under way is given up, which is safe at
        any moment. On SIGTERM the JVM takes leave of its cluster by itself."""
        processes = self._processes()
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
        for _ in range(round(_STOP_S / _POLL_S)):
            if not any(map(_lives, processes)):
                break
            await asyncio.sleep(_POLL_S)
        for process in {*processes, *self._processes()}:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        with suppress(TimeoutError):
            await asyncio.wait_for(self.thread.call(self._forget), _STOP_S)
        self._directory.remove()

    def _start(self) -> SparkContext:
        os.environ["JAVA_HOME"] = str(find_java())
        (self._scratch / "log4j2.properties").write_text(_LOG4J)
        conf = SparkConf(loadDefaults=False).setAll(list(options(self._settings, self._scratch).items()))
        try:
            with (self._scratch / "spark.log").open("wb") as log:
                gateway = launch_gateway(conf, {"stderr": log})  # type: ignore[no-untyped-call]
            context = SparkContext(conf=conf, gateway=gateway)
        except (Py4JError, PySparkRuntimeError, OSError) as error:
            words = self._last_words() or error_text(error)
            raise Unavailable(f"Spark did not start on {self._settings.master}: {words}") from error
        # It would print a traceback when the JVM goes, as it does in every stop.
        context._accumulatorServer.handle_error = _say_nothing  # type: ignore[method-assign]
        context.pythonExec = _python(self._settings)
        return context

    def _forget(self) -> None:
        """PySpark keeps its gateway in the class; the next driver of this process needs its own."""
        context, self._context = self._context, None
        if context is not None and context._accumulatorServer is not None:
            context._accumulatorServer.shutdown()
        gateway = SparkContext._gateway
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        if gateway is not None:
            gateway.proc.stdin.close()
            gateway.proc.wait()
            with suppress(Py4JError, OSError):
                gateway.close()

    def _processes(self) -> list[psutil.Process]:
        """The JVM and all below it. Its command line names our scratch directory, so nobody else's is taken."""
        found: list[psutil.Process] = []
        for child in psutil.Process().children():
            with suppress(psutil.NoSuchProcess):
                if any(str(self._scratch) in word for word in child.cmdline()):
                    found += [child, *child.children(recursive=True)]
        return found

    def _last_words(self) -> str:
        with suppress(OSError):
            return (self._scratch / "spark.log").read_text(errors="replace").strip()[-_LAST_WORDS:]
        return ""


def _is_local(settings: DriverSettings) -> bool:
    return settings.master.startswith("local")


def _python(settings: DriverSettings) -> str:
    """What the workers run. Nodes of a cluster have their environment where this machine has it, unless told otherwise
    in one of Spark's own ways."""
    chosen = settings.options.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    return chosen if chosen and not _is_local(settings) else sys.executable


def _say_nothing(request: object, client_address: object) -> None:
    return


def _lives(process: psutil.Process) -> bool:
    """Without waiting for it: the exit status belongs to PySpark, which would take a lost one for success."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def error_text(error: Exception) -> str:
    """An error's text without its stack, on one line. If the JVM that it came from is gone, so is its text."""
    try:
        text = str(getattr(error, "java_exception", error))
    except (Py4JError, OSError):
        return "the JVM ended"
    return " ".join(text.partition("\n\tat ")[0].split()) or type(error).__name__


def options(settings: DriverSettings, scratch: Path) -> dict[str, str]:
    """Spark's configuration. A local master is reachable from this machine only."""
    chosen = {
        "spark.app.name": "lakestream-pipeline",
        "spark.master": settings.master,
        "spark.driver.memory": settings.driver_memory,
        "spark.executor.extraJavaOptions": _JVM,
        "spark.driver.extraJavaOptions": f"{_JVM} -Dlog4j2.configurationFile=file:{scratch}/log4j2.properties",
        "spark.local.dir": str(scratch),
        "spark.ui.enabled": str(settings.ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.python.daemon.module": _DAEMON,
        "spark.python.worker.reuse": "true",
        "spark.locality.wait": "0s",
    }
    if _is_local(settings):
        chosen |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    for name, value in WORKER_ENVIRONMENT.items():
        chosen[f"spark.executorEnv.{name}"] = value
    return chosen | settings.options
