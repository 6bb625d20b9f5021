"""The pipeline as a process: ticks at their interval, collection now and then, until it is told to stop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar
from uuid import UUID

from lakestream.catalog.derived.port import DerivedTables
from lakestream.catalog.port import TableCatalog
from lakestream.errors import LakestreamError, Unavailable
from lakestream.frontier.collecting.collector import Collector
from lakestream.frontier.collecting.orphans import Orphans
from lakestream.frontier.collecting.producers import Expiry
from lakestream.frontier.delta import DeltaLog, MirroredTables, Mirrors
from lakestream.frontier.derived.deriving import Derived
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.draining import drain
from lakestream.frontier.moving.worker import Tick, Worker
from lakestream.frontier.settings import PipelineSettings
from lakestream.frontier.status import StatusBoard
from lakestream.frontier.upkeep.maintenance import Maintenance
from lakestream.metadata.brokers import Brokers
from lakestream.metadata.feed import Feed
from lakestream.metadata.store import Store
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.objects import ObjectStore
from lakestream.pipeline.deriving import Deriving
from lakestream.pipeline.runner import SparkTiles
from lakestream.pipeline.session import DriverSettings, SparkDriver
from lakestream.runtime import Runtime
from lakestream.schemas.source import NO_SCHEMAS, SchemaSource
from lakestream.wal import WalStores

_log = logging.getLogger(__name__)
T = TypeVar("T")

STOP_GRACE_S: Final = 2.0
"""A tick under way when the stop comes may finish in this time; then it is cut off, which is safe at any point."""


@dataclass(frozen=True, slots=True)
class Components:
    store: Store
    catalog: TableCatalog
    objects: ObjectStore
    runtime: Runtime
    delta: DeltaLog | None = None
    mirrored: MirroredTables | None = None
    """With both, topics that ask for it get a Delta mirror."""
    disks: WalStores | None = None
    """The bucket and the disk stores; None: there are none of these."""
    derived: DerivedTables | None = None
    """Of the catalog; None: it keeps none."""
    schemas: SchemaSource = NO_SCHEMAS


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run did. `failed` names the topics whose last try failed."""

    record_count: int
    wal_bytes: int
    failed: tuple[str, ...]


class _Stopped(Exception):
    """The stop came while something was waited for."""


async def run(
    components: Components,
    settings: PipelineSettings,
    spark: DriverSettings,
    *,
    once: bool = False,
    stop: asyncio.Event | None = None,
    on_tick: Callable[[Tick], None] = lambda tick: None,
    on_ready: Callable[[], None] = lambda: None,
    on_derived: Callable[[Derived], None] = lambda derived: None,
) -> Summary:
    """Runs until `stop`, or with `once` until nothing is due any more.

    Raises what makes work impossible (no Java, no Spark); topics that fail are logged and tried again."""
    service = _Service(components, settings, spark, stop or asyncio.Event(), on_tick, on_ready, on_derived)
    return await service.run(once)


class _Service:
    def __init__(
        self,
        components: Components,
        settings: PipelineSettings,
        spark: DriverSettings,
        stop: asyncio.Event,
        on_tick: Callable[[Tick], None],
        on_ready: Callable[[], None],
        on_derived: Callable[[Derived], None],
    ) -> None:
        self._components = components
        self._settings = settings
        self._spark = spark
        self._stop = stop
        self._on_tick = on_tick
        self._on_ready = on_ready
        self._on_derived = on_derived
        self._name = f"pipeline-{components.runtime.new_id()}"
        self._records = 0
        self._wal_bytes = 0
        self._failed: tuple[str, ...] = ()
        self._tidied: Sequence[Topic] | None = None
        self._board = StatusBoard(components.store, self._name, stale_after_ms=2 * settings.max_backoff_ms)

    async def run(self, once: bool) -> Summary:
        try:
            while not self._stop.is_set():
                driver = SparkDriver(self._spark)
                _log.info("starting Spark on %s", self._spark.master)
                try:
                    await self._unless_stopped(driver.start(), grace_s=0)
                    self._on_ready()
                    done = await self._serve(driver, once)
                finally:
                    await driver.stop()
                if done:
                    break
                if once:
                    raise Unavailable("Spark's driver died before the work was done: run it again")
                _log.warning("Spark's driver died; starting it again")
        except _Stopped:
            pass
        if self._stop.is_set() and not once:
            self._records += await self._drain()
        return Summary(self._records, self._wal_bytes, self._failed)

    async def _serve(self, driver: SparkDriver, once: bool) -> bool:
        """True when the work is done, False when Spark has died under it."""
        parts = self._components
        tiles = SparkTiles(driver)
        lake = Lake(
            *(parts.store, parts.catalog, parts.objects, tiles, parts.runtime, self._settings),
            *(parts.disks, parts.derived, parts.schemas),
        )
        topics = Topics(parts.store, parts.runtime)
        feed = None if once else Feed(parts.store, Brokers(parts.store).sessions)
        worker = Worker(lake, topics, name=self._name, respect_leases=not once, keeps_intervals=not once, feed=feed)
        collector, orphans, expiry = Collector(lake), Orphans(lake, topics), Expiry(lake, topics)
        mirrors = self._mirrors(topics)
        loop = asyncio.get_running_loop()
        collected_at, collects_on = float("-inf"), False
        maintenance = Maintenance(lake, Topics(lake.store, lake.runtime), name=self._name)
        deriving = Deriving(lake, self._name, self._on_derived, respect_leases=not once)
        beside = [] if once else [asyncio.create_task(self._maintain(maintenance)), asyncio.create_task(deriving.run())]
        try:
            while driver.alive:
                started = loop.time()
                tick = await self._unless_stopped(self._tick(worker))
                expiry.touched(tick.touched)
                moved = {done.topic_id for done in tick.commits}
                maintenance.moved(moved)
                deriving.moved(moved)
                if mirrors is not None:
                    await self._unless_stopped(self._mirror(mirrors, moved))
                is_due = loop.time() - collected_at >= self._settings.collect_interval_ms / 1000
                if is_due or collects_on:
                    collects_on = await self._unless_stopped(self._collect(collector))
                if is_due:
                    collected_at = loop.time()
                    await self._unless_stopped(self._tidy(orphans))
                    await self._unless_stopped(self._tidy_board(topics))
                    await self._unless_stopped(self._expire(expiry))
                if once and not tick.more:
                    await self._unless_stopped(deriving.finish())
                    return True
                if not tick.more and not collects_on:
                    pace_ms = tick.pace_ms or self._settings.interval_ms
                    await self._rest(started + pace_ms / 1000 - loop.time())
            return False
        finally:
            for task in beside:
                task.cancel()
            if beside:
                await asyncio.wait(beside)
            await self._release(worker)

    async def _tick(self, worker: Worker) -> Tick:
        try:
            tick = await worker.tick()
        except LakestreamError as error:
            _log.warning("this tick could not look at the topics: %s", error)
            return Tick()
        self._records += tick.record_count
        self._wal_bytes += tick.wal_bytes
        self._failed = worker.failing
        for failure in tick.failures:
            _log.warning("topic %s is quarantined for %d ms: %s", failure.topic, failure.retry_in_ms, failure.error)
        if tick.topics:
            _log.info("%d records of %d topics are in their tables", tick.record_count, tick.topics)
        try:
            await self._board.post(tick, worker.failing_ids, self._components.runtime.clock.now_ms())
        except LakestreamError as error:
            _log.warning("what this tick did could not be told to others: %s", error)
        self._on_tick(tick)
        return tick

    async def _drain(self) -> int:
        """How many records were moved. Spark is not asked: its JVM may have got the signal that we got."""
        parts = self._components
        if not self._settings.drain_ms:
            _log.info("stopped without a last pass over the topics")
            return 0
        topics = Topics(parts.store, parts.runtime)
        done = await drain(
            *(parts.store, parts.catalog, parts.objects, parts.runtime, self._settings, asyncio.to_thread),
            *(parts.disks, parts.schemas),
        )
        mirrors = self._mirrors(topics)
        if mirrors is not None and not done.left:
            await self._mirror(mirrors)
        if done.left:
            _log.warning("some records are in the log only, not in their tables yet: %s", done.summary)
        else:
            _log.info("everything that was acknowledged is in its table")
        return done.record_count

    async def _maintain(self, maintenance: Maintenance) -> None:
        """Beside the ticks, which never wait for it; cut off at any point it leaves nothing half done."""
        while True:
            await asyncio.sleep(self._settings.maintain_interval_ms / 1000)
            try:
                done = await maintenance.run()
            except LakestreamError as error:
                _log.warning("tables could not be maintained this time: %s", error)
                continue
            for topic, failure in done.failures:
                _log.warning("the table of topic %s could not be maintained this time: %s", topic, failure)
            for step in done.steps:
                _log.info("topic %s: %s, %s (%d files)", step.topic, step.action, step.about, step.files)

    def _mirrors(self, topics: Topics) -> Mirrors | None:
        parts = self._components
        if parts.delta is None or parts.mirrored is None:
            return None
        return Mirrors(parts.catalog, parts.mirrored, parts.delta, topics, parts.runtime, self._settings)

    async def _mirror(self, mirrors: Mirrors, moved: Collection[UUID] = ()) -> None:
        try:
            mirrored = await mirrors.mirror(moved)
        except LakestreamError as error:
            _log.warning("Delta mirrors could not be looked at this time: %s", error)
            return
        for topic, failure in mirrored.failures:
            _log.warning("the Delta mirror of topic %s stays as it was: %s", topic, failure)

    async def _collect(self, collector: Collector) -> bool:
        """Whether more is to be collected at once."""
        try:
            collected = await collector.collect()
        except LakestreamError as error:
            _log.warning("dead WAL objects could not be collected this time: %s", error)
            return False
        for damaged in collected.corrupt:
            _log.error("a WAL object is damaged and will not be collected: %s", damaged)
        if collected.deleted or collected.undeleted:
            _log.info("%d dead WAL objects deleted, %d left", collected.deleted, collected.undeleted)
        return collected.more

    async def _expire(self, expiry: Expiry) -> None:
        try:
            expired = await expiry.expire()
        except LakestreamError as error:
            _log.warning("producers could not be forgotten this time: %s", error)
            return
        if expired:
            _log.info("%d rows of producers expired", expired)

    async def _tidy(self, orphans: Orphans) -> None:
        try:
            tidied = await orphans.collect()
        except LakestreamError as error:
            _log.warning("orphaned table files could not be collected this time: %s", error)
            return
        for topic, failure in tidied.failures:
            _log.warning("orphaned files of topic %s's table could not be collected this time: %s", topic, failure)
        if tidied.deleted or tidied.undeleted:
            _log.info("%d orphaned table files deleted, %d left", tidied.deleted, tidied.undeleted)

    async def _tidy_board(self, topics: Topics) -> None:
        """Nothing is to be taken down while the list of topics is the same."""
        try:
            listed = await topics.list()
            if listed is not self._tidied:
                await self._board.tidy({topic.topic_id for topic in listed})
                self._tidied = listed
        except LakestreamError as error:
            _log.warning("status rows of deleted topics could not be taken down this time: %s", error)

    async def _release(self, worker: Worker) -> None:
        try:
            await asyncio.wait_for(worker.release(), STOP_GRACE_S)
        except (LakestreamError, TimeoutError) as error:
            _log.info("leases are left to expire: %s", error)

    async def _rest(self, seconds: float) -> None:
        if seconds > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), seconds)
        if self._stop.is_set():
            raise _Stopped

    async def _unless_stopped(self, work: Awaitable[T], *, grace_s: float = STOP_GRACE_S) -> T:
        """The result of work; `_Stopped` if the stop came first and work did not end within its grace."""
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
            if not task.done() and grace_s:
                await asyncio.wait((task,), timeout=grace_s)
            if not task.done() or self._stop.is_set():
                raise _Stopped
            return task.result()
        finally:
            stop.cancel()
            task.cancel()
            await asyncio.wait((task,))
