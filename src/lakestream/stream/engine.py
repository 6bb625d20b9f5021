"""The streams of one broker, by their ids and for whoever may: nobody is asked here who they are. Doors call
`stream.streams`, which asks."""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final
from uuid import UUID

from lakestream.catalog.binding import ALIAS, check_alias
from lakestream.catalog.port import TableViews
from lakestream.errors import InvalidSetting, LakestreamError, StorageError, Unavailable, UnknownStream
from lakestream.frontier.copying.keeping import DiskKeeper
from lakestream.frontier.settings import NO_DISKS, DiskSettings
from lakestream.metadata.brokers import Broker, Brokers
from lakestream.metadata.counters import cluster_id, reserve_producer_ids
from lakestream.metadata.feed import Touches
from lakestream.metadata.log.enlistment import Enlistment, InTransaction
from lakestream.metadata.log.head import Extent
from lakestream.metadata.log.partition import advance_log_start, head_address
from lakestream.metadata.names.pointers import Pointers
from lakestream.metadata.names.rows import TableName
from lakestream.metadata.store import ABSENT, Address, Store
from lakestream.metadata.topics.growing import grow
from lakestream.metadata.topics.list import Begun, Topic, Topics
from lakestream.metadata.topics.options import PROFILE, is_disk
from lakestream.metrics import StreamMetrics
from lakestream.model import StreamPartition
from lakestream.objects import ObjectStore
from lakestream.objects.store import Buffer
from lakestream.records import BatchInfo, batch_at
from lakestream.records.layout import APPEND_TIME_BIT
from lakestream.runtime import Runtime
from lakestream.runtime.memory import memory_limit_bytes
from lakestream.stream.appending.append import Appender
from lakestream.stream.appending.flush import Append, Appended
from lakestream.stream.appending.lanes import Lanes
from lakestream.stream.budget import MemoryBudget
from lakestream.stream.fetching.cache import ExtentCache, range_reader
from lakestream.stream.fetching.fetch import Fetched, Fetcher, FetchPartition
from lakestream.stream.fetching.offsets import OffsetAt, OffsetFinder
from lakestream.stream.fetching.tails import Tails
from lakestream.stream.fetching.views import ViewCache
from lakestream.stream.looking import known_producers, partition_sizes
from lakestream.stream.quotas import Quotas
from lakestream.stream.requests import KnownProducer
from lakestream.stream.settings import Pace, StreamSettings, disk_pace, pace_for, tail_cache_bytes
from lakestream.table import HistorySource
from lakestream.table.shape import TableShape
from lakestream.wal import BucketWriter, MajorityWriter, WalStores, WalWriter

log = logging.getLogger(__name__)

LOCAL: Final = "file://"
_WITHDRAW_S: Final = 2.0
"""A store that does not answer must not hold up what was taken in: the broker's lease lapses then."""


class StreamEngine:
    """Owns no data: everything that matters is in the metadata store, the bucket and the tables.

    `failed` is done, with the error, if a part that must never stop has stopped: the process should end."""

    def __init__(
        self,
        broker: Broker,
        store: Store,
        objects: ObjectStore,
        catalog: TableViews,
        history: HistorySource,
        runtime: Runtime,
        settings: StreamSettings,
        metrics: StreamMetrics | None = None,
        *,
        wal: WalStores | None = None,
        disk: DiskSettings = NO_DISKS,
        has_external_catalog: bool = False,
        enlistment: Enlistment | None = None,
    ) -> None:
        """`wal`: the bucket and the disk stores; None: the bucket alone. `enlistment`: None where transactions are not
        served."""
        self.broker = broker
        self.store = store
        self.runtime = runtime
        self.topics = Topics(store, runtime)
        self.brokers = Brokers(store, ttl_ms=settings.broker_ttl_ms)
        # Every byte in work may be there twice: as it was received, and in the object on its way to the store.
        self.budget = MemoryBudget(settings.memory_budget_bytes // 2)
        self.max_batch_bytes = settings.max_batch_bytes
        self.quotas = Quotas(store)
        self.cluster_id = ""
        self.bucket_url = objects.url
        self.has_external_catalog = has_external_catalog
        self.serves_transactions = enlistment is not None
        self.appended_records = self.appended_bytes = 0
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._catalog = catalog
        self._tails = Tails(store)
        cache_bytes = tail_cache_bytes(settings, memory_limit_bytes())
        self.tail_cache = self._cache = ExtentCache(
            wal or WalStores(objects), cache_bytes // 8 * 7, range_reader(objects, cache_bytes // 8)
        )
        self._views = ViewCache(catalog, settings.view_check_ms)
        self._fetcher = Fetcher(store, self._tails, self._cache, self._views, history, self.topics)
        self._offsets = OffsetFinder(self._tails, self._cache, self._views, history, runtime)
        self._touches = Touches(store, broker.session)
        metrics = metrics or StreamMetrics()
        self._disks = None if wal is None else DiskKeeper(broker, store, wal, self.topics, self.brokers, runtime, disk)

        def lane(writer: WalWriter, pace: Pace) -> Appender:
            return Appender(
                store, writer, pace, runtime, settings, self._on_committed, self._on_gone, metrics, enlistment
            )

        bucket = BucketWriter(objects)
        to_disks: WalWriter | None = bucket if objects.url.startswith(LOCAL) else None
        if self._disks is not None and disk.urls:
            to_disks = MajorityWriter(self._disks.configured)
        self._lanes = Lanes(
            lane(bucket, pace_for(objects.url, settings)),
            None if to_disks is None else lane(to_disks, disk_pace(disk)),
        )
        self._producer_ids = iter(range(0))
        self._producer_lock = asyncio.Lock()
        self._background: list[asyncio.Task[None]] = []
        self._beating: asyncio.Task[None] | None = None
        self._deleting: set[UUID] = set()

    @property
    def broker_id(self) -> int:
        return self.broker.broker_id

    async def start(self) -> None:
        self.cluster_id = await cluster_id(self.store, self.runtime)
        # What can fail comes first: whoever starts again after a failure must not find a part at work.
        if self._disks is not None:
            await self._disks.start()
        await self.brokers.register(self.broker)
        await self._touches.begin()
        await self._lanes.start(self._fail, self.cluster_id)
        if self._disks is not None:
            self._spawn(self._disks.run())
        self._beating = self._spawn(self._heartbeat())
        self._spawn(self._touches.run())
        self._spawn(self._finish_deletes())

    async def stop(self) -> None:
        """Flushes and acknowledges what was taken in, and leaves the cluster."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self._lanes.stop()
        with suppress(LakestreamError):
            await self._touches.write()
            await self.brokers.leave(self.broker)
            if self._disks is not None:
                await self._disks.stop()

    async def withdraw(self) -> list[Broker]:
        """Clients are sent to other brokers from now on, which are returned; this one serves until it is stopped."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating])
        with suppress(LakestreamError, TimeoutError):
            async with asyncio.timeout(_WITHDRAW_S):
                await self.brokers.withdraw(self.broker)
                return await self.brokers.live()
        return []

    def append(
        self,
        partition: StreamPartition,
        run: Buffer,
        batch: BatchInfo | None = None,
        transaction: InTransaction | None = None,
        *,
        disk: bool = False,
    ) -> "asyncio.Future[Appended]":
        """Takes one partition's record batch in at once; the future ends when it is committed. `disk`: the topic has
        that profile. `transaction`: to which the batch says it belongs.

        The order of calls is the order in the log. `run` must not change afterwards. `batch`: what `take` has said of
        it, by whoever knows the topic's settings and checks off the event loop; None: it is checked here, as if the
        topic had none."""
        appended = self._lanes.append(partition, run, batch, transaction, disk=disk)
        if batch is not None and batch.attributes & APPEND_TIME_BIT:
            return asyncio.ensure_future(self._first_time(partition, appended))
        return appended

    async def _first_time(self, partition: StreamPartition, outcome: "asyncio.Future[Appended]") -> Appended:
        """With the time that the records have: a duplicate's is that of its first attempt, which the log tells."""
        appended = await outcome
        if not appended.is_duplicate:
            return appended
        wanted = FetchPartition(partition, appended.base_offset, 1)
        [fetched] = await self._fetcher.fetch([wanted], min_bytes=0, max_bytes=1, max_wait_ms=0)
        batch = batch_at(fetched.parts[0], appended.base_offset) if fetched.parts else None
        known = batch is not None and batch.attributes & APPEND_TIME_BIT
        return replace(appended, append_time_ms=batch.max_timestamp_ms if batch is not None and known else None)

    async def fetch(
        self, requests: Sequence[FetchPartition], *, min_bytes: int, max_bytes: int, max_wait_ms: int
    ) -> list[Fetched]:
        """In the order of the requests. Errors are per partition."""
        return await self._fetcher.fetch(requests, min_bytes=min_bytes, max_bytes=max_bytes, max_wait_ms=max_wait_ms)

    def seen_heads(self, partitions: Iterable[StreamPartition]) -> dict[Address, int]:
        """The versions of their heads that this broker has seen, for a watch. Of one that it has not seen, none."""
        return {
            head_address(each): self._tails.get(each).version if self._tails.knows(each) else ABSENT
            for each in partitions
        }

    async def list_offset(self, partition: StreamPartition, timestamp_ms: int, *, committed: bool = False) -> OffsetAt:
        """EARLIEST, LATEST, MAX_TIMESTAMP, or the first record at or after a time. Linearizable. `committed`: below the
        last stable offset."""
        return await self._offsets.find(partition, timestamp_ms, committed=committed)

    async def delete_records(self, partition: StreamPartition, offset: int | None) -> int:
        """Everything below the offset (None: all there is) leaves the stream, for good; the log start that holds now.
        The table keeps its rows, and gets those that were still on their way to it."""
        await self._tails.refresh([partition])
        end_offset = self._tails.get(partition).end_offset
        head, _ = await advance_log_start(self.store, partition, end_offset if offset is None else offset, in_tail=True)
        self._touches.touch(partition.topic_id)
        await self._tails.refresh([partition])
        return head.log_start

    async def new_producer(self) -> tuple[int, int]:
        """A producer id that nobody else has, and its first epoch."""
        return await self.new_producer_id(), 0

    async def new_producer_id(self) -> int:
        async with self._producer_lock:
            producer_id = next(self._producer_ids, None)
            if producer_id is None:
                self._producer_ids = iter(await reserve_producer_ids(self.store))
                producer_id = next(self._producer_ids)
            return producer_id

    async def create_topic(self, name: str, partitions: int, configs: dict[str, str]) -> Topic:
        """Raises `StreamExists`, `InvalidStream`, `InvalidSetting`."""
        self.check_profile(configs)
        if configs.get(ALIAS):
            # Whoever asks again is told that the topic is there, not that its own table is in the way.
            await self.topics.check_new(name, partitions, configs)
        table = await check_alias(Pointers(self.store), self.topics, configs)
        begun = None if table is None else await self._claim(table, name, partitions, configs)
        topic = await self.topics.create(name, partitions, configs, begun=begun)
        if table is not None and begun is not None:
            try:
                await self._catalog.adopt(topic.topic_id, name, begun.frontier, table=table)
            except LakestreamError as error:
                log.warning("topic %s has no table yet, the pipeline goes on with it: %s", name, error)
        return topic

    async def grow_topic(self, name: str, partitions: int, *, dry_run: bool = False) -> Topic:
        """Raises `UnknownStream`, `InvalidPartitions`."""
        return await grow(self.store, self.topics, name, partitions, dry_run=dry_run)

    async def partition_sizes(self, topic: Topic, indexes: Sequence[int]) -> dict[int, int]:
        """How many bytes each of these partitions takes, in the tail and in the table."""
        return await partition_sizes(self.store, await self._views.current(topic.topic_id), topic, indexes)

    async def producers(self, partition: StreamPartition) -> list[KnownProducer]:
        """The idempotent producers that the partition remembers."""
        return await known_producers(self.store, partition)

    async def shape_of(self, topic_id: UUID) -> TableShape | None:
        """Of the topic's table; None: there is none yet."""
        try:
            return (await self._catalog.load(topic_id)).shape
        except UnknownStream:
            return None

    def check_profile(self, configs: Mapping[str, str]) -> None:
        """Raises `InvalidSetting` for a profile that this broker does not have."""
        if is_disk(configs) and not self._lanes.has_disk:
            raise InvalidSetting(
                f"{PROFILE}=disk cannot be: the brokers have no disk stores. Name some in their settings, [disk] stores"
            )

    async def _claim(self, table: TableName, name: str, partitions: int, configs: dict[str, str]) -> Begun | None:
        """Where the topic begins in the table of that name, if there is one. Nobody is stopped from writing it before
        it is sure that the topic can be."""
        try:
            found = await self._catalog.adoptable(table, partitions)
            if found is None:
                return None
            await self.topics.check_new(name, partitions, configs, found)
            return await self._catalog.claim(table, name, found)
        except InvalidSetting as error:
            raise InvalidSetting(
                f"{ALIAS}={configs[ALIAS]} cannot be: a table of that name is there, and {error}. Choose another name,"
                " or rename that table"
            ) from error

    async def delete_topic(self, topic_id: UUID) -> None:
        """Returns when nobody can append to or read the topic any more; its table stays, detached."""
        topic = await self.topics.delete(topic_id)
        self._deleting.add(topic_id)
        try:
            await self._finish_delete(topic)
        finally:
            self._deleting.discard(topic_id)

    async def _finish_delete(self, topic: Topic) -> None:
        """Idempotent steps: whoever finds the topic half gone goes on from the start."""
        await self.topics.drop_logs(topic)
        for partition in topic.each_partition():
            self._tails.forget(partition)
        self._views.forget(topic.topic_id)
        await self._catalog.detach(topic.topic_id)
        await self.topics.finish_delete(topic)

    async def _finish_deletes(self) -> None:
        """What a broker that crashed or lost its store left half deleted. Not what is being deleted now, here or, as
        far as the last look tells, elsewhere. Never in the way of heartbeats: there may be thousands."""
        seen: set[UUID] = set()
        while True:
            await asyncio.sleep(self.brokers.ttl_ms / 1000 / 4)
            try:
                gone = [topic for topic in await self.topics.gone() if topic.topic_id not in self._deleting]
            except LakestreamError as error:
                log.warning("deleted topics cannot be cleared away: %s", error)
                continue
            left = [topic for topic in gone if topic.topic_id in seen]
            seen = {topic.topic_id for topic in gone}
            for topic in left:
                try:
                    await self._finish_delete(topic)
                except LakestreamError as error:
                    log.warning("topic %s is deleted but not cleared away yet: %s", topic.name, error)

    async def _heartbeat(self) -> None:
        """Ends, and the broker with it, when another process has its id."""
        while True:
            try:
                await self.brokers.heartbeat(self.broker)
                await self.brokers.live()
                await self.topics.follow()
                await self.quotas.follow()
            except Unavailable as error:
                log.warning("a heartbeat was missed: %s", error)
            except StorageError as error:
                log.error("a heartbeat was missed: %s", error)
            await asyncio.sleep(self.brokers.ttl_ms / 1000 / 4)

    def _on_committed(self, partition: StreamPartition, extents: Sequence[Extent], appends: Sequence[Append]) -> None:
        """Keeps what was written in memory; a partly refused section is left to be read."""
        for extent in extents:
            self.appended_records += extent.end_offset - extent.base_offset
            self.appended_bytes += extent.length
        self._touches.touch(partition.topic_id)
        self._tails.committed(partition, extents)
        if len(extents) == 1 and extents[0].length == sum(len(append.run) for append in appends):
            self._cache.keep(partition, extents[0], [append.run for append in appends])

    def _on_gone(self, partition: StreamPartition) -> None:
        """What the cache said of a topic that is gone is forgotten."""
        self.topics.forget(partition.topic_id)

    def _spawn(self, work: Coroutine[object, object, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        task.add_done_callback(self._fail)
        self._background.append(task)
        return task

    def _fail(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.failed.done():
            log.critical("a part of the broker stopped", exc_info=error)
            self.failed.set_exception(error)
