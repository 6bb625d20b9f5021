"""The metadata stores that the contract suite runs on, and short ways to call them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from uuid import uuid4

from simulator.backends import SimulatedStore
from simulator.oxia import OxiaCore, SimulatedOxia

from lakestream.metadata.store import Applied, Entry, Refused, Store, Transaction
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.metadata.stores.oxia.client.address import address_of
from lakestream.metadata.stores.oxia.client.client import OxiaClient, open_oxia
from lakestream.metadata.stores.oxia.client.connections import connect
from lakestream.metadata.stores.oxia.store import OxiaStore
from lakestream.metadata.stores.postgres.store import open_postgres
from lakestream.metadata.stores.sqlite.store import open_sqlite
from lakestream.runtime import Runtime, system
from support.fakes.simulated import calm_world
from support.servers.oxia import Apart, FakeOxia, fake_oxia

Opener = Callable[[str], AbstractAsyncContextManager[Store]]
"""Of a fresh store in a folder, or on the server of this address."""
Check = Callable[[Store], Awaitable[None]]
Run = Callable[[Check], None]
"""Runs a check against a fresh store."""


@asynccontextmanager
async def memory(folder: str) -> AsyncIterator[Store]:
    yield MemoryStore(system())


@asynccontextmanager
async def sqlite(folder: str) -> AsyncIterator[Store]:
    store = await open_sqlite(str(Path(folder) / f"{uuid4().hex}.db"))
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def postgres(address: str) -> AsyncIterator[Store]:
    store = await open_postgres(fresh_schema(address))
    try:
        yield store
    finally:
        await store.close()


def fresh_schema(address: str) -> str:
    """The URL of a store that nobody else has on a PostgreSQL server."""
    return f"{address.replace('postgresql+psycopg2', 'postgres')}?schema=t_{uuid4().hex}"


@asynccontextmanager
async def simulated(folder: str) -> AsyncIterator[Store]:
    yield SimulatedStore(calm_world(asyncio.get_running_loop()))


@asynccontextmanager
async def oxia(folder: str) -> AsyncIterator[Store]:
    """On a made-up server of three shards that speaks Oxia's protocol."""
    async with fake_oxia(FakeOxia(shards=3)) as server:
        store = await open_oxia(server.url, system())
        try:
            yield store
        finally:
            await store.close()


@asynccontextmanager
async def oxia_server(address: str) -> AsyncIterator[Store]:
    client = OxiaClient(await connect(address_of(address)))
    store = OxiaStore(Apart(client, f"{uuid4().hex}-"), system())
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def oxia_simulated(folder: str) -> AsyncIterator[Store]:
    world = calm_world(asyncio.get_running_loop())
    store = OxiaStore(
        SimulatedOxia(world, OxiaCore(world.now_ms), lambda _: None), Runtime(world.process("store"), world.random)
    )
    try:
        yield store
    finally:
        await store.close()


SLOW = ("oxia-server",)
"""Backends whose server takes long to build: `make test-all` runs them."""
BACKENDS: dict[str, Opener] = {
    "memory": memory,
    "sqlite": sqlite,
    "postgres": postgres,
    "simulated": simulated,
    "oxia": oxia,
    "oxia-simulated": oxia_simulated,
    "oxia-server": oxia_server,
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
