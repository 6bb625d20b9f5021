"""Offsets that are committed in transactions: pending until the end, then the group's or gone."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
from support.groups.coordinators import PARTITION, member, offset
from support.transactions import TransactionWorld, begun

from lakestream.access import ALLOW_ALL, ANONYMOUS
from lakestream.coordination.groups import GroupCoordinator, GroupError
from lakestream.coordination.settings import TransactionSettings
from lakestream.coordination.transactions import Producer, TransactionCoordinator, Transactions
from lakestream.errors import InvalidTransactionState, LakestreamError, ProducerFenced
from lakestream.metadata.groups import CommittedOffset, committed_offsets, end_in_group
from lakestream.metadata.store import Outcome, Transaction
from lakestream.model import StreamPartition

Offsets = Mapping[StreamPartition, CommittedOffset]


class World(TransactionWorld):
    def __init__(self) -> None:
        super().__init__()
        self.transactions: TransactionCoordinator = self.coordinator()
        self.door = Transactions(self.streams.as_engine(), self.transactions, ALLOW_ALL, TransactionSettings())

    async def commit(
        self,
        group: GroupCoordinator,
        producer: Producer,
        offsets: Offsets,
        *,
        name: str = "t",
        implicit: bool = True,
        who: tuple[str, str | None, int] = ("", None, -1),
    ) -> GroupError:
        find = self.door.offsets(ANONYMOUS, name, producer, "g", offsets, implicit=implicit)
        return await group.transactional.commit("g", *who, find)

    async def known(self) -> list[int]:
        return [each.offset for each in (await committed_offsets(self.store, "g")).values()]


@pytest.fixture
async def world() -> World:
    return World()


@pytest.fixture
async def group(world: World) -> AsyncIterator[GroupCoordinator]:
    async with world.broker(3) as coordinator:
        yield coordinator


@pytest.mark.parametrize("committed", [True, False])
async def test_pending_offsets_wait_for_the_end(world: World, group: GroupCoordinator, committed: bool) -> None:
    producer = await begun(world.transactions)
    assert await group.commit("g", "", None, -1, offset(3)) is GroupError.NONE
    assert await world.commit(group, producer, offset(8)) is GroupError.NONE
    assert await group.pending("g") == {PARTITION}
    assert await world.known() == [3]
    await world.transactions.end("t", producer, committed=committed, bumps=True)
    assert await group.pending("g") == frozenset()
    assert await world.known() == [8 if committed else 3]
    # The coordinator, which knew nothing of it, goes on.
    assert await group.commit("g", "", None, -1, offset(9)) is GroupError.NONE
    assert await world.known() == [9]


async def test_who_commits_last_counts_not_who_ends_last(world: World, group: GroupCoordinator) -> None:
    one, two = await begun(world.transactions, "one"), await begun(world.transactions, "two")
    assert await world.commit(group, one, offset(10), name="one") is GroupError.NONE
    assert await world.commit(group, two, offset(20), name="two") is GroupError.NONE
    await world.transactions.end("two", two, committed=True, bumps=True)
    await world.transactions.end("one", one, committed=True, bumps=True)
    assert await world.known() == [20]
    one, two = await begun(world.transactions, "one"), await begun(world.transactions, "two")
    assert await world.commit(group, one, offset(30), name="one") is GroupError.NONE
    assert await world.commit(group, two, offset(40), name="two") is GroupError.NONE
    await world.transactions.end("one", one, committed=True, bumps=True)
    await world.transactions.end("two", two, committed=True, bumps=True)
    assert await world.known() == [40]
    # A plain commit after a pending one is later, whenever the transaction ends.
    one = await begun(world.transactions, "one")
    assert await world.commit(group, one, offset(50), name="one") is GroupError.NONE
    assert await group.commit("g", "", None, -1, offset(60)) is GroupError.NONE
    await world.transactions.end("one", one, committed=True, bumps=True)
    assert await world.known() == [60]


async def test_without_the_group_in_the_transaction_nothing_is_taken(world: World, group: GroupCoordinator) -> None:
    producer = await begun(world.transactions)
    with pytest.raises(InvalidTransactionState):
        await world.commit(group, producer, offset(1), implicit=False)
    await world.transactions.add("t", producer, (), ["other"])
    with pytest.raises(InvalidTransactionState):
        await world.commit(group, producer, offset(1), implicit=False)
    await world.transactions.add("t", producer, (), ["g"])
    assert await world.commit(group, producer, offset(1), implicit=False) is GroupError.NONE
    with pytest.raises(ProducerFenced):
        await world.commit(group, Producer(producer.producer_id, producer.epoch - 1), offset(2))
    await begun(world.transactions)
    with pytest.raises(ProducerFenced):
        await world.commit(group, producer, offset(2))
    assert await group.pending("g") == frozenset()


async def test_one_who_is_fenced_does_not_hold_up_those_who_commit_with_it(
    world: World, group: GroupCoordinator
) -> None:
    producer = await begun(world.transactions)
    zombie = Producer(producer.producer_id, producer.epoch + 1)
    results = await asyncio.gather(
        group.commit("g", "", None, -1, offset(1)),
        world.commit(group, zombie, offset(2)),
        world.commit(group, producer, offset(3)),
        group.commit("g", "", None, -1, offset(4)),
        return_exceptions=True,
    )
    assert [isinstance(each, LakestreamError) for each in results] == [False, True, False, False]
    assert await world.known() == [4]
    assert await group.pending("g") == {PARTITION}


async def test_members_commit_in_their_generation(world: World, group: GroupCoordinator) -> None:
    producer = await begun(world.transactions)
    for who in (("x", None, 1), ("", None, 1)):
        assert await world.commit(group, producer, offset(1), who=who) is GroupError.STALE_GENERATION
    joined = await member(group)
    for who, error in (
        ((joined.member_id, None, joined.generation), GroupError.NONE),
        (("", None, -1), GroupError.NONE),
        ((joined.member_id, None, joined.generation + 1), GroupError.STALE_GENERATION),
        ((joined.member_id, None, -1), GroupError.STALE_GENERATION),
        (("x", None, joined.generation), GroupError.UNKNOWN_MEMBER),
    ):
        assert await world.commit(group, producer, offset(1), who=who) is error


async def test_an_end_between_asking_and_writing_leaves_nothing_behind(world: World, group: GroupCoordinator) -> None:
    """The commit asks whether the transaction is open; it ends; only then the commit is written."""
    producer = await begun(world.transactions)
    await world.transactions.add("t", producer, (), ["g"])
    assert await group.commit("g", "", None, -1, offset(1)) is GroupError.NONE
    transact, ended = world.store.transact, False

    async def late(transactions: Sequence[Transaction]) -> list[Outcome]:
        nonlocal ended
        if not ended and any(
            key.startswith("p/") for each in transactions for key in each.puts if each.shard == "group/g"
        ):
            ended = True
            await world.transactions.end("t", producer, committed=True, bumps=False)
        return await transact(transactions)

    world.store.transact = late  # type: ignore[method-assign]
    with pytest.raises(InvalidTransactionState):
        await world.commit(group, producer, offset(2), implicit=False)
    assert ended
    assert await group.pending("g") == frozenset()
    assert await world.known() == [1]


async def test_an_end_that_is_repeated_or_late_changes_nothing(world: World, group: GroupCoordinator) -> None:
    producer = await begun(world.transactions)
    assert await world.commit(group, producer, offset(5)) is GroupError.NONE
    await world.transactions.end("t", producer, committed=True, bumps=True)
    assert await group.commit("g", "", None, -1, offset(6)) is GroupError.NONE
    for committed in (True, False):
        await end_in_group(world.store, "g", producer.producer_id, 1, committed=committed)
    await end_in_group(world.store, "nobody", producer.producer_id, 1, committed=True)
    assert await world.known() == [6]
    assert await world.store.range("group/nobody", "", "~") == []


async def test_a_group_with_pending_offsets_is_kept_and_deleted_with_them(world: World) -> None:
    async with world.broker(3) as group:
        producer = await begun(world.transactions)
        topic = await world.streams.topics.create("orders", 1, {})
        [partition] = topic.each_partition()
        offsets = {partition: CommittedOffset(5, -1, "", world.clock.ms)}
        assert await world.commit(group, producer, offsets) is GroupError.NONE
        world.clock.ms += 30 * 24 * 3_600_000
        await group.sweeper.sweep()
        assert await group.pending("g") == {partition}
    # Another broker finds it: nothing else is stored of it.
    async with world.broker(4) as group:
        await world.transactions.end("t", producer, committed=True, bumps=True)
        assert [each.offset for each in (await group.offsets("g")).values()] == [5]
        follower = await begun(world.transactions, "u")
        assert await world.commit(group, follower, offsets, name="u") is GroupError.NONE
        assert await group.delete("g") is GroupError.NONE
        assert await group.pending("g") == frozenset()
        await world.transactions.end("u", follower, committed=True, bumps=True)
        assert await world.store.shards("group/", "group0") == []


async def test_turns_of_a_store_that_was_rebuilt_hold_nothing_back(world: World, group: GroupCoordinator) -> None:
    """Versions begin anew there, and what was restored tells of turns that are far ahead."""
    far_ahead: Any = {PARTITION: CommittedOffset(1, 0, "", 0, turn=1 << 40)}
    assert await group.commit("g", "", None, -1, far_ahead) is GroupError.NONE
    producer = await begun(world.transactions)
    assert await world.commit(group, producer, offset(2)) is GroupError.NONE
    await world.transactions.end("t", producer, committed=True, bumps=True)
    assert await world.known() == [2]
