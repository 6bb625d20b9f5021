"""The pipeline beside the Iceberg sink of Kafka Connect: CPU seconds per gigabyte of values, on one S3 server.

The sink reads a topic of a real Kafka with the same orders, keys and number of partitions, uncompressed, in an ordinary
standalone worker with two tasks and the defaults of Connect, of the sink and of Iceberg. What is counted of it is the
worker's process, from the first record produced to the commit that holds the last one, after a first load that warms
its JIT, the median of several loads, as of ours; Kafka's own CPU time, which it also needs, is not counted. Of ours
everything is: driver, JVM and workers.

The sink does less with a record: the value stays the bytes it is (no JSON is parsed, the cheapest that the sink can
do), beside it come partition, offset and timestamp; key, headers and checksums are not kept, and nothing in its files
lets a Kafka consumer read them again. It does more in two ways: it fetches records from a broker instead of objects
from the store, and it writes while they come, whereas ours finds the whole load waiting. Its commit interval is so
long that a load makes few files, as ours does.
"""

import json
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import cycle, islice
from pathlib import Path

import psutil
from confluent_kafka import Producer

from benchmarks.orders import orders
from benchmarks.pipeline import PARTITIONS, ROUNDS, cpu_seconds_per_gb
from benchmarks.result import QUICK, Result, at_most_of
from benchmarks.s3 import S3, s3
from benchmarks.servers import HOST, START_S, Server, free_port, java, kafka, kafka_jars, running

ROOT = Path(__file__).resolve().parents[1]
SIZES = {"1 KB": 1000, "100 B": 100}
"""Of the values, in bytes."""
LOAD_BYTES = (16 if QUICK else 300) * 1024 * 1024
WARM_BYTES = LOAD_BYTES // 2
COMMIT_S = 5 if QUICK else 20
WAIT_S = 60.0 if QUICK else 300.0
DISTINCT_BYTES = 8 * 1024 * 1024
"""Of values; they are repeated."""
TASKS = 2
MOST_OF_ITS_CPU = 0.2


def run() -> list[Result]:
    with s3() as store:
        theirs = [_sink_seconds_per_gb(store, size) for size in SIZES.values()]
        ours = cpu_seconds_per_gb(store, list(SIZES.values()))
    return [
        at_most_of(f"WAL to table beside Connect, {name}", our, their, "CPU s/GB", at_most=MOST_OF_ITS_CPU)
        for name, our, their in zip(SIZES, ours, theirs, strict=True)
    ]


def _sink_seconds_per_gb(store: S3, size: int) -> float:
    with kafka() as broker, tempfile.TemporaryDirectory(prefix="connect-bench-") as folder:
        topic = f"load-{size}"
        broker.create_topic(topic, PARTITIONS)
        broker.create_topic("control", 1)
        with _sink(store, broker, topic, Path(folder)) as sink:
            # One record makes the table: two tasks that both try to would end one of them.
            count = _produce(broker, topic, size, size)
            sink.wait_for(count)
            count += _produce(broker, topic, size, WARM_BYTES)
            sink.wait_for(count)
            spent = []
            for _ in range(ROUNDS):
                before = sink.cpu_seconds()
                loaded = _produce(broker, topic, size, LOAD_BYTES)
                count += loaded
                sink.wait_for(count)
                spent.append((sink.cpu_seconds() - before) / (loaded * size / 1e9))
            return statistics.median(spent)


def _produce(broker: Server, topic: str, size: int, load_bytes: int) -> int:
    """How many records."""
    count = load_bytes // size
    distinct = list(islice(orders(random.Random(size), size), DISTINCT_BYTES // size))
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "linger.ms": 100,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 256 * 1024,
        }
    )
    for key, value in islice(cycle(distinct), count):
        while True:
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(WAIT_S):
        raise SystemExit("Kafka did not take the records")
    return count


class _Sink:
    """A running Connect worker with the sink in it."""

    def __init__(self, process: "subprocess.Popen[bytes]", catalog: Path, store: S3, log: Path) -> None:
        self._process, self._catalog, self._store, self._log = process, catalog, store, log

    def cpu_seconds(self) -> float:
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)

    def wait_for(self, count: int) -> None:
        """Until so many records are committed, each once."""
        deadline = time.monotonic() + WAIT_S
        while (found := self._committed()) < count:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the sink has {found} of {count} records:\n{self.last_words()}")
            time.sleep(0.25)
        if found != count:
            raise SystemExit(f"the sink has {found} records in its table, not {count}")

    def last_words(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    def _committed(self) -> int:
        with closing(sqlite3.connect(f"file:{self._catalog}?mode=ro", uri=True)) as catalog:
            try:
                found = catalog.execute("SELECT metadata_location FROM iceberg_tables").fetchone()
            except sqlite3.OperationalError:
                return 0
        if found is None:
            return 0
        metadata = json.loads(self._store.read(found[0]))
        current = metadata.get("current-snapshot-id")
        summaries = {snapshot["snapshot-id"]: snapshot["summary"] for snapshot in metadata.get("snapshots", [])}
        return int(summaries[current]["total-records"]) if current in summaries else 0


@contextmanager
def _sink(store: S3, broker: Server, topic: str, folder: Path) -> Iterator[_Sink]:
    sink_jars = _sink_jars()
    port, catalog, log = free_port(), folder / "catalog.db", folder / "output.log"
    catalog.touch()
    (folder / "log4j2.properties").write_text(
        "status = error\nrootLogger.level = warn\nrootLogger.appenderRef.out.ref = out\n"
        "appender.out.type = Console\nappender.out.name = out\n"
        "appender.out.layout.type = PatternLayout\nappender.out.layout.pattern = %d %p %c{1}: %m%n\n"
    )
    command = [
        java(),
        # As in Connect's own start script.
        *("-Xms256M", "-Xmx2G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
        *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
        f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        *("-cp", f"{kafka_jars()}/*", "org.apache.kafka.connect.cli.ConnectStandalone"),
        str(_write(folder / "worker.properties", _worker_properties(broker, sink_jars, port, folder))),
        str(_write(folder / "sink.properties", _sink_properties(store, topic, catalog))),
    ]
    with running(command, log, store.environment) as process:
        sink = _Sink(process, catalog, store, log)
        _wait_until_it_runs(sink, process, f"http://{HOST}:{port}/connectors/sink/status")
        yield sink


def _sink_jars() -> Path:
    jars = ROOT / ".cache" / "connect"
    subprocess.run([sys.executable, ROOT / "tools" / "fetch_jars.py", "connect", jars], check=True)
    return jars


def _worker_properties(broker: Server, sink_jars: Path, port: int, folder: Path) -> Mapping[str, str]:
    plugins = folder / "plugins"
    plugins.mkdir()
    (plugins / "iceberg").symlink_to(sink_jars)
    return {
        "bootstrap.servers": broker.bootstrap,
        "listeners": f"http://{HOST}:{port}",
        "plugin.path": str(plugins),
        "offset.storage.file.filename": str(folder / "offsets"),
        # An idle task hears of a commit only when its poll ends, which by default is once a minute.
        "offset.flush.interval.ms": "2000",
        "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
    }


def _sink_properties(store: S3, topic: str, catalog: Path) -> Mapping[str, str]:
    keys = store.environment
    return {
        "name": "sink",
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "tasks.max": str(TASKS),
        "topics": topic,
        "consumer.override.auto.offset.reset": "earliest",
        "transforms": "hoist,place",
        "transforms.hoist.type": "org.apache.kafka.connect.transforms.HoistField$Value",
        "transforms.hoist.field": "value",
        "transforms.place.type": "org.apache.kafka.connect.transforms.InsertField$Value",
        "transforms.place.partition.field": "partition",
        "transforms.place.offset.field": "offset",
        "transforms.place.timestamp.field": "timestamp",
        "iceberg.tables": f"bench.{topic.replace('-', '_')}",
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.control.topic": "control",
        "iceberg.control.commit.interval-ms": str(COMMIT_S * 1000),
        "iceberg.catalog.type": "jdbc",
        "iceberg.catalog.uri": f"jdbc:sqlite:{catalog}",
        "iceberg.catalog.warehouse": f"{store.url}/connect",
        "iceberg.catalog.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "iceberg.catalog.client.region": keys["AWS_REGION"],
        "iceberg.catalog.s3.endpoint": keys["AWS_ENDPOINT"],
        "iceberg.catalog.s3.path-style-access": "true",
        "iceberg.catalog.s3.access-key-id": keys["AWS_ACCESS_KEY_ID"],
        "iceberg.catalog.s3.secret-access-key": keys["AWS_SECRET_ACCESS_KEY"],
    }


def _write(path: Path, properties: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return path


def _wait_until_it_runs(sink: _Sink, process: "subprocess.Popen[bytes]", status_url: str) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            with urllib.request.urlopen(status_url, timeout=5) as answer:
                states = [task["state"] for task in json.load(answer)["tasks"]]
            if len(states) == TASKS and set(states) == {"RUNNING"}:
                return
            failed = "FAILED" in states
        except (urllib.error.URLError, OSError):
            failed = False
        if failed or process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the sink did not start:\n{sink.last_words()}")
        time.sleep(0.25)
