"""The Spark driver and its workers' parent, in a process of their own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lakestream.pipeline.session import DriverSettings, options

pytestmark = pytest.mark.spark

_PROGRAM = """
import asyncio, gc, json, os, sys, zipimport
import psutil
from lakestream.errors import Unavailable
from lakestream.pipeline import SparkDriver, DriverSettings, SparkTiles
from lakestream.frontier.moving.tiles.tile import Tile
from uuid import UUID

def about(_):
    import lakestream.pipeline.daemon as daemon
    return {
        "parent": " ".join(psutil.Process(os.getppid()).cmdline()),
        "caches": zipimport.zipimporter.invalidate_caches.__name__,
        "frozen": gc.get_freeze_count() > 10_000,
        "kernels": "lakestream.records.native" in sys.modules,
    }

async def main():
    driver = SparkDriver(DriverSettings(master="local[1]"))
    await driver.start()
    found = (await driver.thread.call(lambda: driver.context.parallelize([1], 1).map(about).collect()))[0]
    sockets = [each for child in psutil.Process().children() for each in child.net_connections("tcp")]
    found["listens"] = sorted({each.laddr.ip for each in sockets if each.status == "LISTEN"})
    runner = SparkTiles(driver)
    [good, bad] = await runner.run([
        Tile(UUID(int=1), "t", "file:///tmp", "file:///tmp/t", (), 1, 1),
        Tile(UUID(int=1), "t", "nowhere://", "file:///tmp/t", (), 1, 1),
    ])
    found["outcomes"] = [good.error, bad.error]
    for child in psutil.Process().children():
        child.kill()
    try:
        await runner.run([Tile(UUID(int=1), "t", "file:///tmp", "file:///tmp/t", (), 1, 1)])
    except Unavailable as error:
        found["dead"] = str(error)
    found["alive"] = driver.alive
    await driver.stop()
    again = SparkDriver(DriverSettings(master="local[1]"))
    await again.start()
    found["again"] = await again.thread.call(lambda: again.context.parallelize([3], 1).collect())
    await again.stop()
    found["children"] = len(psutil.Process().children(recursive=True))
    print(json.dumps(found))

asyncio.run(main())
"""


def test_driver_daemon_and_runner() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, timeout=200, check=False, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert "lakestream.pipeline.daemon" in found["parent"]
    assert (found["caches"], found["frozen"], found["kernels"]) == ("_keep_caches", True, True)
    assert set(found["listens"]) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    assert found["outcomes"][0] == ""
    assert found["outcomes"][1].startswith("RequestError: ")
    assert found["dead"].startswith("the Spark job for 1 tile of t, 0.0 MB of WAL failed: ")
    assert not found["alive"]
    assert found["again"] == [3]
    assert found["children"] == 0


def test_a_cluster_is_not_bound_to_this_machine_and_the_users_options_win() -> None:
    here = options(DriverSettings(master="local[3]"), Path("/scratch"))
    assert here["spark.driver.bindAddress"] == "127.0.0.1"
    there = options(DriverSettings(master="spark://h:7077", options={"spark.locality.wait": "9s"}), Path("/scratch"))
    assert "spark.driver.bindAddress" not in there
    assert there["spark.locality.wait"] == "9s"
