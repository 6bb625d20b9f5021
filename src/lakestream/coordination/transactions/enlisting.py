"""Partitions and groups join transactions. Any broker enlists them, each with a write that checks the transaction's
state: once its end is prepared nothing joins any more."""

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from lakestream.coordination.transactions.deciding import Producer, joined, ongoing
from lakestream.errors import (
    ConcurrentTransactions,
    InvalidTransactionState,
    LakestreamError,
    ProducerFenced,
    RequestError,
    UnknownTransaction,
)
from lakestream.metadata.log.enlistment import (
    CONCURRENT,
    NOT_ENLISTED,
    STALE_EPOCH,
    UNKNOWN_TRANSACTION,
    Enlisted,
    NotEnlisted,
)
from lakestream.metadata.store import Store
from lakestream.metadata.transactions import (
    StoredTransaction,
    enlist,
    enlisted_of,
    put_on_list,
    read_state,
)
from lakestream.model import StreamPartition
from lakestream.runtime import Clock

_KEPT: Final = 10_000
"""States that are remembered, so that joining is one round trip. They are hints: each write checks them."""

_REASONS: Final[tuple[tuple[type[LakestreamError], str], ...]] = (
    (ProducerFenced, STALE_EPOCH),
    (UnknownTransaction, UNKNOWN_TRANSACTION),
    (InvalidTransactionState, NOT_ENLISTED),
    (ConcurrentTransactions, CONCURRENT),
)


class Enlister:
    """Implements `Enlistment` for the log."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: OrderedDict[str, StoredTransaction] = OrderedDict()

    async def enlist(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[StreamPartition],
        *,
        implicit: bool,
    ) -> Mapping[StreamPartition, Enlisted | NotEnlisted]:
        producer = Producer(producer_id, epoch)
        try:
            if implicit:
                number = await self.add(transactional_id, producer, partitions)
                return {partition: Enlisted(number) for partition in partitions}
            number, has = await self.look(transactional_id, producer, partitions)
        except (RequestError, ConcurrentTransactions) as error:
            refused = NotEnlisted(next((reason for kind, reason in _REASONS if isinstance(error, kind)), NOT_ENLISTED))
            return dict.fromkeys(partitions, refused)
        return {
            partition: Enlisted(number) if is_in else NotEnlisted(NOT_ENLISTED)
            for partition, is_in in zip(partitions, has, strict=True)
        }

    async def add(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[StreamPartition],
        groups: Collection[str] = (),
    ) -> int:
        """The number of the transaction that has them now: the one that is open, or one that begins. Raises what is in
        the way."""
        known = self._known.get(transactional_id)
        present = known or await read_state(self._store, transactional_id)
        while True:
            try:
                wanted = joined(None if present is None else present.state, producer, self._clock.now_ms())
            except (RequestError, ConcurrentTransactions):
                if known is None:
                    raise
                # What was remembered may be old.
                self.forget(transactional_id)
                known, present = None, await read_state(self._store, transactional_id)
                continue
            assert present is not None
            if wanted is not present.state and not wanted.is_indexed:
                await put_on_list(self._store, transactional_id)
                wanted = msgspec.structs.replace(wanted, is_indexed=True)
            done, stored = await enlist(self._store, present, wanted, partitions, groups)
            if stored is None:
                self.forget(transactional_id)
            self.remember(stored)
            if done:
                return wanted.number
            known, present = None, stored

    async def look(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Sequence[StreamPartition],
        groups: Sequence[str] = (),
    ) -> tuple[int, list[bool]]:
        """The number of the producer's open transaction, and which of these, partitions first, it has. Raises what is
        in the way."""
        present, has = await enlisted_of(self._store, transactional_id, partitions, groups)
        return ongoing(None if present is None else present.state, producer).number, has

    def forget(self, transactional_id: str) -> None:
        self._known.pop(transactional_id, None)

    def remember(self, stored: StoredTransaction | None) -> None:
        """What somebody else has read or written here."""
        if stored is not None:
            transactional_id = stored.state.transactional_id
            self.forget(transactional_id)
            self._known[transactional_id] = stored
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
