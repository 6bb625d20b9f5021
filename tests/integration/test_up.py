"""`lakestream up` as a person meets it: quick to be ready, clear when it cannot, nothing left behind."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from support.processes import HOST, Running, free_ports

Start = Callable[..., Running]
READY_S = 15.0
"""The promise is 2 s on a quiet machine; the test must also pass on a busy one."""


def _variables(data: Path, brokers: int = 1) -> dict[str, str]:
    first = free_ports(brokers + 1)
    return {
        "DATA": str(data),
        "KAFKA_PORT": str(first),
        "HTTP_PORT": str(first + brokers),
        "BROKERS": str(brokers),
        "COLUMNS": "160",
    }


def _family(running: Running) -> list[psutil.Process]:
    process = psutil.Process(running.process.pid)
    return [process, *process.children(recursive=True)]


def _wait_until_gone(processes: list[psutil.Process], timeout_s: float) -> list[psutil.Process]:
    """Those that still run. A dead one that waits to be buried by the system does not count."""
    return [process for process in psutil.wait_procs(processes, timeout=timeout_s)[1] if _runs(process)]


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _produce(bootstrap: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 20_000})
    failures = []
    for value in values:
        producer.produce("words", value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(30) == 0
    assert failures == []


def _consume(bootstrap: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", "auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition("words", 0, 0)])
        found: list[bytes] = []
        deadline = time.monotonic() + 30
        while len(found) < count and time.monotonic() < deadline:
            found += [message.value() for message in consumer.consume(count, 0.5) if message.error() is None]
        return found
    finally:
        consumer.close()


def test_ready_without_waiting_for_spark_and_data_survives(start: Start, tmp_path: Path) -> None:
    variables = _variables(tmp_path / "data")
    bootstrap = f"{HOST}:{variables['KAFKA_PORT']}"
    for already in ([], [b"one", b"two"]):
        running = start("up", "--no-pipeline", environment=variables)
        assert running.wait_for("ready in", READY_S) < READY_S
        assert bootstrap in running.output
        assert f"http://{HOST}:{variables['HTTP_PORT']}/iceberg" in running.output
        assert str(tmp_path / "data") in running.output
        if not already:
            _produce(bootstrap, [b"one", b"two"])
        assert _consume(bootstrap, 2) == [b"one", b"two"]
        family = _family(running)
        assert len(family) >= 3
        started = time.monotonic()
        assert running.stop(signal.SIGINT) == 0, running.output
        assert time.monotonic() - started < 10
        assert _wait_until_gone(family, 1) == []


LISTS_WHAT_A_READY_BROKER_HAS_LOADED = """
import asyncio, sys
from lakestream.node.broker import run_broker
from lakestream.settings import load

async def main(data, port):
    stop = asyncio.Event()

    def ready():
        print(*{name.partition(".")[0] for name in sys.modules}, flush=True)
        stop.set()

    await run_broker(load(None, {}, {"data_dir": data, "broker.port": int(port)}), ready, stop)
    print(*{name.partition(".")[0] for name in sys.modules})

asyncio.run(main(*sys.argv[1:]))
"""


def test_a_broker_is_ready_before_it_has_loaded_what_reads_tables(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LISTS_WHAT_A_READY_BROKER_HAS_LOADED, str(tmp_path), str(free_ports())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    when_ready, in_the_end = (set(line.split()) for line in done.stdout.splitlines())
    tables = {"pyiceberg", "pyarrow"}
    assert when_ready & (tables | {"pydantic", "rich", "numba", "pyspark"}) == set()
    assert tables <= in_the_end


def test_three_brokers_take_neighbouring_ports(start: Start, tmp_path: Path) -> None:
    variables = _variables(tmp_path / "data", brokers=3)
    first = int(variables["KAFKA_PORT"])
    running = start("up", "--no-pipeline", environment=variables)
    running.wait_for("ready in", READY_S * 2)
    _produce(f"{HOST}:{first}", [b"one"])
    for port in range(first, first + 3):
        assert _consume(f"{HOST}:{port}", 1) == [b"one"]
    assert len(list((tmp_path / "data" / "logs").glob("broker-*.log"))) == 3


def test_a_kill_leaves_nothing_behind(start: Start, tmp_path: Path) -> None:
    running = start("up", "--no-pipeline", environment=_variables(tmp_path / "data"))
    running.wait_for("ready in", READY_S)
    family = _family(running)
    running.kill()
    assert _wait_until_gone(family, 5) == []


def test_a_broker_that_dies_is_started_again(start: Start, tmp_path: Path) -> None:
    variables = _variables(tmp_path / "data")
    running = start("up", "--no-pipeline", environment=variables)
    running.wait_for("ready in", READY_S)
    _produce(f"{HOST}:{variables['KAFKA_PORT']}", [b"one"])
    broker = next(process for process in _family(running) if "broker" in process.cmdline())
    broker.kill()
    running.wait_for("broker 0 stopped (SIGKILL) and is started again")
    assert _consume(f"{HOST}:{variables['KAFKA_PORT']}", 1) == [b"one"]


@pytest.mark.parametrize("variable", ["KAFKA_PORT", "HTTP_PORT"])
def test_a_busy_port_is_one_sentence(start: Start, tmp_path: Path, variable: str) -> None:
    variables = _variables(tmp_path / "data")
    with socket.socket() as busy:
        busy.bind((HOST, int(variables[variable])))
        busy.listen()
        running = start("up", "--no-pipeline", environment=variables)
        assert running.process.wait(READY_S) == 1
    assert running.output.count("\n") == 1, running.output
    assert variables[variable] in running.output
    assert f"{variable}=" in running.output


def test_a_data_directory_in_use_is_one_sentence(start: Start, tmp_path: Path) -> None:
    first = start("up", "--no-pipeline", environment=_variables(tmp_path / "data"))
    first.wait_for("ready in", READY_S)
    second = start("up", "--no-pipeline", environment=_variables(tmp_path / "data"))
    assert second.process.wait(READY_S) == 1
    assert second.output.count("\n") == 1, second.output
    assert f"is in use by process {first.process.pid}" in second.output
    assert "DATA=" in second.output


NO_JAVA_HERE = """
import sys
if "pipeline" in sys.orig_argv:
    from lakestream.pipeline import java
    java._ROOTS = ()
"""


def test_without_java_brokers_run_and_one_sentence_says_so(start: Start, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_JAVA_HERE)
    hidden = {"JAVA_HOME": "", "PATH": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    running = start("up", environment=_variables(tmp_path / "data") | hidden)
    running.wait_for("ready in", READY_S)
    running.wait_for("needs Java")
    sentences = [line for line in running.output.splitlines() if "Java" in line]
    assert len(sentences) == 1
    assert "apt-get install" in sentences[0]
    assert "Traceback" not in running.output
    assert running.process.poll() is None


@pytest.mark.spark
def test_spark_comes_after_the_brokers_and_goes_with_them(start: Start, tmp_path: Path, java: str) -> None:
    running = start("up", environment=_variables(tmp_path / "data"))
    running.wait_for("ready in", READY_S)
    assert "pipeline is running" not in running.output
    running.wait_for("pipeline is running", 90)
    family = _family(running)
    assert any(process.name() == "java" for process in family)
    started = time.monotonic()
    assert running.stop(signal.SIGINT) == 0
    assert time.monotonic() - started < 10
    assert _wait_until_gone(family, 1) == []


@pytest.mark.spark
def test_a_kill_takes_spark_along(start: Start, tmp_path: Path, java: str) -> None:
    running = start("up", environment=_variables(tmp_path / "data"))
    running.wait_for("pipeline is running", 90)
    family = _family(running)
    os.kill(running.process.pid, signal.SIGKILL)
    running.process.wait(5)
    assert _wait_until_gone(family, 10) == []
