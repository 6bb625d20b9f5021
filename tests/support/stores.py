"""The metadata stores that the contract suite runs on, and short ways to call them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from simulator.backends import SimulatedStore

from lakestream.metadata.store import Applied, Entry, Refused, Store, Transaction
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.metadata.stores.sqlite.store import open_sqlite
from lakestream.runtime import system
from support.simulated import calm_world

Opener = Callable[[Path], AbstractAsyncContextManager[Store]]
Check = Callable[[Store], Awaitable[None]]
Run = Callable[[Check], None]
"""Runs a check against a fresh store."""


@asynccontextmanager
async def memory(folder: Path) -> AsyncIterator[Store]:
    yield MemoryStore(system())


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[Store]:
    store = await open_sqlite(str(folder / "metadata.db"))
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def simulated(folder: Path) -> AsyncIterator[Store]:
    yield SimulatedStore(calm_world(asyncio.get_running_loop()))


BACKENDS: dict[str, Opener] = {
    "memory": memory,
    "sqlite": sqlite,
    "simulated": simulated,
}


def put(shard: str = "s", *, checks: dict[str, int] | None = None, **values: bytes) -> Transaction:
    return Transaction(shard, checks or {}, values)


async def apply(store: Store, transaction: Transaction) -> int:
    (outcome,) = await store.transact([transaction])
    assert isinstance(outcome, Applied)
    return outcome.version


async def refuse(store: Store, transaction: Transaction) -> dict[str, Entry | None]:
    (outcome,) = await store.transact([transaction])
    assert isinstance(outcome, Refused)
    return dict(outcome.current)


async def contents(store: Store, shard: str = "s") -> dict[str, bytes]:
    return {entry.key: entry.value for entry in await store.range(shard, "", "\U0010ffff")}
