"""A cluster whose metadata is on Oxia, as its clients meet it."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from support.servers.oxia import FakeOxia, oxia_thread
from support.worlds.files import FileWorld
from support.worlds.processes import HOST, Running, free_ports

from lakestream.settings import load

pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option")
Start = Callable[..., Running]


class Records:
    """What a producer sends, and what it was told."""

    def __init__(self, bootstrap: str) -> None:
        self.acked: dict[tuple[int, int], str] = {}
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "enable.idempotence": True})
        self._sent = 0

    def send(self, count: int) -> None:
        for number in range(self._sent, self._sent + count):
            self._producer.produce("orders", f"n{number}", partition=number % 3, on_delivery=self._keep)
        self._sent += count

    def wait(self) -> None:
        assert self._producer.flush(60) == 0
        assert len(self.acked) == self._sent

    def _keep(self, error: object, message: Any) -> None:
        assert error is None, error
        self.acked[message.partition(), message.offset()] = message.value().decode()


def opened(data: Path, url: str, bootstrap: str) -> FileWorld:
    return FileWorld(load(None, {}, {"data_dir": str(data), "metadata_url": url}), bootstrap)


def found(house: FileWorld) -> dict[tuple[int, int], str]:
    return {(partition, offset): value for partition, offset, value in house.consume("orders", 3)}


async def test_brokers_on_a_server_that_tears_goes_away_and_loses_all(start: Start, tmp_path: Path) -> None:
    data, first = tmp_path / "data", free_ports(3)
    variables = {
        "DATA": str(data),
        "KAFKA_PORT": str(first),
        "HTTP_PORT": str(first + 2),
        "BROKERS": "2",
        "LAKESTREAM_METADATA_SAVE_MS": "200",
    }
    bootstrap = f"{HOST}:{first},{HOST}:{first + 1}"
    with oxia_thread(FakeOxia(shards=3)) as fake:
        running = start("up", "--no-pipeline", environment={**variables, "LAKESTREAM_METADATA_URL": fake.url})
        running.wait_for("catalog answers")
        house = opened(data, fake.url, bootstrap)
        house.create("orders", 3)
        records = Records(bootstrap)
        records.send(300)
        records.wait()
        assert await house.move() == 300
        fake.tears = 0.05
        for _ in range(20):
            records.send(30)
            time.sleep(0.05)
        records.wait()
        fake.tears = 0.0
        fake.go_down()
        records.send(300)
        time.sleep(1)
        fake.is_up = True
        records.wait()
        assert found(house) == records.acked
        assert len(house.consume_as("readers", "orders", 3)) == 1200
        assert await house.move() == 900
        saved = set((data / "bucket/lakestream/metadata").rglob("*.rows"))
        records.send(30)
        records.wait()
        assert found(house) == records.acked
        deadline = time.monotonic() + 60
        while set((data / "bucket/lakestream/metadata").rglob("*.rows")) <= saved and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(running.process.pid, signal.SIGKILL)
        running.process.wait(10)
    with oxia_thread(FakeOxia(shards=2)) as fake:
        variables["LAKESTREAM_METADATA_URL"] = fake.url
        again = start("up", "--no-pipeline", environment=variables)
        assert again.process.wait(60) == 1
        assert "lakestream recover" in again.output
        recover = start("recover", "--data", str(data), "--json", environment=variables)
        assert recover.process.wait(60) == 0, recover.output
        told = json.loads(next(line for line in recover.output.splitlines() if line.startswith("{")))
        assert (told["topics"], told["partitions"], told["tail_records"]) == (1, 3, 30)
        start("up", "--no-pipeline", environment=variables).wait_for("catalog answers")
        house = opened(data, fake.url, bootstrap)
        assert sorted(found(house).values()) == sorted(records.acked.values())
        assert len(house.consume_as("readers", "orders", 3)) == 30


@pytest.mark.slow
async def test_a_broker_on_a_real_server(start: Start, tmp_path: Path, oxia_url: str) -> None:
    """One process at a time writes: this server takes no more."""
    data, port = tmp_path / "data", free_ports()
    arguments = ("broker", "--id", "0", "--port", str(port), "--data", str(data))
    variables = {"LAKESTREAM_METADATA_URL": oxia_url}
    running = start(*arguments, environment=variables)
    running.wait_for("listens on")
    house = opened(data, oxia_url, f"{HOST}:{port}")
    house.create("orders", 3)
    records = Records(house.bootstrap)
    records.send(3_000)
    records.wait()
    assert found(house) == records.acked
    running.process.terminate()
    assert running.process.wait(30) == 0
    assert await house.move() == 3_000
    start(*arguments, environment=variables).wait_for("listens on")
    records.send(300)
    records.wait()
    assert found(house) == records.acked
