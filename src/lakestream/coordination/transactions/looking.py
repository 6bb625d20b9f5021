"""What people ask about transactions: one by its id, many by what they are like, and to end one that hangs."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Final
from uuid import UUID

from lakestream.coordination.transactions.coordinator import TransactionCoordinator
from lakestream.coordination.transactions.deciding import Producer
from lakestream.coordination.transactions.ending import COORDINATOR_EPOCH
from lakestream.coordination.transactions.model import STATE_NAMES, TransactionFilter
from lakestream.errors import CorruptObject, InvalidTransactionState, LakestreamError, ProducerFenced, UnknownStream
from lakestream.metadata.brokers import Broker, rendezvous
from lakestream.metadata.log.committer import Gone
from lakestream.metadata.log.ending import end_in_logs, open_transactions
from lakestream.metadata.log.head import OpenTransaction
from lakestream.metadata.log.transactions import Ending
from lakestream.metadata.store import Store
from lakestream.metadata.transactions import (
    StoredTransaction,
    TransactionState,
    enlisted,
    names_from,
    read_named,
    read_state,
)
from lakestream.model import StreamPartition
from lakestream.runtime import Clock

_PAGE: Final = 1_000


async def describe(store: Store, transactional_id: str) -> tuple[TransactionState, dict[UUID, list[int]]] | None:
    """The state, and the partitions of the transaction that is open or being ended. None: nobody uses the id."""
    stored = await read_state(store, transactional_id)
    if stored is None:
        return None
    topics: dict[UUID, list[int]] = defaultdict(list)
    if stored.state.is_ending or stored.state.phase == "ONGOING":
        for partition in (await enlisted(store, transactional_id)).partitions:
            topics[partition.topic_id].append(partition.index)
    return stored.state, topics


async def list_transactions(
    store: Store, clock: Clock, wanted: TransactionFilter, broker: Broker, brokers: Sequence[Broker]
) -> list[TransactionState]:
    """Those that this broker, of all that live, tells of."""
    found: list[TransactionState] = []
    start, now_ms = "", clock.now_ms()
    while True:
        names = await names_from(store, start, _PAGE)
        mine = [name for name in names if rendezvous(f"txn/{name}", brokers) == broker]
        for stored in await read_named(store, mine):
            if isinstance(stored, CorruptObject):
                raise stored
            if stored is not None and _is_wanted(stored.state, wanted, now_ms):
                found.append(stored.state)
        if len(names) < _PAGE:
            return found
        start = names[-1] + "\0"


def _is_wanted(state: TransactionState, wanted: TransactionFilter, now_ms: int) -> bool:
    if wanted.producer_ids and state.producer_id not in wanted.producer_ids:
        return False
    if wanted.states is not None and STATE_NAMES[state.phase] not in wanted.states:
        return False
    return wanted.older_than_ms is None or now_ms - state.started_ms > wanted.older_than_ms


async def end_hanging(
    store: Store,
    clock: Clock,
    coordinator: TransactionCoordinator,
    producer: Producer,
    partitions: Collection[StreamPartition],
    *,
    committed: bool,
) -> list[LakestreamError | None]:
    """Ends what this producer has open in these partitions, as an operator demands it; each with what is in the way.

    A transaction that its coordinator knows to be open is aborted as a whole, with its producer fenced; it is committed
    by its producer alone. One that the coordinator knows nothing of ends in that partition.
    """

    async def end(partition: StreamPartition) -> LakestreamError | None:
        try:
            for each in await open_transactions(store, partition):
                if each.producer_id == producer.producer_id:
                    await _end_one(store, clock, coordinator, partition, each, producer.epoch, committed)
        except LakestreamError as error:
            return error
        return None

    return await asyncio.gather(*map(end, partitions))


async def _end_one(
    store: Store,
    clock: Clock,
    coordinator: TransactionCoordinator,
    partition: StreamPartition,
    open_here: OpenTransaction,
    epoch: int,
    committed: bool,
) -> None:
    if epoch < open_here.epoch:
        raise ProducerFenced(
            f"producer {open_here.producer_id} is in epoch {open_here.epoch} there, a marker of {epoch} comes too late"
        )
    stored = await read_state(store, open_here.transactional_id)
    if stored is not None and stored.state.number == open_here.number and _is_producers(stored, open_here):
        if stored.state.phase == "ONGOING":
            if committed:
                raise InvalidTransactionState(
                    f"the transaction of {open_here.transactional_id} is open: only its producer commits it"
                )
            stored = await coordinator.prepare_abort(stored)
        if stored is not None and stored.state.is_ending:
            await coordinator.ender.finish(stored)
            return
    ending = Ending(
        transactional_id=open_here.transactional_id,
        number=open_here.number,
        producer_id=open_here.producer_id,
        epoch=open_here.epoch,
        committed=committed,
        next_epoch=epoch if epoch > open_here.epoch else None,
        coordinator_epoch=COORDINATOR_EPOCH,
        time_ms=clock.now_ms(),
    )
    ended = await end_in_logs(store, ending, [partition])
    if isinstance(ended.get(partition), Gone):
        raise UnknownStream(f"{partition} does not exist any more")


def _is_producers(stored: StoredTransaction, open_here: OpenTransaction) -> bool:
    end = stored.state.end
    return open_here.producer_id == (stored.state.producer_id if end is None else end.producer_id)
