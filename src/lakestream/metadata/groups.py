"""What is stored of a consumer group: its generation and its committed offsets, in one shard per group.

The group's lease is a key of the same shard, and every write checks the lease's token:
a coordinator that was replaced changes nothing. Offset commits of a group's
members check the state's version too, so one that belongs to an earlier generation is
refused by the store itself, however late it arrives. Every write also checks the group's
claim, a row that each commit rewrites: a commit whose reply was lost cannot land after a later
one, nor anything of an earlier claim, even if the broker has come back to the group under the same lease.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

import msgspec

from lakestream.errors import NotCoordinator
from lakestream.metadata import codec
from lakestream.metadata.store import ABSENT, Address, Applied, Entry, Lease, Outcome, Refused, Store, Transaction
from lakestream.model import StreamPartition

_LEASE: Final = "lease"
_STATE: Final = "state"
_CLAIM: Final = "claim"
_OFFSETS: Final = ("o/", "o0")
"""Range of all offset keys ("0" is the character after "/")."""
_STORED: Final = ("o/", "statf")
"""Range of the offset keys and the state's: what tells a group from a name that somebody only asked for."""
_GROUPS: Final = ("group/", "group0")
"""Range of all groups' shards."""


class GroupState(msgspec.Struct, frozen=True, array_like=True):
    """The generation that members may have seen; a coordinator goes on from it and never reuses one."""

    generation: int = 0
    protocol_type: str = ""


class CommittedOffset(msgspec.Struct, frozen=True, array_like=True):
    """The next offset to read, as a consumer committed it."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int


class StaleGeneration(Exception):
    """The group has moved on since the write was prepared; nothing was written."""


def lease_address(group: str) -> Address:
    return Address(_shard(group), _LEASE)


def _shard(group: str) -> str:
    return f"{_GROUPS[0]}{group}"


def _offset_key(partition: StreamPartition) -> str:
    return f"o/{partition.topic_id.hex}/{partition.index:08d}"


def _partition_of(key: str) -> StreamPartition:
    _, topic, index = key.split("/")
    return StreamPartition(UUID(topic), int(index))


class GroupRows:
    """The rows of one group, for the holder of its lease. Raises `NotCoordinator` once the lease is another's, or this
    broker's own anew."""

    def __init__(self, store: Store, group: str, token: int) -> None:
        self._store = store
        self._group = group
        self._token = token
        self._claim = 0
        self._versions = {_LEASE: token, _STATE: ABSENT, _CLAIM: ABSENT}

    async def load(self) -> GroupState:
        """To be called first, after the lease was taken. Claims the group: earlier writes have landed or never will."""
        while True:
            state, claim = await self._store.get([self._address(_STATE), self._address(_CLAIM)])
            self._versions |= {_STATE: _version(state), _CLAIM: _version(claim)}
            self._claim = 1 if claim is None else codec.decode(claim.value, int, self._address(_CLAIM)) + 1
            outcome = await self._transact({_CLAIM: codec.encode(self._claim, self._address(_CLAIM))})
            if isinstance(outcome, Applied):
                self._versions[_CLAIM] = outcome.version
                return GroupState() if state is None else codec.decode(state.value, GroupState, self._address(_STATE))

    async def save(self, state: GroupState) -> None:
        """Persists a generation before any member sees it. A save whose reply was lost may still be on its way: the
        state's version, checked here, keeps it from landing after a later one."""
        rows = {_STATE: codec.encode(state, self._address(_STATE))}
        while not isinstance(outcome := await self._write(rows), Applied):
            # Within a claim nobody else writes: an earlier write of our own has landed after all.
            self._learn(outcome)
        self._versions[_STATE] = outcome.version

    async def commit(self, offsets: Mapping[StreamPartition, CommittedOffset]) -> None:
        """All or none. Raises `StaleGeneration` if the state was saved anew meanwhile."""
        keyed = ((_offset_key(partition), offset) for partition, offset in offsets.items())
        rows = {key: codec.encode(offset, self._address(key)) for key, offset in keyed}
        rows[_CLAIM] = codec.encode(self._claim, self._address(_CLAIM))
        while not isinstance(outcome := await self._write(rows), Applied):
            if _STATE in outcome.current:
                raise StaleGeneration(self._group)
            self._learn(outcome)
        self._versions[_CLAIM] = outcome.version

    async def delete(self) -> None:
        """Forgets the group but for its claim: what is still on its way from before cannot land. Idempotent. A group of
        that name begins at generation 1 again; ids of members are never given twice, so no old one passes for a new."""
        offsets = await self._store.range(_shard(self._group), *_OFFSETS)
        rows = {_CLAIM: codec.encode(self._claim, self._address(_CLAIM))}
        while not isinstance(outcome := await self._write(rows, [_STATE, *(row.key for row in offsets)]), Applied):
            self._learn(outcome)
        self._versions |= {_STATE: ABSENT, _CLAIM: outcome.version}

    async def _write(self, rows: Mapping[str, bytes], deletes: Sequence[str] = ()) -> Outcome:
        outcome = await self._transact(rows, deletes)
        present = outcome.current.get(_CLAIM) if isinstance(outcome, Refused) else None
        if present is not None and codec.decode(present.value, int, self._address(_CLAIM)) != self._claim:
            raise NotCoordinator(f"group {self._group} was claimed anew")
        return outcome

    async def _transact(self, rows: Mapping[str, bytes], deletes: Sequence[str] = ()) -> Outcome:
        transaction = Transaction(_shard(self._group), dict(self._versions), rows, deletes)
        [outcome] = await self._store.transact([transaction])
        if isinstance(outcome, Refused) and _LEASE in outcome.current:
            raise NotCoordinator(f"the lease of group {self._group} was taken by another broker")
        return outcome

    def _learn(self, refused: Refused) -> None:
        self._versions |= {key: _version(entry) for key, entry in refused.current.items()}

    def _address(self, key: str) -> Address:
        return Address(_shard(self._group), key)


def _version(entry: Entry | None) -> int:
    return ABSENT if entry is None else entry.version


async def committed_offsets(store: Store, group: str) -> dict[StreamPartition, CommittedOffset]:
    """All committed offsets of a group. Linearizable, so the answer is right whoever asks."""
    shard = _shard(group)
    rows = await store.range(shard, *_OFFSETS)
    # Decoded first: a damaged key is told as damage, too.
    found = [(row.key, codec.decode(row.value, CommittedOffset, Address(shard, row.key))) for row in rows]
    return {_partition_of(key): offset for key, offset in found}


async def stored_groups(store: Store) -> list[str]:
    """The groups that have had a generation or have offsets, in order of their names."""
    shards = await store.shards(*_GROUPS)
    found = await asyncio.gather(*(store.range(shard, *_STORED, limit=1) for shard in shards))
    return [shard.removeprefix(_GROUPS[0]) for shard, rows in zip(shards, found, strict=True) if rows]


async def lease_holder(store: Store, group: str) -> Lease | None:
    """Who holds the group's lease now."""
    held = await store.leases(_shard(group), _LEASE, _LEASE + "\0")
    return held[0][1] if held else None
