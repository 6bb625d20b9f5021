"""What producers have left behind: transactions that are open beyond their time-out, ends that somebody prepared and
did not finish, ids that nobody uses.

Each broker looks at some shards of the list of ids that may have a transaction open. Time-outs run by the store's
clock: the first who finds a transaction open takes a lease for it, and when that has lapsed the transaction is overdue;
so one that goes on lasts up to a look longer, and short ones cost nothing. The clocks of brokers only say when it is
worth to look.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from lakestream.coordination.settings import TransactionSettings
from lakestream.coordination.transactions.coordinator import TransactionCoordinator
from lakestream.errors import CorruptObject, LakestreamError
from lakestream.metadata import codec
from lakestream.metadata.brokers import Broker, rendezvous
from lakestream.metadata.store import Address, Store
from lakestream.metadata.transactions import (
    OPEN_SHARDS,
    TIMER,
    OpenRow,
    StoredTransaction,
    delete_state,
    listed_from,
    names_from,
    read_named,
    read_states,
    shard_of,
    take_off_list,
    write_state,
)
from lakestream.runtime import Clock

log = logging.getLogger(__name__)

LiveBrokers = Callable[[], Awaitable[Sequence[Broker]]]

_PAGE: Final = 500
_AT_ONCE: Final = 16
_UNFINISHED_MS: Final = 1_000
"""An end that was prepared so long ago is finished by whoever finds it."""
_IDLE_MS: Final = 60_000
"""An id that has had no transaction for so long is taken off the list."""


class _Timer(NamedTuple):
    number: int
    due_s: float


class TransactionSweeper:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: TransactionSettings,
        coordinator: TransactionCoordinator,
        broker: Broker,
        live: LiveBrokers,
    ) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._coordinator = coordinator
        self._broker = broker
        self._live = live
        self._timers: dict[str, _Timer] = {}
        """Of transactions that the last look found open: before that moment they are not overdue."""
        self._next = ""
        self.timed_out = 0
        """How many transactions were aborted here for taking too long."""

    async def sweep_forever(self) -> None:
        await asyncio.gather(
            self._forever(self.sweep_open, self._settings.sweep_interval_ms),
            self._forever(self.sweep_expired, self._settings.expiration_interval_ms),
        )

    async def _forever(self, look: Callable[[], Awaitable[None]], interval_ms: int) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                await look()
            except LakestreamError as error:
                log.warning("transactions are looked through again later: %s", error)

    async def sweep_open(self) -> None:
        """One look at what is this broker's of the list."""
        brokers = await self._live() or [self._broker]
        timers, self._timers = self._timers, {}
        for number in range(OPEN_SHARDS):
            if rendezvous(f"open-txn/{number}", list(brokers)) == self._broker:
                await self._sweep_shard(number, timers)

    async def _sweep_shard(self, number: int, timers: dict[str, _Timer]) -> None:
        start = ""
        while True:
            rows = await listed_from(self._store, number, start, _PAGE)
            await self._look_at(rows, timers)
            if len(rows) < _PAGE:
                return
            start = rows[-1].address.key + "\0"

    async def _look_at(self, rows: Sequence[OpenRow], timers: dict[str, _Timer]) -> None:
        found = await read_states(self._store, [row.transactional_id for row in rows])
        gone = [row for row, stored in zip(rows, found, strict=True) if stored is None]
        if gone:
            await take_off_list(self._store, gone)
        slots = asyncio.Semaphore(_AT_ONCE)

        async def look(row: OpenRow, stored: StoredTransaction) -> None:
            async with slots:
                try:
                    await self._settle(row, stored, timers.get(row.transactional_id))
                except LakestreamError as error:
                    log.warning("transactional id %.200s is looked at again later: %s", row.transactional_id, error)

        whole = []
        for row, stored in zip(rows, found, strict=True):
            if isinstance(stored, CorruptObject):
                log.error("%s", stored)
            elif stored is not None:
                whole.append(look(row, stored))
        await asyncio.gather(*whole)

    async def _settle(self, row: OpenRow, stored: StoredTransaction, timer: _Timer | None) -> None:
        state = stored.state
        age_ms = self._clock.now_ms() - state.changed_ms
        if state.is_ending:
            if not 0 <= age_ms <= _UNFINISHED_MS:
                await self._coordinator.ender.finish(stored)
        elif state.phase == "ONGOING":
            if await self._is_overdue(stored, timer):
                await self._abort(stored)
        elif age_ms > _IDLE_MS:
            await self._take_off(row, stored)

    async def _is_overdue(self, stored: StoredTransaction, timer: _Timer | None) -> bool:
        state = stored.state
        loop = asyncio.get_running_loop()
        if timer is not None and timer.number == state.number and loop.time() < timer.due_s:
            self._timers[state.transactional_id] = timer
            return False
        address = Address(shard_of(state.transactional_id), TIMER)
        holder = str(state.number)
        [row] = await self._store.get([address])
        held = await self._store.leases(address.shard, TIMER, TIMER + "\0")
        if row is not None and codec.decode_holder(row.value, address) == holder:
            if not held:
                return True
            remaining_ms = held[0][1].remaining_ms
        else:
            # Of an earlier transaction: it does not count for this one.
            if row is not None:
                await self._store.release_lease(address, row.version)
            lease = await self._store.acquire_lease(address, holder, ttl_ms=state.timeout_ms)
            remaining_ms = lease.remaining_ms if lease.holder == holder else 0
        self._timers[state.transactional_id] = _Timer(state.number, loop.time() + remaining_ms / 1000)
        return False

    async def _abort(self, stored: StoredTransaction) -> None:
        state = stored.state
        prepared = await self._coordinator.prepare_abort(stored)
        if prepared is not None and prepared.state.number == state.number and prepared.state.is_ending:
            self.timed_out += 1
            log.warning(
                "transaction %d of %.200s was open for more than its %d ms: it is aborted",
                state.number,
                state.transactional_id,
                state.timeout_ms,
            )
            await self._coordinator.ender.finish(prepared)

    async def _take_off(self, row: OpenRow, stored: StoredTransaction) -> None:
        """The state is rewritten first, whatever it says: who has just put the id on the list, in order to begin a
        transaction on the state that was read here, puts it there again."""
        off = msgspec.structs.replace(stored.state, is_indexed=False)
        if await write_state(self._store, off, stored.version) is not None:
            await take_off_list(self._store, [row])

    async def sweep_expired(self) -> None:
        """One look at a bounded number of all ids: those that nobody has used for long are forgotten."""
        names = await names_from(self._store, self._next, self._settings.max_swept_ids)
        self._next = "" if len(names) < self._settings.max_swept_ids else names[-1] + "\0"
        brokers = list(await self._live() or [self._broker])
        mine = [name for name in names if rendezvous(f"txn/{name}", brokers) == self._broker]
        for start in range(0, len(mine), _PAGE):
            for stored in await read_named(self._store, mine[start : start + _PAGE]):
                if isinstance(stored, CorruptObject):
                    log.error("%s", stored)
                elif stored is not None and self._is_expired(stored) and await delete_state(self._store, stored):
                    name = stored.state.transactional_id
                    log.info("transactional id %.200s was not used for long: it is forgotten", name)

    def _is_expired(self, stored: StoredTransaction) -> bool:
        state = stored.state
        idle = state.phase not in ("ONGOING", "PREPARE_COMMIT", "PREPARE_ABORT")
        return idle and self._clock.now_ms() - state.changed_ms > self._settings.id_expiration_ms
