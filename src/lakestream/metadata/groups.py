"""What is stored of a consumer group: its generation and its committed offsets, in one shard per group.

The group's lease is a key of the same shard, and every write checks the lease's token:
a coordinator that was replaced changes nothing. Offset commits of a group's
members check the state's version too, so one that belongs to an earlier generation is
refused by the store itself, however late it arrives.
"""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

import msgspec

from lakestream.errors import NotCoordinator
from lakestream.metadata import codec
from lakestream.metadata.store import ABSENT, Address, Applied, Lease, Outcome, Refused, Store, Transaction
from lakestream.model import StreamPartition

_LEASE: Final = "lease"
_STATE: Final = "state"
_OFFSETS: Final = ("o/", "o0")
"""Range of all offset keys ("0" is the character after "/")."""


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
    return f"group/{group}"


def _offset_key(partition: StreamPartition) -> str:
    return f"o/{partition.topic_id.hex}/{partition.index:08d}"


def _partition_of(key: str) -> StreamPartition:
    _, topic, index = key.split("/")
    return StreamPartition(UUID(topic), int(index))


class GroupRows:
    """The rows of one group, for the holder of its lease. Raises `NotCoordinator` once the lease is another's."""

    def __init__(self, store: Store, group: str, token: int) -> None:
        self._store = store
        self._group = group
        self._token = token
        self._state_version = ABSENT

    async def load(self) -> GroupState:
        """To be called first, after the lease was taken: writes of former holders have landed or never will."""
        [entry] = await self._store.get([Address(_shard(self._group), _STATE)])
        if entry is None:
            return GroupState()
        self._state_version = entry.version
        return codec.decode(entry.value, GroupState, Address(_shard(self._group), _STATE))

    async def save(self, state: GroupState) -> None:
        """Persists a generation before any member sees it. A save whose reply was lost may still be on its way: the
        state's version, checked here, keeps it from landing after a later one."""
        rows = {_STATE: codec.encode(state, Address(_shard(self._group), _STATE))}
        while True:
            outcome = await self._write(rows)
            if isinstance(outcome, Applied):
                self._state_version = outcome.version
                return
            # Only the lease's holder writes the state: an earlier save of our own has landed after all.
            entry = outcome.current[_STATE]
            self._state_version = entry.version if entry is not None else ABSENT

    async def commit(self, offsets: Mapping[StreamPartition, CommittedOffset]) -> None:
        """All or none. Raises `StaleGeneration` if the state was saved anew meanwhile."""
        shard = _shard(self._group)
        keyed = ((_offset_key(partition), offset) for partition, offset in offsets.items())
        rows = {key: codec.encode(offset, Address(shard, key)) for key, offset in keyed}
        if not isinstance(await self._write(rows), Applied):
            raise StaleGeneration(self._group)

    async def _write(self, rows: Mapping[str, bytes]) -> Outcome:
        checks = {_LEASE: self._token, _STATE: self._state_version}
        [outcome] = await self._store.transact([Transaction(_shard(self._group), checks, rows)])
        if isinstance(outcome, Refused) and _LEASE in outcome.current:
            raise NotCoordinator(f"the lease of group {self._group} was taken by another broker")
        return outcome


async def committed_offsets(store: Store, group: str) -> dict[StreamPartition, CommittedOffset]:
    """All committed offsets of a group. Linearizable, so the answer is right whoever asks."""
    shard = _shard(group)
    rows = await store.range(shard, *_OFFSETS)
    # Decoded first: a damaged key is told as damage, too.
    found = [(row.key, codec.decode(row.value, CommittedOffset, Address(shard, row.key))) for row in rows]
    return {_partition_of(key): offset for key, offset in found}


async def lease_holder(store: Store, group: str) -> Lease | None:
    """Who holds the group's lease now."""
    held = await store.leases(_shard(group), _LEASE, _LEASE + "\0")
    return held[0][1] if held else None
