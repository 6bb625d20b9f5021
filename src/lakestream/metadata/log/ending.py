"""Ending a transaction in the logs of its partitions: in each a marker, by a compare-and-set of the head.

Whoever has decided how a transaction ends calls this, as often as it takes: where its marker is already nothing
happens. The head of every partition that it enlisted is rewritten, also of one that has none of its records: an append
that asked before whether it may, and has not landed, never does.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from lakestream.errors import CorruptObject, StorageError
from lakestream.metadata import codec
from lakestream.metadata.log.commit import FIRST_SEQUENCE, end_of
from lakestream.metadata.log.committer import Gone, producer_state
from lakestream.metadata.log.head import (
    HEAD,
    MARKER_EXTENT,
    OPEN,
    Extent,
    Head,
    Marker,
    OpenTransaction,
    ProducerState,
    extent_key,
    open_key,
    producer_key,
    shard_of,
)
from lakestream.metadata.log.partition import HeadAt, decode_head, head_address
from lakestream.metadata.log.transactions import Ending
from lakestream.metadata.store import Address, Applied, Entry, Store, Transaction
from lakestream.model import StreamPartition
from lakestream.records import crc32c, marker_batch

log = logging.getLogger(__name__)

_LOWEST: Final = 2
"""Of the open transactions: the one that ends, if it is the first, and the one after it."""


class Ended(NamedTuple):
    """None: it had ended there before."""

    marker_offset: int | None


async def open_transactions(
    store: Store, partition: StreamPartition, *, limit: int | None = None
) -> list[OpenTransaction]:
    """In order of their first offsets."""
    shard = shard_of(partition)
    rows = await store.range(shard, *OPEN, limit=limit)
    return [codec.decode(row.value, OpenTransaction, Address(shard, row.key)) for row in rows]


async def end_in_logs(
    store: Store, ending: Ending, partitions: Sequence[StreamPartition]
) -> dict[StreamPartition, Ended | Gone]:
    """`partitions`: all that the transaction enlisted, in every call: markers name those of their topic. Raises
    `Unavailable` when the outcome is unknown, and, when all others are done, `StorageError` for a partition of which
    a row is damaged or does not fit: call again."""
    work = _Work(store, ending, _indexes(partitions))
    left = list(dict.fromkeys(partitions))
    entries: Mapping[StreamPartition, Entry | None]
    entries = dict(zip(left, await store.get([head_address(each) for each in left]), strict=True))
    while entries:
        entries = await work.attempt(entries)
    if work.wrong is not None:
        raise work.wrong
    return work.done


class LogEnd(NamedTuple):
    """What the end of a transaction writes. `closes`: where it began, if it has records here."""

    head: Head
    extent: Extent
    state: ProducerState
    closes: int | None


def decide_end(
    head: Head, state: ProducerState | None, next_open: int | None, ending: Ending, indexes: tuple[int, ...]
) -> LogEnd | None:
    """None: it has ended here. `next_open`: where the open transaction after the first begins. `indexes`: all
    partitions of the topic that it enlisted. A marker ends its own transaction and no other."""
    opened = None if state is None else state.open
    if state is not None and (state.ended >= ending.number or (opened is not None and opened.number > ending.number)):
        return None
    if opened is not None and opened.number < ending.number:
        raise StorageError(
            f"producer {ending.producer_id} has transaction {opened.number} open, which should have ended before"
            f" {ending.number} of {ending.transactional_id!r}: it cannot be told which records belong to which"
        )
    first, end = (None, None) if opened is None or state is None else (opened.first_offset, _end_of(head, state))
    marker = Marker(
        ending.transactional_id,
        ending.number,
        ending.producer_id,
        ending.epoch,
        ending.committed,
        first,
        end,
        indexes,
        ending.coordinator_epoch,
    )
    first_open = next_open if first is not None and first == head.first_open else head.first_open
    return LogEnd(
        msgspec.structs.replace(head, next_offset=head.next_offset + 1, first_open=first_open),
        marker_extent(head.next_offset, marker, ending.next_epoch, ending.time_ms),
        _state_after(state, ending),
        first,
    )


def marker_extent(offset: int, marker: Marker, next_epoch: int | None, time_ms: int) -> Extent:
    batch = marker_batch(
        committed=marker.committed,
        producer_id=marker.producer_id,
        epoch=marker.epoch if next_epoch is None else next_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        time_ms=time_ms,
    )
    return Extent(
        base_offset=offset,
        end_offset=offset + 1,
        stores=(),
        object_key="",
        position=0,
        length=len(batch),
        max_timestamp_ms=time_ms,
        checksum=crc32c(batch),
        inline=batch,
        kind=MARKER_EXTENT,
        marker=marker,
    )


def _end_of(head: Head, state: ProducerState) -> int:
    """Where the producer's last batch ends. All that is known of an epoch that was closed before it appended anything
    is that the one before had appended."""
    if not state.runs:
        return head.next_offset
    return end_of(state.runs[-1])


def _state_after(state: ProducerState | None, ending: Ending) -> ProducerState:
    """A new epoch begins with nothing appended, and what comes late in the old one is refused."""
    epoch = ending.epoch if ending.next_epoch is None else ending.next_epoch
    if state is None or state.epoch < epoch:
        state = ProducerState(epoch, (), FIRST_SEQUENCE, ending.time_ms)
    return msgspec.structs.replace(
        state,
        last_append_ms=max(state.last_append_ms, ending.time_ms),
        open=None,
        ended=ending.number,
        coordinator_epoch=ending.coordinator_epoch,
    )


def _indexes(partitions: Sequence[StreamPartition]) -> Mapping[UUID, tuple[int, ...]]:
    by_topic: dict[UUID, set[int]] = defaultdict(set)
    for partition in partitions:
        by_topic[partition.topic_id].add(partition.index)
    return {topic_id: tuple(sorted(found)) for topic_id, found in by_topic.items()}


@dataclass(slots=True)
class _Work:
    """`wrong`: what is in the way in some partition; it does not hold up the others."""

    store: Store
    ending: Ending
    indexes: Mapping[UUID, tuple[int, ...]]
    done: dict[StreamPartition, Ended | Gone] = field(default_factory=dict)
    wrong: StorageError | None = None

    async def attempt(self, entries: Mapping[StreamPartition, Entry | None]) -> dict[StreamPartition, Entry | None]:
        """`entries`: heads as they were read. Rows are read after them: one that changes meanwhile moves its head's
        version on. The heads that won a race."""
        heads = self._heads(entries)
        states = await self._states(heads)
        next_open = await self._next_open(heads, states)
        attempts: list[tuple[StreamPartition, int, Transaction]] = []
        for partition, state in states.items():
            if partition not in next_open:
                continue
            at, indexes = heads[partition], self.indexes[partition.topic_id]
            try:
                end = decide_end(at.head, state, next_open[partition], self.ending, indexes)
            except StorageError as error:
                self._failed(error)
                continue
            if end is None:
                self.done[partition] = Ended(None)
            else:
                change = _transaction(partition, at.version, end, self.ending.producer_id)
                attempts.append((partition, end.extent.base_offset, change))
        outcomes = await self.store.transact([change for _, _, change in attempts]) if attempts else []
        lost: dict[StreamPartition, Entry | None] = {}
        for (partition, marker_offset, _), outcome in zip(attempts, outcomes, strict=True):
            if isinstance(outcome, Applied):
                self.done[partition] = Ended(marker_offset)
            else:
                lost[partition] = outcome.current[HEAD]
        return lost

    def _heads(self, entries: Mapping[StreamPartition, Entry | None]) -> dict[StreamPartition, HeadAt]:
        heads: dict[StreamPartition, HeadAt] = {}
        for partition, entry in entries.items():
            try:
                known = decode_head(entry, partition)
            except CorruptObject as error:
                self._failed(error)
                continue
            if known is None:
                self.done[partition] = Gone()
            else:
                heads[partition] = known
        return heads

    async def _states(self, heads: Mapping[StreamPartition, HeadAt]) -> dict[StreamPartition, ProducerState | None]:
        addresses = {each: Address(shard_of(each), producer_key(self.ending.producer_id)) for each in heads}
        rows = await self.store.get(list(addresses.values())) if addresses else []
        states: dict[StreamPartition, ProducerState | None] = {}
        for (partition, address), row in zip(addresses.items(), rows, strict=True):
            try:
                states[partition] = producer_state(row, address)
            except CorruptObject as error:
                self._failed(error)
        return states

    async def _next_open(
        self, heads: Mapping[StreamPartition, HeadAt], states: Mapping[StreamPartition, ProducerState | None]
    ) -> dict[StreamPartition, int | None]:
        """Where the open transaction after this one begins, in partitions of which it is the first."""
        found: dict[StreamPartition, int | None] = dict.fromkeys(states)
        first = [
            partition
            for partition, state in states.items()
            if state is not None
            and state.open is not None
            and state.open.first_offset == heads[partition].head.first_open
        ]
        opens = await asyncio.gather(*(self._lowest_open(each) for each in first))
        for partition, lowest in zip(first, opens, strict=True):
            if lowest is None:
                del found[partition]
            else:
                begin = heads[partition].head.first_open
                found[partition] = next((each.first_offset for each in lowest if each.first_offset != begin), None)
        return found

    async def _lowest_open(self, partition: StreamPartition) -> list[OpenTransaction] | None:
        try:
            return await open_transactions(self.store, partition, limit=_LOWEST)
        except CorruptObject as error:
            self._failed(error)
            return None

    def _failed(self, error: StorageError) -> None:
        log.error("transaction %d of %r cannot end: %s", self.ending.number, self.ending.transactional_id, error)
        self.wrong = error


def _transaction(partition: StreamPartition, version: int, end: LogEnd, producer_id: int) -> Transaction:
    shard = shard_of(partition)
    rows: dict[str, object] = {
        HEAD: end.head,
        extent_key(end.extent.end_offset): end.extent,
        producer_key(producer_id): end.state,
    }
    puts = {key: codec.encode(row, Address(shard, key)) for key, row in rows.items()}
    deletes = [] if end.closes is None else [open_key(end.closes)]
    return Transaction(shard, {HEAD: version}, puts, deletes=deletes)
