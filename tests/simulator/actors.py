"""Who lives in the simulation: brokers, pipelines, producers, consumers, an outside engine, an owner of topics."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from lakestream.catalog.simulated import SimulatedTables
from lakestream.errors import (
    Conflict,
    LakestreamError,
    ObjectMissing,
    OffsetOutOfRange,
    RetryableError,
    SequenceGap,
    StreamExists,
    UnknownStream,
)
from lakestream.frontier.collector import Collector
from lakestream.frontier.lake import Lake
from lakestream.frontier.orphans import Orphans
from lakestream.frontier.worker import Worker
from lakestream.kafka.groups.coordinator import GroupCoordinator
from lakestream.metadata.brokers import Broker
from lakestream.metadata.commit import SEQUENCE_SPAN
from lakestream.metadata.topics import Topic, Topics
from lakestream.model import StreamPartition
from lakestream.stream import Fetched, FetchPartition, Streams
from simulator.batches import Row, batch, end_of, rows
from simulator.tables import SimulatedHistory, SimulatedTiles, decode_rows, encode_rows, written
from simulator.world import Process

if TYPE_CHECKING:
    from simulator.history import History

T = TypeVar("T")

_PATIENCE_S = 40.0


class Disconnected(RetryableError):
    """The broker is down, or went down before it answered."""


class BrokerActor:
    """A broker that comes back after every crash, as a new process."""

    def __init__(self, history: "History", broker_id: int) -> None:
        self._history = history
        self.number = broker_id
        self.process: Process | None = None
        self.streams: Streams | None = None
        self.groups: GroupCoordinator | None = None

    async def live(self) -> None:
        world = self._history.world
        while True:
            process = self.process = world.process(f"broker{self.number}")
            crashed = asyncio.Event()
            process.on_crash = crashed.set
            process.start(self._serve(process))
            await crashed.wait()
            self.streams = None
            await asyncio.sleep(world.random.uniform(0.01, 3.0))

    async def call(self, work: Callable[[Streams], Awaitable[T]]) -> T:
        """A request to this broker: lost if it crashes, unanswered if it sleeps too long."""
        process, streams = self.process, self.streams
        if process is None or streams is None or not process.alive:
            await asyncio.sleep(0.05)
            raise Disconnected(f"broker{self.number} is down")

        async def run() -> T:
            return await work(streams)

        task = process.start(run())
        try:
            done, _ = await asyncio.wait([task], timeout=_PATIENCE_S)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not done or task.cancelled() or not process.alive:
            raise Disconnected(f"broker{self.number} does not answer")
        return task.result()

    async def coordinate(self, work: Callable[[GroupCoordinator], Awaitable[T]]) -> T:
        """A request of a group's member."""
        groups = self.groups

        async def run(_: Streams) -> T:
            assert groups is not None
            return await work(groups)

        return await self.call(run)

    async def _serve(self, process: Process) -> None:
        history = self._history
        broker = Broker(self.number, "127.0.0.1", self.number, None, process.runtime().new_id().hex)
        streams = Streams(
            broker,
            history.store,
            history.objects,
            SimulatedTables(history.store, history.tables),
            SimulatedHistory(history.objects),  # type: ignore[arg-type]
            process.runtime(),
            history.stream_settings,
        )
        while True:
            try:
                await streams.start()
                break
            except RetryableError:
                await asyncio.sleep(0.1)
        self.groups = GroupCoordinator(streams, history.group_settings)
        await self.groups.start()
        self.streams = streams
        await streams.failed


class PipelineActor:
    """A worker and its collectors; crashes, sleeps, wakes up as a zombie."""

    def __init__(self, history: "History", number: int) -> None:
        self._history = history
        self._name = f"pipeline{number}"

    async def live(self) -> None:
        world = self._history.world
        while True:
            process = world.process(self._name)
            crashed = asyncio.Event()
            process.on_crash = crashed.set
            process.start(self._work(process))
            await crashed.wait()
            await asyncio.sleep(world.random.uniform(0.01, 5.0))

    async def _work(self, process: Process) -> None:
        history, world = self._history, self._history.world
        runtime = process.runtime()
        lake = Lake(
            history.store,
            SimulatedTables(history.store, history.tables),
            history.objects,
            SimulatedTiles(history.objects, runtime),
            runtime,
            history.pipeline_settings,
        )
        topics = Topics(history.store, runtime)
        worker = Worker(lake, topics, name=f"{self._name}-{runtime.new_id()}", respect_leases=world.chance(0.5))
        collector, orphans = Collector(lake), Orphans(lake, topics)
        rest_s = 0.05
        while True:
            try:
                tick = await worker.tick()
                rest_s = 0.05 if tick.topics else min(rest_s * 2, 2.0)
                for failure in tick.failures:
                    if not isinstance(failure.error, RetryableError | UnknownStream | ObjectMissing):
                        history.auditor.fail(f"I4: {self._name} reports {failure.error}")
                await collector.collect()
                await orphans.collect()
            except (RetryableError, UnknownStream):
                world.trace(f"{self._name}: tick failed")
            await asyncio.sleep(world.random.uniform(0.5, 1.0) * rest_s)


class ProducerActor:
    """Sends its values in order, each batch until it is acknowledged or given up."""

    def __init__(self, history: "History", number: int, *, idempotent: bool, batches: int) -> None:
        self._history = history
        self._number = number
        self._idempotent = idempotent
        self._batches = batches
        self._identity: dict[StreamPartition, list[int]] = {}

    async def live(self) -> None:
        history, random = self._history, self._history.world.random
        for number in range(self._batches):
            await asyncio.sleep(random.uniform(0.0, 0.3))
            partition = random.choice(history.partitions())
            values = [f"p{self._number}.{number}.{index}".encode() for index in range(random.choice((1, 1, 2, 3)))]
            await self._send(partition, values)

    async def _send(self, partition: StreamPartition, values: list[bytes]) -> None:
        history = self._history
        producer = await self._producer(partition) if self._idempotent else [-1, -1, -1]
        data = batch(values, producer=(producer[0], producer[1], producer[2]))
        copies = 0
        for _ in range(12):
            if partition not in history.partitions():
                return
            copies += 1
            for value in values:
                history.auditor.sent[value] = 1 if self._idempotent else copies
            try:
                appended = await history.broker().call(lambda streams: _append(streams, partition, data))
            except RetryableError:
                continue
            except SequenceGap:
                history.auditor.fail(f"I8: producer {self._number} sent in order and was told of a gap")
            except UnknownStream:
                return
            for index, value in enumerate(values):
                history.auditor.acknowledged(partition, appended + index, value)
            if self._idempotent:
                producer[2] = (producer[2] + len(values)) % SEQUENCE_SPAN
            return
        # Whether the batch is in the log is not known: going on needs a new identity, as a real client would take.
        self._identity.pop(partition, None)

    async def _producer(self, partition: StreamPartition) -> list[int]:
        while partition not in self._identity:
            try:
                producer_id, epoch = await self._history.broker().call(lambda streams: streams.new_producer())
            except RetryableError:
                continue
            self._identity[partition] = [producer_id, epoch, self._history.first_sequence]
        return self._identity[partition]


class ConsumerActor:
    """Reads every partition from the start, each fetch from any broker."""

    def __init__(self, history: "History", number: int) -> None:
        self._history = history
        self._name = f"consumer{number}"
        self._positions: dict[StreamPartition, int] = {}

    async def live(self) -> None:
        history, random = self._history, self._history.world.random
        while True:
            partition = random.choice(history.partitions())
            await self._poll(partition, wait_ms=random.choice((0, 200)))
            await asyncio.sleep(random.uniform(0.0, 0.2))

    async def _poll(self, partition: StreamPartition, wait_ms: int) -> None:
        history = self._history
        position = self._positions.get(partition, 0)
        try:
            fetched = await history.broker().call(lambda streams: fetch(streams, partition, position, wait_ms))
        except RetryableError:
            return
        if fetched.error is None:
            found, end = _rows(fetched, position)
            if partition.topic_id in history.auditor.gone:
                return
            history.auditor.read(partition, position, found, end, self._name)
            self._positions[partition] = end
            if fetched.parts and end <= position:
                history.auditor.fail(f"{self._name}: a fetch at {position} below the end did not advance")
        elif isinstance(fetched.error, OffsetOutOfRange):
            history.auditor.fail(f"I3: {self._name} is told out of range: {fetched.error}")
        elif not isinstance(fetched.error, RetryableError | UnknownStream):
            history.auditor.fail(f"I4: {self._name} at {partition.index}/{position}: {fetched.error}")


class EngineActor:
    """Another engine on the same tables: rewrites files, deletes rows, expires what nothing names any more."""

    def __init__(self, history: "History") -> None:
        self._history = history

    async def live(self) -> None:
        world = self._history.world
        process = world.process("engine")
        while True:
            await asyncio.sleep(world.random.uniform(0.3, 3.0))
            acting = process.start(self._act(process))
            # Waited for, not awaited: a crash cancels the act, the end of the history this actor.
            await asyncio.wait([acting])
            if not acting.cancelled():
                with suppress(LakestreamError):
                    acting.result()
            if not process.alive:
                process = world.process("engine")

    async def _act(self, process: Process) -> None:
        history, world = self._history, self._history.world
        catalog = SimulatedTables(history.store, history.tables)
        topic = history.topic
        if topic is None:
            return
        view = await catalog.load(topic.topic_id)
        if not view.files:
            return
        files = list(view.files)
        world.random.shuffle(files)
        chosen = files[: world.random.randint(1, 3)]
        prefix = history.objects.url + "/"
        found: list[Row] = []
        for file in chosen:
            found += decode_rows(await history.objects.get(file.path.removeprefix(prefix)))
        if world.chance(history.delete_rows):
            row = world.random.choice(found)
            world.trace(f"engine deletes row {row.partition}/{row.offset}")
            history.auditor.deleted.setdefault(StreamPartition(topic.topic_id, row.partition), {})[row.offset] = None
            found.remove(row)
        world.random.shuffle(found)
        add = []
        if found:
            path = f"{view.location}/data/engine-{process.runtime().new_id().hex}.parquet"
            data = encode_rows(found)
            await history.objects.put(path.removeprefix(prefix), [data])
            add = [written(path, found, len(data))]
        try:
            await catalog.commit(view, add=add, remove=chosen, frontier=view.frontier)
        except Conflict:
            return
        # Expiring: files that only old snapshots name may be deleted at once.
        if world.chance(0.5):
            await history.objects.delete([file.path.removeprefix(prefix) for file in chosen])


class OwnerActor:
    """Deletes the topic and creates it again under the same name."""

    def __init__(self, history: "History", times: int) -> None:
        self._history = history
        self._times = times

    async def live(self) -> None:
        world = self._history.world
        for _ in range(self._times):
            await asyncio.sleep(world.random.uniform(0.5, 4.0))
            await self.delete()
            await self.create()

    async def delete(self) -> None:
        history = self._history
        topic = history.topic
        while topic is not None:
            try:
                history.auditor.gone[topic.topic_id] = None
                history.world.trace(f"owner deletes {topic.topic_id.hex[:4]}")
                await history.broker().call(lambda streams: streams.delete_topic(topic.topic_id))
            except UnknownStream:
                pass
            except RetryableError:
                continue
            history.topic = None
            return

    async def create(self) -> None:
        history = self._history
        while history.topic is None:
            try:
                history.topic = await history.broker().call(_create)
            except StreamExists:
                history.topic = (await _retry(history, _find)).get("orders")
            except RetryableError:
                continue
        history.world.trace(f"owner has {history.topic.topic_id.hex[:4]}")


async def fetch(streams: Streams, partition: StreamPartition, position: int, wait_ms: int) -> Fetched:
    [fetched] = await streams.fetch(
        [FetchPartition(partition, position, 1000)], min_bytes=1, max_bytes=1000, max_wait_ms=wait_ms
    )
    return fetched


def _rows(fetched: Fetched, position: int) -> tuple[list[Row], int]:
    data = b"".join(fetched.parts)
    return rows(data, fetched.partition.index), max(position, end_of(data))


async def _append(streams: Streams, partition: StreamPartition, data: bytes) -> int:
    return (await streams.append(partition, data)).base_offset


async def _create(streams: Streams) -> Topic:
    return await streams.create_topic("orders", 2, {})


async def _find(streams: Streams) -> dict[str, Topic]:
    return await streams.topics.by_names(["orders"])


async def _retry(history: "History", work: Callable[[Streams], Awaitable[T]]) -> T:
    while True:
        try:
            return await history.broker().call(work)
        except RetryableError:
            continue
