"""The servers of the simulation: brokers and pipelines, which crash, sleep and come back."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

from support.tables.simulated import SimulatedTables

from lakestream.access import ALLOW_ALL, ANONYMOUS
from lakestream.coordination.groups import Groups
from lakestream.coordination.groups.coordinator import GroupCoordinator, holder_name
from lakestream.errors import ObjectMissing, RequestError, RetryableError, UnknownStream
from lakestream.frontier.collecting.collector import Collector
from lakestream.frontier.collecting.orphans import Orphans
from lakestream.frontier.collecting.producers import Expiry
from lakestream.frontier.delta import Mirrors
from lakestream.frontier.moving.worker import Worker
from lakestream.frontier.settings import NO_DISKS
from lakestream.kafka.apis.api import Handler
from lakestream.kafka.settings import KafkaSettings
from lakestream.metadata.brokers import Broker, Brokers
from lakestream.metadata.feed import Feed
from lakestream.metadata.topics.list import Topics
from lakestream.stream import Streams
from lakestream.stream.engine import StreamEngine
from simulator.tables import SimulatedHistory
from simulator.transactions import Coordinating, coordinating, enlister_of
from simulator.world import Process

if TYPE_CHECKING:
    from simulator.history import History

T = TypeVar("T")

_REST_LEAST_S: Final = 0.05


class Disconnected(RetryableError):
    """The server is down, or went down before it answered."""


async def answered(process: Process, work: Coroutine[Any, Any, T], *, within_s: float) -> T:
    """What a server's process answers: nothing if it crashes, or takes too long."""
    task = process.start(work)
    try:
        done = await process.world.done(task, within_s=within_s)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if not done or task.cancelled() or not process.alive:
        raise Disconnected(f"{process.name} does not answer")
    return task.result()


class BrokerActor:
    """A broker that comes back after every crash, as a new process."""

    def __init__(self, history: "History", broker_id: int) -> None:
        self._history = history
        self.number = broker_id
        self.process: Process | None = None
        self.streams: StreamEngine | None = None
        self.groups: GroupCoordinator | None = None
        self.transactions: Coordinating | None = None

    async def live(self) -> None:
        world = self._history.world
        while True:
            process = self.process = world.process(f"broker{self.number}")
            crashed = asyncio.Event()
            process.on_crash = crashed.set
            process.start(self._serve(process))
            await crashed.wait()
            self.streams = None
            await asyncio.sleep(world.random.uniform(0.01, 1.5))

    async def call(self, work: Callable[[StreamEngine], Awaitable[T]]) -> T:
        """A request to this broker: lost if it crashes, unanswered if it sleeps too long."""
        process, streams = self.process, self.streams
        if process is None or streams is None or not process.alive:
            await asyncio.sleep(0.05)
            raise Disconnected(f"broker{self.number} is down")

        async def run() -> T:
            return await work(streams)

        return await answered(process, run(), within_s=self._history.scene.patience_s)

    async def coordinate(self, work: Callable[[GroupCoordinator], Awaitable[T]]) -> T:
        """A request of a group's member."""
        groups = self.groups

        async def run(_: StreamEngine) -> T:
            assert groups is not None
            return await work(groups)

        return await self.call(run)

    async def ask(self, handle: Handler, version: int, request: Any) -> Any:
        """A request through the Kafka door, by the handler of its API: the fields of its answer."""
        groups, settings = self.groups, KafkaSettings(groups=self._history.scene.group)

        async def run(streams: StreamEngine) -> Any:
            assert groups is not None
            context: Any = SimpleNamespace(
                principal=ANONYMOUS,
                streams=Streams(streams, ALLOW_ALL),
                transactions=None,
                groups=Groups(groups, ALLOW_ALL, streams.runtime.clock),
                settings=settings,
                version=version,
            )
            return await handle(context, request)

        return await self.call(run)

    async def _serve(self, process: Process) -> None:
        history = self._history
        broker = Broker(self.number, "127.0.0.1", self.number, None, process.runtime().new_id().hex)
        runtime = process.runtime()
        enlister = enlister_of(history, runtime)
        streams = StreamEngine(
            broker,
            history.store,
            history.objects,
            SimulatedTables(history.store, history.tables),
            SimulatedHistory(history.objects),  # type: ignore[arg-type]
            runtime,
            history.scene.stream,
            wal=None if history.disks is None else history.disks.wal(),
            disk=NO_DISKS if history.disks is None else history.disks.settings,
            enlistment=enlister,
        )
        streams.brokers.ttl_ms = history.scene.broker_ttl_ms
        history.auditor.holders[holder_name(broker)] = history.auditor.holders[broker.session] = process
        try:
            await streams.start()
        except (RetryableError, RequestError):
            # As a real process would end.
            process.crash()
            return
        self.groups = GroupCoordinator(streams, history.scene.group)
        await self.groups.start()
        if enlister is not None:
            self.transactions = coordinating(history, streams, enlister)
            process.start(self.transactions.sweep())
        self.streams = streams
        await streams.failed


class PipelineActor:
    """A worker and its collectors; crashes, sleeps, wakes up as a zombie."""

    def __init__(self, history: "History", number: int) -> None:
        self._history = history
        self._name = f"pipeline{number}"
        self.begun = 0
        self.finished = 0
        """Its rounds are numbered: the last one that it began, and the last one in which it went through everything."""

    async def live(self) -> None:
        world = self._history.world
        while True:
            process = world.process(self._name)
            crashed = asyncio.Event()
            process.on_crash = crashed.set
            process.start(self._work(process))
            await crashed.wait()
            await asyncio.sleep(world.random.uniform(0.01, 2.5))

    async def _work(self, process: Process) -> None:
        history, world, scene = self._history, self._history.world, self._history.scene
        runtime = process.runtime()
        lake = history.lake(runtime, scene.pipeline)
        topics = Topics(history.store, runtime)
        feed = Feed(history.store, Brokers(history.store).sessions)
        name = f"{self._name}-{runtime.new_id()}"
        worker = Worker(lake, topics, name=name, respect_leases=world.chance(0.5), feed=feed)
        collector, orphans, expiry = Collector(lake), Orphans(lake, topics), Expiry(lake, topics)
        mirrors = Mirrors(lake.catalog, history.delta, history.delta, topics, runtime, scene.pipeline)
        rest_s = _REST_LEAST_S
        while True:
            if world.is_calm:
                # What it did before the last of the late requests has arrived it would do again.
                await world.settled.wait()
            self.begun += 1
            try:
                tick = await worker.tick()
                expiry.touched(tick.touched)
                least_s, most_s = (0.4, 2.0) if world.is_calm else (_REST_LEAST_S, scene.rest_most_s)
                rest_s = least_s if tick.topics else max(least_s, min(rest_s * 2, most_s))
                for failure in tick.failures:
                    world.trace(f"{self._name} quarantines the topic: {failure.error}")
                    if not isinstance(failure.error, RetryableError | UnknownStream | ObjectMissing):
                        history.auditor.fail(f"I4: {self._name} reports {failure.error}")
                if history.policy.mirrors:
                    await self._mirror(mirrors, {done.topic_id for done in tick.commits})
                if world.is_calm or world.chance(scene.collects):
                    await collector.collect()
                if world.is_calm or world.chance(scene.collects):
                    await orphans.collect()
                await expiry.expire()
                self.finished = self.begun
            except (RetryableError, UnknownStream) as error:
                world.trace(f"{self._name} stops short: {error}")
            await asyncio.sleep(world.random.uniform(0.5, 1.0) * rest_s)

    async def _mirror(self, mirrors: Mirrors, moved: set[UUID]) -> None:
        for _, failure in (await mirrors.mirror(moved)).failures:
            self._history.world.trace(f"{self._name} leaves the mirror: {failure}")
            if not isinstance(failure, RetryableError | UnknownStream):
                self._history.auditor.fail(f"I5: {self._name} cannot mirror: {failure}")
