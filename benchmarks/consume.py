"""Consume beside Kafka: what was just produced, by one consumer, by ten, and by one that starts a minute late, when our
pipeline has long moved the records into the table.

Kafka's own performance tool, and kcat for the ten. The servers take turns, after rounds that do not count.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

from benchmarks.perf_tools import consume, consume_many, produce
from benchmarks.result import QUICK, Result, at_most_of, versus
from benchmarks.servers import Server, kafka, lakestream

PARTITIONS = 6
SIZE_BYTES = 1000
RECORDS = 40_000 if QUICK else 500_000
READERS = 10
LATE_S = 5.0 if QUICK else 60.0
WARM_UP_ROUNDS = 1 if QUICK else 2
ROUNDS = 1 if QUICK else 5

Figures = tuple[float, float]
"""Megabytes per second, and CPU seconds of the server per gigabyte."""


def run() -> list[Result]:
    with lakestream() as ours, kafka() as peer:
        for server in (ours, peer):
            server.create_topic("tail", PARTITIONS)
            produce(server, "tail", RECORDS, SIZE_BYTES)
        one = _compared("tail consume", ours, peer, _one, 0.9)
        ten = _compared(f"{READERS} consumers", ours, peer, _many, 1.0)
        fill_the_table(ours)
        time.sleep(LATE_S)
        late = _compared("consumer a minute late", ours, peer, _one, 0.8)
    return [*one, *ten, *late]


def _compared(
    name: str, ours: Server, peer: Server, measure: Callable[[Server], Figures], at_least: float
) -> list[Result]:
    measured: dict[str, list[Figures]] = {ours.name: [], peer.name: []}
    for number in range(WARM_UP_ROUNDS + ROUNDS):
        for server in (ours, peer):
            figures = measure(server)
            if number >= WARM_UP_ROUNDS:
                measured[server.name].append(figures)
    our_rate, our_cost = _medians(measured[ours.name])
    peer_rate, peer_cost = _medians(measured[peer.name])
    label = f"{name} {SIZE_BYTES} B"
    return [
        versus(f"{label}, throughput", our_rate, peer_rate, "MB/s", at_least=at_least),
        at_most_of(f"{label}, CPU", our_cost, peer_cost, "CPU s/GB", at_most=1.5),
    ]


def _one(server: Server) -> Figures:
    before = server.cpu_seconds()
    rate = consume(server, "tail", RECORDS)
    return rate, (server.cpu_seconds() - before) / (RECORDS * SIZE_BYTES / 1e9)


def _many(server: Server) -> Figures:
    before = server.cpu_seconds()
    megabytes = READERS * RECORDS * SIZE_BYTES / 1e6
    seconds = consume_many(server, "tail", READERS)
    return megabytes / seconds, (server.cpu_seconds() - before) / (megabytes / 1e3)


def _medians(rounds: list[Figures]) -> Figures:
    return median(rate for rate, _ in rounds), median(cost for _, cost in rounds)


def fill_the_table(server: Server) -> None:
    """Afterwards the topic has no record that is not in its table."""
    command = [sys.executable, "-m", "lakestream.cli", "pipeline", "--once", "--data", str(server.directory)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
