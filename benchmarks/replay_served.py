"""Replay from the table through a broker, beside Arrow alone: kcat reads a topic from its start whose records are all
in its table and in no memory of the broker, and Arrow decodes the same Parquet files, all columns.

Throughput is what the client sees: megabytes of values a second, in turns, Arrow with all cores. The broker shares
those with its client and sends every byte. CPU is that of the broker alone, beside Arrow on one thread.
"""

import time
from pathlib import Path
from statistics import median
from typing import Final

import pyarrow.parquet as pq

from benchmarks.consume import fill_the_table
from benchmarks.perf_tools import consume_many, produce
from benchmarks.result import QUICK, Result, versus
from benchmarks.servers import lakestream

TOPIC: Final = "replay"
PARTITIONS: Final = 6
WARM_UP_ROUNDS: Final = 1
"""Which also fetch the files into the system's memory."""
ROUNDS: Final = 2 if QUICK else 5
RECORDS: Final = {1000: 100_000 if QUICK else 1_000_000, 100: 500_000 if QUICK else 6_000_000}
NOTHING_KEPT: Final = {
    "LAKESTREAM_STREAM_TAIL_CACHE_BYTES": "0",
    "LAKESTREAM_STREAM_HISTORY_CACHE_BYTES": str(128 * 1024 * 1024),
}
"""What was appended is not in memory any more, as after hours, and the cache of rows is far smaller than the topic: no
round finds what the one before has read."""


def run() -> list[Result]:
    return [result for size_bytes, count in RECORDS.items() for result in _measure(size_bytes, count)]


def _measure(size_bytes: int, count: int) -> list[Result]:
    megabytes = count * size_bytes / 1e6
    rates: list[tuple[float, float]] = []
    costs: list[tuple[float, float]] = []
    with lakestream(NOTHING_KEPT) as server:
        server.create_topic(TOPIC, PARTITIONS)
        produce(server, TOPIC, count, size_bytes)
        fill_the_table(server)
        files = sorted((server.directory / "bucket" / "tables").rglob("*.parquet"))
        for _ in range(WARM_UP_ROUNDS + ROUNDS):
            before_s = server.cpu_seconds()
            rate = megabytes / consume_many(server, TOPIC, 1)
            cost = server.cpu_seconds() - before_s
            rates.append((rate, megabytes / _decode(files, count, threads=True)[0]))
            costs.append((megabytes / cost, megabytes / _decode(files, count, threads=False)[1]))
    name = f"replay {size_bytes} B from the table"
    return [
        versus(f"{name}, beside Arrow alone", *_medians(rates), "MB/s", at_least=0.6),
        versus(f"{name}, by CPU", *_medians(costs), "MB/CPU s", at_least=0.6),
    ]


def _medians(rounds: list[tuple[float, float]]) -> tuple[float, float]:
    counted = rounds[WARM_UP_ROUNDS:]
    return median(ours for ours, _ in counted), median(alone for _, alone in counted)


def _decode(files: list[Path], count: int, *, threads: bool) -> tuple[float, float]:
    """Seconds, and seconds of CPU."""
    started_s, cpu_s, rows = time.perf_counter(), time.process_time(), 0
    for path in files:
        rows += pq.read_table(path, use_threads=threads).num_rows
    if rows != count:
        raise RuntimeError(f"{rows} of {count} rows are in the table's files")
    return time.perf_counter() - started_s, time.process_time() - cpu_s
