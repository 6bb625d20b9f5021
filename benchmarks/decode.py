"""Record batches on one core, beside what the machine can do at most: CRC32C by google-crc32c, and copying memory.

Not part of `make bench`: `python -m benchmarks.run decode`.
"""

import io
import time
from collections.abc import Callable

import google_crc32c

from benchmarks.records import make_runs
from benchmarks.result import QUICK, Result, versus
from lakestream.records import Arena, BatchRules, Encoder, Run, decode, validate, warm_up
from lakestream.table.parquet.writer import StreamFileWriter
from lakestream.table.shape import RAW

TOTAL_BYTES = 12_000_000 if QUICK else 48_000_000
ROUNDS = 2 if QUICK else 5
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def run() -> list[Result]:
    warm_up()
    return [result for value_bytes in (1000, 100) for result in _measure(value_bytes)]


def _measure(value_bytes: int) -> list[Result]:
    plain = make_runs(TOTAL_BYTES, value_bytes)
    size = sum(len(run.data) for run in plain)
    target = bytearray(size)
    copy = _rate(size, lambda: _copy(plain, target))
    checksum = _rate(size, lambda: [google_crc32c.value(run.data) for run in plain])
    arena = Arena()
    results = []

    def add(name: str, rate: float, peer: float) -> None:
        results.append(versus(f"{name}, {value_bytes} B", rate, peer, "MB/s", at_least=0))

    for name, codec in CODECS.items():
        runs = make_runs(TOTAL_BYTES, value_bytes, compression=codec) if codec else plain
        add(f"validate {name} to CRC32C", _rate(size, lambda runs=runs: _validate(runs)), checksum)  # type: ignore[misc]
        add(f"decode {name} to memcpy", _rate(size, lambda runs=runs: _decode(runs, arena)), copy)  # type: ignore[misc]
    add("decode and write Parquet to memcpy", _rate(size, lambda: _write(plain, arena)), copy)
    columns = next(iter(decode(plain, arena)))
    encoder = Encoder(columns)
    encoded, _ = encoder.encode(0, len(columns), max_bytes=1 << 40)
    add("encode to memcpy", _rate(len(encoded), lambda: _encode(encoder)), copy)
    return results


def _copy(runs: list[Run], target: bytearray) -> None:
    at = 0
    for run in runs:
        target[at : at + len(run.data)] = run.data
        at += len(run.data)


def _validate(runs: list[Run]) -> None:
    for run in runs:
        validate(run.data, BatchRules(1 << 30), 0)


def _decode(runs: list[Run], arena: Arena) -> None:
    for _ in decode(runs, arena):
        pass


def _encode(encoder: Encoder) -> None:
    row, stop = 0, len(encoder.offsets)
    while row < stop:
        _, row = encoder.encode(row, stop, max_bytes=1024 * 1024)


def _write(runs: list[Run], arena: Arena) -> None:
    writer = StreamFileWriter(io.BytesIO(), RAW)
    for columns in decode(runs, arena):
        writer.write(columns)
    writer.close()


def _rate(size_bytes: int, work: Callable[[], object]) -> float:
    """MB of uncompressed batches per second of CPU: the best round, for the machine is shared."""
    best_s = float("inf")
    for _ in range(ROUNDS):
        start_s = time.process_time()
        work()
        best_s = min(best_s, time.process_time() - start_s)
    return size_bytes / best_s / 1e6
