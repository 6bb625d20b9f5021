"""The pipeline inside Spark, local[2]: WAL bytes to Iceberg rows per CPU second of JVM, workers and driver together,
in a local directory and on an S3 server of this machine, whose own CPU time is not counted.

A bucket is filled with WAL objects as a busy broker leaves them (8 MiB, 24 partitions each, batches of orders), then
one tick of the real worker moves them: plan, Spark job, table commit, frontier. What is counted are bytes of
record values; what they cost is the CPU time of the whole process tree. The session and its first job are not counted.
Beside it stands what the libraries alone cost in the same run: `benchmarks.floor`.
"""

import asyncio
import os
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import psutil

from benchmarks.floor import floor
from benchmarks.orders import payload
from benchmarks.result import QUICK, Result, reaches, stays_under, versus
from benchmarks.s3 import S3, s3
from lakestream import objects
from lakestream.catalog.embedded.tables import PyIcebergTables
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.worker import Tick, Worker
from lakestream.frontier.settings import PipelineSettings
from lakestream.metadata.log.commit import Offer
from lakestream.metadata.log.committer import Committer
from lakestream.metadata.store import Store
from lakestream.metadata.stores.sqlite.store import open_sqlite
from lakestream.metadata.topics.list import Topics
from lakestream.model import StreamPartition
from lakestream.node.storage.tables import io_properties
from lakestream.objects import ObjectStore
from lakestream.pipeline import DriverSettings, SparkDriver, SparkTiles
from lakestream.runtime import Runtime, system
from lakestream.wal import Section, build, object_key

PARTITIONS = 24
OBJECT_BYTES = 8 * 1024 * 1024
LOAD_BYTES = (64 if QUICK else 600) * 1024 * 1024
TICK_BYTES = 16 * 1024 * 1024
TICKS = 3 if QUICK else 7
ROUNDS = 1 if QUICK else 3
FLOOR = 0.6
"""At least this share of our CPU time is the libraries' own."""
VARIANTS = 8
"""Different batches per partition; objects repeat them."""


def run() -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="lakestream-bench-") as folder:
        results = asyncio.run(_measure(Path(folder), f"file://{folder}/bucket", "directory", (120, 100), set()))
    with tempfile.TemporaryDirectory(prefix="lakestream-bench-") as folder, s3() as server:
        with _environment(server.environment):
            results += asyncio.run(_measure(Path(folder), server.url, "S3", (180, 150), {server.pid}))
    return results


def cpu_seconds_per_gb(server: S3, sizes: Sequence[int]) -> list[float]:
    """What the pipeline spends on a gigabyte of values on that server, for each size of values in bytes."""
    with tempfile.TemporaryDirectory(prefix="lakestream-bench-") as folder, _environment(server.environment):
        return asyncio.run(_spend(Path(folder), server, sizes))


async def _spend(folder: Path, server: S3, sizes: Sequence[int]) -> list[float]:
    async with _running(folder, server.url) as bench:
        await bench.tick_seconds()
        return [1000 / await bench.rate(size, {server.pid}) for size in sizes]


async def _measure(
    folder: Path, bucket_url: str, name: str, targets: tuple[int, int], uncounted: set[int]
) -> list[Result]:
    async with _running(folder, bucket_url) as bench:
        seconds = await bench.tick_seconds()
        results = [stays_under(f"pipeline, {name}, warm tick of 16 MB", seconds, "s", at_most=1.0)]
        for size_name, size, target in zip(("1 KB", "100 B"), (1000, 100), targets, strict=True):
            rate = await bench.rate(size, uncounted)
            results.append(
                reaches(f"pipeline, {name}, {size_name} values, per CPU core", rate, "MB/s", at_least=target)
            )
            alone = await asyncio.to_thread(floor, bucket_url, size)
            results.append(
                versus(f"pipeline, {name}, {size_name} values, to libraries alone", rate, alone, "MB/s", at_least=FLOOR)
            )
        return results


@asynccontextmanager
async def _running(folder: Path, bucket_url: str) -> AsyncIterator["_Bench"]:
    runtime = system()
    store = await open_sqlite(str(folder / "metadata.db"))
    bucket = objects.open(bucket_url)
    catalog = PyIcebergTables(store, bucket.url, runtime, io_properties=io_properties(os.environ))
    driver = SparkDriver(DriverSettings(master="local[2]"))
    try:
        await driver.start()
        lake = Lake(store, catalog, bucket, SparkTiles(driver), runtime, PipelineSettings())
        yield _Bench(store, bucket, runtime, Worker(lake, Topics(store, runtime), name="bench"))
    finally:
        await driver.stop()
        await catalog.close()
        await store.close()


@contextmanager
def _environment(more: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(more)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


class _Bench:
    def __init__(self, store: Store, bucket: ObjectStore, runtime: Runtime, worker: Worker) -> None:
        self._store, self._bucket, self._runtime, self._worker = store, bucket, runtime, worker

    async def tick_seconds(self) -> float:
        """The median of ticks of 16 MB each, once everything is warm."""
        warm = await self._filler("warm", 1000)
        for _ in range(2):
            await warm.fill(TICK_BYTES)
            await self._tick()
        seconds = []
        for _ in range(TICKS):
            await warm.fill(TICK_BYTES)
            started = time.perf_counter()
            await self._tick()
            seconds.append(time.perf_counter() - started)
        return statistics.median(seconds)

    async def rate(self, size: int, uncounted: set[int]) -> float:
        """Megabytes of values of that size per CPU second: the median of the rounds."""
        filler = await self._filler(f"load-{size}", size)
        rates = []
        for _ in range(ROUNDS):
            value_bytes = await filler.fill(LOAD_BYTES)
            spent = _CpuMeter(uncounted)
            await self._tick()
            rates.append(value_bytes / 1e6 / spent.seconds())
        return statistics.median(rates)

    async def _filler(self, name: str, value_bytes: int) -> "_Filler":
        topic = await Topics(self._store, self._runtime).create(name, PARTITIONS, {})
        return _Filler(self._store, self._bucket, topic.each_partition(), value_bytes)

    async def _tick(self) -> Tick:
        tick = await self._worker.tick()
        if tick.failures or tick.more or not tick.record_count:
            raise RuntimeError(f"the tick did not move everything: {tick}")
        return tick


class _Filler:
    """A broker's worth of WAL objects for one topic."""

    def __init__(
        self, store: Store, bucket: ObjectStore, partitions: Sequence[StreamPartition], value_bytes: int
    ) -> None:
        self._bucket, self._partitions, self._value_bytes = bucket, partitions, value_bytes
        self._committer = Committer(store)
        self._flush = 0
        dice = random.Random(value_bytes)
        count = OBJECT_BYTES // len(partitions) // value_bytes
        self._payloads = [payload(dice, count, value_bytes) for _ in range(VARIANTS)]

    async def fill(self, size_bytes: int) -> int:
        """Stores and commits about that much; the bytes of values in it."""
        records = 0
        for _ in range(-(-size_bytes // OBJECT_BYTES)):
            records += await self._object()
        return records * self._value_bytes

    async def _object(self) -> int:
        self._flush += 1
        session = f"bench{self._value_bytes}{self._partitions[0].topic_id.hex[:6]}"
        chosen = {
            partition: self._payloads[(self._flush + partition.index) % VARIANTS] for partition in self._partitions
        }
        sections = [Section(partition, [held.data], held.records, 1) for partition, held in chosen.items()]
        built = build(sections, [], session=session, flush=self._flush, generation=1)
        key = object_key(1, session, self._flush)
        await self._bucket.put(key, built.parts)
        offers = [
            Offer(
                span.partition,
                session,
                self._flush,
                1,
                ("bucket",),
                key,
                span.position,
                chosen[span.partition].batches,
                lambda start, end, held=chosen[span.partition]: held.checksum,
            )
            for span in built.spans
        ]
        await self._committer.commit(offers, {})
        return sum(held.records for held in chosen.values())


class _CpuMeter:
    """CPU seconds of this process and all below it but some, since it was made."""

    def __init__(self, uncounted: set[int]) -> None:
        self._uncounted = uncounted
        self._before = self._now()

    def seconds(self) -> float:
        return self._now() - self._before

    def _now(self) -> float:
        me = psutil.Process()
        total = 0.0
        for process in (me, *me.children(recursive=True)):
            if process.pid in self._uncounted:
                continue
            with _gone_is_fine():
                times = process.cpu_times()
                total += times.user + times.system
        return total


@contextmanager
def _gone_is_fine() -> Iterator[None]:
    try:
        yield
    except psutil.NoSuchProcess:
        return
