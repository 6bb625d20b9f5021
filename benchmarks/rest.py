"""Records over REST beside the Kafka door, by the CPU of the process that takes them: batches of a hundred records,
each answered before its client sends the next, from several clients at once.

Over REST a request is a hundred records, in version 3 an object and a report for each, in version 2 one list; over
Kafka a produce request is one batch of a hundred. Both doors append to topics of one kind in one data directory.
"""

import http.client
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, Final

import psutil
from confluent_kafka import Producer

from benchmarks.fresh import make_topic, wait_for_door
from benchmarks.result import QUICK, Result, versus
from benchmarks.servers import HOST, free_port, running

RECORDS: Final = 100
PARTITIONS: Final = 6
CLIENTS: Final = 8
SECONDS: Final = 4.0 if QUICK else 12.0
WARM_S: Final = 2.0
ROUNDS: Final = 1 if QUICK else 3
VALUE: Final = {"order": 123_456_789, "customer": "customer-0001", "item": "flat white", "quantity": 1, "amount": 3.8}
TARGET: Final = 0.3
Client = Callable[[threading.Event], int]
"""Sends until the event is set; how many records were acknowledged."""


def run() -> list[Result]:
    with _processes() as (kafka, door, broker_process, door_process):
        names = ["by_kafka", "by_v3", "by_v2"]
        for name in names:
            make_topic(kafka, name, PARTITIONS)
        cluster = _get(door, "/v3/clusters")["data"][0]["cluster_id"]
        clients: dict[str, tuple[Callable[[], Client], psutil.Process]] = {
            "by_kafka": (lambda: _kafka(kafka, "by_kafka"), broker_process),
            "by_v3": (lambda: _v3(door, cluster, "by_v3"), door_process),
            "by_v2": (lambda: _v2(door, "by_v2"), door_process),
        }
        measured: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
        for make, process in clients.values():
            _load(make, process, WARM_S)
        for _ in range(ROUNDS):
            for name, (make, process) in clients.items():
                measured[name].append(_load(make, process, SECONDS))
    per_cpu = {name: median(each for each, _ in rounds) for name, rounds in measured.items()}
    rates = {name: median(rate for _, rate in rounds) for name, rounds in measured.items()}
    print("records/s:", ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items()))
    return [
        versus(
            f"REST {title}, batches of {RECORDS} beside the Kafka door",
            per_cpu[name],
            per_cpu["by_kafka"],
            "records/CPU s",
            at_least=TARGET,
        )
        for name, title in (("by_v3", "version 3"), ("by_v2", "version 2"))
    ]


@contextmanager
def _processes() -> Iterator[tuple[int, int, psutil.Process, psutil.Process]]:
    kafka, door = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="lakestream-bench-") as directory:
        base = [sys.executable, "-m", "lakestream.cli"]
        log = Path(directory)
        broker_command = [*base, "broker", "--data", directory, "--port", str(kafka)]
        door_command = [*base, "http", "--data", directory, "--port", str(door)]
        with (
            running(broker_command, log / "broker.log", {}) as broker,
            running(door_command, log / "door.log", {}) as ours,
        ):
            wait_for_door(door)
            yield kafka, door, psutil.Process(broker.pid), psutil.Process(ours.pid)


def _load(make: Callable[[], Client], process: psutil.Process, seconds: float) -> tuple[float, float]:
    """Records per second of the process's CPU, and per second."""
    stop, acked = threading.Event(), [0] * CLIENTS

    def work(number: int) -> None:
        acked[number] = make()(stop)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(CLIENTS)]
    began, before = time.perf_counter(), _cpu_s(process)
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    return sum(acked) / (_cpu_s(process) - before), sum(acked) / (time.perf_counter() - began)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _kafka(port: int, topic: str) -> Client:
    producer = Producer(
        {
            "bootstrap.servers": f"{HOST}:{port}",
            "batch.num.messages": RECORDS,
            "linger.ms": 20,
            "max.in.flight": 1,
            "log_level": 0,
        }
    )
    value = json.dumps(VALUE).encode()

    def work(stop: threading.Event) -> int:
        acked = 0

        def delivered(error: Any, _message: Any) -> None:
            nonlocal acked
            acked += error is None

        for batch in count():
            if stop.is_set():
                return acked
            for _ in range(RECORDS):
                producer.produce(topic, value, partition=batch % PARTITIONS, on_delivery=delivered)
            producer.flush(30)
        return acked

    return work


def _v3(port: int, cluster: str, topic: str) -> Client:
    body = b"\n".join([json.dumps({"value": {"type": "JSON", "data": VALUE}}).encode()] * RECORDS)
    return _posting(
        port, f"/v3/clusters/{cluster}/topics/{topic}/records", body, "application/json", b'"error_code":200'
    )


def _v2(port: int, topic: str) -> Client:
    body = json.dumps({"records": [{"value": VALUE}] * RECORDS}).encode()
    return _posting(port, f"/topics/{topic}", body, "application/vnd.kafka.json.v2+json", b'"error_code":null')


def _posting(port: int, path: str, body: bytes, kind: str, good: bytes) -> Client:
    def work(stop: threading.Event) -> int:
        acked = 0
        with closing(http.client.HTTPConnection(HOST, port, timeout=60)) as connection:
            while not stop.is_set():
                connection.request("POST", path, body, {"Content-Type": kind})
                acked += connection.getresponse().read().count(good)
        return acked

    return work


def _get(port: int, path: str) -> Any:
    with closing(http.client.HTTPConnection(HOST, port, timeout=60)) as connection:
        connection.request("GET", path)
        return json.load(connection.getresponse())
