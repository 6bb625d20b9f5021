"""What producers ask about their transactions: begin to use an id, add to a transaction, end it.

Any broker may be asked: every step is a compare-and-set of the id's state, so there is no lease and nobody to wait for
when a broker dies. Requests for one id wait for each other here only to spare them losing such races.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final
from weakref import WeakValueDictionary

from lakestream.coordination.settings import TransactionSettings
from lakestream.coordination.transactions.deciding import (
    LAST_EPOCH,
    Producer,
    aborted_by_others,
    begun_anew,
    check_expected,
    created,
    ended_before,
    ending_by_client,
    needs_producer_id,
    producer_of,
)
from lakestream.coordination.transactions.ending import TransactionEnder
from lakestream.coordination.transactions.enlisting import Enlister
from lakestream.errors import ConcurrentTransactions, InvalidTransactionTimeout, RequestError, StorageError
from lakestream.metadata.store import Store
from lakestream.metadata.transactions import StoredTransaction, read_state, version_of, write_state
from lakestream.model import StreamPartition
from lakestream.runtime import Clock

_MOST_ROUNDS: Final = 20
"""Lost races after which a request is to come again: others are busy with the id."""
MAX_ID_BYTES: Final = 32_767
"""Kafka's longest string."""

NewProducerId = Callable[[], Awaitable[int]]


class TransactionCoordinator:
    """Methods raise `UnknownTransaction`, `ProducerFenced`, `InvalidTransactionState`, `ConcurrentTransactions`, and
    `Unavailable` when the store is away: the same request again then finds what became of the first."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: TransactionSettings,
        enlister: Enlister,
        new_producer_id: NewProducerId,
    ) -> None:
        self.enlister = enlister
        self.ender = TransactionEnder(store, clock)
        self._store = store
        self._clock = clock
        self._settings = settings
        self._new_producer_id = new_producer_id
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def begin(self, transactional_id: str, timeout_ms: int, expected: Producer | None) -> Producer:
        """Who writes under this id from now on. Whoever did before is fenced, unless it says that it is the same one
        (`expected`); a transaction that it has open is aborted first."""
        _check_id(transactional_id)
        if not 0 < timeout_ms <= self._settings.max_timeout_ms:
            raise InvalidTransactionTimeout(
                f"a transaction's time-out is to be between 1 and {self._settings.max_timeout_ms} ms"
                f" (transaction.max.timeout.ms), not {timeout_ms}"
            )
        async with self._lock(transactional_id):
            present = await read_state(self._store, transactional_id)
            for _ in range(_MOST_ROUNDS):
                settled = await self._settled(present, expected)
                if settled is not present:
                    present = settled
                    continue
                now_ms = self._clock.now_ms()
                if present is None:
                    wanted = created(transactional_id, await self._new_producer_id(), timeout_ms, now_ms)
                else:
                    fresh = await self._new_producer_id() if needs_producer_id(present.state, expected) else None
                    wanted = begun_anew(present.state, expected, fresh, timeout_ms, now_ms)
                written = await write_state(self._store, wanted, version_of(present))
                if written is not None:
                    return producer_of(wanted)
                present = await read_state(self._store, transactional_id)
        raise _busy(transactional_id)

    async def _settled(self, present: StoredTransaction | None, expected: Producer | None) -> StoredTransaction | None:
        """The same if no transaction is open or being ended, else what is stored after a step towards that."""
        if present is None:
            return None
        check_expected(present.state, expected)
        if present.state.is_ending:
            try:
                return await self.ender.finish(present)
            except StorageError as error:
                # Whoever begins waits for it to be mended, as for any end that takes long.
                raise ConcurrentTransactions(f"the transaction before cannot be ended now: {error}") from error
        if present.state.phase == "ONGOING":
            return await self.prepare_abort(present)
        return present

    async def prepare_abort(self, present: StoredTransaction) -> StoredTransaction | None:
        """Fences whoever has this transaction open. What is stored now, also if somebody was quicker."""
        written = await write_state(
            self._store, aborted_by_others(present.state, self._clock.now_ms()), present.version
        )
        return written or await read_state(self._store, present.state.transactional_id)

    async def add(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[StreamPartition],
        groups: Collection[str] = (),
    ) -> int:
        """Adds them to the producer's transaction, or begins one: its number."""
        _check_id(transactional_id)
        return await self.enlister.add(transactional_id, producer, partitions, groups)

    async def look(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Sequence[StreamPartition],
        groups: Sequence[str] = (),
    ) -> tuple[int, list[bool]]:
        """The number of the producer's open transaction, and which of these, partitions first, it has."""
        _check_id(transactional_id)
        return await self.enlister.look(transactional_id, producer, partitions, groups)

    async def end(self, transactional_id: str, producer: Producer, *, committed: bool, bumps: bool) -> Producer:
        """Ends the producer's transaction; as whom it goes on. `bumps`: in its next epoch, as in transactions' version
        2. Asked again, it tells the same. Returns when the end is decided, and done unless that takes long."""
        _check_id(transactional_id)
        async with self._lock(transactional_id):
            present = await read_state(self._store, transactional_id)
            for _ in range(_MOST_ROUNDS):
                if present is not None and ended_before(present.state, producer, committed=committed, bumps=bumps):
                    if present.state.is_ending:
                        self.enlister.remember(await self.ender.finish_soon(present))
                    return producer_of(present.state)
                fresh = await self._new_producer_id() if bumps and producer.epoch >= LAST_EPOCH else None
                wanted = ending_by_client(
                    None if present is None else present.state,
                    producer,
                    committed=committed,
                    bumps=bumps,
                    fresh_id=fresh,
                    now_ms=self._clock.now_ms(),
                )
                written = await write_state(self._store, wanted, version_of(present))
                if written is not None:
                    if wanted.is_ending:
                        self.enlister.remember(await self.ender.finish_soon(written))
                    return producer_of(wanted)
                present = await read_state(self._store, transactional_id)
        raise _busy(transactional_id)

    def _lock(self, transactional_id: str) -> asyncio.Lock:
        """Held as long as anybody waits for it, and no longer remembered."""
        lock = self._locks.get(transactional_id)
        if lock is None:
            lock = self._locks[transactional_id] = asyncio.Lock()
        return lock


def _check_id(transactional_id: str) -> None:
    if not transactional_id:
        raise RequestError("a transactional id must not be empty")
    if len(transactional_id.encode()) > MAX_ID_BYTES:
        raise RequestError(f"a transactional id of more than {MAX_ID_BYTES} bytes cannot be")


def _busy(transactional_id: str) -> ConcurrentTransactions:
    return ConcurrentTransactions(f"others are busy with transactional id {transactional_id}: ask again")
