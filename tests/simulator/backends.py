"""The simulated metadata store and object store: real semantics, unreliable delivery.

With a calm world they pass the contract suites of the real backends.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from lakestream.errors import Conflict, CorruptObject, ObjectMissing, Unavailable
from lakestream.metadata.store import Address, Entry, Lease, Outcome, Transaction
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.objects.keys import check_key, normal_prefix
from lakestream.objects.store import Buffer, ObjectInfo
from lakestream.runtime import Runtime
from simulator.world import World, run_now


class SimulatedStore:
    """A linearizable store behind a network that loses, delays and repeats."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.core = MemoryStore(Runtime(world.process("store clock"), world.random))

    async def get(self, addresses: Sequence[Address]) -> list[Entry | None]:
        shard = addresses[0].shard if addresses else "nothing"
        return await self._world.operation(f"get {shard}", lambda: run_now(self.core.get(addresses)))

    async def range(self, shard: str, start: str, end: str, *, limit: int | None = None) -> list[Entry]:
        return await self._world.operation(
            f"range {shard}", lambda: run_now(self.core.range(shard, start, end, limit=limit))
        )

    async def shards(self, start: str, end: str) -> list[str]:
        return await self._world.operation(f"shards {start}", lambda: run_now(self.core.shards(start, end)))

    async def transact(self, transactions: Sequence[Transaction]) -> list[Outcome]:
        """A call that carries many may be cut off between any two of them."""
        kept = len(transactions)
        if kept > 1 and self._world.chance(self._world.faults.split):
            kept = self._world.random.randrange(kept)
        name = f"transact {','.join([each.shard for each in transactions])}"
        outcomes = await self._world.operation(name, lambda: run_now(self.core.transact(transactions[:kept])))
        if kept < len(transactions):
            self._world.trace(f"{name}: cut off after {kept}")
            raise Unavailable("the connection broke in the middle")
        return outcomes

    async def watch(self, seen: Mapping[Address, int], *, timeout_ms: int) -> bool:
        await self._world.operation("watch", lambda: None)
        return await self.core.watch(seen, timeout_ms=timeout_ms)

    async def acquire_lease(self, address: Address, holder: str, *, ttl_ms: int) -> Lease:
        return await self._world.operation(
            f"acquire {address.shard}", lambda: run_now(self.core.acquire_lease(address, holder, ttl_ms=ttl_ms))
        )

    async def release_lease(self, address: Address, token: int) -> None:
        await self._world.operation(
            f"release {address.shard}", lambda: run_now(self.core.release_lease(address, token))
        )

    async def leases(self, shard: str, start: str, end: str) -> list[tuple[str, Lease]]:
        return await self._world.operation(f"leases {shard}", lambda: run_now(self.core.leases(shard, start, end)))

    async def close(self) -> None:
        await self.core.close()


class SimulatedObjects:
    """A bucket. With `stale_s` its listings may be that old, lacking what is new and showing what is gone, and what was
    deleted may be served that much longer. `on_delete` is told each name before it goes."""

    def __init__(
        self,
        world: World,
        *,
        stale_s: float = 0.0,
        partial_deletes: float = 0.0,
        place: str = "bucket",
        url: str = "simulated:/",
    ) -> None:
        self._world = world
        self.place = place
        self._url = url
        self._stale_s = stale_s
        self._partial_deletes = partial_deletes
        self.objects: dict[str, bytes] = {}
        self.on_delete: Callable[[str], None] = lambda key: None
        self._written_at_s: dict[str, float] = {}
        self.written_at_ms: dict[str, int] = {}
        self.deletes = 0
        self._graves: dict[str, tuple[float, bytes]] = {}
        """What was deleted: when, and what it was."""

    @property
    def url(self) -> str:
        return self._url

    async def put(self, key: str, parts: Sequence[Buffer], *, overwrite: bool = False) -> None:
        check_key(key)
        data = b"".join(parts)

        def apply() -> None:
            if key in self.objects and not overwrite:
                raise Conflict(f"{self.url}/{key} exists already")
            self.objects[key] = data
            self._written_at_s[key] = self._world.loop.time()
            self.written_at_ms[key] = self._world.now_ms()

        await self._world.operation(f"put {key}", apply, place=self.place)

    async def get(self, key: str) -> bytes:
        check_key(key)
        return await self._world.operation(f"get {key}", lambda: self._data(key), place=self.place)

    async def get_range(self, key: str, start: int, length: int, *, once: bool = False) -> bytes:
        check_key(key)

        def apply() -> bytes:
            data = self._data(key)[start : start + length]
            if len(data) < length:
                raise CorruptObject(f"{self.url}/{key} is too short for {length} bytes at {start}")
            return data

        return await self._world.operation(f"get {key}", apply, place=self.place)

    async def get_tail(self, key: str, length: int) -> bytes:
        check_key(key)
        return await self._world.operation(
            f"get {key}", lambda: self._data(key)[-length:] if length else b"", place="bucket"
        )

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        folder = normal_prefix(prefix)
        as_of_s = self._as_of_s()

        def apply() -> "list[ObjectInfo]":
            found = {key: data for key, (gone_s, data) in self._graves.items() if gone_s > as_of_s} | self.objects
            return [
                ObjectInfo(key, len(found[key]), self.written_at_ms[key])
                for key in sorted(key for key in found if key.startswith(folder))
                if (after is None or key > after) and self._written_at_s[key] <= as_of_s
            ]

        for info in await self._world.operation(f"list {prefix}", apply, place=self.place):
            yield info

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            check_key(key)

        def apply() -> bool:
            chosen = keys
            if self._partial_deletes and self._world.chance(self._partial_deletes):
                chosen = self._world.random.sample(keys, self._world.random.randrange(len(keys) + 1))
            for key in chosen:
                if key in self.objects:
                    self.on_delete(key)
                    self._graves[key] = (self._world.loop.time(), self.objects.pop(key))
                    self.deletes += 1
                    self._world.trace(f"object {key} is deleted")
            return len(chosen) == len(keys)

        if not await self._world.operation(f"delete {len(keys)} objects", apply, place=self.place):
            self._world.trace("deletes were throttled")
            raise Unavailable("throttled after some of the deletes")

    def is_back(self, key: str) -> bool:
        """Whether a late request has put again what had been deleted."""
        return key in self.objects and key in self._graves

    def _data(self, key: str) -> bytes:
        data = self.objects.get(key)
        if data is None:
            gone_s, data = self._graves.get(key, (0.0, b""))
            if gone_s <= self._as_of_s():
                raise ObjectMissing(f"{self.url}/{key} does not exist")
        return data

    def _as_of_s(self) -> float:
        now_s = self._world.loop.time()
        return now_s - self._world.random.random() * self._stale_s if self._stale_s else now_s
