"""Bugs that the simulator found, held by tests of their own."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any
from uuid import UUID

import pytest
from simulator.loop import SimulatedLoop
from support.tables.simulated import SimulatedTables
from support.worlds.brokers import BrokerWorld, seeded

from lakestream.coordination.groups import GroupError
from lakestream.coordination.groups.coordinator import GroupCoordinator
from lakestream.coordination.groups.leases import Held
from lakestream.coordination.groups.model import Join, Protocol
from lakestream.coordination.settings import GroupSettings
from lakestream.errors import NotCoordinator, Unavailable
from lakestream.metadata.groups import CommittedOffset, GroupRows, GroupState, committed_offsets, lease_address
from lakestream.metadata.log.partition import create_head, read_head
from lakestream.metadata.names.pointers import Pointers, TableName
from lakestream.metadata.store import Outcome, Transaction
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.metadata.topics.list import Topics
from lakestream.metadata.topics.tables import DEFAULT_NAMESPACE, table_name
from lakestream.model import StreamPartition


class Delaying(MemoryStore):
    """Keeps the next `delayed` calls back instead of applying them; `arrive` applies them."""

    delayed = 0

    def __init__(self) -> None:
        super().__init__(seeded())
        self._kept: list[Sequence[Transaction]] = []

    async def transact(self, transactions: Sequence[Transaction]) -> list[Outcome]:
        if self.delayed:
            self.delayed -= 1
            self._kept.append(transactions)
            raise Unavailable("no reply in time")
        return await super().transact(transactions)

    async def arrive(self) -> None:
        for transactions in self._kept:
            await super().transact(transactions)


async def _held_group() -> tuple[Delaying, GroupRows]:
    store = Delaying()
    lease = await store.acquire_lease(lease_address("g"), "holder", ttl_ms=60_000)
    rows = GroupRows(store, "g", lease.token)
    await rows.load()
    return store, rows


async def _loaded(store: Delaying) -> GroupState:
    """As the holder finds it when it looks again."""
    lease = await store.acquire_lease(lease_address("g"), "holder", ttl_ms=60_000)
    return (await GroupRows(store, "g", lease.token).load()).state


async def test_a_late_save_of_a_generation_does_not_undo_a_newer_one() -> None:
    store, rows = await _held_group()
    store.delayed = 1
    with pytest.raises(Unavailable):
        await rows.save(GroupState(1, "consumer"))
    await rows.save(GroupState(1, "consumer"))
    await rows.save(GroupState(2, "consumer"))
    await store.arrive()
    assert (await _loaded(store)).generation == 2


async def test_a_save_that_landed_without_a_reply_does_not_block_the_next() -> None:
    store, rows = await _held_group()
    store.delayed = 1
    with pytest.raises(Unavailable):
        await rows.save(GroupState(1, "consumer"))
    await store.arrive()
    await rows.save(GroupState(2, "consumer"))
    assert (await _loaded(store)).generation == 2


def _at(offset: int) -> dict[StreamPartition, CommittedOffset]:
    return {StreamPartition(UUID(int=1), 0): CommittedOffset(offset, 0, "", 0)}


async def _stored(store: MemoryStore) -> int:
    [found] = (await committed_offsets(store, "g")).values()
    return found.offset


async def test_a_late_commit_of_offsets_does_not_undo_a_newer_one() -> None:
    store, rows = await _held_group()
    store.delayed = 1
    with pytest.raises(Unavailable):
        await rows.commit(_at(3))
    await rows.commit(_at(5))
    await store.arrive()
    assert await _stored(store) == 5


async def test_a_commit_that_landed_without_a_reply_does_not_block_the_next() -> None:
    store, rows = await _held_group()
    store.delayed = 1
    with pytest.raises(Unavailable):
        await rows.commit(_at(3))
    await store.arrive()
    assert await _stored(store) == 3
    await rows.commit(_at(5))
    assert await _stored(store) == 5


async def test_a_broker_that_takes_its_group_anew_fences_what_it_had_under_way() -> None:
    """Its lease may still be the same: it had only stopped to believe in it."""
    store = Delaying()
    lease = await store.acquire_lease(lease_address("g"), "holder", ttl_ms=60_000)
    before, after = (GroupRows(store, "g", lease.token) for _ in range(2))
    await before.load()
    store.delayed = 1
    with pytest.raises(Unavailable):
        await before.commit(_at(3))
    await after.load()
    await after.save(GroupState(1, "consumer"))
    await after.commit(_at(5))
    for write in (before.commit(_at(4)), before.save(GroupState(1, "consumer"))):
        with pytest.raises(NotCoordinator):
            await write
    await store.arrive()
    assert await _stored(store) == 5


async def test_a_table_cut_off_between_pointer_and_name_is_finished() -> None:
    store = Delaying()
    tables = SimulatedTables(store)
    topic_id = seeded().new_id()
    real = store.transact
    calls = 0

    async def cut_off(transactions: Sequence[Transaction]) -> list[Outcome]:
        nonlocal calls
        calls += 1
        if any(transaction.shard == "tables" for transaction in transactions):
            raise Unavailable("lost")
        return await real(transactions)

    store.transact = cut_off  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        await tables.create(topic_id, "orders", 2)
    store.transact = real  # type: ignore[method-assign]
    assert calls > 1
    assert await tables.pointer(topic_id) is not None
    assert (await tables.create(topic_id, "orders", 2)).table == "default.orders"
    assert (await tables.load(topic_id)).frontier == (0, 0)


async def test_a_name_given_to_a_table_after_its_topic_was_deleted_is_freed() -> None:
    store = Delaying()
    tables, pointers = SimulatedTables(store), Pointers(store)
    old, new = (seeded(number).new_id() for number in range(2))
    bind = pointers.bind(old, TableName(DEFAULT_NAMESPACE, "orders"), make_namespace=True)
    real = store.transact

    async def cut_off(transactions: Sequence[Transaction]) -> list[Outcome]:
        if any(transaction.shard == "tables" for transaction in transactions):
            raise Unavailable("lost")
        return await real(transactions)

    store.transact = cut_off  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        await tables.create(old, "orders", 2)
    store.transact = real  # type: ignore[method-assign]
    await tables.detach(old)
    await bind
    assert await tables.owner(table_name("orders")) == old
    await tables.detach(old)
    assert (await tables.create(new, "orders", 2)).table == "default.orders"


class Copying(MemoryStore):
    """Remembers every transaction, so that it can arrive once more."""

    def __init__(self) -> None:
        super().__init__(seeded())
        self.sent: list[Transaction] = []

    async def transact(self, transactions: Sequence[Transaction]) -> list[Outcome]:
        self.sent.extend(transactions)
        return await super().transact(transactions)


async def test_no_step_of_a_create_that_arrives_again_brings_a_deleted_topic_back() -> None:
    store = Copying()
    topics = Topics(store, seeded())
    topic = await topics.create("orders", 1, {})
    steps = list(store.sent)
    [partition] = topic.each_partition()
    assert await read_head(store, partition) is not None
    await topics.delete(topic.topic_id)
    await topics.drop_logs(topic)
    await topics.finish_delete(topic)
    for step in (*steps, *steps):
        await store.transact([step])
    assert await topics.list() == []
    assert await read_head(store, partition) is None
    assert (await topics.create("orders", 1, {})).topic_id != topic.topic_id


async def test_a_head_whose_making_was_cut_off_is_finished() -> None:
    store = Delaying()
    partition = StreamPartition(UUID(int=1), 0)
    real = store.transact
    calls = 0

    async def cut_off(transactions: Sequence[Transaction]) -> list[Outcome]:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise Unavailable("lost")
        return await real(transactions)

    store.transact = cut_off  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        await create_head(store, partition)
    assert await read_head(store, partition) is None
    for _ in range(2):
        await create_head(store, partition)
        assert await read_head(store, partition) is not None


def test_a_half_deleted_topic_is_cleared_away_by_a_broker_that_lives() -> None:
    """Not only by one that starts."""

    async def main() -> None:
        cluster = BrokerWorld()
        async with cluster.brokers(1) as [streams]:
            topic = await streams.create_topic("orders", 2, {})
            await cluster.tables.create(topic.topic_id, "orders", 2)
            # Whoever deletes it crashes after the first step.
            await Topics(cluster.store, cluster.runtime).delete(topic.topic_id)
            assert await streams.topics.gone() == [topic]
            await asyncio.sleep(60)
            assert await streams.topics.gone() == []
            assert [await read_head(cluster.store, partition) for partition in topic.each_partition()] == [None, None]
            assert await cluster.tables.owner(table_name("orders")) is None

    _in_made_up_time(main())


def test_a_timer_that_fires_a_rounding_error_early_is_not_set_for_the_same_moment_without_end() -> None:
    """Deadlines are milliseconds, the loop's time is seconds: some deadlines lie a hair behind the moment they are
    set for."""

    async def main() -> None:
        async with BrokerWorld().brokers(1) as [streams]:
            coordinator = GroupCoordinator(
                streams, GroupSettings(min_session_timeout_ms=1, initial_rebalance_delay_ms=0)
            )
            await coordinator.start()
            expired = coordinator._settler._expire
            fired = 0

            async def counted(held: Held) -> None:
                nonlocal fired
                fired += 1
                if fired <= 1_000:
                    await expired(held)

            coordinator._settler._expire = counted  # type: ignore[method-assign]
            for number in range(100):
                session_ms = 7 + number
                join = Join("", None, "c", "h", session_ms, 50, "consumer", [Protocol("range", b"")], False, False)
                assert (await coordinator.join(f"g{number}", join)).error is GroupError.NONE
                await asyncio.sleep(0.0137 * number)
            await asyncio.sleep(10)
            await coordinator.stop()
            assert 100 <= fired < 1_000

    _in_made_up_time(main())


def _in_made_up_time(work: Coroutine[Any, Any, None]) -> None:
    loop = SimulatedLoop()
    try:
        loop.run_until_complete(work)
    finally:
        loop.close()
