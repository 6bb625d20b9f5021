"""Broker, pipeline and tables in the stores of other clouds, as their emulators have them."""

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer
from conftest import need
from support.servers.emulators import azure, gcs, tool
from support.worlds.processes import ProcessWorld

COUNT = 500


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(("emulate", "program"), [(azure, "azurite-blob"), (gcs, "fake-gcs-server")])
def test_records_become_rows_in_another_cloud(
    cluster: Callable[..., ProcessWorld], tmp_path: Path, java: str, emulate: Callable[..., Any], program: str
) -> None:
    with emulate(need(tool(program), f"{program} (LAKESTREAM_STORE_TOOLS)"), tmp_path) as emulator:
        bucket = f"lake-{uuid4()}"
        emulator.make_bucket(bucket)
        variables = {**emulator.environment, "LAKESTREAM_BUCKET_URL": f"{emulator.scheme}://{bucket}/here"}
        made = cluster(environment=variables, http=True)
        producer = Producer({"bootstrap.servers": made.bootstrap})
        for number in range(COUNT):
            producer.produce("numbers", json.dumps({"n": number}).encode())
        assert producer.flush(60) == 0
        made.run_pipeline_once()
        assert _lag(made) == 0

        # A broker that has nothing in memory reads the table.
        made.brokers[0].kill()
        made.start_broker(0)
        assert _consumed(made) == list(range(COUNT))


def _lag(made: ProcessWorld) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{made.http_port}/lag", timeout=30) as answer:
        return sum(topic["lag_records"] for topic in json.load(answer))


def _consumed(made: ProcessWorld) -> list[int]:
    consumer = Consumer({"bootstrap.servers": made.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["numbers"])
    found: list[int] = []
    try:
        while len(found) < COUNT:
            message = consumer.poll(60)
            assert message is not None
            assert message.error() is None, message.error()
            found.append(json.loads(message.value())["n"])
    finally:
        consumer.close()
    return found
