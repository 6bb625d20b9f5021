"""Offsets that belong to a transaction: pending in the group's shard until the transaction ends.

Whoever ends a transaction turns what it has pending here into committed offsets, or drops it, in one write that also
rewrites the group's claim. A coordinator that finds the claim rewritten asks anew whether the transaction is open
before it writes on: what is pending of a transaction is written before its end, or never.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from lakestream.metadata import codec
from lakestream.metadata.groups.model import CLAIM, PENDING, CommittedOffset, offset_key, partition_of, shard_of
from lakestream.metadata.store import Address, Applied, Entry, Store, Transaction
from lakestream.model import StreamPartition


class PendingOffsets(NamedTuple):
    """Of one transaction of a producer."""

    producer_id: int
    number: int
    offsets: Mapping[StreamPartition, CommittedOffset]


def pending_rows(group: str, pending: Iterable[PendingOffsets]) -> dict[str, bytes]:
    shard = shard_of(group)
    return {
        key: codec.encode(offset, Address(shard, key))
        for each in pending
        for partition, offset in each.offsets.items()
        for key in (f"{_prefix(each.producer_id, each.number)}{offset_key(partition)}",)
    }


async def pending_partitions(store: Store, group: str) -> frozenset[StreamPartition]:
    """Those whose committed offset may change without anybody asking for it: a transaction has another one pending."""
    rows = await store.range(shard_of(group), *PENDING)
    return frozenset(_partition(row) for row in rows)


async def end_in_group(store: Store, group: str, producer_id: int, number: int, *, committed: bool) -> None:
    """What the transaction has pending becomes the group's offsets, or goes. Idempotent. An offset that was committed
    after the transaction's own stays."""
    shard, prefix = shard_of(group), _prefix(producer_id, number)
    while True:
        [claim] = await store.get([Address(shard, CLAIM)])
        if claim is None:
            # The group is gone, or was never there: nobody writes to it without a claim, which he would make anew.
            return
        rows = await store.range(shard, prefix, prefix[:-1] + "0")
        present = await _committed(store, shard, rows) if committed else {}
        puts = dict(_turned(shard, rows, present)) if committed else {}
        puts[CLAIM] = claim.value
        change = Transaction(shard, {CLAIM: claim.version}, puts, [row.key for row in rows])
        [outcome] = await store.transact([change])
        if isinstance(outcome, Applied):
            return


async def _committed(store: Store, shard: str, rows: Collection[Entry]) -> dict[str, Entry]:
    keys = [offset_key(_partition(row)) for row in rows]
    found = await store.get([Address(shard, key) for key in keys])
    return {key: entry for key, entry in zip(keys, found, strict=True) if entry is not None}


def _turned(shard: str, rows: Collection[Entry], present: Mapping[str, Entry]) -> Iterable[tuple[str, bytes]]:
    for row in rows:
        key = offset_key(_partition(row))
        address = Address(shard, key)
        before = present.get(key)
        if before is not None:
            known = codec.decode(before.value, CommittedOffset, address)
            # A turn that is later than its row is of a store that was lost and rebuilt: the row's own counts.
            if min(known.turn or before.version, before.version) > row.version:
                continue
        offset = codec.decode(row.value, CommittedOffset, Address(shard, row.key))
        yield key, codec.encode(msgspec.structs.replace(offset, turn=row.version), address)


def _prefix(producer_id: int, number: int) -> str:
    return f"{PENDING[0]}{producer_id:016x}/{number:016x}/"


def _partition(row: Entry) -> StreamPartition:
    return partition_of(row.key.split("/", 3)[3])
