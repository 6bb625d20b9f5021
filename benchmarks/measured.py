"""`python -m benchmarks.measured`: what `lakestream cost` reckons with, out of benchmarks/results.json, as a full
`make bench` writes it by itself."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from benchmarks.plots import RESULTS
from benchmarks.result import Result

MEASURED: Final = Path(__file__).parent.parent / "src" / "lakestream" / "cost" / "measured.toml"
_RECORDS_PER_GB: Final = 1e6


def _beside_kafka(result: Result) -> float:
    assert result["peer"]
    return result["ours"] / result["peer"]


def _kafka_cpu(result: Result) -> float:
    assert result["peer"]
    return _RECORDS_PER_GB / result["peer"]


_FIGURES: Final[dict[str, tuple[str, Callable[[Result], float]]]] = {
    "produce_cpu_s_per_gb": ("produce 1000 B, CPU", lambda result: _RECORDS_PER_GB / result["ours"]),
    "kafka_produce_cpu_s_per_gb": ("produce 1000 B, CPU", _kafka_cpu),
    "table_cpu_s_per_gb": ("WAL to table beside Connect, 1 KB", lambda result: result["ours"]),
    "stored_none": ("stored beside Kafka, none batches", _beside_kafka),
    "stored_lz4": ("stored beside Kafka, lz4 batches", _beside_kafka),
    "stored_zstd": ("stored beside Kafka, zstd batches", _beside_kafka),
}


def measured(results: Sequence[Result]) -> str:
    by_name = {result["name"]: result for result in results}
    lines = ["# Written by a full `make bench` out of its results, whose names follow.", "[measured]"]
    for key, (name, figure) in _FIGURES.items():
        lines.append(f"{key} = {figure(by_name[name]):.3f}  # {name}")
    return "\n".join(lines) + "\n"


def write_measured(results: Sequence[Result]) -> Path:
    MEASURED.write_text(measured(results))
    return MEASURED


if __name__ == "__main__":
    write_measured(json.loads(RESULTS.read_text()))
