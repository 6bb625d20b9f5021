"""Bugs of the coordinators of consumer groups."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

from lakestream.coordination.groups import coordinator, leases, sweeping
from lakestream.errors import NotCoordinator, Unavailable
from lakestream.metadata import groups
from lakestream.metadata.store import Address, Lease, Refused, Transaction
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.stream.rights import FoundTopics, TopicRights
from simulator.bugs.registry import bug


@bug
def lease_without_fence() -> Iterator[None]:
    """A coordinator's writes do not check that the lease is still its own: one that slept changes its successor's
    rows."""
    with _checking():
        yield


@bug
def late_save_of_a_generation() -> Iterator[None]:
    """A save of the group's generation checks only the lease: one whose reply was lost lands after a newer one."""
    with _checking("lease", only_for="state"):
        yield


@bug
def late_commit_of_offsets() -> Iterator[None]:
    """A commit of offsets checks only lease and generation: one whose reply was lost lands after a newer one."""
    with _checking("lease", "state", only_for="claim"):
        yield


@bug
def two_coordinators_of_one_group() -> Iterator[None]:
    """Everybody who asks for a group's lease gets it."""
    real = MemoryStore.acquire_lease

    async def generous(self: MemoryStore, address: Address, holder: str, *, ttl_ms: int) -> Lease:
        lease = await real(self, address, holder, ttl_ms=ttl_ms)
        return Lease(holder, lease.token, lease.remaining_ms) if address.shard.startswith("group/") else lease

    with patch.object(MemoryStore, "acquire_lease", generous):
        yield


@bug
def unlock_of_anothers_lock() -> Iterator[None]:
    """Whoever fails to take a lease gives it up all the same, and the store does not look at the token."""
    real = leases.GroupLeases._take

    async def take(self: leases.GroupLeases, group: str) -> Any:
        try:
            return await real(self, group)
        except (NotCoordinator, Unavailable):
            await self._store.release_lease(groups.lease_address(group), 0)
            raise

    async def release(self: MemoryStore, address: Address, token: int) -> None:
        shard = self._shard(address.shard)
        shard.leases.pop(address.key, None)
        shard.delete(address.key)

    with patch.object(leases.GroupLeases, "_take", take), patch.object(MemoryStore, "release_lease", release):
        yield


@bug
def offsets_by_a_cached_name() -> Iterator[None]:
    """Offsets are committed and fetched for the topic that had the name when this broker last looked."""
    real = TopicRights.find_now

    async def cached_first(self: TopicRights, principal: Any, operation: Any, keys: Any) -> FoundTopics:
        wanted = list(keys)
        return self.cached(principal, operation, wanted) or await real(self, principal, operation, wanted)

    with patch.object(TopicRights, "find_now", cached_first):
        yield


@bug
def members_forgotten_at_a_takeover() -> Iterator[None]:
    """A new coordinator goes on from the generation, but begins without members."""
    real = leases.restored

    def alone(kept: groups.StoredGroup, *settings: Any) -> Any:
        return real(groups.StoredGroup(kept.state), *settings)

    with patch.object(leases, "restored", alone):
        yield


@bug
def members_answered_before_they_are_stored() -> Iterator[None]:
    """Members hear of a generation and their assignments a little before these are on their way to the store."""
    real = coordinator.GroupCoordinator._save

    async def hasty(self: coordinator.GroupCoordinator, held: Any) -> bool:
        held.give_answers()
        await asyncio.sleep(0.2)
        return await real(self, held)

    with patch.object(coordinator.GroupCoordinator, "_save", hasty):
        yield


@bug
def offsets_of_a_group_in_use_lapse() -> Iterator[None]:
    """The sweeper looks at when offsets were committed, and not whether anybody is in the group."""
    real = sweeping.Sweeper._lapsed

    async def lapsed(self: sweeping.Sweeper, contents: Any, *, has_members: bool) -> Any:
        return await real(self, contents, has_members=False)

    with patch.object(sweeping.Sweeper, "_lapsed", lapsed):
        yield


@bug
def unused_name_forgotten_without_a_check() -> Iterator[None]:
    """Whoever gives a group back takes claim and lease away, whoever has them by now."""

    async def forget(self: groups.GroupRows) -> None:
        lease = groups.lease_address(self._group)
        await self._store.transact([Transaction(lease.shard, {}, {}, ["claim", lease.key])])

    with patch.object(groups.GroupRows, "forget_unused", forget):
        yield


def _checking(*kept: str, only_for: str = "") -> Any:
    """Group writes that make only these checks, if they write this row."""
    real = groups.GroupRows._transact

    async def transact(self: groups.GroupRows, rows: Any, deletes: Sequence[str] = (), ranges: Any = ()) -> Any:
        if only_for and only_for not in rows:
            return await real(self, rows, deletes, ranges)
        checks = {key: self._versions[key] for key in kept}
        lease = groups.lease_address(self._group)
        [outcome] = await self._store.transact([Transaction(lease.shard, checks, rows, deletes, ranges)])
        if isinstance(outcome, Refused) and lease.key in outcome.current:
            raise NotCoordinator(f"the lease of group {self._group} was taken by another broker")
        return outcome

    return patch.object(groups.GroupRows, "_transact", transact)
