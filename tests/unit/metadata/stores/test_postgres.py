"""What only a server of several clients can get wrong: locks, snapshots, lost connections, other people's databases."""

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

import asyncpg
import pytest
from support.fakes.loops import run
from support.fakes.stores import apply, contents, fresh_schema, put
from support.servers.postgres import PostgresServer, postgres_programs, postgres_server

from lakestream import metadata
from lakestream.errors import LakestreamError, RequestError, Unavailable
from lakestream.metadata.store import ABSENT, Address, Applied, Refused, Store, Transaction
from lakestream.metadata.stores.postgres import notices
from lakestream.metadata.stores.postgres.store import PostgresStore, open_postgres


@asynccontextmanager
async def opened(url: str, count: int = 1) -> AsyncIterator[list[PostgresStore]]:
    """Stores on one schema, as brokers on several machines have them."""
    async with AsyncExitStack() as stack:
        stores = []
        for _ in range(count):
            stores.append(await open_postgres(url))
            stack.push_async_callback(stores[-1].close)
        yield stores


@asynccontextmanager
async def held(url: str, shard: str) -> AsyncIterator[None]:
    """Somebody else has the shard's lock."""
    address, _, schema = url.partition("?schema=")
    connection = await asyncpg.connect(address)
    try:
        async with connection.transaction():
            await connection.execute(f"SELECT {schema}.lock_shards($1)", [shard.encode()])
            yield
    finally:
        await connection.close()


async def crowd(*calls: Awaitable[object]) -> list[asyncio.Future[object]]:
    """Begins the calls one after the other, and gives each the time to reach the lock that it will wait for."""
    tasks = []
    for call in calls:
        tasks.append(asyncio.ensure_future(call))
        await asyncio.sleep(0.1)
    return tasks


def test_a_range_delete_that_waited_for_a_lock_sees_what_was_inserted_meanwhile(postgres_uri: str) -> None:
    async def check() -> None:
        url = fresh_schema(postgres_uri)
        async with opened(url, 2) as (one, two):
            await apply(one, put(kept=b"1"))
            async with held(url, "s"):
                clear = Transaction("s", {}, {}, (), [("a", "b")])
                calls = await crowd(one.transact([put(a1=b"new")]), two.transact([clear]))
                assert not any(call.done() for call in calls)
            await asyncio.gather(*calls)
            assert await contents(one) == {"kept": b"1"}

    run(check())


def test_of_two_that_waited_to_create_a_key_one_is_refused(postgres_uri: str) -> None:
    async def check() -> None:
        url = fresh_schema(postgres_uri)
        async with opened(url, 2) as stores:
            async with held(url, "s"):
                calls = await crowd(*(store.transact([put(a=b"1", checks={"a": ABSENT})]) for store in stores))
            outcomes = [outcome for call in calls for outcome in await call]  # type: ignore[attr-defined]
            assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Applied", "Refused"]

    run(check())


def test_a_lease_that_was_waited_for_is_judged_when_the_wait_is_over(postgres_uri: str) -> None:
    async def check() -> None:
        url = fresh_schema(postgres_uri)
        async with opened(url) as (store,):
            address = Address("s", "lease")
            await store.acquire_lease(address, "first", ttl_ms=300)
            async with held(url, "s"):
                (call,) = await crowd(store.acquire_lease(address, "second", ttl_ms=1000))
                await asyncio.sleep(0.4)
            lease = await call
            assert lease.holder == "second"  # type: ignore[attr-defined]

    run(check())


def test_overlapping_calls_in_any_order_count_exactly(postgres_uri: str) -> None:
    async def add(store: Store, chance: random.Random) -> int:
        applied = 0
        for _ in range(15):
            shards = chance.sample([f"s{n}" for n in range(12)], 6)
            entries = await store.get([Address(shard, "n") for shard in shards])
            outcomes = await store.transact(
                [
                    put(shard, n=str(int(e.value) + 1 if e else 1).encode(), checks={"n": e.version if e else ABSENT})
                    for shard, e in zip(shards, entries, strict=True)
                ]
            )
            applied += sum(isinstance(outcome, Applied) for outcome in outcomes)
        return applied

    async def check() -> None:
        async with opened(fresh_schema(postgres_uri), 2) as stores:
            counts = await asyncio.gather(*(add(stores[n % 2], random.Random(n)) for n in range(12)))
            entries = await stores[0].get([Address(f"s{n}", "n") for n in range(12)])
            assert sum(int(entry.value) for entry in entries if entry) == sum(counts) > 0

    run(check())


def test_versions_grow_after_delete_and_recreation(postgres_uri: str) -> None:
    async def check() -> None:
        async with opened(fresh_schema(postgres_uri), 2) as (one, two):
            first = await apply(one, put(a=b"1"))
            await apply(two, Transaction("s", {}, {}, ["a"]))
            again = await apply(one, put(a=b"1", checks={"a": ABSENT}))
            assert again > first
            (outcome,) = await two.transact([put(a=b"2", checks={"a": first})])
            assert isinstance(outcome, Refused)

    run(check())


def test_a_change_on_another_machine_wakes_a_watcher(postgres_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "POLL_INTERVAL_S", 1000.0)

    async def check() -> None:
        async with opened(fresh_schema(postgres_uri), 2) as (one, two):
            names = ["s", 'quote"and\\', "\0", "🦆", *(f"long {'x' * 500} {n}" for n in range(40))]
            seen = {Address(name, "a"): ABSENT for name in names}
            waiting = [asyncio.create_task(one.watch({a: v}, timeout_ms=60_000)) for a, v in seen.items()]
            await asyncio.sleep(0.2)
            await two.transact([put(name, a=b"1") for name in names])
            async with asyncio.timeout(5):
                assert all(await asyncio.gather(*waiting))

    run(check())


def test_a_lost_notice_is_made_up_for_by_polling(postgres_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "POLL_INTERVAL_S", 0.1)
    monkeypatch.setattr(notices.Notices, "tell", lambda self, shard: None)

    async def check() -> None:
        async with opened(fresh_schema(postgres_uri), 2) as (one, two):
            waiting = asyncio.create_task(one.watch({Address("s", "a"): ABSENT}, timeout_ms=60_000))
            await asyncio.sleep(0.5)
            await apply(two, put(a=b"1"))
            async with asyncio.timeout(5):
                assert await waiting

    run(check())


def test_ended_connections_are_replaced(postgres_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that listens, too: what was missed meanwhile is read again."""
    monkeypatch.setattr(notices, "POLL_INTERVAL_S", 1000.0)

    async def check() -> None:
        url = fresh_schema(postgres_uri)
        async with opened(url, 2) as (one, two):
            version = await apply(one, put(a=b"1"))
            waiting = asyncio.create_task(one.watch({Address("s", "a"): version}, timeout_ms=60_000))
            await asyncio.sleep(0.2)
            connection = await asyncpg.connect(url.partition("?")[0])
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'lakestream'"
            )
            await connection.close()
            assert await two.get([Address("s", "b")]) == [None]
            await apply(two, put(a=b"2"))
            async with asyncio.timeout(10):
                assert await waiting

    run(check())


def test_empty_shards_leave_nothing_behind(postgres_uri: str) -> None:
    async def check() -> None:
        url = fresh_schema(postgres_uri)
        async with opened(url) as (store,):
            await store.transact([put(f"s{n}", a=b"1") for n in range(20)])
            await store.transact([Transaction(f"s{n}", {}, {}, ["a"]) for n in range(19)])
        async with opened(url) as (store,):
            address, _, schema = url.partition("?schema=")
            connection = await asyncpg.connect(address)
            assert await connection.fetchval(f"SELECT count(*) FROM {schema}.shard") == 1
            await connection.close()
            await apply(store, put("s0", a=b"2", checks={"a": ABSENT}))

    run(check())


@pytest.fixture(scope="module")
def secured() -> Iterator[PostgresServer]:
    """A server of this module's own, which asks for a password and may be killed."""
    programs = postgres_programs()
    assert programs, "PostgreSQL is missing: `make test` brings it"
    with postgres_server(programs, "s3cret-word") as server:
        yield server


@contextmanager
def refusal(kind: type[LakestreamError], sentence: str) -> Iterator[None]:
    with pytest.raises(kind, match=sentence) as caught:
        yield
    assert "s3cret" not in str(caught.value)


def test_what_cannot_be_opened_says_why_and_keeps_the_password(secured: PostgresServer) -> None:
    async def check() -> None:
        with refusal(Unavailable, "cannot be reached"):
            await metadata.open(secured.url)
        with secured.up():
            with refusal(RequestError, "user or the password"):
                await metadata.open(secured.url.replace("s3cret-word", "s3cret-guess"))
            with refusal(RequestError, "no such database"):
                await metadata.open(secured.url.replace("/postgres", "/nowhere"))
            with refusal(RequestError, "a-z, 0-9"):
                await metadata.open(f"{secured.url}?schema=x;drop")
            with refusal(RequestError, "names no metadata store"):
                await metadata.open(secured.url.replace("postgres://", "mysql://"))
            connection = await asyncpg.connect(secured.url)
            await connection.execute("CREATE SCHEMA theirs; CREATE TABLE theirs.orders ()")
            with refusal(RequestError, "tables of its own"):
                await metadata.open(f"{secured.url}?schema=theirs")
            await (await metadata.open(f"{secured.url}?schema=newer")).close()
            await connection.execute("UPDATE newer.format SET version = 99")
            with refusal(RequestError, "format 99"):
                await metadata.open(f"{secured.url}?schema=newer")
            await connection.execute("CREATE ROLE poor LOGIN PASSWORD 's3cret-poor'")
            with refusal(RequestError, "grant CREATE"):
                await metadata.open(secured.url.replace("test:s3cret-word", "poor:s3cret-poor"))
            await connection.close()

    run(check())


def test_a_server_that_is_killed_under_load_loses_nothing_and_is_found_again(secured: PostgresServer) -> None:
    """Every increment that was acknowledged is there; one whose outcome is unknown may be."""

    async def add(store: Store, shard: str, counts: dict[str, int], over: asyncio.Event) -> None:
        while not over.is_set():
            try:
                (entry,) = await store.get([Address(shard, "n")])
                present = int(entry.value) if entry else 0
                change = put(shard, n=str(present + 1).encode(), checks={"n": entry.version if entry else ABSENT})
                (outcome,) = await store.transact([change])
                counts[f"{shard} acked"] += isinstance(outcome, Applied)
            except Unavailable:
                counts[f"{shard} unknown"] += 1
                await asyncio.sleep(0.02)

    async def until(is_so: Callable[[], bool]) -> None:
        for _ in range(1000):
            if is_so():
                return
            await asyncio.sleep(0.02)
        raise AssertionError("20 s were not enough")

    async def check() -> None:
        url, over = f"{secured.url}?schema=killed", asyncio.Event()
        shards = [f"s{n}" for n in range(4)]
        counts = {f"{shard} {what}": 0 for shard in shards for what in ("acked", "unknown")}
        with secured.up():
            stores = [await open_postgres(url) for _ in range(2)]
        tasks = [asyncio.create_task(add(stores[n % 2], shard, counts, over)) for n, shard in enumerate(shards)]
        waiting = asyncio.create_task(stores[0].watch({Address("last", "a"): ABSENT}, timeout_ms=60_000))
        for number in (signal.SIGQUIT, signal.SIGKILL, signal.SIGINT):
            goal = sum(counts[f"{shard} acked"] for shard in shards) + 100
            with secured.up() as server:
                await until(lambda goal=goal: sum(counts[f"{shard} acked"] for shard in shards) >= goal)
                await asyncio.to_thread(secured.end, server, number)
        with secured.up():
            over.set()
            await asyncio.gather(*tasks)
            for shard in shards:
                (entry,) = await stores[0].get([Address(shard, "n")])
                assert entry is not None
                acked, unknown = counts[f"{shard} acked"], counts[f"{shard} unknown"]
                assert acked <= int(entry.value) <= acked + unknown
            await apply(stores[1], put("last", a=b"1"))
            async with asyncio.timeout(10):
                assert await waiting
            for store in stores:
                await store.close()

    run(check())
