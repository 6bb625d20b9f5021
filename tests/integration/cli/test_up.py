"""`lakestream up` as a person meets it: quick to be ready, clear when it cannot, nothing left behind."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from support.worlds.processes import HOST, START_S, Running, free_ports

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


@contextmanager
def _taken(port: int) -> Iterator[None]:
    """Somebody else listens there."""
    with socket.socket() as busy:
        busy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        busy.bind((HOST, port))
        busy.listen()
        yield


def test_if_no_broker_can_serve_one_sentence_says_why(start: Start, tmp_path: Path) -> None:
    variables = _variables(tmp_path / "data", brokers=2) | {"LAKESTREAM_METADATA_URL": "nosuch://store"}
    running = start("up", "--no-pipeline", environment=variables)
    assert running.process.wait(READY_S) == 1
    assert running.output.count("\n") == 1, running.output
    assert "nosuch" in running.output


def test_if_the_only_port_is_taken_one_sentence_says_so(start: Start, tmp_path: Path) -> None:
    variables = _variables(tmp_path / "data")
    with _taken(int(variables["KAFKA_PORT"])):
        running = start("up", "--no-pipeline", environment=variables)
        assert running.process.wait(READY_S) == 1
    assert running.output.count("\n") == 1, running.output
    assert variables["KAFKA_PORT"] in running.output
    assert "KAFKA_PORT=" in running.output


def test_brokers_serve_without_the_http_door_which_comes_when_its_port_is_free(start: Start, tmp_path: Path) -> None:
    variables = _variables(tmp_path / "data")
    port = variables["HTTP_PORT"]
    with _taken(int(port)):
        running = start("up", "--no-pipeline", environment=variables)
        running.wait_for("ready in", READY_S)
        running.wait_for(f"warning HTTP door: port {port} on {HOST} cannot be used")
        assert "HTTP_PORT=" in running.output
        assert "The catalog answers" not in running.output
        _produce(f"{HOST}:{variables['KAFKA_PORT']}", [b"one"])
        time.sleep(2)
        assert running.output.count("HTTP door: port") == 1, "tried again, but told once"
    running.wait_for(f"The catalog answers at http://{HOST}:{port}/iceberg.")
    with urlopen(f"http://{HOST}:{port}/health", timeout=10) as answer:
        assert answer.status == 200
    assert _consume(f"{HOST}:{variables['KAFKA_PORT']}", 1) == [b"one"]
    assert running.stop(signal.SIGINT) == 0, running.output


def test_two_brokers_serve_while_the_third_has_no_port(start: Start, tmp_path: Path) -> None:
    variables = _variables(tmp_path / "data", brokers=3)
    first = int(variables["KAFKA_PORT"])
    with _taken(first + 1):
        running = start("up", "--no-pipeline", environment=variables)
        running.wait_for("2 of 3 brokers ready after", READY_S)
        assert "lakestream ready in" not in running.output
        panel = running.output
        assert f"Kafka     {HOST}:{first}, {HOST}:{first + 2}" in panel
        why = rf"port {first + 1} on {HOST} cannot be used \(Address already in use\)"
        assert re.search(rf"missing +{HOST}:{first + 1}: broker 1: {why}", panel)
        _produce(f"{HOST}:{first}", [b"one"])
        assert _consume(f"{HOST}:{first + 2}", 1) == [b"one"]
    running.wait_for(f"broker 1 answers at {HOST}:{first + 1}.")
    assert _consume(f"{HOST}:{first + 1}", 1) == [b"one"]


DIES_IN_THE_FIRST_SECONDS = """
import os, sys, threading, time
if "broker" in sys.orig_argv and sys.orig_argv[sys.orig_argv.index("--id") + 1] == "1":
    if not os.path.exists(os.environ["MENDED"]):
        print("the cellar is under water", file=sys.stderr, flush=True)
        os._exit(7)
"""


def test_a_child_that_crashes_again_and_again_is_tried_again_while_the_others_serve(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(DIES_IN_THE_FIRST_SECONDS)
    mended = tmp_path / "mended"
    variables = _variables(tmp_path / "data", brokers=2)
    first = int(variables["KAFKA_PORT"])
    running = start("up", "--no-pipeline", environment=variables | {"PYTHONPATH": str(tmp_path), "MENDED": str(mended)})
    running.wait_for("1 of 2 brokers ready after", READY_S)
    log = tmp_path / "data" / "logs" / "broker-1.log"
    deadline = time.monotonic() + START_S
    while log.read_text().count("under water") < 4:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert running.process.poll() is None
    _produce(f"{HOST}:{first}", [b"one"])
    told = " ".join(running.output.replace("│", " ").split())
    assert "broker 1 stopped (exit status 7) and is started again" in told
    assert "its last line: the cellar is under water" in told
    assert "broker-1.log" in told
    mended.touch()
    running.wait_for(f"broker 1 answers at {HOST}:{first + 1}.")
    assert _consume(f"{HOST}:{first + 1}", 1) == [b"one"]
    assert running.stop(signal.SIGINT) == 0, running.output


SHORT_PAUSES = """
import sys
if "up" in sys.orig_argv:
    from lakestream.cli.local import children
    children.LONGEST_PAUSE_S = 0.5
"""


def test_a_broker_that_keeps_dying_young_is_kept_up(start: Start, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SHORT_PAUSES)
    variables = _variables(tmp_path / "data") | {"PYTHONPATH": str(tmp_path)}
    running = start("up", "--no-pipeline", environment=variables)
    running.wait_for("ready in", READY_S)
    for life in range(1, 7):
        next(process for process in _family(running) if "broker" in process.cmdline()).kill()
        deadline = time.monotonic() + 2 * START_S
        while running.output.count("broker 0 answers at") < life:
            assert running.process.poll() is None, running.output
            assert time.monotonic() < deadline, running.output
            time.sleep(0.05)
        if life == 1:
            _produce(f"{HOST}:{variables['KAFKA_PORT']}", [b"one"])
    assert _consume(f"{HOST}:{variables['KAFKA_PORT']}", 1) == [b"one"]


def test_clients_are_told_the_advertised_addresses(start: Start, tmp_path: Path) -> None:
    """Every address of 127.0.0.0/8 reaches what listens on all: clients must be told the one that was advertised."""
    variables = _variables(tmp_path / "data", brokers=2)
    first, http = int(variables["KAFKA_PORT"]), variables["HTTP_PORT"]
    told = {"BIND": "0.0.0.0", "KAFKA_ADVERTISED": f"127.0.0.77:{first}", "HTTP_ADVERTISED": f"127.0.0.77:{http}"}
    running = start("up", "--no-pipeline", environment=variables | told)
    running.wait_for("ready in", READY_S)
    assert f"127.0.0.77:{first}, 127.0.0.77:{first + 1}" in running.output
    assert f"http://127.0.0.77:{http}/iceberg" in running.output
    admin = AdminClient({"bootstrap.servers": f"{HOST}:{first}"})
    addresses = {(0, "127.0.0.77", first), (1, "127.0.0.77", first + 1)}
    found = admin.list_topics(timeout=10).brokers.values()
    assert {(broker.id, broker.host, broker.port) for broker in found} == addresses
    nodes = admin.describe_cluster(request_timeout=10).result().nodes
    assert {(node.id, node.host, node.port) for node in nodes} == addresses
    _produce(f"{HOST}:{first}", [b"one"])
    assert _consume(f"{HOST}:{first + 1}", 1) == [b"one"]
    consumer = Consumer({"bootstrap.servers": f"{HOST}:{first}", "group.id": "g", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["words"])
        message = consumer.poll(30)
        assert message is not None
        assert message.value() == b"one"
    finally:
        consumer.close()
    described = admin.describe_consumer_groups(["g"], request_timeout=10)["g"].result()
    assert described.coordinator.host == "127.0.0.77"
    running.wait_for("The catalog answers")
    with urlopen(f"http://127.0.0.77:{http}/health", timeout=10) as answer:
        assert answer.status == 200


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ({"BIND": "0.0.0.0"}, "KAFKA_ADVERTISED=host:"),
        ({"KAFKA_ADVERTISED": "0.0.0.0:9092"}, "name one that others can reach"),
        ({"KAFKA_ADVERTISED": "box"}, "write host:port"),
        ({"KAFKA_ADVERTISED": "a:1,b:2,c:3", "BROKERS": "2"}, "3 addresses are advertised for 2 brokers"),
        ({"HTTP_ADVERTISED": "http://box:8181"}, "write host:port"),
    ],
)
def test_an_address_that_nobody_can_call_is_one_sentence(
    start: Start, tmp_path: Path, told: dict[str, str], sentence: str
) -> None:
    running = start("up", "--no-pipeline", environment=_variables(tmp_path / "data") | told)
    assert running.process.wait(READY_S) == 1
    assert running.output.count("\n") == 1, running.output
    assert sentence in running.output


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
    time.sleep(2)
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
