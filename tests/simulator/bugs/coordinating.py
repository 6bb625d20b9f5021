"""Bugs of the coordinators of consumer groups."""

from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

from lakestream.errors import NotCoordinator, Unavailable
from lakestream.kafka.groups import leases
from lakestream.metadata import groups
from lakestream.metadata.memory import MemoryStore
from lakestream.metadata.store import Address, Lease, Refused, Transaction
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


def _checking(*kept: str, only_for: str = "") -> Any:
    """Group writes that make only these checks, if they write this row."""
    real = groups.GroupRows._transact

    async def transact(self: groups.GroupRows, rows: Any, deletes: Sequence[str] = ()) -> Any:
        if only_for and only_for not in rows:
            return await real(self, rows, deletes)
        checks = {key: self._versions[key] for key in kept}
        lease = groups.lease_address(self._group)
        [outcome] = await self._store.transact([Transaction(lease.shard, checks, rows, deletes)])
        if isinstance(outcome, Refused) and lease.key in outcome.current:
            raise NotCoordinator(f"the lease of group {self._group} was taken by another broker")
        return outcome

    return patch.object(groups.GroupRows, "_transact", transact)
