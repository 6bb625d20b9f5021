"""The pipeline on a real Hadoop YARN: its driver is our process, its tiles run in the containers of a node."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pyspark
import pytest
from conftest import need
from support.servers.yarn import Yarn, yarn, yarn_jars
from support.worlds.directory import directory_world
from support.worlds.memory import MemoryWorld, Producer
from support.worlds.processes import HOST

from lakestream.model import StreamPartition

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PARTITIONS = 4
OBJECTS = 3
RECORDS = 200
RUNS_WITHIN_S = 200.0
ENDS_WITHIN_S = 30.0


async def fill(data: Path, former: MemoryWorld) -> None:
    async with directory_world(data, former) as world:
        topic = await world.create("orders", PARTITIONS)
        producer = Producer(world, "one")
        for number in range(OBJECTS):
            await producer.append(
                {
                    StreamPartition(topic.topic_id, index): [b"%d-%d-%d" % (number, index, n) for n in range(RECORDS)]
                    for index in range(PARTITIONS)
                }
            )


async def check(data: Path, former: MemoryWorld) -> None:
    async with directory_world(data, former) as world:
        await world.check_whole()


def settings_file(folder: Path) -> Path:
    """Nothing that YARN needs: what keeps a small cluster quick, on loopback and out of the home directory."""
    options = {
        "spark.yarn.jars": f"local:{Path(pyspark.__file__).parent}/jars/*",
        "spark.yarn.stagingDir": f"file://{folder}/staging",
        "spark.executor.instances": "1",
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
    }
    file = folder / "lakestream.toml"
    lines = (f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in options.items())
    file.write_text("[spark.options]\n" + "".join(lines))
    return file


def ended_application(cluster: Yarn) -> dict[str, Any]:
    """Its driver has left; the ResourceManager hears of it a little later."""
    deadline = time.monotonic() + ENDS_WITHIN_S
    while True:
        [application] = cluster.applications()
        if application["state"] in ("FINISHED", "FAILED", "KILLED"):
            return application
        assert time.monotonic() < deadline, application
        time.sleep(0.1)


async def test_on_yarn(java: str, tmp_path: Path, cli: Callable[..., CompletedProcess[str]]) -> None:
    """YARN is found as any client finds it, by HADOOP_CONF_DIR, and its application ends well with the pipeline."""
    jars = need(yarn_jars(), "Hadoop YARN (LAKESTREAM_YARN_JARS)")
    data, told = tmp_path / "data", MemoryWorld()
    data.mkdir()
    await fill(data, told)
    with yarn(java, jars, tmp_path) as cluster:
        where = ("--master", "yarn", "--data", str(data), "--config", str(settings_file(tmp_path)))
        environment = {"HADOOP_CONF_DIR": str(cluster.conf)}
        done = cli("pipeline", "--once", "--json", *where, environment=environment, timeout_s=RUNS_WITHIN_S)
        assert done.returncode == 0, (done.stderr, cluster.applications())
        summary = json.loads(done.stdout)
        assert (summary["failed"], summary["records"]) == ([], OBJECTS * PARTITIONS * RECORDS)
        application = ended_application(cluster)
        assert (application["name"], application["finalStatus"]) == ("lakestream-pipeline", "SUCCEEDED"), application
    logs = [log.read_text() for log in cluster.container_logs(application["id"])]
    assert any("Finished task" in log for log in logs), "the work was not done in containers"
    await check(data, told)
