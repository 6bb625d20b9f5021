"""A small lake for the frontier's tests: a broker that can sleep between PUT and commit, and operations that
crash, pause or lose their reply at a chosen step."""

import asyncio
import inspect
import io
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from lakestream.catalog.port import TableCatalog
from lakestream.errors import UnknownStream
from lakestream.frontier.collecting.collector import Collector
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.tiles.local import LocalTiles
from lakestream.frontier.moving.worker import Tick, Worker
from lakestream.frontier.settings import PipelineSettings
from lakestream.metadata.counters import current_generation
from lakestream.metadata.log.commit import Batch, Offer
from lakestream.metadata.log.committer import Committed, Committer, Verdict
from lakestream.metadata.log.partition import read_extents, read_head
from lakestream.metadata.store import Store
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.model import StreamPartition
from lakestream.objects import MemoryObjects, ObjectStore
from lakestream.records import crc32c, walk
from lakestream.runtime import Runtime
from lakestream.stream.appending.receipts import receipts_of
from lakestream.table.view import View
from lakestream.wal import WAL_PREFIX, Receipt, Section, build, object_key
from support.clients.batches import batch
from support.tables.simulated import SimulatedTables

SETTINGS = PipelineSettings(
    min_tile_bytes=1,
    target_tile_bytes=400,
    own_file_bytes=300,
    backoff_ms=0,
    generation_interval_ms=1_000,
    grace_ms=500,
)


class Row(NamedTuple):
    topic: str
    partition: int
    offset: int
    value: bytes


class Hands:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms


class Crash(BaseException):
    """The end of a process: nothing catches it."""


class Fuse:
    """Counts the steps of one process. At step `at`: crash, or run `then` (which may raise, or wait)."""

    def __init__(self, at: int = 0, then: Callable[[], Awaitable[None]] | None = None) -> None:
        self.at = at
        self.steps = 0
        self.blown = False
        self.trail: list[str] = []
        self._then = then

    async def step(self, name: str) -> None:
        await asyncio.sleep(0)
        self.steps += 1
        self.trail.append(name)
        if self.steps == self.at and self._then is not None:
            self.blown = True
            await self._then()
        elif (self.blown and self._then is None) or self.steps == self.at:
            self.blown = True
            raise Crash(name)


class Fused:
    """Any component, with a step before and after each of its asynchronous calls."""

    def __init__(self, target: Any, fuse: Fuse, name: str) -> None:
        self._target, self._fuse, self._name = target, fuse, name

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(self._target, attribute)
        name = f"{self._name}.{attribute}"
        if inspect.isasyncgenfunction(found):

            async def each(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
                await self._fuse.step(f"before {name}")
                async for item in found(*args, **kwargs):
                    yield item

            return each
        if not inspect.iscoroutinefunction(found):
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            await self._fuse.step(f"before {name}")
            result = await found(*args, **kwargs)
            await self._fuse.step(f"after {name}")
            return result

        return call


class AuditedObjects(MemoryObjects):
    """Refuses the one thing that must never happen: deleting a WAL object that an extent names."""

    def __init__(self, clock: Hands, store: Store) -> None:
        super().__init__(clock, "simulated:/")
        self.partitions: list[StreamPartition] = []
        self._store = store

    async def delete(self, keys: Sequence[str]) -> None:
        for partition in self.partitions:
            named = {extent.object_key for extent in await read_extents(self._store, partition)}
            assert not named & set(keys), f"live objects of {partition} would be deleted: {named & set(keys)}"
        await super().delete(keys)


@dataclass(frozen=True, slots=True)
class Upload:
    """An object that is stored and not committed."""

    offers: list[Offer]
    values: Mapping[StreamPartition, Sequence[bytes]]


class Producer:
    """A broker's append path in two steps, with a session of its own."""

    def __init__(self, world: "MemoryWorld", session: str) -> None:
        self._world, self._session, self._flush = world, session, 0
        self._committer = Committer(world.store)
        self._receipts: list[Receipt] = []

    async def upload(self, values: Mapping[StreamPartition, Sequence[bytes]]) -> Upload:
        self._flush += 1
        generation = await current_generation(self._world.store)
        runs = {partition: batch(*given) for partition, given in values.items()}
        sections = [Section(partition, [run], len(values[partition]), 1) for partition, run in runs.items()]
        built = build(sections, self._receipts, session=self._session, flush=self._flush, generation=generation)
        self._receipts = []
        key = object_key(generation, self._session, self._flush)
        await self._world.objects.put(key, built.parts)
        offers = [
            Offer(
                span.partition,
                self._session,
                self._flush,
                generation,
                ("bucket",),
                key,
                span.position,
                [
                    Batch(info.position, info.length, info.record_count, info.max_timestamp_ms, -1, -1, -1)
                    for info in walk(runs[span.partition])
                ],
                lambda start, end, run=runs[span.partition]: crc32c(run[start:end]),
            )
            for span in built.spans
        ]
        return Upload(offers, values)

    async def commit(self, upload: Upload) -> dict[StreamPartition, Verdict]:
        verdicts: dict[StreamPartition, Verdict] = {}
        await self._committer.commit(upload.offers, verdicts)
        for partition, verdict in verdicts.items():
            if isinstance(verdict, Committed):
                [accepted] = verdict.results
                self._world.ack(partition, accepted.base_offset, upload.values[partition])
        self._receipts += receipts_of(upload.offers[0].object_key, upload.offers, verdicts)
        return verdicts

    async def append(self, values: Mapping[StreamPartition, Sequence[bytes]]) -> None:
        verdicts = await self.commit(await self.upload(values))
        assert all(isinstance(verdict, Committed) for verdict in verdicts.values()), verdicts


@dataclass
class MemoryWorld:
    """Shared state, and what was acked to producers."""

    clock: Hands = field(default_factory=Hands)
    store: Store = None  # type: ignore[assignment]
    objects: ObjectStore = None  # type: ignore[assignment]
    catalog: TableCatalog = None  # type: ignore[assignment]
    settings: PipelineSettings = SETTINGS
    acked: list[Row] = field(default_factory=list)
    topics: dict[Any, Topic] = field(default_factory=dict)
    tables: dict[str, View] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._parsed: dict[str, list[Row]] = {}
        self.runtime = Runtime(self.clock, random.Random(5))
        self.store = self.store or MemoryStore(self.runtime)
        self.objects = self.objects or AuditedObjects(self.clock, self.store)

    def catalog_on(self, store: Store) -> TableCatalog:
        return self.catalog or SimulatedTables(store, self.tables)

    async def create(self, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> Topic:
        topic = await Topics(self.store, self.runtime).create(name, partitions, dict(configs or {}))
        self.topics[topic.topic_id] = topic
        if isinstance(self.objects, AuditedObjects):
            self.objects.partitions += topic.each_partition()
        return topic

    def ack(self, partition: StreamPartition, base_offset: int, values: Sequence[bytes]) -> None:
        name = self.topics[partition.topic_id].name
        self.acked += [Row(name, partition.index, base_offset + n, value) for n, value in enumerate(values)]

    def pipeline(self, fuse: Fuse | None = None, *, leases: bool = False) -> tuple[Worker, Collector]:
        """A fresh process: it knows nothing of earlier ones."""
        store: Any = Fused(self.store, fuse, "store") if fuse else self.store
        objects: Any = Fused(self.objects, fuse, "objects") if fuse else self.objects
        catalog: Any = self.catalog_on(store)
        if fuse:
            catalog = Fused(catalog, fuse, "catalog")
        lake = Lake(store, catalog, objects, LocalTiles(objects, self.runtime), self.runtime, self.settings)
        name = f"worker-{self.runtime.new_id()}"
        return Worker(lake, Topics(store, self.runtime), name=name, respect_leases=leases), Collector(lake)

    async def frontiers(self) -> dict[str, tuple[int, ...]]:
        """Of table and heads, by topic."""
        found = {}
        for topic in self.topics.values():
            try:
                found[f"table {topic.name}"] = (await self.catalog_on(self.store).load(topic.topic_id)).frontier
            except UnknownStream:
                found[f"table {topic.name}"] = (0,) * topic.partitions
            heads = [await read_head(self.store, partition) for partition in topic.each_partition()]
            found[f"heads {topic.name}"] = tuple(head.head.frontier if head else 0 for head in heads)
        return found

    async def rows(self) -> list[Row]:
        """Every row of every table, sorted: a row that is there twice is twice in the list."""
        found: list[Row] = []
        for topic in self.topics.values():
            view = await self.catalog_on(self.store).load(topic.topic_id)
            for file in view.files:
                data = await self.objects.get(file.path.removeprefix(self.objects.url + "/"))
                if file.path not in self._parsed:
                    self._parsed[file.path] = _parse(topic.name, data)
                found += self._parsed[file.path]
        return sorted(found)

    async def wal_keys(self) -> list[str]:
        return [info.key async for info in self.objects.list(WAL_PREFIX)]

    async def drain(self) -> list[Tick]:
        """A new pipeline, without faults, until nothing is due."""
        worker, _ = self.pipeline()
        ticks = []
        for _ in range(50):
            ticks.append(await worker.tick())
            if not ticks[-1].topics:
                return ticks
        raise AssertionError(f"it never comes to rest: {ticks[-1]}")

    async def collect_all(self) -> None:
        """Long enough for everything dead to go."""
        _, collector = self.pipeline()
        for _ in range(8):
            self.clock.ms += max(self.settings.generation_interval_ms, self.settings.grace_ms)
            await collector.collect()

    async def check_whole(self) -> None:
        """After a drain: what was acked is in the tables, once; the WAL holds nothing that is needed."""
        assert await self.rows() == sorted(self.acked)
        ends = Counter((row.topic, row.partition) for row in self.acked)
        for name, frontier in (await self.frontiers()).items():
            topic = name.split()[1]
            assert frontier == tuple(ends[topic, index] for index in range(len(frontier))), name


def _parse(topic: str, data: bytes) -> list[Row]:
    columns = ["_stream_partition", "_offset", "_value"]
    table = pq.ParquetFile(io.BytesIO(data)).read(columns, use_threads=False)
    return [Row(topic, *row.values()) for row in table.to_pylist()]


def never_back(before: Mapping[str, tuple[int, ...]], after: Mapping[str, tuple[int, ...]]) -> None:
    for name, old in before.items():
        assert all(a <= b for a, b in zip(old, after[name], strict=False)), (name, old, after[name])
