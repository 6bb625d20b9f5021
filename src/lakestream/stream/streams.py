"""The streams of one broker, for callers: what every front door calls, with the caller's principal.

Nothing else of a broker's topics and logs is to be had from a door: who may do what is asked here, and the rules of
topics hold here, whichever door a request came by. Topics are named as the caller named them; each is answered on
its own.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from lakestream.access import Authorizer, Operation, Principal, ResourceKind, check, denied
from lakestream.errors import (
    LakestreamError,
    NotAuthorized,
    OffsetOutOfRange,
    RecordsKept,
    RegistryUnavailable,
    RequestError,
    UnknownSchema,
    UnknownStream,
    UnsupportedCodec,
)
from lakestream.metadata.brokers import Broker
from lakestream.metadata.log.enlistment import InTransaction
from lakestream.metadata.topics.list import Topic
from lakestream.metadata.topics.options import batch_rules, is_disk
from lakestream.model import StreamPartition
from lakestream.records.compression import ZSTD
from lakestream.records.layout import TRANSACTIONAL_BIT
from lakestream.schemas.registry.source import RegistrySource
from lakestream.stream.appending.checking import Checked, ReceivedBatch, check_all, check_small
from lakestream.stream.appending.flush import Appended
from lakestream.stream.appending.schemas import TopicSchemas
from lakestream.stream.budget import MemoryBudget
from lakestream.stream.cluster import StreamCluster
from lakestream.stream.engine import StreamEngine
from lakestream.stream.fetching.fetch import Fetched, FetchPartition
from lakestream.stream.fetching.offsets import OffsetAt
from lakestream.stream.requests import FetchRequest, OffsetQuery, ProducedBatch, RecordsDelete, TopicKey
from lakestream.stream.rights import FoundTopics, TopicRights
from lakestream.stream.topics import StreamTopics

AppendOutcome = LakestreamError | asyncio.Future[Appended]
"""Refused, or under way."""


class _Ready(NamedTuple):
    topic: Topic
    partition: StreamPartition
    batch: ReceivedBatch
    disk: bool
    transaction: InTransaction | None


class BrokerFacts(NamedTuple):
    """What a broker's settings depend on."""

    broker_id: int
    max_batch_bytes: int


class Streams:
    """`topics` has what is done with topics as such, `cluster` what its owners look at and change."""

    def __init__(self, engine: StreamEngine, authorizer: Authorizer, schemas: TopicSchemas | None = None) -> None:
        """`schemas`: None for those of our own registry, and no decoding of values."""
        self._engine = engine
        self._schemas = schemas or TopicSchemas(RegistrySource(engine.store))
        self._authorizer = authorizer
        self._rights = TopicRights(engine.topics, authorizer)
        self.topics = StreamTopics(engine, self._rights)
        self.cluster = StreamCluster(engine, authorizer, self._rights)

    @property
    def budget(self) -> MemoryBudget:
        """For requests that bring records."""
        return self._engine.budget

    @property
    def serves_transactions(self) -> bool:
        """Whether records of transactions are taken."""
        return self._engine.serves_transactions

    @property
    def cluster_id(self) -> str:
        return self._engine.cluster_id

    async def brokers(self, principal: Principal) -> list[Broker]:
        """Those that live. Told to everybody, as in Kafka: any client has to know where to go."""
        this = self._engine.broker
        return await self._engine.brokers.live() or ([this] if this.is_listed else [])

    def brokers_in_zone(self, principal: Principal, zone: str) -> list[Broker]:
        """Those that a client in the zone had better ask; none if this broker is as good as any."""
        if not zone or zone == self._engine.broker.zone:
            return []
        return [broker for broker in self._engine.brokers.known if broker.zone == zone]

    async def describe_cluster(self, principal: Principal) -> list[Broker]:
        """The same for those who want to know the cluster as such. Raises `NotAuthorized`."""
        check(self._authorizer, principal, Operation.DESCRIBE, ResourceKind.CLUSTER)
        return await self.brokers(principal)

    def describe_broker(self, principal: Principal) -> BrokerFacts:
        """Raises `NotAuthorized`."""
        check(self._authorizer, principal, Operation.DESCRIBE_CONFIGS, ResourceKind.CLUSTER)
        return BrokerFacts(self._engine.broker_id, self._engine.max_batch_bytes)

    async def new_producer(self, principal: Principal) -> tuple[int, int]:
        """A producer id that nobody else has, and its first epoch. For those who may write anything. Raises
        `NotAuthorized`."""
        if not self._authorizer.allows_any(principal, Operation.WRITE, ResourceKind.TOPIC):
            raise denied(principal, Operation.WRITE, ResourceKind.CLUSTER)
        return await self._engine.new_producer()

    async def writable(self, principal: Principal, name: str) -> Topic:
        """A topic that the caller may write, as it was known lately: the log refuses what is gone since. Raises
        `NotAuthorized`, `UnknownStream`."""
        found = (await self._rights.find(principal, Operation.WRITE, [name]))[name]
        if isinstance(found, LakestreamError):
            raise found
        return found

    def append(
        self, principal: Principal, batches: Sequence[ProducedBatch]
    ) -> list[AppendOutcome] | Coroutine[Any, Any, list[AppendOutcome]]:
        """Takes record batches in if they are what their topics take; each future ends when its batch is committed.

        At once if the topics are known and little has to be checked, else a coroutine. The order in which batches are
        taken in is their order in the log: who wants an order between two calls awaits the first."""
        denial = self._denied_transaction(principal, batches)
        if denial is not None:
            return [denial for _ in batches]
        found = self._rights.cached(principal, Operation.WRITE, ((each.topic, each.partition) for each in batches))
        return self._look_up(principal, batches) if found is None else self._append(batches, found)

    def _denied_transaction(self, principal: Principal, batches: Sequence[ProducedBatch]) -> NotAuthorized | None:
        """As in Kafka, nothing is written then."""
        for batch in batches:
            if batch.transaction is not None:
                name, kind = batch.transaction.transactional_id, ResourceKind.TRANSACTIONAL_ID
                if not self._authorizer.allows(principal, Operation.WRITE, kind, name):
                    return denied(principal, Operation.WRITE, kind, name)
        return None

    async def _look_up(self, principal: Principal, batches: Sequence[ProducedBatch]) -> list[AppendOutcome]:
        try:
            asked = [(batch.topic, batch.partition) for batch in batches]
            found = await self._rights.find_partitions(principal, Operation.WRITE, asked)
        except LakestreamError as error:
            return [error for _ in batches]
        taken = self._append(batches, found)
        return await taken if isinstance(taken, Coroutine) else taken

    def _append(
        self, batches: Sequence[ProducedBatch], found: FoundTopics
    ) -> list[AppendOutcome] | Coroutine[Any, Any, list[AppendOutcome]]:
        asked = [self._ready(batch, found[batch.topic]) for batch in batches]
        received = [each.batch for each in asked if isinstance(each, _Ready)]
        now_ms = self._engine.runtime.clock.now_ms()
        checked = check_small(received, now_ms)
        if checked is None:
            return self._check_off_loop(asked, received, now_ms)
        if any(isinstance(each, UnknownSchema) for each in checked):
            return self._look_again(asked, checked, now_ms)
        return self._take(asked, checked)

    def _ready(self, batch: ProducedBatch, topic: Topic | LakestreamError) -> _Ready | LakestreamError:
        partition = _partition(topic, batch.partition)
        if isinstance(partition, LakestreamError):
            return partition
        assert isinstance(topic, Topic)
        try:
            rules = batch_rules(topic.configs, self._engine.max_batch_bytes)
        except RequestError as error:
            return error
        if batch.transaction is not None and self.serves_transactions:
            rules = replace(rules, transactional=True)
        received = self._schemas.received(topic, batch.run, rules)
        return _Ready(topic, partition, received, is_disk(topic.configs), batch.transaction)

    async def _check_off_loop(
        self, asked: Sequence[_Ready | LakestreamError], received: Sequence[ReceivedBatch], now_ms: int
    ) -> list[AppendOutcome]:
        checked = await self._engine.runtime.off_loop(partial(check_all, received, now_ms))
        return await self._look_again(asked, checked, now_ms)

    async def _look_again(
        self, asked: Sequence[_Ready | LakestreamError], checked: Sequence[Checked], now_ms: int
    ) -> list[AppendOutcome]:
        """Batches that name schemas which this broker does not know are checked once more with what is known now."""
        ready = [each for each in asked if isinstance(each, _Ready)]
        verdicts = await asyncio.gather(*(self._looked(*each) for each in zip(ready, checked, strict=True)))
        received = [each for each in verdicts if isinstance(each, ReceivedBatch)]
        again = iter(await self._engine.runtime.off_loop(partial(check_all, received, now_ms)) if received else ())
        return self._take(asked, [next(again) if isinstance(each, ReceivedBatch) else each for each in verdicts])

    async def _looked(self, each: _Ready, verdict: Checked) -> Checked | ReceivedBatch:
        """The batch where it has to be checked again, else what is to be said of it."""
        if not isinstance(verdict, UnknownSchema):
            return verdict
        try:
            if not await self._schemas.look_again(each.topic, verdict):
                return verdict
        except RegistryUnavailable as error:
            return error
        return self._schemas.received(each.topic, each.batch.run, replace(each.batch.rules, value_ids=None))

    def _take(self, asked: Sequence[_Ready | LakestreamError], checked: Sequence[Checked]) -> list[AppendOutcome]:
        verdicts = iter(checked)
        outcomes: list[AppendOutcome] = []
        for each in asked:
            verdict = each if isinstance(each, LakestreamError) else next(verdicts)
            if isinstance(verdict, LakestreamError):
                outcomes.append(verdict)
            else:
                assert isinstance(each, _Ready)
                transaction = each.transaction if verdict.batch.attributes & TRANSACTIONAL_BIT else None
                appended = self._engine.append(each.partition, verdict.run, verdict.batch, transaction, disk=each.disk)
                outcomes.append(appended)
        return outcomes

    async def fetch(
        self,
        principal: Principal,
        requests: Sequence[FetchRequest],
        *,
        min_bytes: int,
        max_bytes: int,
        max_wait_ms: int,
    ) -> list[Fetched | LakestreamError]:
        """In the order of the requests. What is refused does not let the others wait."""
        partitions = [(request.topic, request.partition) for request in requests]
        found = await self._rights.find_partitions(principal, Operation.READ, partitions)
        asked = [_fetched_partition(request, found[request.topic]) for request in requests]
        wanted = [each for each in asked if isinstance(each, FetchPartition)]
        wait_ms = max_wait_ms if len(wanted) == len(asked) else 0
        fetched = iter(
            await self._engine.fetch(wanted, min_bytes=min_bytes, max_bytes=max_bytes, max_wait_ms=wait_ms)
            if wanted
            else ()
        )
        return [self._outcome(next(fetched)) if isinstance(each, FetchPartition) else each for each in asked]

    def _outcome(self, fetched: Fetched) -> Fetched | LakestreamError:
        if fetched.error is None:
            return fetched
        self._forget_if_gone(fetched.partition, fetched.error)
        return fetched.error

    async def list_offsets(
        self, principal: Principal, queries: Sequence[OffsetQuery]
    ) -> list[OffsetAt | LakestreamError]:
        """In the order of the queries. Linearizable."""
        partitions = [(query.topic, query.partition) for query in queries]
        found = await self._rights.find_partitions(principal, Operation.DESCRIBE, partitions)

        async def find(query: OffsetQuery) -> OffsetAt | LakestreamError:
            partition = _partition(found[query.topic], query.partition)
            if isinstance(partition, LakestreamError):
                return partition
            try:
                return await self._engine.list_offset(partition, query.timestamp_ms, committed=query.committed)
            except LakestreamError as error:
                self._forget_if_gone(partition, error)
                return error

        return await asyncio.gather(*(find(query) for query in queries))

    async def delete_records(
        self, principal: Principal, wanted: Sequence[RecordsDelete]
    ) -> list[int | LakestreamError]:
        """The log starts that hold now, in the order asked for. Records of a topic that is only compacted stay."""
        # Never from the cache: whether records may be deleted is a setting that can change.
        found = await self._rights.find_now(principal, Operation.DELETE, (each.topic for each in wanted))

        async def delete(each: RecordsDelete) -> int | LakestreamError:
            topic = found[each.topic]
            if isinstance(topic, LakestreamError):
                return topic
            if each.offset is not None and each.offset < 0:
                return OffsetOutOfRange(f"there is no offset {each.offset}")
            if not topic.options.deletes:
                return RecordsKept(f"topic {topic.name} is only compacted: its records are not deleted by offset")
            partition = _partition(topic, each.partition)
            if isinstance(partition, LakestreamError):
                return partition
            try:
                return await self._engine.delete_records(partition, each.offset)
            except LakestreamError as error:
                self._forget_if_gone(partition, error)
                return error

        return await asyncio.gather(*(delete(each) for each in wanted))

    async def find(self, principal: Principal, operation: Operation, topics: Iterable[TopicKey]) -> FoundTopics:
        """The topics with which the caller may do that, as they are on the topic list now."""
        return await self._rights.find_now(principal, operation, topics)

    def _forget_if_gone(self, partition: StreamPartition, error: LakestreamError) -> None:
        """What the cache said of a topic that is gone is forgotten."""
        if isinstance(error, UnknownStream):
            self._engine.topics.forget(partition.topic_id)


def _partition(topic: Topic | LakestreamError, index: int) -> StreamPartition | LakestreamError:
    if isinstance(topic, LakestreamError):
        return topic
    if not 0 <= index < topic.partitions:
        return UnknownStream(f"topic {topic.name} has no partition {index}")
    return StreamPartition(topic.topic_id, index)


def _fetched_partition(request: FetchRequest, topic: Topic | LakestreamError) -> FetchPartition | LakestreamError:
    partition = _partition(topic, request.partition)
    if isinstance(partition, LakestreamError):
        return partition
    assert isinstance(topic, Topic)
    compression = topic.options.compression
    if compression is not None and compression.codec == ZSTD and not request.takes_zstd:
        return UnsupportedCodec(f"topic {topic.name} is served in zstd, which this client does not know")
    return FetchPartition(partition, request.offset, request.max_bytes, compression, request.committed)
