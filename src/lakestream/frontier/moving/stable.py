"""Up to where the tails of a topic may go into its table: no further than their last stable offsets, and so that no
transaction is in a snapshot in part (`whole`). What waits for a transaction for too long goes all the same.

Markers tell all that is needed: a transaction of which something lies below a partition's last stable offset has ended
there, and its marker is behind all its records. Heads are read before extents, so it is among these.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.replacement import frontier_of
from lakestream.frontier.moving.schedule import still_waits
from lakestream.frontier.moving.tiles.plan import below, limit
from lakestream.frontier.moving.tiles.tile import size_of
from lakestream.frontier.moving.tiles.visible import AbortedPart, AbortedRanges
from lakestream.frontier.moving.whole import CommittedTransaction, EndedPart, committed, greatest, split
from lakestream.metadata import codec
from lakestream.metadata.log.head import Extent, Head, ProducerState, producer_key, shard_of
from lakestream.metadata.log.partition import read_extents
from lakestream.metadata.store import Address
from lakestream.metadata.topics.list import Topic
from lakestream.model import StreamPartition
from lakestream.table.view import View

Tails = Mapping[int, Sequence[Extent]]
NOBODY: Final = frozenset[int]()
_NAMED: Final = 5
"""Of what may be many."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stable:
    """`due`: the extents of each partition that hold something below its end in `ends`, where that is beyond the view.
    `waiting`: partitions of which something is stable and nothing may go, for the sake of transactions. `split`: the
    transactional ids of those that go in part. `more`: not all that may go is due."""

    due: Mapping[int, tuple[Extent, ...]]
    ends: Mapping[int, int]
    aborted: Mapping[int, AbortedRanges]
    waiting: frozenset[int] = NOBODY
    split: tuple[str, ...] = ()
    more: bool = False


async def stable(
    lake: Lake,
    topic: Topic,
    heads: Mapping[int, Head],
    view: View,
    tails: Tails,
    overdue: AbstractSet[int] = NOBODY,
) -> Stable:
    """`heads` were read before `tails`, which are dense and begin at the view's frontier. `overdue`: partitions that
    have waited for transactions for long enough."""
    starts = {index: frontier_of(view, index) for index in heads}
    caps = {index: min(stable_end(heads[index]), extents[-1].end_offset) for index, extents in tails.items() if extents}
    ended = {index: ended_in(extents) for index, extents in tails.items()}
    gone = {each for found in ended.values() for one in found for each in one.partitions} - heads.keys()
    transactions = await _settled(lake, topic, view, committed(ended, gone))
    ends = greatest(starts, caps, transactions, overdue)
    waiting = frozenset(index for index, end in ends.items() if end == starts[index] < caps[index])
    taken = _limited(tails, starts, ends, transactions, overdue, lake.settings.max_tick_bytes)
    return Stable(
        due={index: below(tails[index], end) for index, end in taken.items() if end > starts[index]},
        ends=taken,
        aborted={index: AbortedRanges(_aborted(found)) for index, found in ended.items() if found},
        waiting=waiting,
        split=tuple(sorted({name for name, _ in split(starts, taken, transactions)})),
        more=taken != ends,
    )


def stable_end(head: Head) -> int:
    """What is below is of no open transaction. Unlike the last stable offset that clients are told it does not heed the
    log's start: what that has passed of an open transaction is no row either."""
    return head.next_offset if head.first_open is None else min(head.first_open, head.next_offset)


def ended_in(extents: Iterable[Extent]) -> list[EndedPart]:
    """What the markers among them tell."""
    return [
        EndedPart(
            (marker.transactional_id, marker.number),
            marker.producer_id,
            marker.committed,
            0 if marker.first_offset is None else marker.first_offset,
            0 if marker.end_offset is None else marker.end_offset,
            frozenset(marker.partitions),
        )
        for marker in (extent.marker for extent in extents)
        if marker is not None
    ]


def _aborted(ended: Iterable[EndedPart]) -> Iterable[AbortedPart]:
    return (AbortedPart(each.producer_id, each.start, each.end) for each in ended if not each.committed)


def _limited(
    tails: Tails,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    transactions: Sequence[CommittedTransaction],
    overdue: AbstractSet[int],
    max_bytes: int,
) -> dict[int, int]:
    """No more than a tick takes, unless a transaction alone is more."""
    stable_tails = {index: below(tails[index], end) for index, end in ends.items() if end > starts[index]}
    total = sum(size_of(extent) for extents in stable_tails.values() for extent in extents)
    while total > max_bytes:
        first = {index: extents[-1].end_offset for index, extents in limit(stable_tails, max_bytes).items() if extents}
        caps = {index: min(ends[index], end) for index, end in first.items()}
        taken = greatest(starts, caps, transactions, overdue)
        if any(end > starts[index] for index, end in taken.items()):
            return {index: taken.get(index, starts[index]) for index in ends}
        max_bytes *= 2
    return dict(ends)


async def _settled(
    lake: Lake, topic: Topic, view: View, transactions: Sequence[CommittedTransaction]
) -> Sequence[CommittedTransaction]:
    """The same, but for partitions in which the marker has long been below the frontier: there the producer's state
    says that the transaction has ended, and the tail, read after that, has no marker of it."""
    asked = {
        (index, one.producer_id): None
        for one in transactions
        for index in sorted(one.unseen)
        if frontier_of(view, index) > 0
    }
    if not asked:
        return transactions
    addresses = [
        Address(shard_of(StreamPartition(topic.topic_id, index)), producer_key(producer_id))
        for index, producer_id in asked
    ]
    ended: dict[tuple[int, int], int] = {}
    for each, address, entry in zip(asked, addresses, await lake.store.get(addresses), strict=True):
        if entry is not None:
            ended[each] = codec.decode(entry.value, ProducerState, address).ended
    tails: dict[int, set[tuple[str, int]]] = {}
    found = []
    for one in transactions:
        unseen = set(one.unseen)
        for index in one.unseen:
            if ended.get((index, one.producer_id), -1) < one.transaction[1]:
                continue
            if index not in tails:
                partition = StreamPartition(topic.topic_id, index)
                extents = await read_extents(lake.store, partition, frontier_of(view, index))
                tails[index] = {each.transaction for each in ended_in(extents)}
            if one.transaction not in tails[index]:
                unseen.discard(index)
        found.append(replace(one, unseen=frozenset(unseen)))
    return found


class Waits:
    """Since when partitions of topics wait for transactions to become whole. Advice only: whoever starts anew waits
    anew."""

    def __init__(self) -> None:
        self._since_ms: dict[UUID, dict[int, int]] = {}

    def overdue(self, topic: Topic, now_ms: int) -> frozenset[int]:
        """Partitions that have waited for as long as the topic lets them."""
        wait_ms = topic.options.table_transaction_wait_ms
        since = self._since_ms.get(topic.topic_id, {})
        return frozenset(index for index, at_ms in since.items() if not still_waits(now_ms, at_ms, wait_ms))

    def note(self, topic: Topic, found: Stable, now_ms: int) -> None:
        since = self._since_ms.pop(topic.topic_id, {})
        if found.waiting:
            self._since_ms[topic.topic_id] = {index: since.get(index, now_ms) for index in found.waiting}
        if found.split:
            told = "topic %s: %d transactions are in its table in parts, for rows wait for them no longer: %s"
            _log.info(told, topic.name, len(found.split), ", ".join(found.split[:_NAMED]))

    def forget(self, present: AbstractSet[UUID]) -> None:
        """All but those."""
        for topic_id in self._since_ms.keys() - present:
            del self._since_ms[topic_id]
