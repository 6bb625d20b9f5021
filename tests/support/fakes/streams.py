"""StreamEngine in memory: what the Kafka door calls, with a log that is a list and a flush that is a timer."""

import asyncio
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast
from uuid import UUID

from lakestream.errors import CorruptRecords, OffsetOutOfRange, UnknownStream
from lakestream.metadata.brokers import Broker, Brokers
from lakestream.metadata.log.enlistment import InTransaction
from lakestream.metadata.store import Store
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.metadata.topics.growing import grow
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.model import StreamPartition
from lakestream.objects import Buffer
from lakestream.records import BatchInfo
from lakestream.runtime import Runtime, system
from lakestream.stream import (
    EARLIEST,
    LATEST,
    Appended,
    Fetched,
    FetchPartition,
    KnownProducer,
    MemoryBudget,
    OffsetAt,
    StreamSettings,
)
from lakestream.stream.engine import StreamEngine
from lakestream.stream.looking import known_producers
from lakestream.stream.quotas import Quotas


@dataclass
class Log:
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    end_offset: int = 0
    start_offset: int = 0


class FakeStreams:
    def __init__(
        self,
        *,
        flush_ms: float = 1,
        budget_bytes: int = 1 << 30,
        store: Store | None = None,
        runtime: Runtime | None = None,
        broker_id: int = 1,
        port: int = 9092,
    ) -> None:
        self.runtime = runtime or system()
        self.store = store or MemoryStore(self.runtime)
        self.topics = Topics(self.store, self.runtime)
        self.brokers = Brokers(self.store)
        self.broker = Broker(broker_id, "127.0.0.1", port, None, self.runtime.new_id().hex)
        self.quotas = Quotas(self.store)
        self.cluster_id = "test-cluster"
        self.bucket_url = "memory://"
        self.has_external_catalog = False
        self.serves_transactions = False
        self.max_batch_bytes = StreamSettings().max_batch_bytes
        self.budget = MemoryBudget(budget_bytes)
        self.logs: dict[StreamPartition, Log] = {}
        self.flushes: list[int] = []
        self.fetches_waiting = 0
        self._flush_ms = flush_ms
        self._waiting: list[tuple[StreamPartition, bytes, asyncio.Future[Appended]]] = []
        self._changed = asyncio.Event()
        self._producers = 0

    def as_engine(self) -> StreamEngine:
        return cast(StreamEngine, self)

    @property
    def broker_id(self) -> int:
        return self.broker.broker_id

    @property
    def appended(self) -> int:
        return sum(len(log.batches) for log in self.logs.values())

    def append(
        self,
        partition: StreamPartition,
        run: Buffer,
        batch: BatchInfo | None = None,
        transaction: InTransaction | None = None,
        *,
        disk: bool = False,
    ) -> "asyncio.Future[Appended]":
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Appended] = loop.create_future()
        if len(run) < 61 or struct.unpack_from(">i", run, 8)[0] != len(run) - 12 or run[16] != 2:
            done.set_exception(CorruptRecords("not a batch"))
            return done
        if not self._waiting:
            loop.call_later(self._flush_ms / 1000, self._flush)
        self._waiting.append((partition, bytes(run), done))
        return done

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        self.flushes.append(len(waiting))
        for partition, run, done in waiting:
            log = self.logs.setdefault(partition, Log())
            base, count = log.end_offset, struct.unpack_from(">i", run, 57)[0]
            log.batches.append((base, base + count, struct.pack(">q", base) + run[8:]))
            log.end_offset += count
            if not done.done():
                (newest_ms,) = struct.unpack_from(">q", run, 35)
                done.set_result(Appended(base, 0, newest_ms if run[22] & 8 else None))
        self._changed.set()
        self._changed = asyncio.Event()

    async def fetch(
        self, requests: Sequence[FetchPartition], *, min_bytes: int, max_bytes: int, max_wait_ms: int
    ) -> list[Fetched]:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + max_wait_ms / 1000
        while True:
            changed = self._changed
            fetched = [self._read(request) for request in requests]
            left_s = deadline_s - loop.time()
            if sum(each.size_bytes for each in fetched) >= min_bytes or left_s <= 0 or any(e.error for e in fetched):
                return fetched
            self.fetches_waiting += 1
            try:
                async with asyncio.timeout(left_s):
                    await changed.wait()
            except TimeoutError:
                return fetched
            finally:
                self.fetches_waiting -= 1

    def _read(self, request: FetchPartition) -> Fetched:
        log = self.logs.get(request.partition, Log())
        if not log.start_offset <= request.offset <= log.end_offset:
            return Fetched(request.partition, error=OffsetOutOfRange(str(request.offset)))
        parts: list[Buffer] = []
        for _, end, batch in log.batches:
            if end > request.offset and (not parts or sum(map(len, parts)) + len(batch) <= request.max_bytes):
                parts.append(memoryview(batch))
        return Fetched(request.partition, parts, log.end_offset, log.start_offset, last_stable_offset=log.end_offset)

    async def list_offset(self, partition: StreamPartition, timestamp_ms: int, *, committed: bool = False) -> OffsetAt:
        log = self.logs.get(partition, Log())
        if timestamp_ms == LATEST:
            return OffsetAt(log.end_offset, -1)
        if timestamp_ms == EARLIEST:
            return OffsetAt(log.start_offset, -1)
        for base, _, batch in log.batches:
            if struct.unpack_from(">q", batch, 35)[0] >= timestamp_ms:
                return OffsetAt(base, struct.unpack_from(">q", batch, 27)[0])
        return OffsetAt(-1, -1)

    async def delete_records(self, partition: StreamPartition, offset: int | None) -> int:
        log = self.logs.setdefault(partition, Log())
        if offset is not None and offset > log.end_offset:
            raise OffsetOutOfRange(str(offset))
        log.start_offset = max(log.start_offset, log.end_offset if offset is None else offset)
        return log.start_offset

    async def new_producer(self) -> tuple[int, int]:
        return await self.new_producer_id(), 0

    async def new_producer_id(self) -> int:
        self._producers += 1
        return self._producers

    def check_profile(self, configs: Mapping[str, str]) -> None:
        return

    async def create_topic(self, name: str, partitions: int, configs: dict[str, str]) -> Topic:
        return await self.topics.create(name, partitions, configs)

    async def grow_topic(self, name: str, partitions: int, *, dry_run: bool = False) -> Topic:
        return await grow(self.store, self.topics, name, partitions, dry_run=dry_run)

    async def partition_sizes(self, topic: Topic, indexes: Sequence[int]) -> dict[int, int]:
        logs = {index: self.logs.get(StreamPartition(topic.topic_id, index), Log()) for index in indexes}
        return {index: sum(len(batch) for _, _, batch in log.batches) for index, log in logs.items()}

    async def producers(self, partition: StreamPartition) -> list[KnownProducer]:
        return await known_producers(self.store, partition)

    async def delete_topic(self, topic_id: UUID) -> None:
        topic = await self.topics.delete(topic_id)
        if topic is None:
            raise UnknownStream(str(topic_id))
        for partition in topic.each_partition():
            self.logs.pop(partition, None)
