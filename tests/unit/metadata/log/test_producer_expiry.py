"""Rows of producers that went away: deleted under the head's compare-and-set, and never mistaken for duplicates."""

import random
from typing import Any
from uuid import UUID

import msgspec
import pytest
from support.worlds.memory import MemoryWorld

from lakestream.frontier.collecting.producers import Expiry
from lakestream.frontier.lake import Lake
from lakestream.frontier.settings import PipelineSettings
from lakestream.metadata import codec
from lakestream.metadata.log import committer
from lakestream.metadata.log.commit import AWAITED, DUPLICATE, UNKNOWN_PRODUCER, Batch, Offer
from lakestream.metadata.log.committer import Committed, Committer, Verdict
from lakestream.metadata.log.head import HEAD, PRODUCERS, Accepted, ProducerRun, ProducerState, producer_key, shard_of
from lakestream.metadata.log.partition import create_head, head_address, read_head
from lakestream.metadata.log.producers import expire_producers
from lakestream.metadata.store import Address, Entry, Store, Transaction
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.metadata.topics.list import Topics
from lakestream.model import StreamPartition
from lakestream.runtime import Runtime

PARTITION = StreamPartition(UUID(int=1), 0)
DAY_MS = 86_400_000
START_MS = 1_700_000_000_000


class Hands:
    def __init__(self) -> None:
        self.now = START_MS

    def now_ms(self) -> int:
        return self.now


def make_store() -> MemoryStore:
    return MemoryStore(Runtime(Hands(), random.Random(1)))


class Broker:
    """Commits one batch after the other."""

    def __init__(self, store: Store, session: str = "s", wait_ms: int = 0) -> None:
        self.committer = Committer(store, predecessor_wait_ms=wait_ms)
        self._session = session
        self._flush = 0

    async def append(
        self,
        producer: int,
        sequence: int,
        *,
        epoch: int = 0,
        at_ms: int = START_MS,
        partition: StreamPartition = PARTITION,
    ) -> Accepted:
        self._flush += 1
        batch = Batch(0, 100, 1, 5, producer, epoch, sequence)
        key = f"{self._session}-{self._flush}"
        offer = Offer(partition, self._session, self._flush, 1, ("m",), key, 0, [batch], lambda start, end: 0, at_ms)
        verdicts: dict[StreamPartition, Verdict] = {}
        await self.committer.commit([offer], verdicts)
        verdict = verdicts[partition]
        assert isinstance(verdict, Committed)
        [result] = verdict.results
        return result


no_tiles: Any = None


async def rows(store: Store, partition: StreamPartition = PARTITION) -> int:
    return len(await store.range(shard_of(partition), *PRODUCERS))


async def expired_id(store: Store) -> int:
    known = await read_head(store, PARTITION)
    assert known is not None
    return known.head.expired_producers


async def expire(store: Store, now_ms: int) -> int:
    return (await expire_producers(store, PARTITION, now_ms=now_ms, expiration_ms=DAY_MS)).gone


async def test_only_rows_of_producers_that_were_silent_for_long_go() -> None:
    store = make_store()
    await create_head(store, PARTITION)
    broker = Broker(store)
    for producer in range(2_500):
        await broker.append(producer, 0, at_ms=START_MS + producer)
    assert await expire(store, START_MS + DAY_MS - 1) == 0
    assert (await expire(store, START_MS + DAY_MS + 2_399), await rows(store)) == (2_400, 100)
    assert await expired_id(store) == 2_399
    await broker.append(2_450, 1, at_ms=START_MS + DAY_MS)
    assert await expire(store, START_MS + DAY_MS + 2_600) == 99
    assert await rows(store) == 1
    assert await expire(store, START_MS + 3 * DAY_MS) == 1
    assert (await rows(store), await expired_id(store)) == (0, 2_499)


async def test_what_expired_is_told_from_what_never_was() -> None:
    store = make_store()
    await create_head(store, PARTITION)
    one, two = Broker(store, "one"), Broker(store, "two")
    for sequence in range(3):
        assert (await one.append(7, sequence)).refusal == ""
    assert await two.append(7, 2) == Accepted(2, DUPLICATE)
    await expire(store, START_MS + DAY_MS)
    # Neither the broker that knew the row nor the other takes a retry for a duplicate, or lets it begin.
    for broker in (one, two):
        assert await broker.append(7, 2, at_ms=START_MS + DAY_MS) == Accepted(-1, UNKNOWN_PRODUCER)
    assert await two.append(8, 3, at_ms=START_MS + DAY_MS) == Accepted(-1, AWAITED)
    assert await one.append(7, 0, at_ms=START_MS + DAY_MS) == Accepted(-1, UNKNOWN_PRODUCER)
    assert await one.append(7, 0, epoch=1, at_ms=START_MS + DAY_MS) == Accepted(3)
    assert await one.append(6, 0, at_ms=START_MS + DAY_MS) == Accepted(4)


async def test_rows_without_a_time_or_from_the_future_get_one() -> None:
    store = make_store()
    await create_head(store, PARTITION)
    shard = shard_of(PARTITION)
    run = ProducerRun(0, 0, 0, 0)
    puts = {}
    for producer, last_ms in ((1, -1), (2, START_MS + 5 * DAY_MS)):
        key = producer_key(producer)
        puts[key] = codec.encode(ProducerState(0, (run,), 0, last_ms), Address(shard, key))
    await store.transact([Transaction(shard, {}, puts)])
    assert await expire(store, START_MS) == 0
    assert await expire(store, START_MS + DAY_MS) == 2


async def test_nothing_expires_while_a_transaction_is_open() -> None:
    store = make_store()
    await create_head(store, PARTITION)
    await Broker(store).append(1, 0)
    known = await read_head(store, PARTITION)
    assert known is not None
    head = msgspec.structs.replace(known.head, first_open=0)
    at = head_address(PARTITION)
    await store.transact([Transaction(at.shard, {}, {HEAD: codec.encode(head, at)})])
    assert await expire(store, START_MS + 2 * DAY_MS) == 0


async def test_the_pipeline_forgets_the_producers_of_every_partition_after_a_day() -> None:
    world = MemoryWorld(settings=PipelineSettings())
    topics = Topics(world.store, world.runtime)
    topic = await topics.create("orders", 3, {})
    broker = Broker(world.store)
    for partition in topic.each_partition():
        for producer in range(50):
            await broker.append(producer, 0, at_ms=world.clock.now_ms(), partition=partition)
    lake = Lake(world.store, world.catalog_on(world.store), world.objects, no_tiles, world.runtime, world.settings)
    expiry = Expiry(lake, topics)
    assert [await expiry.expire() for _ in range(3)] == [0, 0, 0]
    world.clock.ms += DAY_MS
    assert await expiry.expire() == 150
    left = [await rows(world.store, partition) for partition in topic.each_partition()]
    assert left == [0, 0, 0]


async def test_topics_without_producers_are_not_looked_at_until_they_are_touched() -> None:
    world = MemoryWorld(settings=PipelineSettings())
    topics, looked_at = Topics(world.store, world.runtime), 0

    class Counting(MemoryStore):
        async def range(self, shard: str, start: str, end: str, *, limit: int | None = None) -> list[Entry]:
            nonlocal looked_at
            looked_at += shard.startswith("log/")
            return await world.store.range(shard, start, end, limit=limit)

    store = Counting(world.runtime)
    store._shards = world.store._shards  # type: ignore[attr-defined]
    created = [await topics.create(f"t{number}", 1, {}) for number in range(20)]
    broker = Broker(world.store)
    [used] = created[3].each_partition()
    await broker.append(1, 0, at_ms=world.clock.now_ms(), partition=used)
    lake = Lake(store, world.catalog_on(world.store), world.objects, no_tiles, world.runtime, world.settings)
    expiry = Expiry(lake, topics)

    async def round() -> int:
        nonlocal looked_at
        looked_at = 0
        world.clock.ms += 600_000
        await expiry.expire()
        return looked_at

    assert [await round() for _ in range(3)] == [20, 1, 1]
    [late] = created[5].each_partition()
    await broker.append(1, 0, at_ms=world.clock.now_ms(), partition=late)
    expiry.touched(frozenset({late.topic_id}))
    assert [await round() for _ in range(2)] == [2, 2]
    world.clock.ms += DAY_MS
    expiry.touched(frozenset())
    assert [await round() for _ in range(2)] == [20, 0], "a touch may be lost: once a day all are looked at"
    assert await rows(world.store, used) == await rows(world.store, late) == 0


async def test_a_committer_remembers_a_bounded_number_of_heads_and_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committer, "_PARTITIONS_KEPT", 5)
    monkeypatch.setattr(committer, "_PRODUCERS_KEPT", 8)
    store = make_store()
    partitions = [StreamPartition(UUID(int=1), index) for index in range(20)]
    for partition in partitions:
        await create_head(store, partition)
    broker = Broker(store)
    for sequence in range(3):
        for partition in partitions:
            for producer in range(4):
                result = await broker.append(producer, sequence, partition=partition)
                assert result == Accepted(4 * sequence + producer)
                known = broker.committer._known
                assert len(known) <= 5
                assert sum(len(each.producers) for each in known.values()) == broker.committer._producers <= 8


async def test_a_committer_refuses_to_be_entered_twice() -> None:
    store = make_store()
    await create_head(store, PARTITION)
    broker = Broker(store)
    inner = store.transact
    refused: list[RuntimeError] = []

    async def entered(transactions: list[Transaction]) -> object:
        try:
            await broker.append(2, 0)
        except RuntimeError as error:
            refused.append(error)
        return await inner(transactions)

    store.transact = entered  # type: ignore[assignment,method-assign]
    assert await broker.append(1, 0) == Accepted(0)
    assert "one commit loop" in str(refused[0])
