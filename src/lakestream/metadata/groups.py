"""What is stored of a consumer group, in one shard per group: its generation, its members with their assignments, its
committed offsets.

The group's lease is a key of the same shard, and every write checks the lease's token:
a coordinator that was replaced changes nothing. Offset commits of a group's
members check the state's version too, so one that belongs to an earlier generation is
refused by the store itself, however late it arrives. Every write also checks the group's
claim, a row that each commit rewrites: a commit whose reply was lost cannot land after a later
one, nor anything of an earlier claim, even if the broker has come back to the group under the same lease.

When nothing else is left of a group, its claim goes together with its lease. Versions are never given twice, so a write
that checks a token which is gone can never land, whoever takes the name next.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import ClassVar, Final, Literal, NamedTuple
from uuid import UUID

import msgspec

from lakestream.errors import NotCoordinator
from lakestream.metadata import codec
from lakestream.metadata.store import ABSENT, Address, Applied, Entry, Lease, Outcome, Refused, Store, Transaction
from lakestream.model import StreamPartition

_LEASE: Final = "lease"
_STATE: Final = "state"
_CLAIM: Final = "claim"
_MEMBERS: Final = ("m/", "m0")
"""Range of all members' keys ("0" is the character after "/")."""
_OFFSETS: Final = ("o/", "o0")
_STORED: Final = ("m/", "statf")
"""Range of members, offsets and state: what tells a group from a name that somebody only asked for."""
_GROUPS: Final = ("group/", "group0")
"""Range of all groups' shards."""

Phase = Literal["EMPTY", "PREPARING", "COMPLETING", "STABLE"]


class GroupState(msgspec.Struct, frozen=True, array_like=True):
    """The generation that members may have seen; a coordinator goes on from it and never reuses one. `changed_ms` is
    since when generation and phase are what they are."""

    stored_format: ClassVar[int] = 3

    generation: int = 0
    protocol_type: str = ""
    phase: Phase = "EMPTY"
    protocol: str | None = None
    leader: str = ""
    changed_ms: int = 0


class StoredMember(msgspec.Struct, frozen=True, array_like=True):
    """A member of the present generation. `protocols`: the names it supports, with its own data for each."""

    stored_format: ClassVar[int] = 3

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes


class StoredGroup(NamedTuple):
    state: GroupState
    members: Sequence[StoredMember] = ()


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


def _member_key(member_id: str) -> str:
    """Short, whatever name the client has given itself: the member's id begins with it."""
    return f"m/{blake2b(member_id.encode(), digest_size=16).hexdigest()}"


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
        self._generation = 0
        self._members: dict[str, bytes] | None = None
        """Members' rows as they are stored; None while a save is without reply."""
        self._versions = {_LEASE: token, _STATE: ABSENT, _CLAIM: ABSENT}

    async def load(self) -> StoredGroup:
        """To be called first, after the lease was taken. Claims the group: earlier writes have landed or never will."""
        while True:
            state, claim = await self._store.get([self._address(_STATE), self._address(_CLAIM)])
            self._versions |= {_STATE: _version(state), _CLAIM: _version(claim)}
            self._claim = 1 if claim is None else codec.decode(claim.value, int, self._address(_CLAIM)) + 1
            outcome = await self._transact({_CLAIM: codec.encode(self._claim, self._address(_CLAIM))})
            if isinstance(outcome, Applied):
                self._versions[_CLAIM] = outcome.version
                return await self._read(state)

    async def _read(self, state: Entry | None) -> StoredGroup:
        """After the claim: nobody else changes the members' rows any more."""
        rows = await self._store.range(_shard(self._group), *_MEMBERS)
        members = [codec.decode(row.value, StoredMember, self._address(row.key)) for row in rows]
        self._members = {row.key: row.value for row in rows}
        found = GroupState() if state is None else codec.decode(state.value, GroupState, self._address(_STATE))
        self._generation = found.generation
        return StoredGroup(found, members)

    async def save(self, state: GroupState, members: Iterable[StoredMember] = ()) -> None:
        """The group as it is from now on, before any member hears of it. Only rows that change are written. A save
        whose reply was lost may still be on its way: the state's version, checked here, keeps it from landing after a
        later one."""
        keyed = ((_member_key(member.member_id), member) for member in members)
        wanted = {key: codec.encode(member, self._address(key)) for key, member in keyed}
        known, self._members = self._members, None
        self._generation = state.generation
        rows = wanted if known is None else {key: row for key, row in wanted.items() if known.get(key) != row}
        rows = rows | {_STATE: codec.encode(state, self._address(_STATE))}
        gone = () if known is None else [key for key in known if key not in wanted]
        ranges = [_MEMBERS] if known is None else ()
        while not isinstance(outcome := await self._write(rows, gone, ranges), Applied):
            # Within a claim nobody else writes: an earlier write of our own has landed after all.
            self._learn(outcome)
        self._versions[_STATE] = outcome.version
        self._members = wanted

    async def commit(self, offsets: Mapping[StreamPartition, CommittedOffset]) -> None:
        """All or none. Raises `StaleGeneration` if another generation was saved meanwhile."""
        keyed = ((_offset_key(partition), offset) for partition, offset in offsets.items())
        await self._write_under_claim({key: codec.encode(offset, self._address(key)) for key, offset in keyed})

    async def drop_offsets(self, partitions: Collection[StreamPartition]) -> None:
        """Forgets what was committed there. Idempotent."""
        await self._write_under_claim({}, [_offset_key(partition) for partition in partitions])

    async def _write_under_claim(self, rows: Mapping[str, bytes], deletes: Sequence[str] = ()) -> None:
        rows = {**rows, _CLAIM: codec.encode(self._claim, self._address(_CLAIM))}
        while not isinstance(outcome := await self._write(rows, deletes), Applied):
            if _STATE in outcome.current and self._generation_of(outcome.current[_STATE]) != self._generation:
                raise StaleGeneration(self._group)
            self._learn(outcome)
        self._versions[_CLAIM] = outcome.version

    def _generation_of(self, entry: Entry | None) -> int | None:
        return None if entry is None else codec.decode(entry.value, GroupState, self._address(_STATE)).generation

    async def delete(self) -> None:
        """Forgets the group, and with it claim and lease: whatever is on its way checks the lease's token, which nobody
        is ever given again. A group of that name begins at generation 1 again; ids of members are never given twice, so
        no old one passes for a new."""
        while not isinstance(outcome := await self._write({}, [_STATE, _CLAIM, _LEASE], [_MEMBERS, _OFFSETS]), Applied):
            self._learn(outcome)

    async def forget_unused(self) -> None:
        """Takes claim and lease away if nothing else is stored: a name that somebody only asked for leaves nothing."""
        if not await self._store.range(_shard(self._group), *_STORED, limit=1):
            # A commit without reply that lands meanwhile rewrites the claim, and this is refused.
            await self._write({}, [_CLAIM, _LEASE])

    async def _write(
        self, rows: Mapping[str, bytes], deletes: Sequence[str] = (), ranges: Sequence[tuple[str, str]] = ()
    ) -> Outcome:
        outcome = await self._transact(rows, deletes, ranges)
        present = outcome.current.get(_CLAIM) if isinstance(outcome, Refused) else None
        if present is not None and codec.decode(present.value, int, self._address(_CLAIM)) != self._claim:
            raise NotCoordinator(f"group {self._group} was claimed anew")
        return outcome

    async def _transact(
        self, rows: Mapping[str, bytes], deletes: Sequence[str] = (), ranges: Sequence[tuple[str, str]] = ()
    ) -> Outcome:
        transaction = Transaction(_shard(self._group), dict(self._versions), rows, deletes, ranges)
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


async def stored_groups(store: Store) -> dict[str, GroupState]:
    """The groups that have had a generation or have offsets, in order of their names."""
    shards = await store.shards(*_GROUPS)
    found = await asyncio.gather(*(store.range(shard, *_STORED, limit=1) for shard in shards))
    used = [shard for shard, rows in zip(shards, found, strict=True) if rows]
    states = await store.get([Address(shard, _STATE) for shard in used])
    return {_name(shard): _decoded(state, shard) for shard, state in zip(used, states, strict=True)}


class Contents(NamedTuple):
    """What is stored of a group, but for its members."""

    state: GroupState
    offsets: Mapping[StreamPartition, CommittedOffset]
    is_stored: bool
    """False: only a claim or a lapsed lease is left."""


async def read_contents(store: Store, group: str) -> Contents:
    shard = _shard(group)
    [state], offsets, stored = await asyncio.gather(
        store.get([Address(shard, _STATE)]),
        committed_offsets(store, group),
        is_stored(store, group),
    )
    return Contents(_decoded(state, shard), offsets, stored)


async def is_stored(store: Store, group: str) -> bool:
    """Whether the group has a generation or offsets."""
    return bool(await store.range(_shard(group), *_STORED, limit=1))


async def names_from(store: Store, start: str, limit: int) -> list[str]:
    """At most so many of the groups that have any row, even a claim alone, from this name on, in order."""
    shards = await store.shards(_shard(start), _GROUPS[1])
    return [_name(shard) for shard in shards[:limit]]


def _name(shard: str) -> str:
    return shard.removeprefix(_GROUPS[0])


def _decoded(state: Entry | None, shard: str) -> GroupState:
    return GroupState() if state is None else codec.decode(state.value, GroupState, Address(shard, _STATE))


async def lease_holder(store: Store, group: str) -> Lease | None:
    """Who holds the group's lease now."""
    held = await store.leases(_shard(group), _LEASE, _LEASE + "\0")
    return held[0][1] if held else None


async def last_holder(store: Store, group: str) -> str | None:
    """Who let the group's lease lapse, if nobody has taken it since."""
    [row] = await store.get([lease_address(group)])
    return None if row is None else codec.decode_holder(row.value, lease_address(group))
