"""Disk stores that are full, that outlive a lost metadata store, and that a real pipeline reads."""

import json
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from support.clients.commands import invoke
from support.worlds.disks import (
    TOPIC,
    Load,
    check_all_there,
    full,
    is_whole,
    lose,
    make_topic,
    objects_in,
    three,
    wait_for,
)
from support.worlds.embedded import embedded
from support.worlds.processes import Running
from support.worlds.storm import COMMITTED

from lakestream.bucket.saved import Saver
from lakestream.cli.main import app
from lakestream.node.storage.backends import open_backends
from lakestream.settings import load as load_settings

SPARK_S = 180.0
COLLECTS = {f"LAKESTREAM_PIPELINE_{name}_MS": "500" for name in ("COLLECT_INTERVAL", "GENERATION_INTERVAL", "GRACE")}


def test_a_full_store_is_done_without(tmp_path: Path) -> None:
    """While two of three are full producers wait, and nobody is told of an error."""
    with embedded(tmp_path / "data", 2, **three(tmp_path)) as brokers:
        make_topic(brokers, "disk")
        with Load(brokers) as load:
            load.grows()
            with full(tmp_path / "a"):
                load.grows(200)
                with full(tmp_path / "b"):
                    time.sleep(0.5)
                    before = load.acked
                    time.sleep(1.0)
                    assert load.acked == before
                load.grows(200)
            load.grows()
        lose(tmp_path / "b")
        wait_for(partial(is_whole, brokers.data, tmp_path / "b"))
        lose(tmp_path / "c")
        check_all_there(brokers, load.sent)


@pytest.mark.parametrize("is_saved", [True, False])
async def test_a_lost_metadata_store_is_rebuilt_from_disk_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_saved: bool
) -> None:
    """One of the stores is lost with it. Saved rows name the stores, else the settings do."""
    settings = three(tmp_path, spill_after_ms=3_600_000)
    monkeypatch.setenv("LAKESTREAM_DISK_STORES", settings["disk.stores"])
    with embedded(tmp_path / "data", 1, **settings) as brokers:
        make_topic(brokers, "disk")
        with Load(brokers) as load:
            load.grows(300)
    if is_saved:
        async with open_backends(load_settings(None, {}, {"data_dir": str(tmp_path / "data")})) as backends:
            await Saver(backends.store, backends.objects, backends.runtime).save()
    assert objects_in(tmp_path / "b")
    assert not objects_in(tmp_path / "data")
    for path in (tmp_path / "data").glob("metadata.db*"):
        path.unlink()
    shutil.rmtree(tmp_path / "a")
    done = await invoke(app, ["recover", "--data", str(tmp_path / "data"), "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["tail_records"] == load.acked
    with embedded(tmp_path / "data", 1, **settings) as brokers:
        topics = AdminClient({"bootstrap.servers": brokers.bootstrap}).list_topics(timeout=30).topics
        [name] = [name for name in topics if not name.startswith("__")]
        assert name == TOPIC if is_saved else name.startswith("recovered-")
        check_all_there(brokers, load.sent, name)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_spark_takes_records_from_disk_stores(
    tmp_path: Path, start: Callable[..., Running], java: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One store is lost before, all of them after: what is in the table needs them no more."""
    settings = three(tmp_path, spill_after_ms=3_600_000)
    monkeypatch.setenv("LAKESTREAM_DISK_STORES", settings["disk.stores"])
    with embedded(tmp_path / "data", 1, **settings) as brokers:
        make_topic(brokers, "disk")
        with Load(brokers) as load:
            load.grows(300)
            lose(tmp_path / "a")
            load.grows(300)
        pipeline = start("pipeline", "--data", str(brokers.data), "--master", "local[1]", environment=COLLECTS)
        pipeline.wait_for(COMMITTED, SPARK_S)
        with Load(brokers, load.sent) as more:
            more.grows(300)
        count = load.sent + more.sent
        wait_for(lambda: not any(objects_in(tmp_path / name) for name in "abc"))
        for name in "abc":
            lose(tmp_path / name)
        check_all_there(brokers, count)
        assert not list((tmp_path / "data" / "bucket").rglob("*.wal"))
