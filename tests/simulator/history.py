"""One history: a seed chooses the cast and the faults, the actors live, the faults stop, everything is audited."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import UUID

from lakestream.catalog.port import View
from lakestream.errors import RetryableError
from lakestream.frontier.naming import DATA_FOLDER, parse_file_name
from lakestream.frontier.settings import PipelineSettings
from lakestream.kafka.settings import GroupSettings
from lakestream.metadata.counters import current_generation
from lakestream.metadata.log import read_head
from lakestream.metadata.topics import Topic
from lakestream.model import StreamPartition
from lakestream.stream import Streams, StreamSettings
from lakestream.wal import WAL_PREFIX, parse_key
from simulator.actors import (
    BrokerActor,
    ConsumerActor,
    EngineActor,
    OwnerActor,
    PipelineActor,
    ProducerActor,
    fetch,
)
from simulator.auditor import Auditor, Violation
from simulator.backends import SimulatedObjects, SimulatedStore
from simulator.batches import Row, end_of, rows
from simulator.faults import draw_faults
from simulator.groups import MemberActor
from simulator.loop import SimulatedLoop
from simulator.tables import decode_rows
from simulator.world import World

_SETTLE_S = 600.0
_NOWHERE = StreamPartition(UUID(int=7), 0)
_SEQUENCE_LAST = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Report:
    seed: int
    trace: tuple[str, ...]
    violation: str | None
    acked: int
    virtual_s: float


def run(seed: int) -> Report:
    """The same seed gives the same report, to the byte."""
    loop = SimulatedLoop()
    history = History(seed, loop)
    violation: str | None = None
    try:
        loop.run_until_complete(history.play())
    except Violation as error:
        violation = str(error)
    finally:
        history.end()
        loop.close()
    if violation is None and history.auditor.violation is not None:
        violation = str(history.auditor.violation)
    acked = sum(map(len, history.auditor.acked.values()))
    return Report(seed, tuple(history.world.lines), violation, acked, loop.now_s - 1000)


@dataclass
class History:
    seed: int
    loop: SimulatedLoop
    topic: Topic | None = None
    tables: dict[str, View] = field(default_factory=dict)

    def __post_init__(self) -> None:
        random = Random(self.seed)
        self.world = World(self.loop, random, draw_faults(random))
        self.store = SimulatedStore(self.world)
        self.objects = SimulatedObjects(
            self.world, stale_list_s=random.choice((0.0, 5.0)), partial_deletes=random.random() < 0.3
        )
        self.auditor = Auditor(self.world, self.store, self.objects, self.tables)
        self.first_sequence = random.choice((0, 0, _SEQUENCE_LAST - 1))
        self.delete_rows = random.choice((0.0, 0.3))
        self.stream_settings = StreamSettings(
            flush_interval_ms=random.choice((1, 20)),
            flushes_in_flight=random.choice((1, 3)),
            view_check_ms=random.choice((0, 500, 5_000)),
            generation_check_ms=random.choice((100, 2_000)),
            upload_deadline_ms=random.choice((500, 20_000)),
            tail_cache_bytes=random.choice((0, 10_000)),
            receipt_idle_ms=random.choice((50, 2_000)),
        )
        self.pipeline_settings = PipelineSettings(
            generation_interval_ms=random.choice((100, 1_000)),
            grace_ms=random.choice((0, 1_000)),
            backoff_ms=50,
            max_backoff_ms=400,
            lease_ms=500,
            max_tick_bytes=random.choice((200, 1 << 20)),
            own_file_bytes=random.choice((1, 1 << 20)),
        )
        self.group_settings = GroupSettings(
            initial_rebalance_delay_ms=random.choice((0, 200)), lease_ttl_ms=random.choice((300, 3_000))
        )
        self._brokers = [BrokerActor(self, number) for number in range(1, random.choice((1, 2, 3)) + 1)]
        self._pipelines = [PipelineActor(self, number) for number in range(random.choice((1, 2)))]
        self._owner = OwnerActor(self, random.choice((0, 0, 0, 1, 2)))
        self._background: list[asyncio.Task[Any]] = []

    def partitions(self) -> list[StreamPartition]:
        """Of the topic as it is now. While there is none, the one place that never answers."""
        return self.topic.each_partition() if self.topic is not None else [_NOWHERE]

    def broker_numbered(self, number: int) -> BrokerActor:
        return self._brokers[number - 1]

    def broker(self) -> BrokerActor:
        return self.world.random.choice(self._brokers)

    async def play(self) -> None:
        random = self.world.random
        for actor in (*self._brokers, *self._pipelines):
            self._spawn(actor.live())
        await self._owner.create()
        producers = [
            ProducerActor(self, number, idempotent=random.random() < 0.7, batches=random.randint(2, 8))
            for number in range(random.randint(1, 3))
        ]
        actors = [ConsumerActor(self, number) for number in range(random.randint(0, 2))]
        members = [MemberActor(self, number) for number in range(random.choice((0, 0, 1, 3)))]
        for actor in (*actors, *members):
            self._spawn(actor.live())
        if random.random() < 0.6:
            self._spawn(EngineActor(self).live())
        await self._all(*(producer.live() for producer in producers), self._owner.live())
        await self._calm_down()
        await self._audit()

    def end(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(_settled())

    async def _calm_down(self) -> None:
        """No more faults. What is still on its way arrives, sleepers wake, the crashed come back."""
        self.world.trace("the faults stop")
        self.world.calm()
        last = max((handle.when() for handle in self.world.late), default=0.0)
        await self._unless_violated(asyncio.sleep(max(0.0, last - self.loop.time()) + 2.0))
        deadline = self.loop.time() + _SETTLE_S
        for partition in self.partitions():
            while True:
                found = await self._unless_violated(read_head(self.store, partition))
                assert found is not None
                if found.head.frontier == found.head.next_offset:
                    break
                if self.loop.time() > deadline:
                    self.auditor.fail(f"I7: {partition.index} does not reach the table: {found.head}")
                await self._unless_violated(asyncio.sleep(0.5))
        await self._unless_violated(asyncio.sleep(5.0))

    async def _audit(self) -> None:
        for broker in self._brokers:
            for partition in self.partitions():
                found, end = await self._unless_violated(self._read_all(broker, partition))
                self.auditor.audit_stream(partition, found, end, f"broker {broker.number}")
        assert self.topic is not None
        view = self._view()
        prefix = self.objects.url + "/"
        table_rows: list[Row] = []
        for file in view.files:
            table_rows += decode_rows(self.objects.objects[file.path.removeprefix(prefix)])
        self.auditor.audit_table(self.topic.topic_id, table_rows, view)
        await self._audit_bucket()

    async def _audit_bucket(self) -> None:
        """I7: once the faults have stopped, every dead object goes away in the end."""
        deadline = self.loop.time() + _SETTLE_S
        while True:
            generation = await self._unless_violated(current_generation(self.store))
            live = self.auditor.live_objects()
            stale = [
                key
                for key in self.objects.objects
                if key.startswith(WAL_PREFIX) and parse_key(key).generation < generation - 8 and key not in live
            ]
            stale += self._orphans()
            if not stale:
                return
            if self.loop.time() > deadline:
                self.auditor.fail(f"I7: dead objects stay for ever: {stale}")
            await self._unless_violated(asyncio.sleep(2.0))

    def _orphans(self) -> list[str]:
        """Files of the table that no worker can commit any more."""
        view, prefix = self._view(), self.objects.url + "/"
        live = {file.path for file in view.files}
        found = [key for key in self.objects.objects if f"{prefix}{key}".startswith(f"{view.location}/{DATA_FOLDER}")]
        starts = {key: parse_file_name(key.rsplit("/", 1)[-1]) for key in found if prefix + key not in live}
        return [key for key, at in starts.items() if at is not None and at.start < view.frontier[at.partition]]

    def _view(self) -> View:
        assert self.topic is not None
        location = self.auditor.pointer(self.topic.topic_id)
        return self.tables[location]

    async def _read_all(self, broker: BrokerActor, partition: StreamPartition) -> tuple[list[Row], int]:
        found: list[Row] = []
        position = 0
        while True:
            at = position

            async def step(streams: Streams, at: int = at) -> Any:
                return await fetch(streams, partition, at, 0)

            try:
                fetched = await broker.call(step)
            except RetryableError:
                continue
            if isinstance(fetched.error, RetryableError):
                continue
            if fetched.error is not None:
                self.auditor.fail(f"I3: broker {broker.number} at {partition.index}/{position}: {fetched.error}")
            data = b"".join(fetched.parts)
            found += [row for row in rows(data, partition.index) if row.offset >= position]
            if position == fetched.high_watermark:
                return found, position
            if end_of(data) <= position:
                self.auditor.fail(f"a fetch at {partition.index}/{position} below the end did not advance")
            position = end_of(data)

    async def _unless_violated(self, work: Coroutine[Any, Any, Any]) -> Any:
        """A violation that an actor met in the background ends the history."""
        [result] = await self._all(work)
        return result

    async def _all(self, *works: Coroutine[Any, Any, Any]) -> list[Any]:
        tasks = [self.loop.create_task(work) for work in works]
        waiting = set(tasks)
        while waiting:
            done, _ = await asyncio.wait({*waiting, *self._background}, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in (*tasks, *self._background) if task in done]:
                if task in self._background:
                    self._background.remove(task)
                task.result()
            waiting -= done
            if self.auditor.violation is not None:
                raise self.auditor.violation
        return [task.result() for task in tasks]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._background.append(self.loop.create_task(work))


async def _settled() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    await asyncio.gather(*others, return_exceptions=True)
