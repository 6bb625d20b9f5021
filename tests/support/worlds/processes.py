"""Our own processes under test: started in temporary directories on free ports, stopped by their ids."""

import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

HOST = "127.0.0.1"
START_S = 30.0
STOP_S = 15.0


def free_ports(count: int = 1) -> int:
    """The first of `count` neighbouring free ports, below those that the system gives to outgoing connections."""
    while True:
        first = random.SystemRandom().randrange(20_000, 32_000)
        if all(is_free(port) for port in range(first, first + count)):
            return first


@contextmanager
def served(
    server: subprocess.Popen[bytes],
    log: Path,
    ask: Callable[[], object],
    refused: type[Exception] = OSError,
    *,
    start_s: float,
    stop: signal.Signals = signal.SIGTERM,
) -> Iterator[None]:
    """From the moment when `ask` is not `refused` any more; at the end the server is stopped, whatever it takes."""
    deadline = time.monotonic() + start_s
    try:
        while True:
            assert server.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < deadline, log.read_text(errors="replace")
            try:
                ask()
                break
            except refused:
                time.sleep(0.05)
        yield
    finally:
        server.send_signal(stop)
        try:
            server.wait(15)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _answers(port: int) -> bool:
    """Whether somebody listens. A port may be taken by the connections of a process that was killed."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


@dataclass
class Running:
    """One of our processes. Its output is in `log`."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, text: str, timeout_s: float = START_S) -> float:
        """Seconds until the output has the text."""
        started = time.monotonic()
        while text not in self.output:
            assert self.process.poll() is None, f"it ended with {self.process.returncode}:\n{self.output}"
            assert time.monotonic() - started < timeout_s, f"no {text!r} after {timeout_s} s:\n{self.output}"
            time.sleep(0.02)
        return time.monotonic() - started

    def stop(self, number: signal.Signals = signal.SIGTERM, timeout_s: float = STOP_S) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout_s)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(STOP_S)


@dataclass
class ProcessWorld:
    """Brokers, and if asked for an HTTP door, on one data directory."""

    data: Path
    environment: Mapping[str, str]
    _start: Callable[..., Running]
    ports: list[int] = field(default_factory=list)
    brokers: list[Running] = field(default_factory=list)
    http: Running | None = None
    http_port: int = 0

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports)

    @property
    def catalog(self) -> str:
        return f"http://{HOST}:{self.http_port}/iceberg"

    def start_broker(self, index: int) -> None:
        """Starts broker `index`, anew if it has stopped, and waits until it listens."""
        place = ("--id", str(index), "--port", str(self.ports[index]), "--data", str(self.data))
        running = self._start("broker", *place, environment=self.environment)
        if index < len(self.brokers):
            self.brokers[index] = running
        else:
            self.brokers.append(running)
        running.wait_for("listens on")

    def start_http(self) -> None:
        self.http_port = self.http_port or free_ports()
        where = ("--port", str(self.http_port), "--data", str(self.data))
        self.http = self._start("http", *where, environment=self.environment)
        deadline = time.monotonic() + START_S
        while not _answers(self.http_port):
            assert self.http.process.poll() is None, self.http.output
            assert time.monotonic() < deadline, self.http.output
            time.sleep(0.02)

    def run_pipeline_once(self, *arguments: str) -> Running:
        where = ("--data", str(self.data), "--master", "local[2]")
        running = self._start("pipeline", "--once", *where, *arguments, environment=self.environment)
        assert running.process.wait(180) == 0, running.output
        return running
