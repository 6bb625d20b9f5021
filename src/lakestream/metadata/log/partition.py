"""A partition's log on the store: reads, the advance of frontier and log start, the fence."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import msgspec

from lakestream.errors import CorruptObject, OffsetOutOfRange, StorageError, UnknownStream
from lakestream.metadata import codec
from lakestream.metadata.log.head import EXTENTS, HEAD, Extent, Head, extent_key, partition_of, shard_of
from lakestream.metadata.store import ABSENT, Address, Applied, Entry, Store, Transaction
from lakestream.model import StreamPartition

_BIRTH: Final = "birth"
"""Of a log that is about to be made."""


@dataclass(frozen=True, slots=True)
class HeadAt:
    head: Head
    version: int


def head_address(partition: StreamPartition) -> Address:
    return Address(shard_of(partition), HEAD)


def decode_head(entry: Entry | None, partition: StreamPartition) -> HeadAt | None:
    if entry is None:
        return None
    return HeadAt(codec.decode(entry.value, Head, head_address(partition)), entry.version)


def live_marks(head: Head, fence: int) -> Head:
    """The head with this fence. A session's mark goes only once the fence is above its generation: from then on no
    delayed commit of that flush can land, so nobody needs to learn its outcome."""
    sessions = {name: mark for name, mark in head.sessions.items() if mark.generation >= fence}
    return msgspec.structs.replace(head, fence=fence, sessions=sessions)


async def create_head(store: Store, partition: StreamPartition, first_offset: int = 0) -> None:
    """Idempotent: an existing head stays as it is. What is below `first_offset` is in the table already.

    Two steps, because a request may arrive late, or twice, after the partition was deleted. The head is made only out
    of one certain version of the birth row, which goes with it: no step brings a deleted log back."""
    shard, birth = shard_of(partition), Address(shard_of(partition), _BIRTH)
    begin = Transaction(shard, {HEAD: ABSENT, _BIRTH: ABSENT}, {_BIRTH: codec.encode(None, birth)})
    [begun] = await store.transact([begin])
    if isinstance(begun, Applied):
        version = begun.version
    else:
        present = begun.current.get(_BIRTH)
        if HEAD in begun.current or present is None:
            return
        version = present.version
    head = Head(next_offset=first_offset, frontier=first_offset)
    rows = {HEAD: codec.encode(head, head_address(partition))}
    await store.transact([Transaction(shard, {HEAD: ABSENT, _BIRTH: version}, rows, deletes=[_BIRTH])])


async def delete_log(store: Store, partition: StreamPartition) -> None:
    """Forgets every row of the partition. Its missing head fences all who would still write. Idempotent."""
    await store.transact([Transaction(shard_of(partition), {}, {}, delete_ranges=[("", "\U0010ffff")])])


async def read_head(store: Store, partition: StreamPartition) -> HeadAt | None:
    """Linearizable. None: the partition does not exist (any more)."""
    [entry] = await store.get([head_address(partition)])
    return decode_head(entry, partition)


async def read_extents(store: Store, partition: StreamPartition, from_offset: int = 0) -> list[Extent]:
    """The extents that hold from_offset or anything after it, in order, dense: one that is missing between two others
    is `CorruptObject`, as is a damaged one."""
    shard = shard_of(partition)
    entries = await store.range(shard, extent_key(from_offset + 1), EXTENTS[1])
    extents = [codec.decode(entry.value, Extent, Address(shard, entry.key)) for entry in entries]
    for before, after in pairwise(extents):
        if before.end_offset != after.base_offset:
            raise CorruptObject(
                f"the extents of {shard} for the offsets {before.end_offset} to {after.base_offset} are missing in the "
                "metadata store: restore it from a backup"
            )
    return extents


async def read_every_extent(store: Store) -> AsyncIterator[tuple[StreamPartition, Extent]]:
    """Of all partitions. For what is done once: nothing that is done often goes through all shards."""
    for shard in await store.shards("log/", "log0"):
        partition = partition_of(shard)
        for extent in await read_extents(store, partition):
            yield partition, extent


async def advance_frontier(store: Store, partition: StreamPartition, frontier: int) -> Head:
    """Licenses the extents below `frontier` to go, and drops them in the same transaction. Never moves back.

    Only to be called with a frontier that a table commit carries."""
    shard = shard_of(partition)
    known = await read_head(store, partition)
    while True:
        if known is None:
            raise UnknownStream(f"{shard} does not exist any more")
        if known.head.frontier >= frontier:
            return known.head
        if frontier > known.head.next_offset:
            raise StorageError(
                f"{shard}: the table's frontier {frontier} is beyond the log's end {known.head.next_offset}"
            )
        head = msgspec.structs.replace(known.head, frontier=frontier)
        dropped = (EXTENTS[0], extent_key(frontier + 1))
        applied, known = await _replace(store, partition, known, head, delete_ranges=(dropped,))
        if applied:
            return head


async def advance_log_start(
    store: Store, partition: StreamPartition, offset: int, *, in_tail: bool = False
) -> tuple[Head, bool]:
    """Records below `offset` leave the stream. Never moves back, nor beyond the frontier; with `in_tail` also beyond
    it, up to the end: `OffsetOutOfRange` past that. The head that stands now, and whether this call moved it."""
    known = await read_head(store, partition)
    while True:
        if known is None:
            raise UnknownStream(f"{shard_of(partition)} does not exist any more")
        if in_tail and offset > known.head.next_offset:
            raise OffsetOutOfRange(f"offset {offset} is beyond the log's end {known.head.next_offset}")
        log_start = offset if in_tail else min(offset, known.head.frontier)
        if log_start <= known.head.log_start:
            return known.head, False
        head = msgspec.structs.replace(known.head, log_start=log_start)
        applied, known = await _replace(store, partition, known, head)
        if applied:
            return head, True


async def raise_fence(store: Store, partition: StreamPartition, fence: int) -> Head | None:
    """No flush of a generation below `fence` can commit afterwards. None: deleted, which counts as fenced."""
    known = await read_head(store, partition)
    while known is not None and known.head.fence < fence:
        head = live_marks(known.head, fence)
        applied, known = await _replace(store, partition, known, head)
        if applied:
            return head
    return known.head if known is not None else None


async def _replace(
    store: Store,
    partition: StreamPartition,
    known: HeadAt,
    head: Head,
    *,
    delete_ranges: tuple[tuple[str, str], ...] = (),
) -> tuple[bool, HeadAt | None]:
    """One compare-and-set of the head: whether it was applied, and the head that stands now."""
    address = head_address(partition)
    puts = {HEAD: codec.encode(head, address)}
    change = Transaction(address.shard, {HEAD: known.version}, puts, delete_ranges=delete_ranges)
    [outcome] = await store.transact([change])
    if isinstance(outcome, Applied):
        return True, HeadAt(head, outcome.version)
    return False, decode_head(outcome.current[HEAD], partition)
