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

from lakestream.metadata.store import Address, Entry, Lease, Outcome, Transaction
from lakestream.metadata.stores.sqlite import rows
from lakestream.metadata.stores.sqlite.batch import GroupCommit, ShardChanges
from lakestream.metadata.stores.sqlite.worker import Lane, connect, decided_errors, transaction
from lakestream.metadata.stores.watching import Watchers


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
class _PendingWrite:
    """`addresses`: the keys whose versions `run` will ask for."""

    addresses: Sequence[Address]
    run: Callable[[GroupCommit], Any]


@dataclass(frozen=True, slots=True)
class _Get:
    addresses: Sequence[Address]


@dataclass(frozen=True, slots=True)
class _Query:
    run: Callable[[sqlite3.Connection], Any]


class SqliteStore:
    """Implements `Store`. Made by `open_sqlite`."""

    def __init__(self, path: str, writer: sqlite3.Connection, reader: sqlite3.Connection) -> None:
        self._path = path
        self._write_connection = writer
        self._read_connection = reader
        self._writer: Lane[_PendingWrite] = Lane("metadata-writer", self._write, self._detect_others)
        self._reader: Lane[_Get | _Query] = Lane("metadata-reader", self._read)
        self._loop = asyncio.get_running_loop()
        self._watchers = Watchers(self.get, self._writer.poll)
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
        work = _PendingWrite(addresses, lambda batch: [batch.apply(transaction) for transaction in transactions])
        outcomes: list[Outcome] = await self._writer.submit(work)
        return outcomes

    async def watch(self, seen: Mapping[Address, int], *, timeout_ms: int) -> bool:
        return await self._watchers.watch(seen, timeout_ms=timeout_ms)

    async def acquire_lease(self, address: Address, holder: str, *, ttl_ms: int) -> Lease:
        work = _PendingWrite([address], lambda batch: batch.acquire_lease(address, holder, ttl_ms))
        lease: Lease = await self._writer.submit(work)
        return lease

    async def release_lease(self, address: Address, token: int) -> None:
        await self._writer.submit(_PendingWrite([address], lambda batch: batch.release_lease(address, token)))

    async def leases(self, shard: str, start: str, end: str) -> list[tuple[str, Lease]]:
        query = _Query(lambda connection: rows.read_leases(connection, shard, start, end))
        leases: list[tuple[str, Lease]] = await self._reader.submit(query)
        return leases

    async def close(self) -> None:
        self._watchers.close()
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

    def _write(self, jobs: list[_PendingWrite]) -> list[Any]:
        """In the writer's thread: one group commit."""
        connection = self._write_connection
        with decided_errors(self._path):
            with transaction(connection):
                batch = GroupCommit(connection, (a for job in jobs for a in job.addresses))
                results = [job.run(batch) for job in jobs]
                batch.flush()
        self._report(batch.changes)
        self._detect_others()
        return results

    def _report(self, changes: dict[str, ShardChanges]) -> None:
        """After the commit, in the writer's thread: whoever registers later finds the change by looking."""
        watched = {shard: changed for shard, changed in changes.items() if self._watchers.has_shard(shard)}
        if watched:
            self._loop.call_soon_threadsafe(self._notify, watched)

    def _notify(self, changes: dict[str, ShardChanges]) -> None:
        for shard, changed in changes.items():
            versions = {key: entry.version for key, entry in changed.puts.items()}
            self._watchers.changed(shard, versions, changed.deleted)

    def _detect_others(self) -> None:
        """In the writer's thread: have other processes written? Errors show when somebody reads or writes."""
        if self._watchers:
            with suppress(sqlite3.Error):
                version = rows.data_version(self._write_connection)
                if version != self._data_version:
                    self._data_version = version
                    self._loop.call_soon_threadsafe(self._watchers.something_changed)
