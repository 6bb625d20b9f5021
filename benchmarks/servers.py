"""Brokers under measurement: ours and Apache Kafka's, each a real process on loopback in its own directory."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

HOST = "127.0.0.1"
START_S = 60.0


@dataclass(frozen=True, slots=True)
class Server:
    name: str
    port: int
    process: psutil.Process
    directory: Path
    """All that it stores is below."""

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    def cpu_seconds(self) -> float:
        times = self.process.cpu_times()
        return times.user + times.system

    def rss_bytes(self) -> int:
        return int(self.process.memory_info().rss)

    def create_topic(self, name: str, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(name, partitions, 1)], operation_timeout=30)[name].result(60)

    def delete_topic(self, name: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        admin.delete_topics([name], operation_timeout=30)[name].result(60)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@contextmanager
def lakestream(environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    """One broker with the defaults of `lakestream up`."""
    with tempfile.TemporaryDirectory(prefix="lakestream-bench-") as directory:
        port = free_port()
        command = [sys.executable, "-m", "lakestream.cli", "broker", "--data", directory, "--port", str(port)]
        with _running("lakestream", command, port, Path(directory), environment or {}) as server:
            yield server


@contextmanager
def kafka() -> Iterator[Server]:
    """Apache Kafka in KRaft mode, one node, its own defaults."""
    libraries = kafka_jars()
    with tempfile.TemporaryDirectory(prefix="kafka-bench-") as directory:
        root = Path(directory)
        port, controller = free_port(), free_port()
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(root / "log"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        config = root / "server.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        (root / "log4j2.properties").write_text("status = error\nrootLogger.level = error\n")
        base = [
            java(),
            "-Xms1g",
            "-Xmx1g",
            f"-Dlog4j2.configurationFile={root / 'log4j2.properties'}",
            *("-cp", f"{libraries}/*"),
        ]
        format_log = [*base, "kafka.tools.StorageTool", "format", "-t", "bGFrZXN0cmVhbS1iZW5jaA", "-c", str(config)]
        subprocess.run(format_log, check=True, stdout=subprocess.DEVNULL)
        with _running("kafka", [*base, "kafka.Kafka", str(config)], port, root, {}) as server:
            yield server


@contextmanager
def _running(
    name: str, command: list[str], port: int, directory: Path, environment: Mapping[str, str]
) -> Iterator[Server]:
    log = directory / "output.log"
    with running(command, log, environment) as process:
        server = Server(name, port, psutil.Process(process.pid), directory)
        _wait_until_it_answers(server, process, log)
        yield server


@contextmanager
def running(command: list[str], log: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Until the end of the block, by its own way out if it takes it."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=os.environ | dict(environment))
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_it_answers(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    client = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200})
    while True:
        try:
            if client.list_topics(timeout=1).brokers:
                return
        except KafkaException:
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{server.name} did not start:\n{log.read_text()[-2000:]}") from None


def kafka_jars() -> str:
    """The directory of Kafka's jars."""
    libraries = os.environ.get("LAKESTREAM_KAFKA_LIBS")
    if not libraries:
        raise SystemExit("Kafka's jars were not found: run this with `make bench`")
    return libraries


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        raise SystemExit("Java was not found: run this with `make bench`")
    return java
