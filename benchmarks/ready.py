"""From the start of `lakestream up` until every broker answers a request."""

import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from benchmarks.result import QUICK, Result, stays_under
from benchmarks.servers import HOST, START_S, free_port

ROUNDS = 2 if QUICK else 10
LIMIT_S = 2.0
STOP_S = 20.0
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
_POLL_S = 0.005


def run() -> list[Result]:
    results = []
    for name, brokers in (("one broker", 1), ("three brokers", 3)):
        rounds = [_round(brokers) for _ in range(ROUNDS)]
        print(f"ready, {name}: " + " ".join(f"{seconds:.2f}" for seconds in sorted(rounds)))
        results.append(stays_under(f"ready, {name}", median(rounds), "s", at_most=LIMIT_S))
    return results


def _round(brokers: int) -> float:
    first, http = _free_ports(brokers), free_port()
    with tempfile.TemporaryDirectory(prefix="lakestream-bench-") as directory:
        variables = {"DATA": directory, "KAFKA_PORT": str(first), "HTTP_PORT": str(http), "BROKERS": str(brokers)}
        started = time.monotonic()
        with _up(variables):
            for port in range(first, first + brokers):
                while not _answers(port):
                    if time.monotonic() - started > START_S:
                        raise SystemExit(f"the broker on port {port} did not start")
                    time.sleep(_POLL_S)
            return time.monotonic() - started


@contextmanager
def _up(variables: dict[str, str]) -> Iterator[None]:
    command = [sys.executable, "-m", "lakestream.cli", "up"]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, env=os.environ | variables, stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), START_S) as connection:
            connection.sendall(_API_VERSIONS)
            return bool(connection.recv(4))
    except ConnectionError:
        return False


def _free_ports(count: int) -> int:
    """The first of `count` neighbouring ports that nobody listens on."""
    while True:
        first = free_port()
        if not any(_answers(port) for port in range(first, first + count)):
            return first
