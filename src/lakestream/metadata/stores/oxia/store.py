"""The store of a cluster: one namespace of an Oxia server, shared by processes on any machine.

Reads see one point in time of a shard: root, rows, root again. Transactions of different shards are written together,
each with its own outcome; those of one shard follow each other. Leases are judged by the server's clock. What nobody
can tell is raised as `Unavailable`.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from lakestream.metadata.store import ABSENT, Address, Applied, Entry, Lease, Outcome, Refused, Transaction
from lakestream.metadata.stores.oxia.keys import DATA, root_range, row_key, shard_of
from lakestream.metadata.stores.oxia.notices import Polling
from lakestream.metadata.stores.oxia.service import OxiaService
from lakestream.metadata.stores.oxia.shards import leases
from lakestream.metadata.stores.oxia.shards.root import Overlay, OxiaRow, RootAt, decode_root, decode_row, has_data
from lakestream.metadata.stores.oxia.shards.rows import read_places, read_range, read_root, read_rows
from lakestream.metadata.stores.oxia.shards.writing import KnownRoot, NextRoot, Nothing, Writer
from lakestream.metadata.stores.rounds import rounds
from lakestream.metadata.stores.watching import Watchers
from lakestream.runtime import Runtime

_LAST: Final = "\U0010ffff"


class OxiaStore:
    """Implements `Store`. Made by `open_oxia`. Belongs to the running event loop."""

    def __init__(self, oxia: OxiaService, runtime: Runtime) -> None:
        self._oxia = oxia
        self._writer = Writer(oxia, runtime)
        self._watchers = Watchers(self.get, lambda is_watched: self._polling.watched(is_watched))
        self._polling = Polling(self._watchers)
        oxia.listen(self._heard)

    async def get(self, addresses: Sequence[Address]) -> list[Entry | None]:
        by_shard: dict[str, dict[str, None]] = {}
        for shard, key in addresses:
            by_shard.setdefault(shard, {})[key] = None
        found = await _all(
            [read_places(self._oxia, shard, [(DATA, key) for key in keys]) for shard, keys in by_shard.items()]
        )
        entries = {
            Address(shard, key): _entry(key, row)
            for (shard, keys), rows in zip(by_shard.items(), found, strict=True)
            for key, row in zip(keys, rows, strict=True)
        }
        return [entries[address] for address in addresses]

    async def range(self, shard: str, start: str, end: str, *, limit: int | None = None) -> list[Entry]:
        rows = await read_range(self._oxia, shard, DATA, start, end, limit=limit)
        return [Entry(key, row.value, row.version) for key, row in rows]

    async def shards(self, start: str, end: str) -> list[str]:
        if start >= end:
            return []
        records = await self._oxia.scan_all(*root_range(start, end))
        roots = {name: decode_root(name, record) for record in records if (name := shard_of(record.key)) is not None}
        doubtful = [name for name, at in roots.items() if not has_data(at.root)]
        empty = {
            name for name, is_empty in zip(doubtful, await self._are_empty(doubtful, roots), strict=True) if is_empty
        }
        return sorted(name for name in roots if name not in empty)

    async def transact(self, transactions: Sequence[Transaction]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for together in rounds(transactions):
            outcomes += await _all([self._transact(transaction) for transaction in together])
        return outcomes

    async def watch(self, seen: Mapping[Address, int], *, timeout_ms: int) -> bool:
        return await self._watchers.watch(seen, timeout_ms=timeout_ms)

    async def acquire_lease(self, address: Address, holder: str, *, ttl_ms: int) -> Lease:
        lease, is_new = await leases.acquire(self._oxia, self._writer, address, holder, ttl_ms)
        if is_new:
            self._watchers.changed(address.shard, {address.key: lease.token}, _none)
        return lease

    async def release_lease(self, address: Address, token: int) -> None:
        if await leases.release(self._oxia, self._writer, address, token):
            self._watchers.changed(address.shard, {}, lambda key: key == address.key)

    async def leases(self, shard: str, start: str, end: str) -> list[tuple[str, Lease]]:
        return await leases.list_leases(self._oxia, shard, start, end)

    async def close(self) -> None:
        self._watchers.close()
        await self._polling.close()
        await self._writer.close()
        await self._oxia.close()

    async def _transact(self, transaction: Transaction) -> Outcome:
        checks = transaction.checks
        refused: dict[str, Entry | None] = {}
        rows = {(DATA, key): value for key, value in transaction.puts.items()}

        async def plan(known: KnownRoot, version: int) -> NextRoot | Nothing:
            nonlocal refused
            if any(known.versions.get(key, -1) != wanted for key, wanted in checks.items()):
                places = [(DATA, key) for key in checks]
                found = await read_rows(self._oxia, transaction.shard, places)
                overlay = Overlay(known.at)
                present = {
                    key: _entry(key, overlay.present(DATA, key, row)) for key, row in zip(checks, found, strict=True)
                }
                refused = {key: entry for key, entry in present.items() if _version(entry) != checks[key]}
                if refused:
                    return Nothing()
            refused = {}
            gone = _gone(transaction)
            after = {
                key: version if key in transaction.puts else ABSENT if gone(key) else wanted
                for key, wanted in checks.items()
            }
            return NextRoot(rows, transaction.deletes, transaction.delete_ranges, after)

        version = await self._writer.change(transaction.shard, plan)
        if version is None:
            return Refused(refused)
        self._watchers.changed(transaction.shard, dict.fromkeys(transaction.puts, version), _gone(transaction))
        return Applied(version)

    async def _are_empty(self, names: Sequence[str], roots: Mapping[str, RootAt]) -> list[bool]:
        """Whether shards whose roots carry no row have none. One that looks empty is, if its root is still the same."""
        firsts = await self._oxia.following([(name, row_key(name, DATA, "")) for name in names])
        again = await _all([read_root(self._oxia, name) for name in names])

        async def is_empty(name: str, has_row: bool, before: RootAt, after: RootAt) -> bool:
            if not has_row and before.version_id == after.version_id:
                return True
            return not await self.range(name, "", _LAST, limit=1)

        shown = [
            first is not None and first.key.startswith(row_key(name, DATA, "")) and decode_row(first) is not None
            for name, first in zip(names, firsts, strict=True)
        ]
        looked = zip(names, shown, again, strict=True)
        # A row below a root without graves is one that counts.
        return await _all(
            [
                _said(False) if has_row and not at.root.graves else is_empty(name, has_row, roots[name], at)
                for name, has_row, at in looked
            ]
        )

    def _heard(self, keys: Sequence[str] | None) -> None:
        if keys is None:
            self._watchers.something_changed()
            return
        self._watchers.shards_changed(name for key in keys if (name := shard_of(key)) is not None)


async def _said(answer: bool) -> bool:
    return answer


async def _all(calls: Sequence[Any]) -> list[Any]:
    """All results, in order. Waits for every call before it raises the first error: none goes on unseen."""
    if len(calls) == 1:
        return [await calls[0]]
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def _entry(key: str, row: OxiaRow | None) -> Entry | None:
    return None if row is None else Entry(key, row.value, row.version)


def _version(entry: Entry | None) -> int:
    return ABSENT if entry is None else entry.version


def _gone(transaction: Transaction) -> Callable[[str], bool]:
    deletes, ranges = transaction.deletes, transaction.delete_ranges
    return lambda key: key in deletes or any(start <= key < end for start, end in ranges)


def _none(key: str) -> bool:
    return False
