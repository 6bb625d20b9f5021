"""Transactional producers over several partitions and a group's offsets.

The real code of brokers: any of them enlists and ends. Producers give up, begin anew without ending, leave transactions
open, or live on as zombies beside whoever took their id.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from lakestream.coordination.groups.model import GroupError
from lakestream.coordination.settings import TransactionSettings
from lakestream.coordination.transactions import Enlister, Producer, TransactionCoordinator
from lakestream.coordination.transactions.sweeping import TransactionSweeper
from lakestream.errors import (
    DuplicateSequence,
    InvalidTransactionState,
    LakestreamError,
    NotCoordinator,
    ProducerFenced,
    RetryableError,
    SequenceGap,
    UnknownProducer,
    UnknownTransaction,
)
from lakestream.metadata.groups import CommittedOffset, PendingOffsets
from lakestream.metadata.log.enlistment import InTransaction
from lakestream.model import StreamPartition
from lakestream.runtime import Runtime
from lakestream.stream.engine import StreamEngine
from simulator.batches import batch
from simulator.faults import AIMED, Aim
from simulator.ledger import Transaction, pair
from simulator.scene import Scene

if TYPE_CHECKING:
    from simulator.actors import BrokerActor
    from simulator.history import History

T = TypeVar("T")

TRANSACTIONS: Final = (17, 9)
"""In every so many histories, those with this remainder, producers send transactions. Not drawn: what all others play
stays the same."""
PARTITIONS: Final = 3
GROUP: Final = "etl"
_AIMS: Final = ("transact txn", "transact log", "get txn", "get log", "transact group", "transact open-txn")
_SWEEP_MS: Final = 500
_PATIENT: Final = 12
"""So often an end is asked for before its producer begins anew."""
_LOST: Final = (ProducerFenced, UnknownTransaction, InvalidTransactionState, SequenceGap, UnknownProducer)


def with_transactions(scene: Scene, seed: int) -> Scene:
    """Promises hang on the steps of an end: faults are aimed at them, too. One topic all along, and no row expires
    while a transaction is judged by it."""
    random = Random(seed)
    aims = [Aim(operation, random.choice(AIMED), 0.2, random.choice((0, 1, 3))) for operation in _AIMS]
    faults = replace(scene.faults, aims=(*scene.faults.aims, *(aim for aim in aims if aim.hits_most)))
    return replace(
        scene,
        faults=faults,
        forgetful=False,
        first_sequence=0,
        recreations=0,
        members=0,
        consumers=min(scene.consumers, 1),
        lasts_s=max(scene.lasts_s, 3.0),
        pipeline=msgspec.structs.replace(scene.pipeline, producer_expiration_ms=86_400_000),
        group=msgspec.structs.replace(scene.group, lease_ttl_ms=1_000),
    )


def wait_setting(seed: int) -> dict[str, str]:
    """In some histories rows wait as long as it takes, so that no snapshot may split anything."""
    return {"lakestream.table.transaction.wait.ms": str(Random(seed).choice((0, 100, 1_000_000)))}


@dataclass(slots=True)
class Coordinating:
    """A broker's part in transactions."""

    coordinator: TransactionCoordinator
    sweeper: TransactionSweeper

    async def sweep(self) -> None:
        await self.sweeper.sweep_forever()


def enlister_of(history: "History", runtime: Runtime) -> Enlister | None:
    return None if history.ledger is None else Enlister(history.store, runtime.clock)


def coordinating(history: "History", streams: StreamEngine, enlister: Enlister) -> Coordinating:
    settings = TransactionSettings(sweep_interval_ms=_SWEEP_MS)
    clock = streams.runtime.clock
    coordinator = TransactionCoordinator(history.store, clock, settings, enlister, streams.new_producer_id)
    sweeper = TransactionSweeper(history.store, clock, settings, coordinator, streams.broker, streams.brokers.live)
    return Coordinating(coordinator, sweeper)


class Broken(Exception):
    """The transaction cannot go on. `is_lost`: its producer is not who it was any more."""

    def __init__(self, *, is_lost: bool) -> None:
        super().__init__()
        self.is_lost = is_lost


class TransactionalActor:
    """One transactional id. As a client of version 2 partitions join by being written to and each end bumps the epoch;
    as one of version 1 they are added first, and the epoch stays."""

    def __init__(self, history: "History", number: int) -> None:
        self._history = history
        self._id = f"t{number}"
        self._numbers = 0
        self._batches = 0
        self._sequences: dict[StreamPartition, int] = {}
        self._producer: Producer | None = None
        self._timeout_ms = 0

    async def live(self) -> None:
        history, random = self._history, self._history.world.random
        self._is_implicit = random.random() < 0.7
        self._timeout_ms = random.choice((400, 3_000))
        rest_most_s = random.choice((0.02, 0.3))
        for _ in range(random.randint(3, 5)):
            await asyncio.sleep(random.uniform(0.0, rest_most_s))
            if self._producer is None:
                self._producer = await self._begin()
            transaction = self._next(self._producer)
            try:
                await self._fill(transaction)
                if random.random() < 0.1:
                    await self._leave(transaction)
                else:
                    await self._end(transaction, committed=random.random() < 0.7)
            except Broken as error:
                history.world.trace(f"{transaction.name} is broken")
                if error.is_lost or not self._is_implicit:
                    self._producer = None
                else:
                    await self._give_up(transaction)

    def _next(self, producer: Producer) -> Transaction:
        self._numbers += 1
        found = Transaction(self._id, self._numbers, (producer.producer_id, producer.epoch))
        self._ledger.begun(found)
        return found

    @property
    def _ledger(self):  # type: ignore[no-untyped-def]
        assert self._history.ledger is not None
        return self._history.ledger

    async def _begin(self) -> Producer:
        self._sequences.clear()
        while True:
            try:
                found = await self._ask(lambda each: each.begin(self._id, self._timeout_ms, None))
            except (RetryableError, NotCoordinator):
                await asyncio.sleep(0.02)
                continue
            self._history.world.trace(f"{self._id} is producer {found.producer_id} in epoch {found.epoch}")
            return found

    async def _fill(self, transaction: Transaction) -> None:
        history, random = self._history, self._history.world.random
        for _ in range(random.randint(1, 3)):
            chosen = random.sample(history.partitions(), random.randint(1, PARTITIONS))
            if not self._is_implicit:
                number = await self._patiently(partial(self._add, transaction, chosen))
                self._ledger.numbered(transaction, number)
            await _all(self._send(transaction, partition) for partition in chosen)
        if random.random() < 0.4:
            await self._send_offsets(transaction)

    async def _add(
        self, transaction: Transaction, partitions: Sequence[StreamPartition], coordinator: TransactionCoordinator
    ) -> int:
        return await coordinator.add(self._id, self._of(transaction), partitions)

    async def _send(self, transaction: Transaction, partition: StreamPartition) -> None:
        history = self._history
        self._batches += 1
        count = history.world.random.choice((1, 1, 2))
        values = [f"{self._id}.{partition.index}.{self._batches}.{each}".encode() for each in range(count)]
        history.auditor.sending(partition, values, 1, ordered=False)
        self._ledger.sending(transaction, partition, values)
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + count
        data = batch(values, producer=(*transaction.identity, sequence), transactional=True)
        place = InTransaction(self._id, self._is_implicit)
        for _ in range(history.scene.sends_most):
            try:
                base = await history.broker().call(lambda streams: append(history, streams, partition, data, place))
            except DuplicateSequence:
                history.auditor.acknowledged_somewhere(partition, values)
                return
            except _LOST as error:
                history.world.trace(f"{transaction.name}: {type(error).__name__}: {error}")
                raise Broken(is_lost=True) from error
            except RetryableError:
                await asyncio.sleep(0.01)
                continue
            history.auditor.acknowledged(partition, base, values)
            return
        raise Broken(is_lost=False)

    async def _send_offsets(self, transaction: Transaction) -> None:
        """As pending ones of the group, for two partitions."""
        history = self._history
        transaction.offset = transaction.number
        producer = self._of(transaction)
        offsets = {
            place: CommittedOffset(transaction.number, 0, "", 0) for place in pair(history.partitions()[0], self._id)
        }

        async def store(broker: "BrokerActor") -> None:
            transactions = broker.transactions
            assert transactions is not None

            async def find() -> PendingOffsets:
                number = await transactions.coordinator.add(self._id, producer, (), (GROUP,))
                return PendingOffsets(producer.producer_id, number, offsets)

            error = await broker.coordinate(lambda group: group.transactional.commit(GROUP, "", None, -1, find))
            if error is not GroupError.NONE:
                raise NotCoordinator(error.name)

        for _ in range(history.scene.sends_most):
            try:
                found = await history.broker().coordinate(lambda group: group.find(GROUP))
                await store(history.broker_numbered(found.broker_id))
            except _LOST as error:
                raise Broken(is_lost=True) from error
            except (RetryableError, NotCoordinator, AssertionError):
                await asyncio.sleep(0.02)
                continue
            return
        raise Broken(is_lost=False)

    async def _end(self, transaction: Transaction, *, committed: bool) -> None:
        self._ledger.asks(transaction, committed=committed)
        producer = self._of(transaction)
        for _ in range(_PATIENT):
            try:
                after = await self._ask(
                    lambda each: each.end(self._id, producer, committed=committed, bumps=self._is_implicit)
                )
            except (RetryableError, NotCoordinator) as error:
                if not self._is_implicit:
                    # In version 1 a request that comes late ends the next transaction: its epoch is the same.
                    raise Broken(is_lost=True) from error
                await asyncio.sleep(0.02)
                continue
            except _LOST as error:
                self._history.world.trace(f"{transaction.name} does not end: {type(error).__name__}: {error}")
                raise Broken(is_lost=True) from error
            self._ledger.told(transaction, committed=committed)
            if after != producer:
                self._sequences.clear()
            self._producer = after
            return
        raise Broken(is_lost=True)

    async def _give_up(self, transaction: Transaction) -> None:
        try:
            await self._end(transaction, committed=False)
        except Broken:
            self._producer = None

    async def _leave(self, transaction: Transaction) -> None:
        """Nobody ends it: it is aborted by whoever takes the id, or when it has been open for too long. As a zombie it
        goes on all the same."""
        history, random = self._history, self._history.world.random
        zombie, self._producer = self._of(transaction), None
        if random.random() < 0.5:
            history.world.trace(f"{transaction.name} is left open")
            await asyncio.sleep(random.choice((0.0, 1.0)))
            return
        history.world.trace(f"{transaction.name} is left to a zombie")
        self._producer = await self._begin()
        is_done = False
        try:
            await self._ask(lambda each: each.end(self._id, zombie, committed=True, bumps=self._is_implicit))
            is_done = True
        except LakestreamError:
            pass
        if is_done:
            self._ledger.fenced(transaction, "commit it")

    async def _patiently(self, work: Callable[[TransactionCoordinator], Awaitable[T]]) -> T:
        for _ in range(self._history.scene.sends_most):
            try:
                return await self._ask(work)
            except _LOST as error:
                raise Broken(is_lost=True) from error
            except (RetryableError, NotCoordinator):
                await asyncio.sleep(0.02)
        raise Broken(is_lost=False)

    async def _ask(self, work: Callable[[TransactionCoordinator], Awaitable[T]]) -> T:
        broker = self._history.broker()
        transactions = broker.transactions

        async def run(_: StreamEngine) -> T:
            assert transactions is not None
            return await work(transactions.coordinator)

        return await broker.call(run)

    @staticmethod
    def _of(transaction: Transaction) -> Producer:
        return Producer(*transaction.identity)


async def append(
    history: "History", streams: StreamEngine, partition: StreamPartition, data: bytes, place: InTransaction
) -> int:
    disk = history.disks is not None and history.disks.wants.get(streams.broker_id, True)
    return (await streams.append(partition, data, None, place, disk=disk)).base_offset


async def _all(works: Iterator[Awaitable[None]]) -> None:
    """All of them come to an end, whatever becomes of one."""
    outcomes = await asyncio.gather(*works, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
