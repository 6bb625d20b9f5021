"""The real store on Oxia in a simulated world: each process has its own, all on one made-up server.

Every write of a root is followed at the moment it happens: `core` is the store as the roots say it is, and what a
process reads, or is told of its transactions, must agree with some moment between its question and the answer. Each
root is known by its mark, so that it can be told whose transaction it wrote: once, and never one that was refused.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Final
from unittest.mock import patch

from lakestream.metadata.store import ABSENT, Address, Applied, Entry, Lease, Outcome, Transaction
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.metadata.stores.oxia.keys import DATA, LEASE, root_key, shard_of
from lakestream.metadata.stores.oxia.service import NO_VERSION, PutKey, Record
from lakestream.metadata.stores.oxia.shards import root as protocol
from lakestream.metadata.stores.oxia.shards.root import Redo, Root, decode_root
from lakestream.metadata.stores.oxia.store import OxiaStore
from lakestream.runtime import Runtime
from simulator.auditor import Auditor
from simulator.oxia import OxiaCore, SimulatedOxia
from simulator.world import Process, World, current_process

ON_OXIA: Final = 1_000_000_000
"""In histories from this seed on, metadata is on Oxia. What those before play stays the same."""
WINDOW_MS: Final = 300
KEEP_MS: Final = 900
State = dict[str, Entry]
Asked = tuple[Process | None, str, frozenset[tuple[str, bytes]]]
"""What a process asks for: a shard, and what to put there."""


def hasty() -> ExitStack:
    """Late rows are too late, and graves are dug over, within the time that a history takes."""
    stack = ExitStack()
    stack.enter_context(patch.object(protocol, "WINDOW_MS", WINDOW_MS))
    stack.enter_context(patch.object(protocol, "KEEP_MS", KEEP_MS))
    return stack


class SimulatedOxiaStore:
    """Implements `Store` for whichever process calls."""

    def __init__(self, world: World, auditor: Auditor) -> None:
        self._world = world
        self._auditor = auditor
        self._server = OxiaCore(world.now_ms)
        self._stores: dict[Process | None, OxiaStore] = {}
        self.core = MemoryStore(Runtime(world.process("store clock"), world.random))
        self._states: dict[str, list[State]] = {}
        """Of each shard, by the sequence of its root."""
        self._senders: dict[bytes, Process | None] = {}
        """By the mark of the root that was sent."""
        self._written_for: dict[Asked, set[int]] = defaultdict(set)
        """Versions of roots that nobody has been told of."""
        self._open: Counter[Asked] = Counter()
        """Calls that wait, or were never told how they ended."""
        self._server.listeners.append(self._written)

    async def get(self, addresses: Sequence[Address]) -> list[Entry | None]:
        shards = list(dict.fromkeys(address.shard for address in addresses))
        begun = self._now(shards)
        found = await self._store().get(addresses)
        for shard in shards:
            told = {a.key: entry for a, entry in zip(addresses, found, strict=True) if a.shard == shard}
            self._judge(shard, begun[shard], f"get of {list(told)}", lambda state, told=told: _agrees(state, told))
        return found

    async def range(self, shard: str, start: str, end: str, *, limit: int | None = None) -> list[Entry]:
        begun = self._now([shard])[shard]
        found = await self._store().range(shard, start, end, limit=limit)

        def agrees(state: State) -> bool:
            keys = sorted(key for key in state if start <= key < end)
            return [state[key] for key in (keys if limit is None else keys[:limit])] == found

        self._judge(shard, begun, f"range of {start} to {end}", agrees)
        return found

    async def shards(self, start: str, end: str) -> list[str]:
        return await self._store().shards(start, end)

    async def transact(self, transactions: Sequence[Transaction]) -> list[Outcome]:
        begun = self._now([transaction.shard for transaction in transactions])
        asked = [_asked(transaction) for transaction in transactions]
        self._open.update(asked)
        outcomes = await self._store().transact(transactions)
        self._open.subtract(asked)
        for what, outcome in zip(asked, outcomes, strict=True):
            self._written_for[what] -= {outcome.version} if isinstance(outcome, Applied) else set()
        for transaction, what, outcome in zip(transactions, asked, outcomes, strict=True):
            shard = transaction.shard
            if len(self._written_for[what]) > self._open[what]:
                written = sorted(self._written_for[what])
                self._auditor.fail(f"Oxia: a transaction of {shard} is told {outcome}, and was written as {written}")
            if isinstance(outcome, Applied):
                before = self._states[shard][outcome.version - 1]
                stale = [key for key, version in transaction.checks.items() if _version(before.get(key)) != version]
                if stale:
                    self._auditor.fail(f"Oxia: {stale} of {shard} had changed before version {outcome.version}")
            else:
                told = dict(outcome.current)
                self._judge(shard, begun[shard], "a refusal", lambda state, told=told: _agrees(state, told))
        return outcomes

    async def watch(self, seen: Mapping[Address, int], *, timeout_ms: int) -> bool:
        return await self._store().watch(seen, timeout_ms=timeout_ms)

    async def acquire_lease(self, address: Address, holder: str, *, ttl_ms: int) -> Lease:
        return await self._store().acquire_lease(address, holder, ttl_ms=ttl_ms)

    async def release_lease(self, address: Address, token: int) -> None:
        await self._store().release_lease(address, token)

    async def leases(self, shard: str, start: str, end: str) -> list[tuple[str, Lease]]:
        return await self._store().leases(shard, start, end)

    async def close(self) -> None:
        """Nothing is held."""

    def _store(self) -> OxiaStore:
        process = current_process()
        store = self._stores.get(process)
        if store is None:
            clock = self._world.process("nobody") if process is None else process
            service = SimulatedOxia(self._world, self._server, self._sent)
            store = self._stores[process] = OxiaStore(service, Runtime(clock, self._world.random))
        return store

    def _now(self, shards: Sequence[str]) -> dict[str, int]:
        return {shard: len(self._states.get(shard, [{}])) - 1 for shard in shards}

    def _judge(self, shard: str, begun: int, what: str, agrees) -> None:  # type: ignore[no-untyped-def]
        states = self._states.get(shard, [{}])[begun:]
        if not any(agrees(state) for state in states):
            self._auditor.fail(f"Oxia: {what} in {shard} is of no moment since {begun}")

    def _sent(self, put: PutKey) -> None:
        shard = shard_of(put.key)
        if shard is not None:
            root = decode_root(shard, Record(put.key, put.value, NO_VERSION, 0)).root
            self._senders[root.recent[-1]] = current_process()

    def _written(self, key: str) -> None:
        shard = shard_of(key)
        if shard is None:
            return
        root = decode_root(shard, self._server.records[root_key(shard)]).root
        states = self._states.setdefault(shard, [{}])
        if root.sequence != len(states):
            self._auditor.fail(f"Oxia: root {root.sequence} of {shard} follows {len(states) - 1}")
        self._follow(shard, root)
        own = frozenset((redo.key, redo.value) for redo in _own(root) if redo.kind == DATA)
        if own:
            self._written_for[self._senders[root.recent[-1]], shard, own].add(root.sequence)
        states.append(dict(self.core._shard(shard).entries))

    def _follow(self, shard: str, root: Root) -> None:
        own = _own(root)
        puts = {redo.key: redo.value for redo in own if redo.kind == DATA}
        graves = [grave for grave in root.graves if grave.sequence == root.sequence]
        if any(redo.kind == LEASE for redo in own):
            for lease, holder in puts.items():
                self.core._shard(shard).put(lease, holder, root.sequence)
            return
        if puts or graves:
            deletes = [grave.start for grave in graves if grave.end is None]
            ranges = [(grave.start, grave.end) for grave in graves if grave.end is not None]
            self.core._version = root.sequence - 1
            self.core._apply(Transaction(shard, {}, puts, deletes, ranges))


def _asked(transaction: Transaction) -> Asked:
    return current_process(), transaction.shard, frozenset(transaction.puts.items())


def _own(root: Root) -> list[Redo]:
    """What it carries of itself, not for a root before it."""
    return [redo for redo in root.redo if redo.version == root.sequence]


def _version(entry: Entry | None) -> int:
    return ABSENT if entry is None else entry.version


def _agrees(state: State, told: Mapping[str, Entry | None]) -> bool:
    return all(state.get(key) == entry for key, entry in told.items())
