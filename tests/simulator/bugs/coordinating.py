"""Bugs of the coordinators of consumer groups."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from lakestream.kafka.groups import leases
from lakestream.metadata import codec, groups
from lakestream.metadata.memory import MemoryStore
from lakestream.metadata.store import Address, Applied, Lease, Transaction
from simulator.bugs.registry import bug


@bug
def lease_without_fence() -> Iterator[None]:
    """A coordinator's writes do not check that the lease is still its own."""
    real = groups.GroupRows._write

    async def unchecked(self: groups.GroupRows, rows: Any) -> Any:
        [entry] = await self._store.get([groups.lease_address(self._group)])
        [state] = await self._store.get([Address(groups.lease_address(self._group).shard, "state")])
        self._token = entry.version if entry is not None else 0
        self._state_version = state.version if state is not None else 0
        return await real(self, rows)

    with patch.object(groups.GroupRows, "_write", unchecked):
        yield


@bug
def two_coordinators_of_one_group() -> Iterator[None]:
    """Everybody who asks for a group's lease gets it."""
    real = MemoryStore.acquire_lease

    async def generous(self: MemoryStore, address: Address, holder: str, *, ttl_ms: int) -> Lease:
        lease = await real(self, address, holder, ttl_ms=ttl_ms)
        return replace(lease, holder=holder) if address.shard.startswith("group/") else lease

    saved = groups.GroupRows.save

    async def careless(self: groups.GroupRows, state: Any) -> None:
        [entry] = await self._store.get([Address(groups.lease_address(self._group).shard, "state")])
        self._state_version = entry.version if entry is not None else 0
        await saved(self, state)

    with patch.object(MemoryStore, "acquire_lease", generous), patch.object(groups.GroupRows, "save", careless):
        yield


@bug
def unlock_of_anothers_lock() -> Iterator[None]:
    """A release does not look at the token; a coordinator that lost its group gives away its successor's lease, and
    the successor's successor begins without a fence."""

    async def release(self: MemoryStore, address: Address, token: int) -> None:
        grant = self._shard(address.shard).leases.pop(address.key, None)
        if grant is not None and grant[0] != token:
            raise AssertionError(f"a release with token {token} took the lease {grant[0]} of {address}")

    real = leases.GroupLeases.drop

    def drop_and_release(self: leases.GroupLeases, held: Any) -> None:
        real(self, held)
        self._late = asyncio.ensure_future(  # type: ignore[attr-defined]
            self._store.release_lease(groups.lease_address(held.name), held.token)
        )
        self._late.add_done_callback(lambda task: task.cancelled() or task.exception())  # type: ignore[attr-defined]

    with (
        patch.object(MemoryStore, "release_lease", release),
        patch.object(leases.GroupLeases, "drop", drop_and_release),
    ):
        yield


@bug
def late_save_of_a_generation() -> Iterator[None]:
    """A save of the group's generation checks only the lease: one whose reply was lost lands after a newer one."""

    async def save(self: groups.GroupRows, state: Any) -> None:
        shard = groups.lease_address(self._group).shard
        change = Transaction(shard, {"lease": self._token}, {"state": codec.encode(state, Address(shard, "state"))})
        [outcome] = await self._store.transact([change])
        if isinstance(outcome, Applied):
            self._state_version = outcome.version

    with patch.object(groups.GroupRows, "save", save):
        yield
