"""A damaged WAL object under a real Spark: its topic is quarantined and told of, the others go on."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.worlds.directory import directory_world
from support.worlds.memory import Producer
from support.worlds.processes import ProcessWorld

pytestmark = pytest.mark.spark

POISONED = "t2"


async def fill(data: Path) -> str:
    """Five topics with an object each, one of them damaged where its records are: its key."""

    async def work() -> str:
        async with directory_world(data) as world:
            for number in range(5):
                topic = await world.create(f"t{number}", 2)
                producer = Producer(world, f"p{number}")
                await producer.append(
                    {partition: [b"%d" % n for n in range(50)] for partition in topic.each_partition()}
                )
            [key] = [key for key in await world.wal_keys() if "p2" in key]
            return key

    key = await work()
    [path] = (data / "bucket").rglob(key.rsplit("/", 1)[-1])
    damaged = bytearray(path.read_bytes())
    damaged[100] ^= 1
    path.write_bytes(damaged)
    return key


async def test_a_poisoned_object_is_reported_and_the_other_topics_move(
    cluster: Callable[..., ProcessWorld], cli: Any, java: str
) -> None:
    made = cluster(http=True)
    key = await fill(made.data)
    pipeline = cli("pipeline", "--once", "--data", str(made.data), "--master", "local[2]", timeout_s=120)
    assert pipeline.returncode == 1
    assert f"not everything could be moved: {POISONED}" in pipeline.stderr
    assert "400 records moved" in pipeline.stdout

    told = cli("table", "lag", "--json", "--catalog", made.catalog)
    lags = {row["topic"]: row for row in map(json.loads, told.stdout.splitlines())}
    assert {name: row["lag_records"] for name, row in lags.items()} == {f"t{n}": 100 * (n == 2) for n in range(5)}
    assert {name for name, row in lags.items() if row["error"]} == {POISONED}
    assert key in lags[POISONED]["error"]
    assert all(row["committed_ms"] for name, row in lags.items() if name != POISONED)
    shown = cli("table", "lag", POISONED, "--catalog", made.catalog)
    assert "quarantined" in shown.stdout
    assert key in shown.stdout

    metrics = httpx.get(made.catalog.replace("/iceberg", "/metrics")).text
    assert f'lakestream_table_quarantined{{topic="{POISONED}"}} 1' in metrics
    assert 'lakestream_table_lag_records{topic="t0"} 0' in metrics
    missing = cli("table", "lag", "nothing", "--catalog", made.catalog)
    assert (missing.returncode, "no topic 'nothing'" in missing.stderr) == (1, True)
