"""Bytes that the same orders take: as rows of our table, and in a real Kafka's log segments.

Both get the orders of `lakestream demo`, JSON of about 200 bytes, through the same producer with the same settings.
What our table takes does not depend on how the producer compressed: the pipeline decodes. Counted are data files and
table metadata on our side, `.log` files (not their indexes) on Kafka's.
"""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Producer

from benchmarks.result import QUICK, Result, at_most_of
from benchmarks.servers import Server, kafka, lakestream
from lakestream.cli.clients.demo import order

RECORDS = 50_000 if QUICK else 400_000
PARTITIONS = 6
CODECS = ("none", "lz4", "zstd")
TARGETS = {"none": 0.6, "lz4": 1.0, "zstd": 1.0}


def run() -> list[Result]:
    with kafka() as server:
        theirs = {}
        for codec in CODECS:
            server.create_topic(f"orders-{codec}", PARTITIONS)
            _produce(server, f"orders-{codec}", codec)
            theirs[codec] = _size(server.directory / "log", f"orders-{codec}-*/*.log")
    with lakestream() as server:
        server.create_topic("orders", PARTITIONS)
        _produce(server, "orders", "none")
        _move(server.directory)
        ours = _size(server.directory / "bucket" / "tables", "**/*")
    return [
        at_most_of(
            f"stored beside Kafka, {codec} batches", ours / 1e6, theirs[codec] / 1e6, "MB", at_most=TARGETS[codec]
        )
        for codec in CODECS
    ]


def _produce(server: Server, topic: str, codec: str) -> None:
    settings = {"linger.ms": 20, "batch.size": 1_000_000, "compression.type": codec, "log_level": 0, "acks": "all"}
    producer = Producer({"bootstrap.servers": server.bootstrap, **settings})
    failures: list[object] = []
    for number, (key, value) in enumerate(_orders()):
        while True:
            try:
                producer.produce(
                    topic,
                    value,
                    key,
                    partition=number % PARTITIONS,
                    on_delivery=lambda error, _: failures.append(error) if error else None,
                )
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1_000 == 0:
            producer.poll(0)
    if producer.flush(120) or failures:
        raise RuntimeError(f"{server.name} did not take every order: {failures[:1]}")


def _orders() -> Iterator[tuple[str, str]]:
    source = random.Random(7)
    for _ in range(RECORDS):
        value = order(source)
        yield value["customer"], json.dumps(value)


def _move(data: Path) -> None:
    """All of it, with the pipeline's own command."""
    command = [sys.executable, "-m", "lakestream.cli", "pipeline", "--once", "--json", "--data", str(data)]
    done = subprocess.run(command, check=True, capture_output=True, timeout=300)
    if json.loads(done.stdout)["records"] != RECORDS:
        raise RuntimeError(f"not every order was moved: {done.stdout.decode()}")


def _size(root: Path, pattern: str) -> int:
    return sum(path.stat().st_size for path in root.glob(pattern) if path.is_file())
