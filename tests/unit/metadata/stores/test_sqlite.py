"""What the SQLite store does beyond the contract: durability, group commit, clear errors."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from support.fakes.stores import apply, contents, put

from lakestream.errors import CorruptObject, Unavailable
from lakestream.metadata.store import ABSENT, Address, Applied, Store, Transaction
from lakestream.metadata.stores.sqlite import worker as sqlite_worker
from lakestream.metadata.stores.sqlite.store import SqliteStore, open_sqlite


async def run(path: Path, check: Callable[[SqliteStore], Awaitable[None]]) -> None:
    store = await open_sqlite(str(path))
    try:
        async with asyncio.timeout(60):
            await check(store)
    finally:
        await store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.db"


def test_connections_are_durable_and_share_the_file(path: Path) -> None:
    connection = sqlite_worker.connect(str(path))
    try:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.isolation_level is None
    finally:
        connection.close()


async def test_versions_go_on_after_a_restart(path: Path) -> None:
    versions: list[int] = []

    async def fill(store: Store) -> None:
        versions.append(await apply(store, put(a=b"1")))
        versions.append(await apply(store, Transaction("s", {}, {}, ["a"])))

    for _ in range(3):
        await run(path, fill)
    assert versions == sorted(set(versions))


async def test_leases_survive_a_restart(path: Path) -> None:
    tokens: list[int] = []

    async def take(store: Store) -> None:
        tokens.append((await store.acquire_lease(Address("s", "l"), "me", ttl_ms=60_000)).token)
        assert (await store.acquire_lease(Address("s", "l"), "you", ttl_ms=60_000)).holder == "me"

    await run(path, take)
    await run(path, take)
    assert tokens[0] == tokens[1]


async def test_what_queues_up_is_one_commit(path: Path) -> None:
    async def check(store: SqliteStore) -> None:
        statements: list[str] = []
        store._write_connection.set_trace_callback(statements.append)
        calls = (store.transact([put(f"shard {n}", a=b"1", checks={"a": ABSENT})]) for n in range(50))
        outcomes = await asyncio.gather(*calls)
        assert all(isinstance(outcome, Applied) for (outcome,) in outcomes)
        assert [s for s in statements if s in ("BEGIN IMMEDIATE", "COMMIT")] == ["BEGIN IMMEDIATE", "COMMIT"]

    await run(path, check)


async def test_a_flush_of_many_partitions_takes_few_statements(path: Path) -> None:
    """Each one costs the interpreter lock, which a busy event loop gives back late."""

    async def check(store: SqliteStore) -> None:
        statements: list[str] = []
        store._write_connection.set_trace_callback(statements.append)
        flush = [
            Transaction(f"log/{n}", {"head": ABSENT}, {"head": b"h", "x/0": b"e", "p/0": b"p"}) for n in range(100)
        ]
        await store.transact(flush)
        assert len(statements) <= 12

    await run(path, check)


async def test_the_event_loop_runs_while_another_holds_the_lock(path: Path) -> None:
    async def check(store: SqliteStore) -> None:
        rival = sqlite3.connect(path, isolation_level=None)
        rival.execute("BEGIN IMMEDIATE")
        writing = asyncio.create_task(apply(store, put(a=b"1")))
        loop = asyncio.get_running_loop()
        started, longest_s = loop.time(), 0.0
        while loop.time() - started < 0.2:
            before = loop.time()
            await asyncio.sleep(0)
            longest_s = max(longest_s, loop.time() - before)
        assert not writing.done()
        assert await store.get([Address("s", "a")]) == [None]
        rival.execute("ROLLBACK")
        rival.close()
        await writing
        assert longest_s < 0.1

    await run(path, check)


async def test_a_lock_held_too_long_is_unavailable_and_nothing_is_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_worker, "LOCK_TIMEOUT_S", 0.05)

    async def check(store: SqliteStore) -> None:
        rival = sqlite3.connect(path, isolation_level=None)
        rival.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="stayed locked"):
            await store.transact([put(a=b"1")])
        rival.execute("ROLLBACK")
        rival.close()
        assert await contents(store) == {}
        await apply(store, put(a=b"2"))

    await run(path, check)


async def test_a_full_disk_is_told_and_survived(path: Path) -> None:
    async def check(store: SqliteStore) -> None:
        await apply(store, put(a=b"1"))
        (pages,) = store._write_connection.execute("PRAGMA page_count").fetchone()
        store._write_connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(Unavailable, match=r"disk of .* is full: nothing was written"):
            await store.transact([put(a=b"2", b=bytes(100_000))])
        assert await contents(store) == {"a": b"1"}
        store._write_connection.execute("PRAGMA max_page_count = 1000000")
        await apply(store, put(a=b"3"))
        assert await contents(store) == {"a": b"3"}

    await run(path, check)


async def test_a_damaged_file_is_told(path: Path) -> None:
    path.write_bytes(b"this is no database" * 500)
    with pytest.raises(CorruptObject, match=r"metadata\.db is damaged or no SQLite database"):
        await open_sqlite(str(path))


async def test_a_foreign_or_newer_file_is_refused(path: Path) -> None:
    foreign = sqlite3.connect(path)
    foreign.execute("CREATE TABLE t (a)")
    foreign.close()
    with pytest.raises(CorruptObject, match="not a metadata store"):
        await open_sqlite(str(path))
    newer = path.with_name("newer.db")
    sqlite_worker.connect(str(newer)).close()
    connection = sqlite3.connect(newer)
    connection.execute("PRAGMA user_version = 3")
    connection.close()
    with pytest.raises(CorruptObject, match="format 3"):
        await open_sqlite(str(newer))


async def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"none/metadata\.db"):
        await open_sqlite(str(tmp_path / "none" / "metadata.db"))


async def test_close_finishes_what_is_queued_and_refuses_the_rest(path: Path) -> None:
    store = await open_sqlite(str(path))
    queued = [asyncio.ensure_future(store.transact([put(**{f"k{n}": b"1"})])) for n in range(20)]
    watching = asyncio.ensure_future(store.watch({Address("s", "never"): ABSENT}, timeout_ms=60_000))
    await asyncio.sleep(0)
    await store.close()
    assert all(isinstance(outcome, Applied) for (outcome,) in await asyncio.gather(*queued))
    with pytest.raises(Unavailable):
        await watching
    for late in (store.get([Address("s", "a")]), store.transact([put(a=b"1")]), store.leases("s", "", "~")):
        with pytest.raises(Unavailable):
            await late
    await store.close()
    await run(path, lambda store: expect_keys(store, 20))


async def expect_keys(store: Store, count: int) -> None:
    assert len(await contents(store)) == count


async def test_a_cancelled_caller_does_not_disturb_the_others(path: Path) -> None:
    async def check(store: SqliteStore) -> None:
        cancelled = asyncio.create_task(store.transact([put(a=b"1")]))
        other = asyncio.create_task(apply(store, put(b=b"1")))
        await asyncio.sleep(0)
        cancelled.cancel()
        await other
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await apply(store, put(c=b"1"))
        assert {"b", "c"} <= set(await contents(store))

    await run(path, check)


async def test_own_commits_do_not_make_watchers_look_again(path: Path) -> None:
    async def check(store: SqliteStore) -> None:
        watching = asyncio.create_task(store.watch({Address("s", "never"): ABSENT}, timeout_ms=200))
        await asyncio.sleep(0.05)
        reads: list[str] = []
        store._read_connection.set_trace_callback(reads.append)
        for n in range(5):
            await apply(store, put(a=str(n).encode()))
            await asyncio.sleep(0.02)
        assert reads == []
        assert not await watching

    await run(path, check)


class LosesAnswers:
    """A connection whose commits happen and whose answers are lost."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
        cursor = self._connection.execute(statement, *arguments)
        if statement == "COMMIT":
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error
        return cursor


async def test_a_commit_without_an_answer_is_unknown(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(store: SqliteStore) -> None:
        with monkeypatch.context() as broken:
            broken.setattr(store, "_write_connection", LosesAnswers(store._write_connection))
            with pytest.raises(Unavailable, match=r"the outcome is unknown: disk I/O error"):
                await store.transact([put(a=b"1")])
        assert await contents(store) == {"a": b"1"}
        await apply(store, put(a=b"2"))

    await run(path, check)


async def test_a_wrong_call_fails_alone_in_time_and_the_store_goes_on(path: Path) -> None:
    async def check(store: SqliteStore) -> None:
        with pytest.raises(UnicodeEncodeError):
            await store.transact([put("\ud800", a=b"1")])
        with pytest.raises(UnicodeEncodeError):
            await store.get([Address("\ud800", "a")])
        await apply(store, put(a=b"2"))
        assert await contents(store) == {"a": b"2"}

    await run(path, check)
