"""The rows of one group, in one shard: its generation, its members with their assignments, its committed offsets.

The group's lease is a key of the same shard, and every write checks the lease's token:
a coordinator that was replaced changes nothing. Offset commits of a group's
members check the state's version too, so one that belongs to an earlier generation is
refused by the store itself, however late it arrives. Every write also checks the group's
claim, a row that each commit rewrites, and each end of a transaction in the group: a commit whose reply was lost cannot
land after a later one, nor anything of an earlier claim, even if the broker has come back to the group under the same
lease.

When nothing else is left of a group, its claim goes together with its lease. Versions are never given twice, so a write
that checks a token which is gone can never land, whoever takes the name next.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from lakestream.errors import NotCoordinator
from lakestream.metadata import codec
from lakestream.metadata.groups.model import (
    CLAIM,
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
    consumer_key,
    member_key,
    offset_key,
    shard_of,
)
from lakestream.metadata.groups.pending import PendingOffsets, pending_rows
from lakestream.metadata.store import ABSENT, Address, Applied, Entry, Outcome, Refused, Store, Transaction
from lakestream.model import StreamPartition

T = TypeVar("T")


class StaleGeneration(Exception):
    """The group has moved on since the write was prepared; nothing was written."""


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
        self._versions = {LEASE: token, STATE: ABSENT, CLAIM: ABSENT}

    async def load(self) -> StoredGroup:
        """To be called first, after the lease was taken. Claims the group: earlier writes have landed or never will."""
        while True:
            state, claim = await self._store.get([self._address(STATE), self._address(CLAIM)])
            self._versions |= {STATE: _version(state), CLAIM: _version(claim)}
            self._claim = 1 if claim is None else codec.decode(claim.value, int, self._address(CLAIM)) + 1
            outcome = await self._transact({CLAIM: codec.encode(self._claim, self._address(CLAIM))})
            if isinstance(outcome, Applied):
                self._versions[CLAIM] = outcome.version
                return await self._read(state)

    async def _read(self, state: Entry | None) -> StoredGroup:
        """After the claim: nobody else changes the members' rows any more."""
        rows = await self._store.range(shard_of(self._group), *MEMBERS)
        members = self._decoded(rows, StoredMember, "m/")
        consumers = self._decoded(rows, StoredConsumer, "n/")
        self._members = {row.key: row.value for row in rows}
        found = GroupState() if state is None else codec.decode(state.value, GroupState, self._address(STATE))
        self._generation = found.generation
        return StoredGroup(found, members, consumers)

    def _decoded(self, rows: Iterable[Entry], kind: type[T], prefix: str) -> list[T]:
        return [codec.decode(row.value, kind, self._address(row.key)) for row in rows if row.key.startswith(prefix)]

    async def save(
        self, state: GroupState, members: Iterable[StoredMember] = (), consumers: Iterable[StoredConsumer] = ()
    ) -> None:
        """The group as it is from now on, before any member hears of it. Only rows that change are written. A save
        whose reply was lost may still be on its way: the state's version, checked here, keeps it from landing after a
        later one."""
        keyed = [
            *((member_key(member.member_id), member) for member in members),
            *((consumer_key(member.member_id), member) for member in consumers),
        ]
        wanted = {key: codec.encode(member, self._address(key)) for key, member in keyed}
        known, self._members = self._members, None
        self._generation = state.generation
        rows = wanted if known is None else {key: row for key, row in wanted.items() if known.get(key) != row}
        rows = rows | {STATE: codec.encode(state, self._address(STATE))}
        gone = () if known is None else [key for key in known if key not in wanted]
        ranges = [MEMBERS] if known is None else ()
        while not isinstance(outcome := await self._write(rows, gone, ranges), Applied):
            # Within a claim nobody else writes: an earlier write of our own has landed after all.
            self._learn(outcome)
        self._versions[STATE] = outcome.version
        self._members = wanted

    async def commit(
        self,
        offsets: Mapping[StreamPartition, CommittedOffset],
        find_pending: Callable[[], Awaitable[Iterable[PendingOffsets]]] | None = None,
    ) -> None:
        """All or none. Raises `StaleGeneration` if another generation was saved meanwhile. `find_pending` says which
        offsets transactions that are open have pending: asked again whenever a transaction has ended in the group."""
        keyed = ((offset_key(partition), offset) for partition, offset in offsets.items())
        rows = {key: codec.encode(offset, self._address(key)) for key, offset in keyed}
        await self._write_under_claim(rows, find_pending=find_pending)

    async def drop_offsets(self, partitions: Collection[StreamPartition]) -> None:
        """Forgets what was committed there. Idempotent."""
        await self._write_under_claim({}, [offset_key(partition) for partition in partitions])

    async def _write_under_claim(
        self,
        rows: Mapping[str, bytes],
        deletes: Sequence[str] = (),
        find_pending: Callable[[], Awaitable[Iterable[PendingOffsets]]] | None = None,
    ) -> None:
        rows = {**rows, CLAIM: codec.encode(self._claim, self._address(CLAIM))}
        while True:
            # Asked after the claim's version was learned: a transaction that ends in the group rewrites the claim.
            pending = {} if find_pending is None else pending_rows(self._group, await find_pending())
            outcome = await self._write({**rows, **pending}, deletes)
            if isinstance(outcome, Applied):
                self._versions[CLAIM] = outcome.version
                return
            if STATE in outcome.current and self._generation_of(outcome.current[STATE]) != self._generation:
                raise StaleGeneration(self._group)
            self._learn(outcome)

    def _generation_of(self, entry: Entry | None) -> int | None:
        return None if entry is None else codec.decode(entry.value, GroupState, self._address(STATE)).generation

    async def delete(self) -> None:
        """Forgets the group, and with it claim and lease: whatever is on its way checks the lease's token, which nobody
        is ever given again. A group of that name begins at generation 1 again; ids of members are never given twice, so
        no old one passes for a new."""
        while not isinstance(
            outcome := await self._write({}, [STATE, CLAIM, LEASE], [MEMBERS, OFFSETS, PENDING]), Applied
        ):
            self._learn(outcome)

    async def forget_unused(self) -> None:
        """Takes claim and lease away if nothing else is stored: a name that somebody only asked for leaves nothing."""
        if not await self._store.range(shard_of(self._group), *STORED, limit=1):
            # A commit without reply that lands meanwhile rewrites the claim, and this is refused.
            await self._write({}, [CLAIM, LEASE])

    async def _write(
        self, rows: Mapping[str, bytes], deletes: Sequence[str] = (), ranges: Sequence[tuple[str, str]] = ()
    ) -> Outcome:
        outcome = await self._transact(rows, deletes, ranges)
        present = outcome.current.get(CLAIM) if isinstance(outcome, Refused) else None
        if present is not None and codec.decode(present.value, int, self._address(CLAIM)) != self._claim:
            raise NotCoordinator(f"group {self._group} was claimed anew")
        return outcome

    async def _transact(
        self, rows: Mapping[str, bytes], deletes: Sequence[str] = (), ranges: Sequence[tuple[str, str]] = ()
    ) -> Outcome:
        transaction = Transaction(shard_of(self._group), dict(self._versions), rows, deletes, ranges)
        [outcome] = await self._store.transact([transaction])
        if isinstance(outcome, Refused) and LEASE in outcome.current:
            raise NotCoordinator(f"the lease of group {self._group} was taken by another broker")
        return outcome

    def _learn(self, refused: Refused) -> None:
        self._versions |= {key: _version(entry) for key, entry in refused.current.items()}

    def _address(self, key: str) -> Address:
        return Address(shard_of(self._group), key)


def _version(entry: Entry | None) -> int:
    return ABSENT if entry is None else entry.version
