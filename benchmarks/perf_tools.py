"""Clients that do not hold a broker back: Kafka's own performance tools, and kcat. The same for every server."""

import csv
import re
import shutil
import subprocess
import time
from typing import Final

from benchmarks.servers import Server, java, kafka_jars

LIMIT_S: Final = 300.0
_SENT: Final = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec", re.MULTILINE)


def produce(server: Server, topic: str, record_count: int, size_bytes: int) -> float:
    """Records per second, with acks=all, by ProducerPerformance."""
    properties = ("acks=all", "linger.ms=5", "batch.size=262144", "buffer.memory=134217728")
    output = _tool(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", str(record_count), "--record-size", str(size_bytes)),
        *("--throughput", "-1", "--bootstrap-server", server.bootstrap, "--command-property", *properties),
    )
    *_, last = _SENT.finditer(output)
    if int(last[1]) != record_count:
        raise RuntimeError(f"{server.name}: {last[0]}")
    return float(last[2])


def consume(server: Server, topic: str, record_count: int) -> float:
    """Megabytes per second from the start of the topic, by ConsumerPerformance, without the time that its group takes
    to form."""
    output = _tool(
        "ConsumerPerformance",
        *("--bootstrap-server", server.bootstrap, "--topic", topic, "--num-records", str(record_count)),
        *("--fetch-size", "8000000", "--group", f"perf-{time.monotonic_ns()}"),
    )
    header, line = list(csv.reader(output.strip().splitlines(), skipinitialspace=True))[-2:]
    told = dict(zip(header, line, strict=True))
    records = next(told[name] for name in told if name.startswith("data.consumed.in.n"))
    if int(records) < record_count:
        raise RuntimeError(f"{server.name}: {records} of {record_count} records came")
    return float(told["data.consumed.in.MB"]) * 1.048576 / (float(told["fetch.time.ms"]) / 1000)


def consume_many(server: Server, topic: str, readers: int) -> float:
    """Seconds until so many kcat processes have each read the topic from its start to its end."""
    kcat = shutil.which("kcat")
    if kcat is None:
        raise SystemExit("kcat was not found: run `make kcat`")
    command = [kcat, "-b", server.bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "", "-u"]
    options = ["-X", "fetch.max.bytes=50000000", "-X", "max.partition.fetch.bytes=8000000"]
    # The end is found by a fetch that waits in vain.
    options += ["-X", "fetch.wait.max.ms=10"]
    started = time.perf_counter()
    running = [subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL) for _ in range(readers)]
    for process in running:
        if process.wait(LIMIT_S):
            raise RuntimeError(f"{server.name}: kcat ended with {process.returncode}")
    return time.perf_counter() - started


def _tool(name: str, *arguments: str) -> str:
    command = [java(), "-Xmx512m", "-cp", f"{kafka_jars()}/*", f"org.apache.kafka.tools.{name}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{name} failed: {done.stdout[-500:]} {done.stderr[-500:]}")
    return done.stdout
