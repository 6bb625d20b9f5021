"""One group commit: the effects of many transactions, decided in order in memory and written together."""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field

from lakestream.metadata import codec
from lakestream.metadata.store import ABSENT, Address, Applied, Entry, Lease, Outcome, Refused, Transaction
from lakestream.metadata.stores.sqlite import rows


@dataclass(slots=True)
class ShardChanges:
    """What the batch does to one shard.

    `puts` are those that no later delete of the batch took back: whoever applies all deletes
    first and all puts after them arrives at the state that the order of the batch asks for.
    """

    versions: dict[str, int] = field(default_factory=dict)
    puts: dict[str, Entry] = field(default_factory=dict)
    deletes: dict[str, None] = field(default_factory=dict)
    ranges: list[tuple[str, str]] = field(default_factory=list)

    def put(self, key: str, value: bytes, version: int) -> None:
        self.puts[key] = Entry(key, value, version)
        self.versions[key] = version

    def delete(self, key: str) -> None:
        self.puts.pop(key, None)
        self.deletes[key] = None
        self.versions[key] = ABSENT

    def delete_range(self, start: str, end: str) -> None:
        self.ranges.append((start, end))
        for key in [key for key in self.puts if start <= key < end]:
            del self.puts[key]
        for key in self.versions:
            if start <= key < end:
                self.versions[key] = ABSENT

    def deleted(self, key: str) -> bool:
        return key in self.deletes or any(start <= key < end for start, end in self.ranges)


class GroupCommit:
    """Lives inside one SQL transaction. Nothing is written before `flush`, so the tables still show
    what was there when it began."""

    def __init__(self, connection: sqlite3.Connection, addresses: Iterable[Address]) -> None:
        """`addresses`: every key whose version the batch will ask for."""
        self._connection = connection
        self._first_version = self._version = rows.read_counter(connection)
        self.changes: dict[str, ShardChanges] = {}
        wanted = list(dict.fromkeys(addresses))
        found = rows.read_versions(connection, wanted)
        for address in wanted:
            self._shard(address.shard).versions[address.key] = found.get(address, ABSENT)

    def apply(self, transaction: Transaction) -> Outcome:
        shard = self._shard(transaction.shard)
        versions = shard.versions
        failed = [key for key, version in transaction.checks.items() if versions[key] != version]
        if failed:
            return Refused(self._entries(transaction.shard, failed))
        version = self._next_version()
        for key in transaction.deletes:
            shard.delete(key)
        for start, end in transaction.delete_ranges:
            shard.delete_range(start, end)
        for key, value in transaction.puts.items():
            shard.put(key, value, version)
        return Applied(version)

    def acquire_lease(self, address: Address, holder: str, ttl_ms: int) -> Lease:
        (entry,) = self._entries(address.shard, [address.key]).values()
        token, remaining_ms = rows.read_grant(self._connection, address)
        granted = entry is not None and entry.version == token and remaining_ms > 0
        present = codec.decode_holder(entry.value, address) if entry is not None and granted else None
        if present is None:
            token = self._next_version()
            self._shard(address.shard).put(address.key, codec.encode(holder, address), token)
        elif present != holder:
            return Lease(present, token, remaining_ms)
        rows.write_grant(self._connection, address, token, ttl_ms)
        return Lease(holder, token, ttl_ms)

    def release_lease(self, address: Address, token: int) -> None:
        if rows.read_grant(self._connection, address)[0] != token:
            return
        rows.delete_grant(self._connection, address)
        shard = self._shard(address.shard)
        if shard.versions[address.key] == token:
            self._next_version()
            shard.delete(address.key)

    def flush(self) -> None:
        ranges = [(shard, *bounds) for shard, changes in self.changes.items() for bounds in changes.ranges]
        deletes = [Address(shard, key) for shard, changes in self.changes.items() for key in changes.deletes]
        puts = [
            (shard, entry.key, entry.version, entry.value)
            for shard, changes in self.changes.items()
            for entry in changes.puts.values()
        ]
        if ranges:
            rows.delete_ranges(self._connection, ranges)
        rows.delete_rows(self._connection, deletes)
        rows.put_rows(self._connection, puts)
        if self._version != self._first_version:
            rows.write_counter(self._connection, self._version)

    def _shard(self, name: str) -> ShardChanges:
        changes = self.changes.get(name)
        if changes is None:
            changes = self.changes[name] = ShardChanges()
        return changes

    def _next_version(self) -> int:
        self._version += 1
        return self._version

    def _entries(self, name: str, keys: Iterable[str]) -> dict[str, Entry | None]:
        shard = self._shard(name)
        stored = rows.read_entries(self._connection, [Address(name, key) for key in keys if shard.versions[key]])
        return {
            key: shard.puts.get(key) or (stored.get(Address(name, key)) if shard.versions[key] else None)
            for key in keys
        }
