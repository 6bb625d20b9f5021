"""What is seen of a broker from outside: its monitoring listener, while clients work and while its store is away."""

import json
import re
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError

import pytest
from confluent_kafka import Consumer, Producer
from support.worlds.processes import ProcessWorld, free_ports

DOCS = Path(__file__).parents[3] / "docs" / "METRICS.md"


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def samples(text: str) -> dict[str, float]:
    """By name and labels, as they are written."""
    lines = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


def families(text: str) -> set[str]:
    return {
        line.split()[2].removesuffix("_total") for line in text.splitlines() if line.startswith("# TYPE lakestream_")
    }


def documented() -> set[str]:
    return set(re.findall(r"^\| `(lakestream_\w+)`", DOCS.read_text(), re.MULTILINE))


@pytest.fixture
def monitored(cluster: Callable[..., ProcessWorld]) -> tuple[ProcessWorld, int]:
    port = free_ports()
    made = cluster(environment={"LAKESTREAM_MONITOR_PORT": str(port)}, http=True)
    return made, port


def test_a_broker_tells_what_it_does(monitored: tuple[ProcessWorld, int]) -> None:
    made, port = monitored
    producer = Producer({"bootstrap.servers": made.bootstrap})
    for number in range(100):
        producer.produce("seen", f"record {number}".encode())
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": made.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["seen"])
    read = 0
    while read < 100:
        message = consumer.poll(30)
        assert message is not None
        read += message.error() is None
    consumer.close()

    assert get(port, "/health") == (200, '{"status": "ok"}\n')
    assert get(port, "/ready") == (200, '{"status": "ready"}\n')
    assert get(port, "/nothing")[0] == 404
    status, text = get(port, "/metrics")
    assert status == 200
    found = samples(text)
    assert found["lakestream_appended_records_total"] == 100
    assert found['lakestream_kafka_request_seconds_count{api="produce"}'] >= 1
    assert found['lakestream_kafka_sent_bytes_total{api="fetch"}'] > 1000
    assert found['lakestream_store_requests_total{operation="put",outcome="ok",purpose="wal"}'] >= 1
    assert found['lakestream_store_sent_bytes_total{purpose="wal"}'] > 1000
    assert found["lakestream_upload_seconds_count"] == found["lakestream_commit_seconds_count"] >= 1
    assert found["lakestream_group_rebalances_total"] >= 1
    assert found["lakestream_kafka_connections"] >= 1
    assert found["lakestream_memory_limit_bytes"] > found["lakestream_memory_used_bytes"]
    assert found["process_resident_memory_bytes"] > 0

    _, door = get(made.http_port, "/metrics")
    assert get(made.http_port, "/ready") == (200, '{"status":"ready"}')
    told = families(text) | families(door)
    assert told - documented() == set(), "docs/METRICS.md lacks these"
    pipelines = {name for name in documented() if name.startswith(("lakestream_pipeline_", "lakestream_derived_"))}
    assert documented() - pipelines - told == set(), "docs/METRICS.md has these, and nobody counts them"


def test_a_broker_whose_bucket_is_away_is_not_ready(monitored: tuple[ProcessWorld, int]) -> None:
    made, port = monitored
    assert get(port, "/ready")[0] == 200
    bucket = made.data / "bucket"
    bucket.rename(made.data / "elsewhere")
    bucket.write_text("a file, where the folder was")
    deadline = time.monotonic() + 30
    while (answer := get(port, "/ready"))[0] == 200:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert "the bucket does not answer" in json.loads(answer[1])["reasons"][0]
    assert get(port, "/health")[0] == 200


def test_a_taken_port_does_not_stop_a_broker(cluster: Callable[..., ProcessWorld]) -> None:
    port = free_ports()
    made = cluster(brokers=2, environment={"LAKESTREAM_MONITOR_PORT": str(port)})
    made.brokers[1].wait_for("nobody can monitor this process")
    assert get(port, "/health")[0] == 200
