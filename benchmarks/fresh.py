"""From the ack of a record until an engine that polls sees it, while 10 MB/s come in: `lakestream up` as it comes.

The engine is DuckDB with one connection, which loads the table through the REST catalog for each query and asks for the
newest offset of each partition. A record is visible when a query that shows its offset has ended.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import duckdb
import psutil
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from duckdb_extensions import import_extension

from benchmarks.result import QUICK, Result, stays_under, with_curve
from benchmarks.servers import HOST, START_S, free_port

PARTITIONS: Final = 4
RECORD_BYTES: Final = 1_000
RATE_BYTES: Final = 10_000_000
SECONDS: Final = 8.0 if QUICK else 30.0
WARM_S: Final = 3.0
POLL_S: Final = 0.05
SAMPLED: Final = 20
"""Of so many records the ack of one is timed."""
LIMIT_S: Final = 1.0
STOP_S: Final = 20.0
TICK_S: Final = 0.01


class Acks:
    """When records were acked, by partition and offset, until an engine has seen them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[tuple[int, int], float] = {}
        self.seen_after_s: list[float] = []
        self.failures: list[Any] = []

    def acked(self, error: Any, message: Any) -> None:
        now_s = time.perf_counter()
        with self._lock:
            if error is not None:
                self.failures.append(error)
            else:
                self._waiting[message.partition(), message.offset()] = now_s

    def seen(self, newest: dict[int, int], now_s: float) -> None:
        with self._lock:
            for place in [place for place in self._waiting if place[1] <= newest.get(place[0], -1)]:
                self.seen_after_s.append(now_s - self._waiting.pop(place))

    def forget(self) -> None:
        with self._lock:
            self.seen_after_s.clear()

    @property
    def waiting(self) -> int:
        return len(self._waiting)


def run() -> list[Result]:
    kafka, http = free_port(), free_port()
    acks = Acks()
    with tempfile.TemporaryDirectory(prefix="lakestream-bench-") as directory, up(directory, kafka, http):
        make_topic(kafka, "fresh", PARTITIONS)
        stop = threading.Event()
        load = threading.Thread(target=_produce, args=(kafka, acks, stop))
        with _engine(http) as engine:
            load.start()
            try:
                _poll(engine, acks, time.perf_counter() + WARM_S)
                acks.forget()
                polls = _poll(engine, acks, time.perf_counter() + SECONDS)
            finally:
                stop.set()
                load.join()
            commits, cut_s = _cost(http)
            deadline = time.perf_counter() + START_S
            while acks.waiting and time.perf_counter() < deadline:
                _poll(engine, acks, time.perf_counter() + POLL_S)
    if acks.failures or acks.waiting:
        raise SystemExit(f"{acks.waiting} sampled records were never seen; failures: {acks.failures[:1]}")
    ordered = sorted(acks.seen_after_s)
    half, most = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
    print(
        f"ack to visible: {len(ordered)} records sampled, {polls} queries, p50 {half * 1000:.0f} ms, "
        f"p99 {most * 1000:.0f} ms, at most {ordered[-1] * 1000:.0f} ms; {commits:.0f} commits on demand, "
        f"{cut_s * 1000:.0f} ms each"
    )
    slowest = stays_under("ack to visible at 10 MB/s, p99", most, "s", at_most=LIMIT_S)
    return [
        stays_under("ack to visible at 10 MB/s, p50", half, "s", at_most=LIMIT_S),
        with_curve(
            slowest,
            "fresh",
            "From the ack until an engine that polls sees the record, at 10 MB/s",
            x="percent of the records",
            y="seconds at most",
            points=[(percent, ordered[(len(ordered) - 1) * percent // 100]) for percent in range(0, 101, 2)],
            limit=LIMIT_S,
        ),
    ]


def _produce(port: int, acks: Acks, stop: threading.Event) -> None:
    """At an even pace; every so many records an ack is timed."""
    producer = Producer({"bootstrap.servers": f"{HOST}:{port}", "acks": "all", "linger.ms": 5, "log_level": 0})
    value = (bytes(range(256)) * 4)[:RECORD_BYTES]
    started_s, sent = time.perf_counter(), 0
    while not stop.is_set():
        due = int((time.perf_counter() - started_s) * RATE_BYTES / RECORD_BYTES)
        for number in range(sent, due):
            if number % SAMPLED:
                producer.produce("fresh", value, partition=number // SAMPLED % PARTITIONS)
            else:
                producer.produce("fresh", value, partition=number // SAMPLED % PARTITIONS, on_delivery=acks.acked)
        sent = due
        producer.poll(0)
        stop.wait(TICK_S)
    producer.flush(60)


def _poll(engine: duckdb.DuckDBPyConnection, acks: Acks, until_s: float) -> int:
    """How many queries there were."""
    count = 0
    while time.perf_counter() < until_s:
        rows = engine.execute("SELECT _stream_partition, max(_offset) FROM lake.default.fresh GROUP BY 1").fetchall()
        acks.seen(dict(rows), time.perf_counter())
        count += 1
        time.sleep(POLL_S)
    return count


def make_topic(port: int, name: str, partitions: int, config: dict[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": f"{HOST}:{port}", "log_level": 0})
    deadline = time.monotonic() + START_S
    while True:
        try:
            topic = NewTopic(name, partitions, 1, config=config or {})
            admin.create_topics([topic], operation_timeout=10)[name].result(10)
            return
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


@contextmanager
def _engine(port: int) -> Iterator[duckdb.DuckDBPyConnection]:
    wait_for_door(port)
    connection = duckdb.connect(config={"threads": 1})
    for extension in ("avro", "httpfs", "iceberg"):
        import_extension(extension)
        connection.load_extension(extension)
    address = f"http://{HOST}:{port}/iceberg"
    connection.execute(f"ATTACH '' AS lake (TYPE iceberg, ENDPOINT '{address}', AUTHORIZATION_TYPE 'none')")
    try:
        yield connection
    finally:
        connection.close()


def _cost(port: int) -> tuple[float, float]:
    """Commits on demand since the door began, and the seconds that each took."""
    with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=5) as answer:
        lines = [line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if not line.startswith("#")]
    found = {name: float(value) for name, value in lines if name.startswith("lakestream_fresh_")}
    return found["lakestream_fresh_commits_total"], found["lakestream_fresh_commit_seconds_total"] / max(
        1.0, found["lakestream_fresh_commits_total"]
    )


def wait_for_door(port: int) -> None:
    deadline = time.monotonic() + START_S
    while not _answers(port):
        if time.monotonic() > deadline:
            raise SystemExit("the HTTP door did not start")
        time.sleep(0.1)


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


@contextmanager
def up(directory: str, kafka: int, http: int) -> Iterator[psutil.Process]:
    variables = {"DATA": directory, "KAFKA_PORT": str(kafka), "HTTP_PORT": str(http), "BROKERS": "1"}
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        [sys.executable, "-m", "lakestream.cli", "up"],
        env=os.environ | variables,
        stdin=quiet,
        stdout=quiet,
        stderr=quiet,
    )
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
