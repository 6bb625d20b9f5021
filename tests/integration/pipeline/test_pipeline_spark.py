"""The pipeline as a process, with a real Spark: killed at telling moments, stopped while it starts, run again."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer as KafkaProducer
from support.servers.spark import spark_cluster
from support.worlds.directory import directory_world
from support.worlds.files import file_world
from support.worlds.memory import MemoryWorld, Producer

from lakestream.cli.tables.query import connect
from lakestream.model import StreamPartition

pytestmark = pytest.mark.spark

PARTITIONS = 4
STARTS_WITHIN_S = 120
STOPS_WITHIN_S = 10


class Data:
    """A data directory; every look opens it anew, as another process would."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told = MemoryWorld()
        self._rounds = 0

    async def use(self, work: Callable[[MemoryWorld], Awaitable[None]]) -> None:
        self.folder.mkdir(exist_ok=True)
        async with directory_world(self.folder, self.told) as world:
            await work(world)

    async def fill(self, objects_count: int, records: int = 200) -> None:
        async def work(world: MemoryWorld) -> None:
            self._rounds += 1
            topics = list(self.told.topics.values()) or [await world.create("orders", PARTITIONS)]
            producer = Producer(world, f"round{self._rounds}")
            for number in range(objects_count):
                await producer.append(
                    {
                        StreamPartition(topics[0].topic_id, index): [
                            b"%d-%d-%d-%d" % (self._rounds, number, index, n) for n in range(records)
                        ]
                        for index in range(PARTITIONS)
                    }
                )

        await self.use(work)

    async def check_whole(self) -> None:
        await self.use(lambda world: world.check_whole())

    def has(self, pattern: str, count: int = 1) -> bool:
        return len(list((self.folder / "bucket").glob(pattern))) >= count


def command(data: Data, *options: str) -> list[str]:
    where = ("--data", str(data.folder), "--master", "local[2]")
    return [sys.executable, "-m", "lakestream.cli", "pipeline", *where, *options]


@contextmanager
def pipeline(data: Data, *options: str) -> Iterator[psutil.Popen]:
    """Ends with nothing of it left running."""
    process = psutil.Popen(command(data, *options), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    family: list[psutil.Process] = []
    try:
        yield process
        family = [process, *process.children(recursive=True)] if process.is_running() else []
    finally:
        if process.poll() is None:
            family += process.children(recursive=True)
            process.kill()
        process.communicate(timeout=30)
    _, alive = psutil.wait_procs(family, timeout=STOPS_WITHIN_S)
    assert alive == []


def wait_until(happened: Callable[[], object], process: psutil.Popen) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_S
    while not happened():
        assert process.poll() is None, process.stderr.read().decode()
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.01)


def run_once(data: Data, *options: str) -> dict[str, object]:
    words = command(data, "--once", "--json", *options)
    done = subprocess.run(words, capture_output=True, timeout=STARTS_WITHIN_S, check=False)
    assert done.returncode == 0, done.stderr.decode()
    summary: dict[str, object] = json.loads(done.stdout)
    return summary


async def test_killed_while_files_are_written_and_after_the_commit(tmp_path: Path) -> None:
    """Killed when the first Parquet file appears, then when a table commit appears, then run to the end."""
    data = Data(tmp_path / "data")
    await data.fill(6)
    for pattern, count in (("tables/*/_data/*.parquet", 1), ("tables/*/_iceberg/*.metadata.json", 2)):
        with pipeline(data, "--interval", "0.05") as process:
            wait_until(lambda pattern=pattern, count=count: data.has(pattern, count), process)
            family = process.children(recursive=True)
            process.send_signal(signal.SIGKILL)
            process.wait(30)
            _, alive = psutil.wait_procs(family, timeout=STOPS_WITHIN_S)
            assert alive == [], "Spark outlives its driver"
        await data.fill(2)
    summary = run_once(data)
    assert summary["failed"] == []
    await data.check_whole()
    assert run_once(data)["records"] == 0
    await data.check_whole()


@pytest.mark.slow
async def test_two_at_once_and_one_asleep(tmp_path: Path) -> None:
    """One is stopped in the middle of its work (SIGSTOP), another does it all, then the sleeper wakes up."""
    data = Data(tmp_path / "data")
    await data.fill(4)
    with pipeline(data, "--interval", "0.05") as sleeper:
        wait_until(lambda: data.has("tables/*/_data/*.parquet"), sleeper)
        sleeper.suspend()
        run_once(data)
        await data.check_whole()
        await data.fill(2)
        sleeper.resume()
        async with asyncio.timeout(STARTS_WITHIN_S):
            while not await _is_drained(data):
                assert sleeper.poll() is None, sleeper.stderr.read().decode()
        await data.check_whole()
        started = time.monotonic()
        sleeper.terminate()
        assert sleeper.wait(STOPS_WITHIN_S) == 0
        assert time.monotonic() - started < STOPS_WITHIN_S
    await data.check_whole()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped_while_spark_starts(tmp_path: Path, number: signal.Signals) -> None:
    data = Data(tmp_path / "data")
    with pipeline(data) as process:
        wait_until(lambda: any("java" in child.name() for child in process.children(recursive=True)), process)
        family = process.children(recursive=True)
        started = time.monotonic()
        process.send_signal(number)
        assert process.wait(STOPS_WITHIN_S) == 0
        assert time.monotonic() - started < STOPS_WITHIN_S
        _, alive = psutil.wait_procs(family, timeout=STOPS_WITHIN_S)
        assert alive == []


async def _is_drained(data: Data) -> bool:
    seen: list[bool] = []

    async def look(world: MemoryWorld) -> None:
        seen.append(await world.rows() == sorted(world.acked))

    await data.use(look)
    return seen[0]


def test_what_is_derived_is_brought_on_too(tmp_path: Path) -> None:
    data = Data(tmp_path / "data")
    with file_world(data.folder) as world:
        world.create("prices", lakestream_table_upsert="_key")
        producer = KafkaProducer({"bootstrap.servers": world.bootstrap})
        for number in range(300):
            value = None if number % 7 == 0 else b"%d" % number
            producer.produce("prices", value, b"k%d" % (number % 20))
        assert producer.flush(20) == 0
    assert run_once(data)["records"] == 300
    with file_world(data.folder) as world, connect(world.catalog) as connection:
        rows = dict(connection.execute("SELECT _key, _value FROM prices__latest").fetchall())
    newest = {b"k%d" % (number % 20): number for number in range(300)}
    assert rows == {key: b"%d" % number for key, number in newest.items() if number % 7}


@pytest.mark.slow
async def test_on_a_cluster(tmp_path: Path) -> None:
    """Tiles run in executors of another process family, which learn from the driver which Python has the code."""
    data = Data(tmp_path / "data")
    await data.fill(3)
    with spark_cluster(tmp_path) as master:
        summary = run_once(data, "--master", master)
        assert (summary["failed"], summary["records"]) == ([], 3 * 200 * PARTITIONS)
        applications = list((tmp_path / "work").glob("app-*"))
        assert len(applications) == 1, "the work was not done on the cluster"
    await data.check_whole()
