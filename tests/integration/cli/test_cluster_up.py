"""`lakestream cluster up`: a whole cluster in one command, which survives its parts and ends with all of them."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer
from conftest import need
from support.servers.postgres import postgres_programs
from support.worlds.processes import HOST, Running, free_ports

READY_S = 120.0
TABLE_S = 180.0


@pytest.fixture
def folder() -> Iterator[Path]:
    """PostgreSQL may run as somebody else here, who cannot enter the folders that pytest makes."""
    path = Path(tempfile.mkdtemp(prefix="lakestream-cluster-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


def _produce(bootstrap: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 60_000, "enable.idempotence": True})
    failures: list[object] = []
    for number in range(first, first + count):
        value = json.dumps({"n": number}).encode()
        producer.produce("counted", value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(90) == 0
    assert failures == []


def _consume(bootstrap: str, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"g{count}", "auto.offset.reset": "earliest"})
    consumer.subscribe(["counted"])
    found: list[int] = []
    deadline = time.monotonic() + 90
    try:
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count}"
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                found.append(json.loads(message.value())["n"])
    finally:
        consumer.close()
    return found


def _rows(cli: Callable[..., "subprocess.CompletedProcess[str]"], port: int) -> int:
    """None of them while the table is not there."""
    catalog = f"http://{HOST}:{port}/iceberg"
    done = cli("table", "query", "SELECT count(*) AS n FROM counted", "--json", "--catalog", catalog)
    return int(json.loads(done.stdout.splitlines()[0])["n"]) if done.returncode == 0 else -1


def _child(running: Running, *words: str) -> psutil.Process:
    for process in psutil.Process(running.process.pid).children():
        if all(word in process.cmdline() for word in words):
            return process
    raise AssertionError(f"no child {words}")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_cluster_survives_its_parts_and_ends_with_all_of_them(
    start: Callable[..., Running],
    cli: Callable[..., "subprocess.CompletedProcess[str]"],
    folder: Path,
    java: str,
) -> None:
    need(postgres_programs(), "PostgreSQL (initdb and postgres)")
    first = free_ports(10)
    variables = {
        "DATA": str(folder / "data"),
        "KAFKA_PORT": str(first),
        "HTTP_PORT": str(first + 3),
        "MONITOR_PORT": str(first + 5),
        "COLUMNS": "160",
    }
    running = start("cluster", "up", environment=variables)
    running.wait_for("Ctrl-C stops everything", READY_S)
    second = cli("cluster", "up", environment=variables)
    assert second.returncode == 1
    assert f"is in use by process {running.process.pid}" in second.stderr
    bootstrap = ",".join(f"{HOST}:{first + index}" for index in range(3))
    _produce(bootstrap, 0, 100)
    assert sorted(_consume(bootstrap, 100)) == list(range(100))

    for part in (_child(running, "broker", "1"), next(iter(_servers(running, "postgres")))):
        part.send_signal(signal.SIGKILL)
        part.wait(30)
    _produce(bootstrap, 100, 100)
    assert sorted(_consume(bootstrap, 200)) == list(range(200))

    running.wait_for("The pipeline is running", TABLE_S)
    deadline = time.monotonic() + TABLE_S
    for door in (first + 3, first + 4):
        while (rows := _rows(cli, door)) != 200:
            assert time.monotonic() < deadline, f"{rows} rows through port {door}\n{running.output}"
            time.sleep(1.0)
    with urllib.request.urlopen(f"http://{HOST}:{first + 5}/ready", timeout=30) as answer:
        assert json.load(answer) == {"status": "ready"}

    family = psutil.Process(running.process.pid).children(recursive=True)
    assert running.stop(signal.SIGINT, 120) == 0, running.output
    assert "everything that was acknowledged is in its table" in running.output
    _, alive = psutil.wait_procs(family, timeout=30)
    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []


def _servers(running: Running, name: str) -> list[psutil.Process]:
    children = psutil.Process(running.process.pid).children()
    return [child for child in children if os.path.basename(child.cmdline()[0]) == name]


def test_what_is_missing_is_told(
    cli: Callable[..., "subprocess.CompletedProcess[str]"], folder: Path, tmp_path: Path
) -> None:
    (folder / "data" / "s3").mkdir(parents=True)
    nothing = {"PATH": str(tmp_path), "LAKESTREAM_STORE_TOOLS": str(tmp_path)}
    done = cli("cluster", "up", "--data", str(folder / "data"), environment=nothing)
    assert done.returncode == 1
    assert "has objects of versitygw, which is not here any more: install it again" in done.stderr


def test_one_that_runs_keeps_its_directory(
    cli: Callable[..., "subprocess.CompletedProcess[str]"], folder: Path
) -> None:
    data = folder / "data"
    data.mkdir()
    with (data / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("4711\n")
        lock.flush()
        done = cli("cluster", "up", "--data", str(data))
    assert done.returncode == 1
    assert "is in use by process 4711: stop that lakestream, or choose another" in " ".join(done.stderr.split())
    assert sorted(path.name for path in data.iterdir()) == ["lock", "logs"]
