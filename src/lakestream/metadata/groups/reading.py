"""What is stored of groups, for reading only, by whoever asks."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from lakestream.metadata import codec
from lakestream.metadata.groups.model import (
    GROUPS,
    LEASE,
    MEMBERS,
    OFFSETS,
    PENDING,
    STATE,
    STORED,
    CommittedOffset,
    GroupState,
    StoredConsumer,
    StoredGroup,
    StoredMember,
    lease_address,
    partition_of,
    shard_of,
)
from lakestream.metadata.store import Address, Entry, Lease, Store
from lakestream.model import StreamPartition


async def committed_offsets(store: Store, group: str) -> dict[StreamPartition, CommittedOffset]:
    """All committed offsets of a group. Linearizable, so the answer is right whoever asks."""
    shard = shard_of(group)
    rows = await store.range(shard, *OFFSETS)
    # Decoded first: a damaged key is told as damage, too.
    found = [(row.key, codec.decode(row.value, CommittedOffset, Address(shard, row.key))) for row in rows]
    return {partition_of(key): offset for key, offset in found}


async def stored_groups(store: Store) -> dict[str, GroupState]:
    """The groups that have had a generation or have offsets, in order of their names."""
    shards = await store.shards(*GROUPS)
    found = await asyncio.gather(*(store.range(shard, *STORED, limit=1) for shard in shards))
    used = [shard for shard, rows in zip(shards, found, strict=True) if rows]
    states = await store.get([Address(shard, STATE) for shard in used])
    return {_name(shard): _decoded(state, shard) for shard, state in zip(used, states, strict=True)}


class Contents(NamedTuple):
    """What is stored of a group, but for its members."""

    state: GroupState
    offsets: Mapping[StreamPartition, CommittedOffset]
    is_stored: bool
    """False: only a claim or a lapsed lease is left."""
    has_pending: bool
    """A transaction that has not ended has offsets for it."""


async def read_contents(store: Store, group: str) -> Contents:
    shard = shard_of(group)
    [state], offsets, stored, pending = await asyncio.gather(
        store.get([Address(shard, STATE)]),
        committed_offsets(store, group),
        is_stored(store, group),
        store.range(shard, *PENDING, limit=1),
    )
    return Contents(_decoded(state, shard), offsets, stored, bool(pending))


async def stored_group(store: Store, group: str) -> StoredGroup:
    """State and members, as whoever coordinates the group has stored them last."""
    shard = shard_of(group)
    [state], rows = await asyncio.gather(store.get([Address(shard, STATE)]), store.range(shard, *MEMBERS))
    addressed = [(row, Address(shard, row.key)) for row in rows]
    return StoredGroup(
        _decoded(state, shard),
        [codec.decode(row.value, StoredMember, at) for row, at in addressed if row.key.startswith("m/")],
        [codec.decode(row.value, StoredConsumer, at) for row, at in addressed if row.key.startswith("n/")],
    )


async def is_stored(store: Store, group: str) -> bool:
    """Whether the group has a generation or offsets."""
    return bool(await store.range(shard_of(group), *STORED, limit=1))


async def names_from(store: Store, start: str, limit: int) -> list[str]:
    """At most so many of the groups that have any row, even a claim alone, from this name on, in order."""
    shards = await store.shards(shard_of(start), GROUPS[1])
    return [_name(shard) for shard in shards[:limit]]


def _name(shard: str) -> str:
    return shard.removeprefix(GROUPS[0])


def _decoded(state: Entry | None, shard: str) -> GroupState:
    return GroupState() if state is None else codec.decode(state.value, GroupState, Address(shard, STATE))


async def lease_holder(store: Store, group: str) -> Lease | None:
    """Who holds the group's lease now."""
    held = await store.leases(shard_of(group), LEASE, LEASE + "\0")
    return held[0][1] if held else None


async def last_holder(store: Store, group: str) -> str | None:
    """Who let the group's lease lapse, if nobody has taken it since."""
    [row] = await store.get([lease_address(group)])
    return None if row is None else codec.decode_holder(row.value, lease_address(group))
