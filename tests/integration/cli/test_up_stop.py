"""`lakestream up` is told to stop: what was acknowledged is in its tables."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyiceberg.table import StaticTable
from support.worlds.processes import HOST, START_S, Running, free_ports

Start = Callable[..., Running]
COUNT = 1000


@pytest.mark.spark
@pytest.mark.parametrize("spark_is_up", [False, True], ids=["before Spark is up", "with Spark"])
def test_a_clean_stop_leaves_tables_complete(start: Start, tmp_path: Path, java: str, spark_is_up: bool) -> None:
    data, first = tmp_path / "data", free_ports(3)
    variables = {"DATA": str(data), "KAFKA_PORT": str(first), "HTTP_PORT": str(first + 2), "BROKERS": "2"}
    variables["LAKESTREAM_PIPELINE_INTERVAL_MS"] = "600000"
    running = start("up", environment=variables)
    running.wait_for("pipeline is running" if spark_is_up else "catalog answers", 90)
    _wait_for_pipeline(data / "logs/pipeline.log")
    _produce(f"{HOST}:{first}")
    assert running.stop(signal.SIGINT, 30) == 0
    assert "Stopped: everything that was acknowledged is in its table." in running.output
    listed = [*(data / "bucket/tables").rglob("*.metadata.json")]
    newest = max(listed, key=lambda path: int(path.name.split("-")[0]))
    assert StaticTable.from_metadata(str(newest)).scan().to_arrow().num_rows == COUNT


def _produce(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 20_000})
    failures = []
    for number in range(COUNT):
        producer.produce("words", str(number), on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(30) == 0
    assert failures == []


def _wait_for_pipeline(log: Path) -> None:
    """Until it handles signals: Spark is started after that."""
    deadline = time.monotonic() + START_S
    while not (log.exists() and "starting Spark" in log.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_without_a_pipeline_nobody_is_told_that_tables_are_filled(start: Start, tmp_path: Path) -> None:
    first = free_ports(2)
    variables = {"DATA": str(tmp_path / "data"), "KAFKA_PORT": str(first), "HTTP_PORT": str(first + 1), "BROKERS": "1"}
    running = start("up", "--no-pipeline", environment=variables)
    running.wait_for("catalog answers", START_S)
    assert running.stop(signal.SIGINT, 30) == 0
    assert "No pipeline runs" in running.output
    assert "moved into its tables" not in running.output
