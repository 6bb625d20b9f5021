"""Many partitions: what a broker, the HTTP door and the pipeline cost that have nothing to do, what a partition takes
of a broker's memory, and how the time of a commit and of a lookup grows with the number of partitions.

The processes are real ones on the embedded store. Their topics are written into it beforehand as `Topics.create` would
write them; the pipeline makes the tables before anything is measured. CPU seconds are counted, not time: another load
on the machine changes little. The memory is that of this process, in which a broker's engine serves every partition.
"""

import asyncio
import gc
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import UUID

import psutil
from support.clients.batches import batch

from benchmarks.result import QUICK, Result, stays_under, with_curve
from benchmarks.servers import HOST, free_port, java, running
from lakestream import metadata
from lakestream.metadata import codec
from lakestream.metadata.brokers import Broker
from lakestream.metadata.log.head import EXTENTS, HEAD, Extent, Head, extent_key, shard_of
from lakestream.metadata.log.partition import head_address
from lakestream.metadata.store import Address, Store, Transaction
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.node.broker import settle_memory
from lakestream.objects.memory import MemoryObjects
from lakestream.runtime import system
from lakestream.stream import StreamSettings
from lakestream.stream.engine import StreamEngine
from lakestream.stream.fetching.fetch import FetchPartition

TOPICS = 300 if QUICK else 10_000
PARTITIONS = 10
SETTLE_S = 20 if QUICK else 30
IDLE_S = 20 if QUICK else 120
COMMITS = (1, 100, 1_000) if QUICK else (1, 100, 1_000, 10_000)
SERVED = (1_000, 3_000) if QUICK else (1_000, 10_000, 100_000)
LOOKUPS = 500
ROUNDS = 5
_AT_ONCE = 500


def run() -> list[Result]:
    return [*_idle(), *asyncio.run(_commits()), *asyncio.run(_served())]


async def fill(store: Store, count: int, partitions: int) -> list[Topic]:
    """Topics that nobody has written to, with their heads."""
    runtime, listed = system(), Topics(store, system())
    topics = [Topic(f"topic-{n:06d}", runtime.new_id(), partitions, {}, runtime.clock.now_ms()) for n in range(count)]
    for at in range(0, count, _AT_ONCE):
        some = topics[at : at + _AT_ONCE]
        addresses = [head_address(partition) for topic in some for partition in topic.each_partition()]
        await store.transact([Transaction(each.shard, {}, {HEAD: codec.encode(Head(), each)}) for each in addresses])
        await asyncio.gather(*(listed.restore(topic) for topic in some))
    return topics


@contextmanager
def _filled(count: int) -> Iterator[Path]:
    async def work(directory: str) -> None:
        store = await metadata.open(f"sqlite://{directory}/metadata.db")
        await fill(store, count, PARTITIONS)
        await store.close()

    with tempfile.TemporaryDirectory(prefix="lakestream-bench-") as directory:
        asyncio.run(work(directory))
        yield Path(directory)


def _idle() -> list[Result]:
    shares = {count: _shares(count) for count in (TOPICS // 10, TOPICS)}
    partitions = TOPICS * PARTITIONS
    return [
        with_curve(
            stays_under(f"idle {name}, {partitions:,} partitions", shares[TOPICS][name], "% of a core", at_most=3),
            f"idle-{name}",
            f"An idle {name} process",
            x="partitions",
            y="% of a core",
            points=[(count * PARTITIONS, found[name]) for count, found in shares.items()],
            limit=3,
        )
        for name in ("broker", "http", "pipeline")
    ]


def _shares(count: int) -> dict[str, float]:
    """Process → its share of a core, with what it started."""
    ports = {"broker": free_port(), "http": free_port()}
    with _filled(count) as data, ExitStack() as stack:
        started = {}
        for name in ("broker", "http", "pipeline"):
            command = [sys.executable, "-m", "lakestream.cli", name, "--data", str(data)]
            command += ["--host", HOST, "--port", str(ports[name])] if name in ports else []
            environment = {"JAVA_HOME": str(Path(java()).parents[1])} if name == "pipeline" else {}
            process = stack.enter_context(running(command, data / f"{name}.log", {**os.environ, **environment}))
            started[name] = psutil.Process(process.pid)
        _wait_for_tables(data, count)
        time.sleep(SETTLE_S)
        before = {name: _cpu_s(process) for name, process in started.items()}
        time.sleep(IDLE_S)
        return {name: (_cpu_s(process) - before[name]) / IDLE_S * 100 for name, process in started.items()}


def _cpu_s(process: psutil.Process) -> float:
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return float(sum(each.user + each.system for each in times))


def _wait_for_tables(data: Path, count: int) -> None:
    folder = data / "bucket" / "tables"
    while not folder.is_dir() or len(os.listdir(folder)) < count:
        time.sleep(1)


async def _commits() -> list[Result]:
    """Of one WAL object with so many partitions, on SQLite; and from an offset to its extent among as many."""
    took_ms: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory(prefix="lakestream-bench-") as directory:
        store = await metadata.open(f"sqlite://{directory}/metadata.db")
        topics = await fill(store, max(COMMITS) // PARTITIONS, PARTITIONS)
        partitions = [partition for topic in topics for partition in topic.each_partition()]
        async with _engine(store) as engine:
            for count in COMMITS:
                rounds = []
                for _ in range(ROUNDS):
                    began = time.process_time()
                    await asyncio.gather(*(engine.append(each, batch(b"v")) for each in partitions[:count]))
                    rounds.append((time.process_time() - began) * 1000)
                took_ms.append((count, statistics.median(rounds)))
        found_us = [(count, await _lookup_us(store, count)) for count in COMMITS]
        await store.close()
    per = took_ms[-1][1] / took_ms[-1][0] * 1000
    linear = took_ms[-1][1] / took_ms[-1][0] / (took_ms[-2][1] / took_ms[-2][0])
    return [
        with_curve(
            stays_under(f"append to {COMMITS[-1]:,} partitions in one object, each", per, "CPU µs", at_most=300),
            "scale-commit",
            "One WAL object written, committed and acknowledged, by its partitions",
            x="partitions",
            y="CPU ms",
            points=took_ms,
        ),
        stays_under(f"the same for each, beside {COMMITS[-2]:,} partitions", linear, "times", at_most=1.5),
        with_curve(
            stays_under(f"first extent at an offset among {COMMITS[-1]:,}", found_us[-1][1], "µs", at_most=1_000),
            "scale-lookup",
            "From an offset to its extent in the metadata store",
            x="extents of the partition",
            y="µs",
            points=found_us,
        ),
    ]


async def _lookup_us(store: Store, count: int) -> float:
    shard = shard_of(Topic("", UUID(int=count), 1, {}, 0).each_partition()[0])
    for at in range(0, count, _AT_ONCE):
        puts = {}
        for number in range(at, min(count, at + _AT_ONCE)):
            key = extent_key(10 * number + 10)
            extent = Extent(10 * number, 10 * number + 10, ("main",), "wal/x", 0, 100, 0, 0)
            puts[key] = codec.encode(extent, Address(shard, key))
        await store.transact([Transaction(shard, {}, puts)])
    dice, rounds = random.Random(count), []
    for _ in range(LOOKUPS):
        began = time.perf_counter()
        [found] = await store.range(shard, extent_key(dice.randrange(10 * count) + 1), EXTENTS[1], limit=1)
        rounds.append((time.perf_counter() - began) * 1e6)
        assert found.key
    return statistics.median(rounds)


class _engine:
    """A broker's engine without a door, on a bucket in memory."""

    def __init__(self, store: Store) -> None:
        runtime = system()
        broker = Broker(1, HOST, 1, None, runtime.new_id().hex)
        objects = MemoryObjects(runtime.clock)
        self._engine = StreamEngine(
            broker, store, objects, _NoTables(), _NoTables(), runtime, StreamSettings(flush_interval_ms=1)
        )  # type: ignore[arg-type]

    async def __aenter__(self) -> StreamEngine:
        settle_memory()
        await self._engine.start()
        return self._engine

    async def __aexit__(self, *error: object) -> None:
        await self._engine.stop()


class _NoTables:
    async def pointer(self, topic_id: UUID) -> None:
        """There is no table yet."""


async def _served() -> list[Result]:
    """Memory that a partition takes which is written to and read through one broker."""
    points = []
    for count in SERVED:
        with tempfile.TemporaryDirectory(prefix="lakestream-bench-") as directory:
            store = await metadata.open(f"sqlite://{directory}/metadata.db")
            topics = await fill(store, count // PARTITIONS, PARTITIONS)
            partitions = [partition for topic in topics for partition in topic.each_partition()]
            async with _engine(store) as engine:
                gc.collect()
                before = psutil.Process().memory_info().rss
                for at in range(0, count, _AT_ONCE):
                    some = partitions[at : at + _AT_ONCE]
                    await asyncio.gather(*(engine.append(each, batch(b"v")) for each in some))
                    wanted = [FetchPartition(each, 0, 1_000) for each in some]
                    await engine.fetch(wanted, min_bytes=0, max_bytes=1 << 20, max_wait_ms=0)
                await engine.topics.list()
                gc.collect()
                points.append((count, (psutil.Process().memory_info().rss - before) / count / 1000))
            await store.close()
    result = stays_under(f"broker memory per partition, {SERVED[-1]:,} served", points[-1][1], "KB", at_most=5)
    title = "A broker's memory for each partition that it serves"
    return [with_curve(result, "scale-memory", title, x="partitions served", y="KB", points=points, limit=5)]
