"""Transactions over a store: what producers ask, whatever comes between."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
from support.transactions import TIMEOUT_MS, TransactionWorld, begun

from lakestream.coordination.settings import TransactionSettings
from lakestream.coordination.transactions import Producer
from lakestream.coordination.transactions.deciding import ending_by_client
from lakestream.errors import (
    ConcurrentTransactions,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    ProducerFenced,
    RequestError,
    Unavailable,
    UnknownTransaction,
)
from lakestream.metadata.log.enlistment import CONCURRENT, NOT_ENLISTED, STALE_EPOCH, Enlisted, NotEnlisted
from lakestream.metadata.log.head import shard_of as log_shard
from lakestream.metadata.store import Outcome, Transaction
from lakestream.metadata.transactions import listed_from, write_state
from lakestream.metadata.transactions.model import OPEN_SHARDS, name_of, shard_of


@pytest.fixture
def world() -> TransactionWorld:
    return TransactionWorld()


async def test_a_transaction_over_partitions_is_committed_in_all(world: TransactionWorld) -> None:
    first, second, third = await world.partitions(3)
    coordinator, other = world.coordinator(), world.coordinator()
    producer = await begun(coordinator)
    # Any broker enlists.
    assert await coordinator.add("t", producer, [first]) == await other.add("t", producer, [second]) == 1
    following = await coordinator.end("t", producer, committed=True, bumps=True)
    assert following == Producer(producer.producer_id, 1)
    for partition in (first, second):
        [marker] = await world.markers(partition)
        assert (marker.transactional_id, marker.number, marker.committed) == ("t", 1, True)
        assert marker.partitions == (0, 1)
    assert await world.markers(third) == []
    stored = await world.stored()
    assert stored.state.phase == "COMPLETE_COMMIT"
    assert await world.store.range(shard_of("t"), "g/", "p0") == []
    # The next one begins without a write to the list.
    world.store.applied.clear()
    assert await other.add("t", following, [third]) == 2
    assert [each.shard for each in world.store.applied] == [shard_of("t")]


async def test_who_begins_aborts_what_is_open_and_fences_its_producer(world: TransactionWorld) -> None:
    [partition] = await world.partitions(1)
    coordinator, other = world.coordinator(), world.coordinator()
    zombie = await begun(coordinator)
    await coordinator.add("t", zombie, [partition])
    newer = await begun(other)
    assert newer.producer_id == zombie.producer_id
    assert newer.epoch > zombie.epoch + 1
    [marker] = await world.markers(partition)
    assert not marker.committed
    for refused in (
        coordinator.add("t", zombie, [partition]),
        coordinator.end("t", zombie, committed=True, bumps=True),
        coordinator.end("t", zombie, committed=False, bumps=False),
        coordinator.begin("t", TIMEOUT_MS, zombie),
    ):
        with pytest.raises(ProducerFenced):
            await refused
    assert await coordinator.enlister.enlist("t", zombie.producer_id, zombie.epoch, [partition], implicit=True) == {
        partition: NotEnlisted(STALE_EPOCH)
    }


async def test_many_who_begin_at_once_are_each_somebody_else(world: TransactionWorld) -> None:
    [partition] = await world.partitions(1)
    coordinators = [world.coordinator() for _ in range(4)]
    producer = await begun(coordinators[0])
    await coordinators[0].add("t", producer, [partition])
    begins = await asyncio.gather(*(begun(each) for each in coordinators for _ in range(3)))
    assert len(set(begins)) == len(begins)
    newest = max(begins)
    assert await coordinators[1].add("t", newest, [partition]) == 2


async def test_verifying_adds_nothing(world: TransactionWorld) -> None:
    first, second = await world.partitions(2)
    coordinator = world.coordinator()
    producer = await begun(coordinator)
    enlist = coordinator.enlister.enlist
    asked: Any = ("t", *producer, [first, second])
    assert await enlist(*asked, implicit=False) == {
        first: NotEnlisted(NOT_ENLISTED),
        second: NotEnlisted(NOT_ENLISTED),
    }
    await coordinator.add("t", producer, [first])
    assert await enlist(*asked, implicit=False) == {first: Enlisted(1), second: NotEnlisted(NOT_ENLISTED)}
    assert await coordinator.end("t", producer, committed=True, bumps=False) == producer
    # The next transaction, in the same epoch, has other partitions.
    await coordinator.add("t", producer, [second])
    assert await enlist(*asked, implicit=False) == {first: NotEnlisted(NOT_ENLISTED), second: Enlisted(2)}


class _Gate:
    """Holds back the writes of the first end."""

    def __init__(self, world: TransactionWorld) -> None:
        self.opened, self.reached = asyncio.Event(), asyncio.Event()
        self._transact = world.store.transact
        world.store.transact = self._wait  # type: ignore[method-assign]

    async def _wait(self, transactions: Sequence[Transaction]) -> list[Outcome]:
        if any(each.shard.startswith("log/") for each in transactions):
            self.reached.set()
            await self.opened.wait()
        return await self._transact(transactions)


async def test_while_a_transaction_is_being_ended_the_next_one_waits(world: TransactionWorld) -> None:
    [partition] = await world.partitions(1)
    coordinator, other = world.coordinator(), world.coordinator()
    producer = await begun(coordinator)
    await coordinator.add("t", producer, [partition])
    gate = _Gate(world)
    ending = asyncio.create_task(coordinator.end("t", producer, committed=True, bumps=True))
    await gate.reached.wait()
    following = Producer(producer.producer_id, producer.epoch + 1)
    with pytest.raises(ConcurrentTransactions):
        await other.add("t", following, [partition])
    assert await other.enlister.enlist("t", *following, [partition], implicit=True) == {
        partition: NotEnlisted(CONCURRENT)
    }
    with pytest.raises(InvalidTransactionState):
        await other.end("t", producer, committed=False, bumps=True)
    gate.opened.set()
    assert await ending == following
    assert await other.add("t", following, [partition]) == 2
    assert len(await world.markers(partition)) == 1


@pytest.mark.parametrize("bumps", [True, False])
async def test_an_end_without_answer_is_asked_for_again_anywhere(world: TransactionWorld, bumps: bool) -> None:
    """The broker dies after any of its writes: another finishes, and the producer hears the same."""
    partitions = await world.partitions(2)
    for writes in range(5):
        coordinator, other = world.coordinator(), world.coordinator()
        name = f"t{bumps}{writes}"
        producer = await begun(coordinator, name)
        number = await coordinator.add(name, producer, partitions, ["g"])
        left, transact = writes, world.store.transact

        async def dies(transactions: Sequence[Transaction], real: Any = transact) -> list[Outcome]:
            nonlocal left
            left -= 1
            if left < 0:
                raise Unavailable("the broker is dead")
            outcomes: list[Outcome] = await real(transactions)
            return outcomes

        world.store.transact = dies  # type: ignore[method-assign]
        try:
            await coordinator.end(name, producer, committed=True, bumps=bumps)
        except Unavailable:
            assert writes == 0
        world.store.transact = transact  # type: ignore[method-assign]
        following = await other.end(name, producer, committed=True, bumps=bumps)
        assert following == Producer(producer.producer_id, producer.epoch + bumps)
        assert (await world.stored(name)).state.phase == "COMPLETE_COMMIT"
        for partition in partitions:
            [marker] = [each for each in await world.markers(partition) if each.transactional_id == name]
            assert (marker.number, marker.committed) == (number, True)


async def test_epochs_that_are_used_up_are_followed_by_another_id(world: TransactionWorld) -> None:
    [partition] = await world.partitions(1)
    coordinator = world.coordinator()
    producer = await begun(coordinator)
    stored = await world.stored()
    await write_state(world.store, msgspec.structs.replace(stored.state, epoch=32_766), stored.version)
    last = Producer(producer.producer_id, 32_766)
    await coordinator.add("t", last, [partition])
    following = await coordinator.end("t", last, committed=True, bumps=True)
    assert following.epoch == 0
    assert following.producer_id != producer.producer_id
    assert await coordinator.end("t", last, committed=True, bumps=True) == following
    assert await coordinator.add("t", following, [partition]) == 2
    # Nobody else begins in an epoch that there is not, either.
    await coordinator.end("t", following, committed=True, bumps=True)
    assert (await begun(coordinator)).producer_id == following.producer_id


async def test_a_transaction_that_takes_too_long_is_aborted_by_whoever_looks(world: TransactionWorld) -> None:
    [partition] = await world.partitions(1)
    coordinator, other = world.coordinator(), world.coordinator()
    await world.streams.brokers.register(world.streams.broker)
    producer = await begun(coordinator)
    await coordinator.add("t", producer, [partition])
    first, second = world.sweeper(other), world.sweeper(other)
    await first.sweep_open()
    assert (await world.stored()).state.phase == "ONGOING"
    # Another broker's first look does not begin the time anew.
    world.clock.ms += TIMEOUT_MS - 1
    await second.sweep_open()
    assert (await world.stored()).state.phase == "ONGOING"
    world.clock.ms += 2
    await world.sweeper(other).sweep_open()
    state = (await world.stored()).state
    assert (state.phase, state.epoch) == ("COMPLETE_ABORT", producer.epoch + 1)
    [marker] = await world.markers(partition)
    assert not marker.committed
    with pytest.raises(ProducerFenced):
        await coordinator.end("t", producer, committed=True, bumps=True)


async def test_the_time_of_one_transaction_is_not_that_of_the_next(world: TransactionWorld) -> None:
    [partition] = await world.partitions(1)
    coordinator = world.coordinator()
    await world.streams.brokers.register(world.streams.broker)
    producer = await begun(coordinator)
    for _ in range(3):
        await coordinator.add("t", producer, [partition])
        await world.sweeper(coordinator).sweep_open()
        world.clock.ms += TIMEOUT_MS - 1
        await world.sweeper(coordinator).sweep_open()
        producer = await coordinator.end("t", producer, committed=True, bumps=True)
    assert (await world.stored()).state.phase == "COMPLETE_COMMIT"


async def test_an_end_that_nobody_finished_is_finished_by_whoever_looks(world: TransactionWorld) -> None:
    [partition] = await world.partitions(1)
    coordinator, other = world.coordinator(), world.coordinator()
    await world.streams.brokers.register(world.streams.broker)
    producer = await begun(coordinator)
    await coordinator.add("t", producer, [partition])
    stored = await world.stored()
    prepared = ending_by_client(
        stored.state, producer, committed=True, bumps=True, fresh_id=None, now_ms=world.clock.ms
    )
    assert await write_state(world.store, prepared, stored.version) is not None
    await world.sweeper(other).sweep_open()
    assert (await world.stored()).state.is_ending
    world.clock.ms += 2_000
    await world.sweeper(other).sweep_open()
    assert (await world.stored()).state.phase == "COMPLETE_COMMIT"
    assert [marker.committed for marker in await world.markers(partition)] == [True]


async def _listed(world: TransactionWorld) -> list[str]:
    return [
        row.transactional_id for number in range(OPEN_SHARDS) for row in await listed_from(world.store, number, "", 100)
    ]


async def test_an_id_leaves_the_list_when_it_is_idle_and_comes_back(world: TransactionWorld) -> None:
    [partition] = await world.partitions(1)
    coordinator = world.coordinator()
    await world.streams.brokers.register(world.streams.broker)
    sweeper = world.sweeper(coordinator)
    producer = await begun(coordinator)
    assert await _listed(world) == []
    await coordinator.add("t", producer, [partition])
    producer = await coordinator.end("t", producer, committed=True, bumps=True)
    await sweeper.sweep_open()
    assert await _listed(world) == ["t"]
    world.clock.ms += 61_000
    await sweeper.sweep_open()
    assert await _listed(world) == []
    await coordinator.add("t", producer, [partition])
    assert await _listed(world) == ["t"]


async def test_an_id_that_begins_a_transaction_while_it_leaves_the_list_is_on_it(world: TransactionWorld) -> None:
    """Between any two steps of the look: a transaction that is open is on the list."""
    [partition] = await world.partitions(1)
    for steps in range(1, 12):
        coordinator, other = world.coordinator(), world.coordinator()
        await world.streams.brokers.register(world.streams.broker)
        name = f"id{steps}"
        producer = await begun(coordinator, name)
        await coordinator.add(name, producer, [partition])
        producer = await coordinator.end(name, producer, committed=True, bumps=True)
        world.clock.ms += 61_000
        transact, get, left = world.store.transact, world.store.get, steps

        begin = partial(other.add, name, producer, [partition])

        async def between(real: Any, *args: Any, begin: Any = begin) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                left = -1
                await begin()
            return await real(*args)

        world.store.transact = lambda each, real=transact: between(real, each)  # type: ignore[method-assign,assignment,misc]
        world.store.get = lambda each, real=get: between(real, each)  # type: ignore[method-assign,assignment,misc]
        await world.sweeper(coordinator).sweep_open()
        world.store.transact, world.store.get = transact, get  # type: ignore[method-assign]
        if left < 0:
            assert (await world.stored(name)).state.phase == "ONGOING"
            assert name in await _listed(world), steps


async def test_ids_that_nobody_uses_are_forgotten_but_for_those_with_a_transaction(world: TransactionWorld) -> None:
    [partition] = await world.partitions(1)
    coordinator = world.coordinator()
    await world.streams.brokers.register(world.streams.broker)
    for name in ("open", "idle", "used"):
        await begun(coordinator, name)
    await coordinator.add("open", await begun(coordinator, "open"), [partition])
    sweeper = world.sweeper(coordinator, id_expiration_ms=1_000, max_swept_ids=2)
    world.clock.ms += 900
    producer = await begun(coordinator, "used")
    world.clock.ms += 200
    for _ in range(3):
        await sweeper.sweep_expired()
    assert await world.store.shards("txn/", "txn0") == [shard_of("open"), shard_of("used")]
    with pytest.raises(UnknownTransaction):
        await coordinator.add("idle", producer, [partition])
    # Whoever begins anew is nobody's successor.
    assert (await begun(coordinator, "idle")).producer_id > producer.producer_id


async def test_what_cannot_be_is_refused(world: TransactionWorld) -> None:
    coordinator = world.coordinator(TransactionSettings(max_timeout_ms=1_000))
    for timeout_ms in (0, -1, 1_001):
        with pytest.raises(InvalidTransactionTimeout):
            await coordinator.begin("t", timeout_ms, None)
    for name in ("", "x" * 32_768):
        with pytest.raises(RequestError):
            await coordinator.begin(name, 1, None)
    assert await world.store.shards("", "~") == []


async def test_a_long_id_is_one_of_its_own(world: TransactionWorld) -> None:
    [partition] = await world.partitions(1)
    coordinator = world.coordinator()
    names = ["ü" * 16_000, "ü" * 16_001, "#short", "a/b", "\0"]
    for name in names:
        assert len(name_of(name)) <= 200
        producer = await begun(coordinator, name)
        await coordinator.add(name, producer, [partition], [name])
        await coordinator.end(name, producer, committed=True, bumps=True)
    assert len({name_of(name) for name in names}) == len(names)
    assert [marker.transactional_id for marker in await world.markers(partition)] == names


async def test_many_open_transactions_are_found_in_bounded_memory(world: TransactionWorld) -> None:
    [partition] = await world.partitions(1)
    coordinator = world.coordinator()
    await world.streams.brokers.register(world.streams.broker)
    sweeper = world.sweeper(coordinator)
    count = 1_500
    for number in range(count):
        producer = await begun(coordinator, f"id{number}")
        await coordinator.add(f"id{number}", producer, [partition] if number == 7 else (), [f"g{number}"])
    await sweeper.sweep_open()
    world.clock.ms += TIMEOUT_MS + 1
    # Another broker's: it has to read the time-outs in the store.
    other = world.sweeper(world.coordinator())
    await other.sweep_open()
    assert other.timed_out == count
    for held in (coordinator._locks, coordinator.ender._under_way, sweeper._next):
        assert not held
    assert [marker.number for marker in await world.markers(partition)] == [1]


async def test_a_partition_that_is_damaged_holds_up_its_own_transaction_alone(world: TransactionWorld) -> None:
    sound, damaged = await world.partitions(2)
    coordinator = world.coordinator()
    producer = await begun(coordinator)
    await coordinator.add("t", producer, [sound, damaged])
    shard = log_shard(damaged)
    await world.store.transact([Transaction(shard, {}, {"head": b"not a head"})])
    # It is decided, so the producer hears it; nobody goes on under the id before it is done.
    following = await coordinator.end("t", producer, committed=True, bumps=True)
    assert [marker.committed for marker in await world.markers(sound)] == [True]
    with pytest.raises(ConcurrentTransactions):
        await coordinator.add("t", following, [sound])
    with pytest.raises(ConcurrentTransactions):
        await begun(coordinator)
    other = await begun(coordinator, "other")
    assert await coordinator.add("other", other, [sound]) == 1


async def test_a_topic_that_is_deleted_holds_nothing_up(world: TransactionWorld) -> None:
    kept, gone = await world.partitions(1), await world.partitions(1, "gone")
    coordinator = world.coordinator()
    producer = await begun(coordinator)
    await coordinator.add("t", producer, [*kept, *gone])
    topic = await world.streams.topics.delete(gone[0].topic_id)
    await world.streams.topics.drop_logs(topic)
    await coordinator.end("t", producer, committed=True, bumps=True)
    assert (await world.stored()).state.phase == "COMPLETE_COMMIT"
