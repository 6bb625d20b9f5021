"""The embedded store: one SQLite file, shared by the processes of one machine.

Two threads, each with its own connection, keep sqlite3 off the event loop. The writer commits
everything that queued up while it was busy as one SQL transaction (one sync of the
disk for all); the reader answers what queued up together. Changes by this process wake
watchers at once; while somebody watches, the writer's `data_version`, which
moves only with commits of others, is polled.

Leases expire by the machine's wall clock, read inside the transaction.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from typing import Any

from lakestream.errors import LakestreamError, Unavailable
from lakestream.metadata.store import ABSENT, Address, Entry, Lease, Outcome, Transaction
from lakestream.metadata.stores.sqlite import rows
from lakestream.metadata.stores.sqlite.batch import Batch, ShardChanges
from lakestream.metadata.stores.sqlite.worker import Lane, connect, decided_errors, transaction


async def open_sqlite(path: str) -> "SqliteStore":
    """Opens the store, creating it if there is none. The folder must exist. Belongs to the running event loop."""
    writer, reader = await asyncio.to_thread(_connect_twice, path)
    return SqliteStore(path, writer, reader)


def _connect_twice(path: str) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    with decided_errors(path), ExitStack() as opened:
        writer = opened.enter_context(closing(connect(path)))
        reader = connect(path)
        opened.pop_all()
        return writer, reader


@dataclass(frozen=True, slots=True)
class _Write:
    """`addresses`: the keys whose versions `run` will ask for."""

    addresses: Sequence[Address]
    run: Callable[[Batch], Any]


@dataclass(frozen=True, slots=True)
class _Get:
    addresses: Sequence[Address]


@dataclass(frozen=True, slots=True)
class _Query:
    run: Callable[[sqlite3.Connection], Any]


class _Waiter:
    __slots__ = ("changed", "seen")

    def __init__(self, seen: Mapping[Address, int], changed: asyncio.Future[None]) -> None:
        self.seen = seen
        self.changed = changed

    def wake(self) -> None:
        if not self.changed.done():
            self.changed.set_result(None)


class SqliteStore:
    """Implements `Store`. Made by `open_sqlite`."""

    def __init__(self, path: str, writer: sqlite3.Connection, reader: sqlite3.Connection) -> None:
        self._path = path
        self._write_connection = writer
        self._read_connection = reader
        self._writer: Lane[_Write] = Lane("metadata-writer", self._write, self._detect_others)
        self._reader: Lane[_Get | _Query] = Lane("metadata-reader", self._read)
        self._loop = asyncio.get_running_loop()
        self._waiters: dict[str, dict[str, dict[_Waiter, None]]] = {}
        self._rechecks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._data_version = 0
        """Of the writer's connection, used in its thread only."""

    async def get(self, addresses: Sequence[Address]) -> list[Entry | None]:
        if not addresses:
            return []
        entries: list[Entry | None] = await self._reader.submit(_Get(addresses))
        return entries

    async def range(self, shard: str, start: str, end: str, *, limit: int | None = None) -> list[Entry]:
        query = _Query(lambda connection: rows.read_range(connection, shard, start, end, limit))
        entries: list[Entry] = await self._reader.submit(query)
        return entries

    async def shards(self, start: str, end: str) -> list[str]:
        names: list[str] = await self._reader.submit(
            _Query(lambda connection: rows.read_shards(connection, start, end))
        )
        return names

    async def transact(self, transactions: Sequence[Transaction]) -> list[Outcome]:
        addresses = [Address(transaction.shard, key) for transaction in transactions for key in transaction.checks]
        work = _Write(addresses, lambda batch: [batch.apply(transaction) for transaction in transactions])
        outcomes: list[Outcome] = await self._writer.submit(work)
        return outcomes

    async def watch(self, seen: Mapping[Address, int], *, timeout_ms: int) -> bool:
        waiter = _Waiter(dict(seen), self._loop.create_future())
        # Registered before the first look: a change is either seen by it or reported.
        self._register(waiter)
        try:
            await self._look([waiter])
            async with asyncio.timeout(timeout_ms / 1000):
                await waiter.changed
        except TimeoutError:
            return not waiter.changed.cancelled()  # set in the same moment
        finally:
            self._unregister(waiter)
        if self._closed:
            raise Unavailable("the metadata store was closed")
        return True

    async def acquire_lease(self, address: Address, holder: str, *, ttl_ms: int) -> Lease:
        work = _Write([address], lambda batch: batch.acquire_lease(address, holder, ttl_ms))
        lease: Lease = await self._writer.submit(work)
        return lease

    async def release_lease(self, address: Address, token: int) -> None:
        await self._writer.submit(_Write([address], lambda batch: batch.release_lease(address, token)))

    async def leases(self, shard: str, start: str, end: str) -> list[tuple[str, Lease]]:
        query = _Query(lambda connection: rows.read_leases(connection, shard, start, end))
        leases: list[tuple[str, Lease]] = await self._reader.submit(query)
        return leases

    async def close(self) -> None:
        self._closed = True
        for waiter in self._all_waiters():
            waiter.wake()
        await self._writer.close(self._write_connection.close)
        await self._reader.close(self._read_connection.close)

    def _read(self, jobs: list[_Get | _Query]) -> list[Any]:
        """In the reader's thread."""
        connection = self._read_connection
        addresses = list(dict.fromkeys(a for job in jobs if isinstance(job, _Get) for a in job.addresses))
        with decided_errors(self._path):
            entries = rows.read_entries(connection, addresses)
            return [
                [entries.get(a) for a in job.addresses] if isinstance(job, _Get) else job.run(connection)
                for job in jobs
            ]

    def _write(self, jobs: list[_Write]) -> list[Any]:
        """In the writer's thread: one group commit."""
        connection = self._write_connection
        with decided_errors(self._path):
            with transaction(connection):
                batch = Batch(connection, (a for job in jobs for a in job.addresses))
                results = [job.run(batch) for job in jobs]
                batch.flush()
        self._report(batch.changes)
        self._detect_others()
        return results

    def _report(self, changes: dict[str, ShardChanges]) -> None:
        """After the commit, in the writer's thread: whoever registers later finds the change by looking."""
        watched = {shard: changed for shard, changed in changes.items() if shard in self._waiters}
        if watched:
            self._loop.call_soon_threadsafe(self._notify, watched)

    def _detect_others(self) -> None:
        """In the writer's thread: have other processes written? Errors show when somebody reads or writes."""
        if self._waiters:
            with suppress(sqlite3.Error):
                version = rows.data_version(self._write_connection)
                if version != self._data_version:
                    self._data_version = version
                    self._loop.call_soon_threadsafe(self._recheck, None)

    def _notify(self, changes: dict[str, ShardChanges]) -> None:
        doubtful: dict[_Waiter, None] = {}
        for shard, changed in changes.items():
            for key, waiters in self._waiters.get(shard, {}).items():
                entry = changed.puts.get(key)
                if entry is not None:
                    for waiter in waiters:
                        # A report may come late: only a version above the one seen is news.
                        if entry.version > waiter.seen[Address(shard, key)]:
                            waiter.wake()
                elif changed.deleted(key):
                    doubtful.update(waiters)
        if doubtful:
            self._recheck(list(doubtful))

    def _recheck(self, waiters: list[_Waiter] | None) -> None:
        task = self._loop.create_task(self._look_again(self._all_waiters() if waiters is None else waiters))
        self._rechecks.add(task)
        task.add_done_callback(self._rechecks.discard)

    async def _look_again(self, waiters: list[_Waiter]) -> None:
        try:
            await self._look(waiters)
        except LakestreamError:
            for waiter in waiters:  # they will meet the error themselves when they read
                waiter.wake()

    async def _look(self, waiters: list[_Waiter]) -> None:
        """Wakes those for whom something differs."""
        addresses = list(dict.fromkeys(address for waiter in waiters for address in waiter.seen))
        entries = dict(zip(addresses, await self.get(addresses), strict=True))
        versions = {address: ABSENT if entry is None else entry.version for address, entry in entries.items()}
        for waiter in waiters:
            if any(versions[address] != version for address, version in waiter.seen.items()):
                waiter.wake()

    def _register(self, waiter: _Waiter) -> None:
        for shard, key in waiter.seen:
            self._waiters.setdefault(shard, {}).setdefault(key, {})[waiter] = None
        self._writer.poll(bool(self._waiters))

    def _unregister(self, waiter: _Waiter) -> None:
        for shard, key in waiter.seen:
            keys = self._waiters[shard]
            del keys[key][waiter]
            if not keys[key]:
                del keys[key]
                if not keys:
                    del self._waiters[shard]
        self._writer.poll(bool(self._waiters))

    def _all_waiters(self) -> list[_Waiter]:
        return list(dict.fromkeys(w for keys in self._waiters.values() for waiters in keys.values() for w in waiters))
