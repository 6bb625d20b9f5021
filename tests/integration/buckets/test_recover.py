"""A metadata store that is lost, as its owner meets it: the next start refuses and names the command; after it
everything is there."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from support.clients.commands import invoke
from support.worlds.files import FileWorld, file_world
from support.worlds.processes import HOST, Running, free_ports

from lakestream.bucket.saved import Saver
from lakestream.cli.buckets.locking import lock_data
from lakestream.cli.main import app
from lakestream.errors import RequestError
from lakestream.node.storage.backends import open_backends
from lakestream.settings import Settings, load

pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option")
Start = Callable[..., Running]


def at(data: Path) -> Settings:
    return load(None, {}, {"data_dir": str(data)})


def lose_store(data: Path) -> None:
    for path in data.glob("metadata.db*"):
        path.unlink()


async def recovered(data: Path, *more: str) -> dict[str, Any]:
    done = await invoke(app, ["recover", "--data", str(data), "--json", *more])
    assert done.exit_code == 0, done.output
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


async def save(settings: Settings) -> None:
    async with open_backends(settings) as backends:
        await Saver(backends.store, backends.objects, backends.runtime).save()


async def test_up_is_killed_its_store_is_deleted_and_everything_is_there_again(start: Start, tmp_path: Path) -> None:
    data, first = tmp_path / "data", free_ports(3)
    variables = {
        "DATA": str(data),
        "KAFKA_PORT": str(first),
        "HTTP_PORT": str(first + 2),
        "BROKERS": "2",
        "LAKESTREAM_METADATA_SAVE_MS": "200",
    }
    running = start("up", "--no-pipeline", environment=variables)
    running.wait_for("catalog answers")
    house = FileWorld(
        load(None, {}, {"data_dir": str(data), "http.port": first + 2}), f"{HOST}:{first},{HOST}:{first + 1}"
    )
    house.create("orders", 3)
    acked: dict[tuple[int, int], str] = {}

    def keep(error: object, message: Any) -> None:
        assert error is None, error
        acked[message.partition(), message.offset()] = message.value().decode()

    producer = Producer({"bootstrap.servers": house.bootstrap, "linger.ms": 1, "enable.idempotence": True})
    for number in range(300):
        producer.produce("orders", f"a{number}", partition=number % 3, on_delivery=keep)
    assert producer.flush(30) == 0
    assert await house.move() == 300
    assert len(house.consume_as("readers", "orders", 3)) == 300
    for number in range(300):
        producer.produce("orders", f"b{number}", partition=number % 3, on_delivery=keep)
    assert producer.flush(30) == 0
    saved = sorted((data / "bucket/lakestream/metadata").rglob("*.rows"))
    while sorted((data / "bucket/lakestream/metadata").rglob("*.rows")) == saved:
        pass
    os.kill(running.process.pid, signal.SIGKILL)
    running.process.wait(10)
    lose_store(data)
    again = start("up", "--no-pipeline", environment=variables)
    assert again.process.wait(30) == 1
    assert "lakestream recover" in again.output
    told = await recovered(data)
    assert (told["topics"], told["partitions"], told["tail_records"]) == (1, 3, 300)
    running = start("up", "--no-pipeline", environment=variables)
    running.wait_for("catalog answers")
    found = {(partition, offset): value for partition, offset, value in house.consume("orders", 3)}
    assert sorted(found.values()) == sorted(acked.values())
    assert sum(found.get(place) != value for place, value in acked.items()) <= told["appended"]
    assert len(house.consume_as("readers", "orders", 3)) == 300
    # The producer lived on: its sequences do.
    for number in range(30):
        producer.produce("orders", f"c{number}", partition=number % 3, on_delivery=keep)
    assert producer.flush(30) == 0
    assert await house.move() == 330
    assert len(house.consume("orders", 3)) == 630


async def test_what_is_in_tables_and_wal_is_found_without_saved_rows(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with file_world(data) as house:
        house.create("orders", 2)
        house.create("Never.Moved", 1)
        house.produce("orders", ["a", "b"], partition=0)
        await house.move()
        house.produce("orders", ["c"], partition=0)
        house.produce("orders", ["d"], partition=1)
        house.create("later", 2)
        house.produce("later", ["e"], partition=1)
    for path in (data / "bucket/lakestream/metadata").rglob("*.rows"):
        path.unlink()
    lose_store(data)
    told = await recovered(data)
    assert any("no saved rows" in note for note in told["notes"])
    with file_world(data) as house:
        topics = house.topics()
        [unnamed] = [topic for topic in topics if topic.startswith("recovered-")]
        assert topics == {"orders", "Never.Moved", unnamed}
        assert house.consume("orders", 2) == [(0, 0, "a"), (0, 1, "b"), (0, 2, "c"), (1, 0, "d")]
        assert house.consume(unnamed, 2) == [(1, 0, "e")]
        assert await house.move() == 3


async def test_it_refuses_a_store_that_is_not_empty_and_begins_anew_what_was_cut_off(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with file_world(data) as house:
        house.create("orders")
        house.produce("orders", ["a"])
    refused = await invoke(app, ["recover", "--data", str(data)])
    assert refused.exit_code == 1
    assert "not empty" in refused.output
    lose_store(data)
    for budget_ms in (400, 600, 700, 800, 900, 1000, 1200):
        process = subprocess.Popen([sys.executable, "-m", "lakestream.cli", "recover", "--data", str(data)])
        try:
            process.wait(budget_ms / 1000)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        try:
            await save(at(data))
            break
        except RequestError as error:
            # It was cut off, and nothing starts on what it left.
            if "lakestream recover" not in str(error):
                raise
    else:
        await recovered(data)
    with file_world(data) as house:
        assert house.consume("orders") == [(0, 0, "a")]


async def test_a_store_lost_after_a_move_is_recovered_and_then_relocated(tmp_path: Path) -> None:
    data, moved = tmp_path / "data", tmp_path / "moved"
    with file_world(data) as house:
        house.create("orders")
        house.produce("orders", ["a"])
        await house.move()
        house.produce("orders", ["b"])
    data.rename(moved)
    lose_store(moved)
    await recovered(moved)
    with pytest.raises(RequestError, match="relocate"):
        await save(at(moved))
    done = await invoke(app, ["bucket", "relocate", "--data", str(moved)])
    assert done.exit_code == 0, done.output
    with file_world(moved) as house:
        assert house.consume("orders") == [(0, 0, "a"), (0, 1, "b")]


async def test_a_running_up_is_not_recovered(start: Start, tmp_path: Path) -> None:
    data, first = tmp_path / "data", free_ports(2)
    running = start(
        "up",
        "--no-pipeline",
        environment={"DATA": str(data), "KAFKA_PORT": str(first), "HTTP_PORT": str(first + 1)},
    )
    running.wait_for("catalog answers")
    lose_store(data)
    refused = await invoke(app, ["recover", "--data", str(data)])
    assert refused.exit_code == 1
    assert "stop it first" in refused.output


async def test_one_recovery_at_a_time(tmp_path: Path) -> None:
    """Also where nothing is left that an `up` had locked: the second would empty what the first writes."""
    data = tmp_path / "data"
    with file_world(data) as house:
        house.create("orders")
        house.produce("orders", ["a"])
    lose_store(data)
    (data / "lock").unlink(missing_ok=True)
    with lock_data(at(data), create=True):
        refused = await invoke(app, ["recover", "--data", str(data)])
    assert refused.exit_code == 1
    assert "command that is under way" in refused.output
    assert (await recovered(data))["tail_records"] == 1
