"""Workers of Kafka Connect in distributed mode, and their REST API."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.clients.committed import until
from support.clients.java_programs import JavaPrograms
from support.worlds.processes import HOST, Running, free_ports

START_S = 120.0


class ConnectWorker:
    """One of a group. What it keeps is in three compacted topics, which it makes itself."""

    def __init__(self, programs: JavaPrograms, folder: Path, bootstrap: str, settings: Mapping[str, str]) -> None:
        self.port = free_ports()
        text = {
            "bootstrap.servers": bootstrap,
            "group.id": "connect",
            "listeners": f"http://{HOST}:{self.port}",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "config.storage.topic": "connect-configs",
            "offset.storage.topic": "connect-offsets",
            "status.storage.topic": "connect-status",
            "config.storage.replication.factor": "1",
            "offset.storage.replication.factor": "1",
            "status.storage.replication.factor": "1",
            "offset.storage.partitions": "3",
            "offset.flush.interval.ms": "500",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "500",
            "rebalance.timeout.ms": "10000",
            "scheduled.rebalance.max.delay.ms": "1000",
            "plugin.discovery": "service_load",
        } | dict(settings)
        self._config = folder / f"worker-{self.port}.properties"
        self._config.write_text("".join(f"{key}={value}\n" for key, value in text.items()))
        self._programs = programs
        self.running = self.start()

    def start(self) -> Running:
        self.running = self._programs.start("org.apache.kafka.connect.cli.ConnectDistributed", str(self._config))
        return self.running

    def until_it_answers(self) -> None:
        until(self._answers, START_S, lambda: self.running.output[-4000:])

    def _answers(self) -> bool:
        assert self.running.process.poll() is None, self.running.output[-4000:]
        try:
            return self.ask("GET", "/connectors") is not None
        except OSError:
            return False

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Any worker answers; it asks the leader where it must."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://{HOST}:{self.port}{path}", data, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else {}

    def states(self, connector: str) -> list[tuple[str, str]]:
        """The state of a connector and of each of its tasks, and on which worker it is."""
        try:
            told = self.ask("GET", f"/connectors/{connector}/status")
        except (OSError, urllib.error.URLError):
            return []
        return [(part["state"], part["worker_id"]) for part in (told["connector"], *told["tasks"])]
