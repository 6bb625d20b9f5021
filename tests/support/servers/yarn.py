"""A real Hadoop YARN on this machine: a ResourceManager and one NodeManager, each a process of its own.

Containers run as this user, in the folder that is given; the file system is this machine's.
"""

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.worlds.processes import HOST, free_ports, served

START_S = 120.0
_CACHE = Path(__file__).parents[3] / ".cache" / "yarn"
_SERVER = "org.apache.hadoop.yarn.server"
_JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "--add-opens=java.base/java.lang=ALL-UNNAMED")
_LOG4J = """\
log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{HH:mm:ss} %p %c{1}: %m%n
"""


@dataclass(frozen=True, slots=True)
class Yarn:
    """`conf` is what a client's HADOOP_CONF_DIR names, `address` where the ResourceManager answers HTTP, `logs` where
    containers leave theirs."""

    conf: Path
    address: str
    logs: Path

    def nodes(self) -> list[dict[str, Any]]:
        """Those that take containers."""
        return self._list("nodes?states=RUNNING", "node")

    def applications(self) -> list[dict[str, Any]]:
        """All there ever were."""
        return self._list("apps", "app")

    def container_logs(self, application: str) -> list[Path]:
        """What its containers wrote to stderr, also after the end of the cluster."""
        return sorted((self.logs / application).glob("container_*/stderr"))

    def _list(self, what: str, each: str) -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"{self.address}/ws/v1/cluster/{what}", timeout=5) as answer:
            found = json.load(answer)[what.partition("?")[0]]
        return list(found[each]) if found else []


def yarn_jars() -> str | None:
    """Their folder: LAKESTREAM_YARN_JARS, else the repository's cache."""
    folder = Path(os.environ.get("LAKESTREAM_YARN_JARS", _CACHE))
    return str(folder) if any(folder.glob("hadoop-yarn-server-resourcemanager-*.jar")) else None


@contextmanager
def yarn(java: str, jars: str, folder: Path) -> Iterator[Yarn]:
    """With its one node ready to take containers."""
    first_port = free_ports(5)
    conf = folder / "conf"
    conf.mkdir()
    _write(conf / "core-site.xml", {"fs.defaultFS": "file:///", "hadoop.tmp.dir": f"{folder}/tmp"})
    _write(conf / "yarn-site.xml", _settings(folder, first_port))
    (folder / "log4j.properties").write_text(_LOG4J)
    cluster = Yarn(conf, f"http://{HOST}:{first_port}", folder / "containers")

    def ask_for_the_node() -> None:
        if not cluster.nodes():
            raise ConnectionError("the node has not registered")

    manager = _started(java, jars, folder, f"{_SERVER}.resourcemanager.ResourceManager")
    with served(manager, _log(folder, "ResourceManager"), cluster.nodes, start_s=START_S):
        node = _started(java, jars, folder, f"{_SERVER}.nodemanager.NodeManager")
        with served(node, _log(folder, "NodeManager"), ask_for_the_node, start_s=START_S):
            yield cluster


def _settings(folder: Path, first_port: int) -> dict[str, str]:
    """The node does not mind how full memory and disks are: that says nothing about what is tested. Logs are due for
    deletion at once, or the node would wait for it when it stops, but nothing is ever deleted."""
    manager, node = "yarn.resourcemanager", "yarn.nodemanager"
    return {
        f"{manager}.hostname": HOST,
        f"{manager}.webapp.address": f"{HOST}:{first_port}",
        f"{manager}.address": f"{HOST}:{first_port + 1}",
        f"{manager}.scheduler.address": f"{HOST}:{first_port + 2}",
        f"{manager}.resource-tracker.address": f"{HOST}:{first_port + 3}",
        f"{manager}.admin.address": f"{HOST}:{first_port + 4}",
        f"{manager}.scheduler.class": f"{_SERVER}.resourcemanager.scheduler.fifo.FifoScheduler",
        f"{manager}.nodemanagers.heartbeat-interval-ms": "100",
        "yarn.scheduler.minimum-allocation-mb": "128",
        f"{node}.hostname": HOST,
        f"{node}.address": f"{HOST}:0",
        f"{node}.localizer.address": f"{HOST}:0",
        f"{node}.webapp.address": f"{HOST}:0",
        f"{node}.local-dirs": f"{folder}/local",
        f"{node}.log-dirs": f"{folder}/containers",
        f"{node}.log.retain-seconds": "0",
        f"{node}.delete.debug-delay-sec": "-1",
        f"{node}.resource.memory-mb": "4096",
        f"{node}.resource.cpu-vcores": "2",
        f"{node}.pmem-check-enabled": "false",
        f"{node}.vmem-check-enabled": "false",
        f"{node}.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
    }


def _write(file: Path, settings: Mapping[str, str]) -> None:
    entries = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items())
    file.write_text(f"<configuration>{''.join(entries)}</configuration>")


def _started(java: str, jars: str, folder: Path, program: str) -> subprocess.Popen[bytes]:
    """Containers find Java as the node does, by JAVA_HOME."""
    environment = os.environ | {"JAVA_HOME": str(Path(java).resolve().parents[1])}
    command = [java, *_JVM, f"-Dlog4j.configuration=file:{folder}/log4j.properties"]
    with _log(folder, program.rpartition(".")[2]).open("wb") as output:
        return subprocess.Popen(
            [*command, "-cp", f"{folder}/conf:{jars}/*", program],
            stdout=output,
            stderr=output,
            cwd=folder,
            env=environment,
        )


def _log(folder: Path, name: str) -> Path:
    return folder / f"{name}.log"
