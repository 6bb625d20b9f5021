"""A store in this process's memory: for simulation and tests.

Every operation finishes without giving the event loop away, so a run is as
deterministic as its caller. Lease expiry follows the runtime's clock.
"""

import asyncio
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lakestream.metadata import codec
from lakestream.metadata.store import (
    ABSENT,
    Address,
    Applied,
    Entry,
    Lease,
    Outcome,
    Refused,
    Transaction,
)
from lakestream.runtime import Runtime


@dataclass(slots=True)
class _Shard:
    """`order` holds the keys of `entries`, sorted. `leases` maps a key to its token and expiry."""

    name: str
    entries: dict[str, Entry] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    leases: dict[str, tuple[int, int]] = field(default_factory=dict)

    def version(self, key: str) -> int:
        entry = self.entries.get(key)
        return ABSENT if entry is None else entry.version

    def put(self, key: str, value: bytes, version: int) -> None:
        if key not in self.entries:
            insort(self.order, key)
        self.entries[key] = Entry(key, value, version)

    def keys(self, start: str, end: str) -> list[str]:
        return self.order[bisect_left(self.order, start) : bisect_left(self.order, end)]

    def delete(self, key: str) -> bool:
        if self.entries.pop(key, None) is None:
            return False
        del self.order[bisect_left(self.order, key)]
        return True

    def lease(self, key: str, now_ms: int) -> Lease | None:
        """The unexpired lease on a key whose row is still the one that the grant wrote."""
        grant = self.leases.get(key)
        if grant is None or grant[1] <= now_ms or grant[0] != self.version(key):
            return None
        holder = codec.decode_holder(self.entries[key].value, Address(self.name, key))
        return None if holder is None else Lease(holder, grant[0], grant[1] - now_ms)


class MemoryStore:
    """Implements `Store` for one event loop."""

    def __init__(self, runtime: Runtime) -> None:
        self._clock = runtime.clock
        self._shards: dict[str, _Shard] = {}
        self._version = ABSENT
        self._waiters: dict[Address, dict[asyncio.Future[None], None]] = {}
        """Dicts as ordered sets: waiters wake in the order they came."""

    async def get(self, addresses: Sequence[Address]) -> list[Entry | None]:
        return [self._shard(shard).entries.get(key) for shard, key in addresses]

    async def range(self, shard: str, start: str, end: str, *, limit: int | None = None) -> list[Entry]:
        found = self._shard(shard)
        keys = found.keys(start, end)
        return [found.entries[key] for key in (keys if limit is None else keys[:limit])]

    async def shards(self, start: str, end: str) -> list[str]:
        return sorted(name for name, shard in self._shards.items() if start <= name < end and shard.entries)

    async def transact(self, transactions: Sequence[Transaction]) -> list[Outcome]:
        return [self._apply(transaction) for transaction in transactions]

    async def watch(self, seen: Mapping[Address, int], *, timeout_ms: int) -> bool:
        if any(self._shard(a.shard).version(a.key) != version for a, version in seen.items()):
            return True
        waiter = asyncio.get_running_loop().create_future()
        for address in seen:
            self._waiters.setdefault(address, {})[waiter] = None
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await waiter
        except TimeoutError:
            return not waiter.cancelled()  # set in the same moment
        finally:
            for address in seen:
                waiters = self._waiters[address]
                del waiters[waiter]
                if not waiters:
                    del self._waiters[address]
        return True

    async def acquire_lease(self, address: Address, holder: str, *, ttl_ms: int) -> Lease:
        shard, key = self._shard(address.shard), address.key
        now_ms = self._clock.now_ms()
        lease = shard.lease(key, now_ms)
        if lease is None:
            shard.put(key, codec.encode(holder, address), self._next_version())
            self._wake(address)
        elif lease.holder != holder:
            return lease
        token = shard.version(key)
        shard.leases[key] = (token, now_ms + ttl_ms)
        return Lease(holder, token, ttl_ms)

    async def release_lease(self, address: Address, token: int) -> None:
        shard, key = self._shard(address.shard), address.key
        grant = shard.leases.get(key)
        if grant is None or grant[0] != token:
            return
        del shard.leases[key]
        if shard.version(key) == token:
            shard.delete(key)
            self._wake(address)

    async def leases(self, shard: str, start: str, end: str) -> list[tuple[str, Lease]]:
        found, now_ms = self._shard(shard), self._clock.now_ms()
        held = ((key, found.lease(key, now_ms)) for key in found.keys(start, end))
        return [(key, lease) for key, lease in held if lease is not None]

    async def close(self) -> None:
        """Nothing is held; the contents go with the object."""

    def _shard(self, name: str) -> _Shard:
        shard = self._shards.get(name)
        if shard is None:
            shard = self._shards[name] = _Shard(name)
        return shard

    def _next_version(self) -> int:
        self._version += 1
        return self._version

    def _apply(self, transaction: Transaction) -> Outcome:
        shard = self._shard(transaction.shard)
        refused = {
            key: shard.entries.get(key) for key, version in transaction.checks.items() if shard.version(key) != version
        }
        if refused:
            return Refused(refused)
        version = self._next_version()
        changed = [key for key in transaction.deletes if shard.delete(key)]
        for start, end in transaction.delete_ranges:
            changed.extend(key for key in shard.keys(start, end) if shard.delete(key))
        for key, value in transaction.puts.items():
            shard.put(key, value, version)
        for key in (*changed, *transaction.puts):
            self._wake(Address(transaction.shard, key))
        return Applied(version)

    def _wake(self, address: Address) -> None:
        for waiter in self._waiters.get(address, ()):
            if not waiter.done():
                waiter.set_result(None)
