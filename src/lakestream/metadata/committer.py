"""Committing a flush: one round trip for the whole object, a compare-and-set per partition.

A partition that lost a race is tried again alone, on the head that won. When the outcome of a
round trip is unknown, the session's mark in the head tells it; an extent's presence is no proof,
because the frontier may have dropped it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from lakestream.errors import CorruptObject, Unavailable
from lakestream.metadata import codec
from lakestream.metadata.commit import Decision, Offer, decide
from lakestream.metadata.head import (
    HEAD,
    Accepted,
    Extent,
    Head,
    ProducerState,
    extent_key,
    producer_key,
    shard_of,
)
from lakestream.metadata.log import decode_head, head_address
from lakestream.metadata.store import Address, Applied, Entry, Store, Transaction
from lakestream.model import StreamPartition

_PRODUCERS_KEPT: Final = 1000
"""Producer rows remembered per partition; beyond it they are read again when needed."""


@dataclass(frozen=True, slots=True)
class Committed:
    """One result per batch. `extents` is empty when an earlier, unanswered attempt had been applied."""

    results: tuple[Accepted, ...]
    extents: tuple[Extent, ...]
    log_start: int


@dataclass(frozen=True, slots=True)
class UploadAgain:
    """The object's generation is below the partition's fence: its bytes may be collected at any time."""


@dataclass(frozen=True, slots=True)
class SessionLost:
    """The outcome cannot be learned any more: fail the requests and start a new session."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The partition does not exist (any more)."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A row of the partition is damaged: nothing can be decided on it. Other partitions are not concerned.
    `unknown`: an earlier attempt may have been applied."""

    error: CorruptObject
    unknown: bool = False


Verdict = Committed | UploadAgain | SessionLost | Gone | Unreadable


@dataclass(slots=True)
class _Known:
    """A head and the producer rows read under its version (None: read, and absent)."""

    head: Head
    version: int
    producers: dict[int, ProducerState | None] = field(default_factory=dict)


class Committer:
    """Keeps the heads it has seen, so that a broker that wrote last commits in one round trip.

    Not for concurrent use: flushes of one broker are committed in their order.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[StreamPartition, _Known] = {}

    async def commit(self, offers: Sequence[Offer], verdicts: dict[StreamPartition, Verdict]) -> None:
        """Adds a verdict per partition as it is decided. Raises `Unavailable` while some are open: call again with
        the same offers and verdicts to go on. A verdict once given is final."""
        await self._commit(offers, verdicts, unknown=False)

    async def resume(self, offers: Sequence[Offer], verdicts: dict[StreamPartition, Verdict]) -> None:
        """Goes on after `Unavailable`: learns from the heads what the earlier attempt did, then commits the rest."""
        for offer in offers:
            if offer.partition not in verdicts:
                self._known.pop(offer.partition, None)
        await self._commit(offers, verdicts, unknown=True)

    async def _commit(
        self, offers: Sequence[Offer], verdicts: dict[StreamPartition, Verdict], *, unknown: bool
    ) -> None:
        open_offers = [offer for offer in offers if offer.partition not in verdicts]
        while open_offers:
            damaged = await self._learn(open_offers)
            verdicts |= {partition: Unreadable(error, unknown) for partition, error in damaged.items()}
            open_offers = [offer for offer in open_offers if offer.partition not in damaged]
            attempts: list[tuple[Offer, Decision, Transaction]] = []
            for offer in open_offers:
                known = self._known.get(offer.partition)
                verdict = _standing(known.head if known else None, offer, unknown=unknown)
                if verdict is not None:
                    verdicts[offer.partition] = verdict
                elif known is not None:
                    attempts.append(_attempt(known, offer))
            open_offers = await self._attempt_all(attempts, verdicts, unknown=unknown)

    async def _attempt_all(
        self,
        attempts: Sequence[tuple[Offer, Decision, Transaction]],
        verdicts: dict[StreamPartition, Verdict],
        *,
        unknown: bool,
    ) -> list[Offer]:
        """One round trip; the offers that lost a race."""
        if not attempts:
            return []
        try:
            outcomes = await self._store.transact([transaction for _, _, transaction in attempts])
        except Unavailable:
            self._forget(offer.partition for offer, _, _ in attempts)
            raise
        lost = []
        for (offer, decision, _), outcome in zip(attempts, outcomes, strict=True):
            if isinstance(outcome, Applied):
                known = self._known[offer.partition]
                known.head, known.version = decision.head, outcome.version
                known.producers.update(decision.producers)
                if len(known.producers) > _PRODUCERS_KEPT:
                    known.producers = dict(decision.producers)
                verdicts[offer.partition] = Committed(decision.results, decision.extents, decision.head.log_start)
            else:
                error = self._remember(offer.partition, outcome.current[HEAD])
                if error is None:
                    lost.append(offer)
                else:
                    verdicts[offer.partition] = Unreadable(error, unknown)
        return lost

    async def _learn(self, offers: Sequence[Offer]) -> dict[StreamPartition, CorruptObject]:
        """Heads first, then rows: a row read later than its head is caught by the compare-and-set. Returned are the
        partitions of which a row is damaged."""
        damaged: dict[StreamPartition, CorruptObject] = {}
        unseen = [offer.partition for offer in offers if offer.partition not in self._known]
        if unseen:
            entries = await self._store.get([head_address(partition) for partition in unseen])
            for partition, entry in zip(unseen, entries, strict=True):
                error = self._remember(partition, entry)
                if error is not None:
                    damaged[partition] = error
        missing: list[tuple[StreamPartition, int, Address]] = []
        for offer in offers:
            known = self._known.get(offer.partition)
            if known is not None:
                shard = shard_of(offer.partition)
                wanted = {batch.producer_id for batch in offer.batches if batch.producer_id >= 0}
                missing += [
                    (offer.partition, producer, Address(shard, producer_key(producer)))
                    for producer in sorted(wanted - known.producers.keys())
                ]
        if missing:
            rows = await self._store.get([address for _, _, address in missing])
            for (partition, producer, address), row in zip(missing, rows, strict=True):
                try:
                    self._known[partition].producers[producer] = _producer_state(row, address)
                except CorruptObject as error:
                    damaged[partition] = error
        return damaged

    def _remember(self, partition: StreamPartition, entry: Entry | None) -> CorruptObject | None:
        """The error if the head is damaged."""
        self._known.pop(partition, None)
        try:
            present = decode_head(entry, partition)
        except CorruptObject as error:
            return error
        if present is not None:
            self._known[partition] = _Known(present.head, present.version)
        return None

    def _forget(self, partitions: Iterable[StreamPartition]) -> None:
        for partition in partitions:
            self._known.pop(partition, None)


def _standing(head: Head | None, offer: Offer, *, unknown: bool) -> Verdict | None:
    """What the head alone decides; None: the offer may be attempted. The order of the checks matters."""
    if head is None:
        return Gone()
    mark = head.sessions.get(offer.session)
    if mark is not None and mark.flush == offer.flush:
        return Committed(mark.batches, (), head.log_start)
    if offer.generation < head.fence:
        # A mark below the fence may have been removed: whether the first attempt landed cannot be told.
        return SessionLost() if unknown else UploadAgain()
    return None


def _attempt(known: _Known, offer: Offer) -> tuple[Offer, Decision, Transaction]:
    states: Mapping[int, ProducerState] = {
        producer: state for producer, state in known.producers.items() if state is not None
    }
    decision = decide(known.head, states, offer)
    rows: dict[str, object] = {HEAD: decision.head}
    rows |= {extent_key(extent.end_offset): extent for extent in decision.extents}
    rows |= {producer_key(producer): state for producer, state in decision.producers.items()}
    shard = shard_of(offer.partition)
    puts = {key: codec.encode(row, Address(shard, key)) for key, row in rows.items()}
    return offer, decision, Transaction(shard, {HEAD: known.version}, puts)


def _producer_state(row: Entry | None, address: Address) -> ProducerState | None:
    if row is None:
        return None
    return codec.decode(row.value, ProducerState, address)
