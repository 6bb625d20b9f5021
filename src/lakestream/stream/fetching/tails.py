"""What a broker knows of the partitions it serves: heads and the extents above the frontier.

Knowledge may be old, never wrong: heads only move forward and extents are immutable.
`refresh` makes it as new as the store.
"""

import asyncio
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from lakestream.errors import CorruptObject, UnknownStream
from lakestream.metadata.log.head import Extent, Head, last_stable_offset
from lakestream.metadata.log.partition import decode_head, head_address, read_extents
from lakestream.metadata.log.transactions import AbortedRange, aborted_ranges
from lakestream.metadata.store import Store
from lakestream.model import StreamPartition

_TAILS_KEPT: Final = 10_000
_IDLE_S: Final = 600.0
"""Beyond so many tails those go that nobody has asked for in this time: no request lasts so long."""


@dataclass(slots=True)
class Tail:
    """`extents` is dense and ends at or after head.next_offset once loaded. `version` is the head's, which was so at
    `checked_at_s` at the earliest.

    `stable_offset`: every transaction with records below it has ended, and `aborted` names all that were aborted and
    have some in the extents, in order of their markers. It may be behind the head's, never before it."""

    head: Head
    version: int
    extents: list[Extent] = field(default_factory=list)
    checked_at_s: float = float("-inf")
    stable_offset: int = 0
    aborted: list[AbortedRange] = field(default_factory=list)

    @property
    def end_offset(self) -> int:
        return self.head.next_offset

    @property
    def known_end(self) -> int:
        """Where the loaded extents end; before any is loaded, where loading has to begin."""
        return self.extents[-1].end_offset if self.extents else self.head.frontier

    def extents_from(self, offset: int) -> Sequence[Extent]:
        """The extents that hold `offset` or follow it. The first begins after `offset` if the log's rows for it
        were dropped."""
        return self.extents[bisect_right(self.extents, offset, key=lambda extent: extent.end_offset) :]

    def extend(self, extents: Sequence[Extent]) -> None:
        fresh = [extent for extent in extents if extent.end_offset > self.known_end]
        if fresh and self.extents and fresh[0].base_offset != self.known_end:
            # What lies between was dropped by a frontier: only the newest dense run is kept.
            self.extents.clear()
            self.aborted.clear()
        self.extents += fresh
        self.aborted += aborted_ranges(fresh)

    def trim(self, frontier: int) -> None:
        """Forgets the extents that a view holds as files."""
        del self.extents[: bisect_right(self.extents, frontier, key=lambda extent: extent.end_offset)]
        del self.aborted[: bisect_left(self.aborted, frontier, key=lambda each: each.marker_offset)]

    def pass_over_what_is_gone(self) -> None:
        """A frontier has passed extents that were never loaded, and with them markers of what is before them: all of it
        is in the table."""
        if self.known_end < self.head.frontier:
            self.extents.clear()
            self.aborted.clear()

    def aborted_from(self, offset: int) -> Sequence[AbortedRange]:
        """Those that may have records at `offset` or behind it."""
        return self.aborted[bisect_left(self.aborted, offset, key=lambda each: each.marker_offset) :]

    def note_stable(self, head: Head) -> None:
        """`head` was read before the extents: then all markers that it counts are among them."""
        if self.known_end >= head.next_offset:
            self.stable_offset = max(self.stable_offset, last_stable_offset(head))


class Tails:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._tails: OrderedDict[StreamPartition, Tail] = OrderedDict()
        self._damaged: dict[StreamPartition, CorruptObject] = {}
        """What the last look found unreadable."""

    def get(self, partition: StreamPartition) -> Tail:
        """Raises `UnknownStream`, or `CorruptObject` if the last look found the partition's rows damaged."""
        damage = self._damaged.get(partition)
        if damage is not None:
            raise damage
        tail = self._tails.get(partition)
        if tail is None:
            raise UnknownStream(f"partition {partition.index} of topic {partition.topic_id} does not exist")
        return tail

    def knows(self, partition: StreamPartition) -> bool:
        return partition in self._tails and partition not in self._damaged

    def forget(self, partition: StreamPartition) -> None:
        self._tails.pop(partition, None)
        self._damaged.pop(partition, None)

    async def refresh(self, partitions: Iterable[StreamPartition]) -> None:
        """Linearizable: sees every append acknowledged before the call, by any broker. Damaged rows of one partition
        are that partition's matter: `get` tells."""
        wanted = list(dict.fromkeys(partitions))
        asked_at_s = asyncio.get_running_loop().time()
        entries = await self._store.get([head_address(partition) for partition in wanted])
        grown = []
        for partition, entry in zip(wanted, entries, strict=True):
            self._damaged.pop(partition, None)
            try:
                present = decode_head(entry, partition)
            except CorruptObject as error:
                self._damaged[partition] = error
                continue
            if present is None:
                self.forget(partition)
                continue
            tail = self._tails.setdefault(partition, Tail(present.head, present.version))
            if present.version > tail.version:
                tail.head, tail.version = present.head, present.version
            tail.checked_at_s = max(tail.checked_at_s, asked_at_s)
            self._tails.move_to_end(partition)
            if tail.known_end < tail.end_offset:
                grown.append((partition, tail))
            else:
                tail.note_stable(tail.head)
        self._drop_idle(asked_at_s)
        if grown:
            await asyncio.gather(*(self._load(partition, tail) for partition, tail in grown))

    def committed(self, partition: StreamPartition, extents: Sequence[Extent]) -> None:
        """Takes in what this broker itself has just committed, if it joins on to what is known."""
        tail = self._tails.get(partition)
        if tail is not None and extents and tail.known_end == extents[0].base_offset:
            tail.extend(extents)

    def _drop_idle(self, now_s: float) -> None:
        while len(self._tails) > _TAILS_KEPT:
            partition, oldest = next(iter(self._tails.items()))
            if now_s - oldest.checked_at_s < _IDLE_S:
                return
            self.forget(partition)

    async def _load(self, partition: StreamPartition, tail: Tail) -> None:
        head = tail.head
        try:
            tail.extend(await read_extents(self._store, partition, tail.known_end))
            tail.pass_over_what_is_gone()
            tail.note_stable(head)
        except CorruptObject as error:
            self._damaged[partition] = error
