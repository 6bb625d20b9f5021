"""Bugs of the coordinators of consumer groups."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import msgspec

from lakestream.coordination.groups import leases, settling, sweeping
from lakestream.metadata import groups
from lakestream.metadata.store import Address, Lease, Transaction
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.stream.rights import FoundTopics, TopicRights
from simulator.bugs.registry import bug, staged, swapped
from simulator.faults import Aim
from simulator.scene import Stage

GROUPS: Final = "group/"
"""How the shards of groups begin."""


@bug
def lease_without_fence() -> Iterator[None]:
    """A coordinator's writes do not check that the lease is still its own: one that slept changes its successor's
    rows."""
    with _transactions(_checking()):
        yield


@staged(Stage("groups", (Aim("transact group", "late request", 0.3, 12),)))
@bug
def late_save_of_a_generation() -> Iterator[None]:
    """A save of the group's generation checks only the lease: one whose reply was lost lands after a newer one."""
    with _transactions(_checking("lease", writing="state")):
        yield


@staged(Stage("groups", (Aim("transact group", "late request", 0.3, 12),)))
@bug
def late_commit_of_offsets() -> Iterator[None]:
    """A commit of offsets checks only lease and generation: one whose reply was lost lands after a newer one."""
    with _transactions(_checking("lease", "state", writing="claim")):
        yield


@bug
def two_coordinators_of_one_group() -> Iterator[None]:
    """Everybody who asks for a group's lease gets it."""
    real = MemoryStore.acquire_lease

    async def generous(self: MemoryStore, address: Address, holder: str, *, ttl_ms: int) -> Lease:
        lease = await real(self, address, holder, ttl_ms=ttl_ms)
        return Lease(holder, lease.token, lease.remaining_ms) if address.shard.startswith(GROUPS) else lease

    with swapped(MemoryStore, real, generous):
        yield


@bug
def unlock_of_anothers_lock() -> Iterator[None]:
    """Whoever fails to take a group's lease gives it up all the same, and the store does not look whose it is."""
    real = MemoryStore.acquire_lease

    async def take(self: MemoryStore, address: Address, holder: str, *, ttl_ms: int) -> Lease:
        lease = await real(self, address, holder, ttl_ms=ttl_ms)
        if address.shard.startswith(GROUPS) and lease.holder != holder:
            await self.release_lease(address, lease.token)
        return lease

    with swapped(MemoryStore, real, take):
        yield


@staged(Stage("groups"))
@bug
def offsets_by_a_cached_name() -> Iterator[None]:
    """Offsets are committed and fetched for the topic that had the name when this broker last looked."""
    real = TopicRights.find_now

    async def cached_first(self: TopicRights, principal: Any, operation: Any, keys: Any) -> FoundTopics:
        wanted = list(keys)
        asked = [(key, 0) for key in wanted]
        return self.cached(principal, operation, asked) or await real(self, principal, operation, wanted)

    with swapped(TopicRights, real, cached_first):
        yield


@staged(Stage("groups", (Aim("transact group", "crash", 0.2, 8),)))
@bug
def members_forgotten_at_a_takeover() -> Iterator[None]:
    """A new coordinator goes on from the generation, but begins without members."""
    real = leases.restored

    def alone(kept: groups.StoredGroup, *settings: Any) -> Any:
        return real(groups.StoredGroup(kept.state), *settings)

    with swapped(leases, real, alone):
        yield


@staged(Stage("groups", (Aim("transact group", "crash", 0.2, 8),)))
@bug
def members_answered_before_they_are_stored() -> Iterator[None]:
    """Members hear of a generation and their assignments a little before these are on their way to the store."""
    real = settling.Settler.save

    async def hasty(self: settling.Settler, held: Any) -> bool:
        held.give_answers()
        await asyncio.sleep(0.2)
        return await real(self, held)

    with swapped(settling.Settler, real, hasty):
        yield


@staged(Stage("groups"))
@bug
def offsets_of_a_group_in_use_lapse() -> Iterator[None]:
    """The sweeper looks at when offsets were committed, and not whether anybody is in the group."""
    real = sweeping.Sweeper.lapsed

    async def lapsed(self: sweeping.Sweeper, contents: Any, *, has_members: bool) -> Any:
        return await real(self, contents, has_members=False)

    with swapped(sweeping.Sweeper, real, lapsed):
        yield


@staged(Stage("groups"))
@bug
def unused_name_forgotten_without_a_check() -> Iterator[None]:
    """Whoever gives a group back takes claim and lease away, whoever has them by now."""

    def unchecked(change: Transaction) -> Transaction:
        forgets = not change.puts and not change.delete_ranges and "lease" in change.deletes
        return msgspec.structs.replace(change, checks={}) if forgets else change

    with _transactions(unchecked):
        yield


def _checking(*kept: str, writing: str = "") -> Callable[[Transaction], Transaction]:
    """Transactions that make only these checks, if they write this row."""

    def change(given: Transaction) -> Transaction:
        if writing and writing not in given.puts:
            return given
        return msgspec.structs.replace(given, checks={key: given.checks[key] for key in kept if key in given.checks})

    return change


def _transactions(changed: Callable[[Transaction], Transaction]) -> AbstractContextManager[Any]:
    """What coordinators write to the shards of their groups, changed on its way."""
    real = MemoryStore.transact

    async def transact(self: MemoryStore, given: Sequence[Transaction]) -> Any:
        return await real(self, [changed(each) if each.shard.startswith(GROUPS) else each for each in given])

    return swapped(MemoryStore, real, transact)
