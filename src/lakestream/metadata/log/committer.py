"""Committing a flush: one round trip for the whole object, a compare-and-set per partition.

A partition that lost a race is tried again alone, on the head that won. When the outcome of a
round trip is unknown, the session's mark in the head tells it; an extent's presence is no proof,
because the frontier may have dropped it.
"""

import asyncio
import logging
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from lakestream.errors import CorruptObject, LakestreamError, Unavailable
from lakestream.metadata import codec
from lakestream.metadata.log.commit import (
    AWAITED,
    NO_ANSWERS,
    Asked,
    Decision,
    Offer,
    ProducerEpoch,
    decide,
    needs_enlistment,
)
from lakestream.metadata.log.enlistment import NOT_VERIFIED, Answer, Enlistment, InTransaction, NotEnlisted
from lakestream.metadata.log.head import (
    HEAD,
    Accepted,
    Extent,
    Head,
    ProducerState,
    extent_key,
    open_key,
    producer_key,
    shard_of,
)
from lakestream.metadata.log.partition import decode_head, head_address
from lakestream.metadata.store import Address, Applied, Entry, Store, Transaction
from lakestream.model import StreamPartition

log = logging.getLogger(__name__)

_PARTITIONS_KEPT: Final = 20_000
_PRODUCERS_KEPT: Final = 100_000
"""Heads and producer rows remembered, of all partitions together. Beyond it those of the partitions that were
committed to longest ago are read again when needed."""
_AWAITED_KEPT: Final = 10_000
"""Producers whose predecessors are awaited. One that is forgotten is awaited anew."""


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
class _KnownHead:
    """A head and the producer rows read under its version (None: read, and absent)."""

    head: Head
    version: int
    producers: dict[int, ProducerState | None] = field(default_factory=dict)


class Committer:
    """Keeps the heads it has seen, so that a broker that wrote last commits in one round trip.

    Flushes of one broker are committed one after the other, in their order: two at once would overwrite each other's
    mark in the head, and an unknown outcome could be learned no more. So it refuses to be entered twice.
    """

    def __init__(
        self, store: Store, *, predecessor_wait_ms: int = 10_000, enlistment: Enlistment | None = None
    ) -> None:
        """`enlistment`: None where nobody takes part in transactions."""
        self.store = store
        self._enlistment = enlistment
        self._predecessor_wait_ms = predecessor_wait_ms
        self._known: OrderedDict[StreamPartition, _KnownHead] = OrderedDict()
        self._producers = 0
        """Producer rows in `_known`."""
        self._at_work = False
        self._awaited_since_ms: OrderedDict[tuple[StreamPartition, ProducerEpoch], int] = OrderedDict()

    async def commit(self, offers: Sequence[Offer], verdicts: dict[StreamPartition, Verdict]) -> None:
        """Adds a verdict per partition as it is decided. Raises `Unavailable` while some are open: call again with
        the same offers and verdicts to go on. A verdict once given is final."""
        await self._alone(offers, verdicts, unknown=False)

    async def resume(self, offers: Sequence[Offer], verdicts: dict[StreamPartition, Verdict]) -> None:
        """Goes on after `Unavailable`: learns from the heads what the earlier attempt did, then commits the rest."""
        await self._alone(offers, verdicts, unknown=True)

    async def _alone(self, offers: Sequence[Offer], verdicts: dict[StreamPartition, Verdict], *, unknown: bool) -> None:
        if self._at_work:
            raise RuntimeError("two flushes are being committed at once: a broker has one commit loop")
        self._at_work = True
        try:
            if unknown:
                self._forget(offer.partition for offer in offers if offer.partition not in verdicts)
            await self._commit(offers, verdicts, unknown=unknown)
        finally:
            self._at_work = False
            # Not before: what a commit has learnt it relies on to its end.
            while self._known and (len(self._known) > _PARTITIONS_KEPT or self._producers > _PRODUCERS_KEPT):
                self._forget([next(iter(self._known))])

    async def _commit(
        self, offers: Sequence[Offer], verdicts: dict[StreamPartition, Verdict], *, unknown: bool
    ) -> None:
        open_offers = [offer for offer in offers if offer.partition not in verdicts]
        while open_offers:
            damaged = await self._learn(open_offers)
            verdicts |= {partition: Unreadable(error, unknown) for partition, error in damaged.items()}
            open_offers = [offer for offer in open_offers if offer.partition not in damaged]
            # Asked after the heads were read that are compared and set, and again on each retry: what is true now may
            # not be true of a head that comes later.
            answers = await self._enlist(open_offers, unknown=unknown)
            attempts: list[tuple[Offer, Decision, Transaction]] = []
            for offer in open_offers:
                known = self._known.get(offer.partition)
                verdict = decided_by_head(known.head if known else None, offer, unknown=unknown)
                if verdict is not None:
                    verdicts[offer.partition] = verdict
                elif known is not None:
                    attempts.append(_attempt(known, offer, self._overdue(offer), answers.get(offer.partition)))
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
            outcomes = await self.store.transact([transaction for _, _, transaction in attempts])
        except Unavailable:
            self._forget(offer.partition for offer, _, _ in attempts)
            raise
        lost = []
        for (offer, decision, _), outcome in zip(attempts, outcomes, strict=True):
            if isinstance(outcome, Applied):
                known = self._known[offer.partition]
                known.head, known.version = decision.head, outcome.version
                known.producers.update(decision.producers)
                self._note_awaited(offer, decision)
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
            entries = await self.store.get([head_address(partition) for partition in unseen])
            for partition, entry in zip(unseen, entries, strict=True):
                error = self._remember(partition, entry)
                if error is not None:
                    damaged[partition] = error
        missing: list[tuple[StreamPartition, int, Address]] = []
        for offer in offers:
            known = self._known.get(offer.partition)
            if known is not None:
                self._known.move_to_end(offer.partition)
                shard = shard_of(offer.partition)
                wanted = {batch.producer_id for batch in offer.batches if batch.producer_id >= 0}
                missing += [
                    (offer.partition, producer, Address(shard, producer_key(producer)))
                    for producer in sorted(wanted - known.producers.keys())
                ]
        if missing:
            rows = await self.store.get([address for _, _, address in missing])
            for (partition, producer, address), row in zip(missing, rows, strict=True):
                try:
                    self._known[partition].producers[producer] = producer_state(row, address)
                    self._producers += 1
                except CorruptObject as error:
                    damaged[partition] = error
        return damaged

    async def _enlist(self, offers: Sequence[Offer], *, unknown: bool) -> dict[StreamPartition, dict[Asked, Answer]]:
        """Whether the offers' partitions are in the transactions that have nothing in them yet."""
        wanted: dict[Asked, list[StreamPartition]] = defaultdict(list)
        for offer in offers:
            known = self._known.get(offer.partition)
            if known is None or decided_by_head(known.head, offer, unknown=unknown) is not None:
                continue
            for batch in offer.batches:
                if batch.transaction is not None and needs_enlistment(known.producers.get(batch.producer_id), batch):
                    partitions = wanted[batch.transaction, (batch.producer_id, batch.producer_epoch)]
                    if offer.partition not in partitions[-1:]:
                        partitions.append(offer.partition)
        answers: dict[StreamPartition, dict[Asked, Answer]] = defaultdict(dict)
        if wanted:
            found = await asyncio.gather(*(self._ask(*asked, partitions) for asked, partitions in wanted.items()))
            for (asked, partitions), answered in zip(wanted.items(), found, strict=True):
                for partition in partitions:
                    answers[partition][asked] = answered.get(partition, NotEnlisted(NOT_VERIFIED))
        return answers

    async def _ask(
        self, transaction: InTransaction, producer: ProducerEpoch, partitions: Sequence[StreamPartition]
    ) -> Mapping[StreamPartition, Answer]:
        """What cannot be learned is refused for now: others in the flush do not wait for it."""
        name, implicit = transaction
        try:
            if self._enlistment is not None:
                return await self._enlistment.enlist(name, *producer, partitions, implicit=implicit)
        except LakestreamError as error:
            log.warning("whether transactional id %r may append is not known: %s", name, error)
        return {}

    def _overdue(self, offer: Offer) -> frozenset[ProducerEpoch]:
        """The offer's producers that have come without their predecessor for too long."""
        if not self._awaited_since_ms:
            return frozenset()
        epochs = {(batch.producer_id, batch.producer_epoch) for batch in offer.batches if batch.producer_id >= 0}
        since_ms = {epoch: self._awaited_since_ms.get((offer.partition, epoch)) for epoch in epochs}
        return frozenset(
            epoch
            for epoch, first_ms in since_ms.items()
            if first_ms is not None and offer.time_ms - first_ms >= self._predecessor_wait_ms
        )

    def _note_awaited(self, offer: Offer, decision: Decision) -> None:
        for batch, result in zip(offer.batches, decision.results, strict=True):
            if batch.producer_id >= 0:
                key = (offer.partition, (batch.producer_id, batch.producer_epoch))
                if result.refusal == AWAITED:
                    self._awaited_since_ms.setdefault(key, offer.time_ms)
                    if len(self._awaited_since_ms) > _AWAITED_KEPT:
                        self._awaited_since_ms.popitem(last=False)
                elif self._awaited_since_ms:
                    self._awaited_since_ms.pop(key, None)

    def _remember(self, partition: StreamPartition, entry: Entry | None) -> CorruptObject | None:
        """The error if the head is damaged."""
        self._forget([partition])
        try:
            present = decode_head(entry, partition)
        except CorruptObject as error:
            return error
        if present is not None:
            self._known[partition] = _KnownHead(present.head, present.version)
        return None

    def _forget(self, partitions: Iterable[StreamPartition]) -> None:
        for partition in partitions:
            known = self._known.pop(partition, None)
            if known is not None:
                self._producers -= len(known.producers)


def decided_by_head(head: Head | None, offer: Offer, *, unknown: bool) -> Verdict | None:
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


def _attempt(
    known: _KnownHead,
    offer: Offer,
    overdue: frozenset[ProducerEpoch] = frozenset(),
    answers: Mapping[Asked, Answer] | None = None,
) -> tuple[Offer, Decision, Transaction]:
    states: dict[int, ProducerState] = {}
    for batch in offer.batches:
        state = known.producers.get(batch.producer_id)
        if state is not None:
            states[batch.producer_id] = state
    decision = decide(known.head, states, offer, overdue, answers or NO_ANSWERS)
    rows: dict[str, object] = {HEAD: decision.head}
    rows |= {extent_key(extent.end_offset): extent for extent in decision.extents}
    rows |= {producer_key(producer): state for producer, state in decision.producers.items()}
    rows |= {open_key(opened.first_offset): opened for opened in decision.opened}
    shard = shard_of(offer.partition)
    puts = {key: codec.encode(row, Address(shard, key)) for key, row in rows.items()}
    return offer, decision, Transaction(shard, {HEAD: known.version}, puts)


def producer_state(row: Entry | None, address: Address) -> ProducerState | None:
    if row is None:
        return None
    return codec.decode(row.value, ProducerState, address)
