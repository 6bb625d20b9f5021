"""A real Apache Kafka beside us: one node in KRaft mode with its defaults, on loopback, in a folder of its own."""

import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from support.worlds.processes import free_ports

START_S = 60.0
CLUSTER_ID = "bGFrZXN0cmVhbS1iZW5jaA"


@contextmanager
def apache_kafka(
    folder: Path, java: str, libraries: str, settings: Mapping[str, str] | None = None
) -> Iterator[tuple[str, int]]:
    """Its address, once it answers."""
    port = free_ports(2)
    controller = port + 1
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(folder / "log"),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    } | dict(settings or {})
    folder.mkdir(parents=True, exist_ok=True)
    config, quiet, output = folder / "server.properties", folder / "log4j2.properties", folder / "output.log"
    config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    quiet.write_text("status = error\nrootLogger.level = error\n")
    base = [java, "-Xmx512m", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={quiet}", "-cp", f"{libraries}/*"]
    with output.open("wb") as written:
        subprocess.run(
            [*base, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config)],
            check=True,
            stdout=written,
            stderr=written,
            timeout=START_S,
        )
        process = subprocess.Popen([*base, "kafka.Kafka", str(config)], stdout=written, stderr=written)
        try:
            _wait(process, port, output)
            yield "127.0.0.1", port
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(process: "subprocess.Popen[bytes]", port: int, output: Path) -> None:
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            break
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"Apache Kafka did not start:\n{output.read_text(errors='replace')[-2000:]}")
