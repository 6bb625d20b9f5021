"""The store of a cluster: one schema in a PostgreSQL database, shared by processes on any machine.

A call of `transact` is one round trip for any number of shards, unless a shard is named twice: transactions of one
shard are decided in order, so each further one waits for the next round. A transaction that is refused leaves its
neighbours alone. Leases expire by the server's clock, read under the shard's lock.

What a lost connection did is unknown and raised as `Unavailable`. Reads are asked once more; writes never are, except
after a deadlock or a serialization failure, which the server has rolled back.

After a write of unknown outcome nothing is read before another write was acknowledged: a primary that crashed, or whose
wait for its standby was cancelled, shows what the standby lacks, and a caller would take that for kept. A standby that
has the later write has all before it.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import asyncpg

from lakestream.errors import Unavailable
from lakestream.metadata import codec
from lakestream.metadata.store import ABSENT, Address, Applied, Entry, Lease, Outcome, Refused, Transaction
from lakestream.metadata.stores.postgres.connecting import (
    LOST,
    ROLLED_BACK,
    Server,
    asked,
    errors_translated,
    opening,
    server_of,
)
from lakestream.metadata.stores.postgres.notices import Notices
from lakestream.metadata.stores.postgres.requests import arguments
from lakestream.metadata.stores.postgres.schema import prepare
from lakestream.metadata.stores.rounds import rounds
from lakestream.metadata.stores.watching import Watchers

log = logging.getLogger(__name__)

CONNECTIONS: Final = 8
ATTEMPTS: Final = 5
CLOSE_S: Final = 5.0


async def open_postgres(url: str) -> "PostgresStore":
    """Opens the store, creating its schema if there is none. Belongs to the running event loop."""
    server = server_of(url)
    with opening(server.place):
        connection = await server.connect()
        try:
            await prepare(connection, server.schema, server.place)
            if await connection.fetchval("SHOW fsync") == "off":
                log.warning("%s runs with fsync=off: a power cut there loses what was acknowledged", server.place)
        finally:
            await connection.close()
        pool = await asyncpg.create_pool(
            min_size=0, max_size=CONNECTIONS, connection_class=_Connection, **server.options()
        )
    return PostgresStore(server, pool)


class _Connection(asyncpg.Connection):  # type: ignore[misc]
    """No call leaves anything behind in its session: nothing is reset, which would cost a round trip each time."""

    def get_reset_query(self) -> str:
        return ""


class PostgresStore:
    """Implements `Store`. Made by `open_postgres`."""

    def __init__(self, server: Server, pool: asyncpg.Pool) -> None:
        self._place = server.place
        self._pool = pool
        self._watchers = Watchers(self.get, lambda is_watched: self._notices.watched(is_watched))
        self._notices = Notices(server, self._watchers)
        schema = server.schema
        self._get = (
            "SELECT n, kv.version, kv.value FROM unnest($1::bytea[], $2::bytea[]) WITH ORDINALITY AS wanted (s, k, n)"
            f" JOIN {schema}.kv ON kv.shard = s AND kv.key = k"
        )
        self._range = (
            f"SELECT key, version, value FROM {schema}.kv WHERE shard = $1 AND key >= $2 AND key < $3"
            " ORDER BY key LIMIT $4"
        )
        # From one shard to the next by the primary key, whatever they hold.
        self._shards = (
            "WITH RECURSIVE found (name) AS ("
            f"(SELECT shard FROM {schema}.kv WHERE shard >= $1 ORDER BY shard LIMIT 1) UNION ALL"
            f" SELECT (SELECT shard FROM {schema}.kv WHERE shard > name ORDER BY shard LIMIT 1)"
            " FROM found WHERE name < $2)"
            " SELECT name FROM found WHERE name < $2 ORDER BY name"
        )
        self._transact = f"SELECT * FROM {schema}.transact({', '.join(f'${n}' for n in range(1, 17))})"
        self._acquire = f"SELECT * FROM {schema}.acquire_lease($1, $2, $3, $4, $5)"
        self._settle = f"SELECT {schema}.lock_shards(ARRAY['settling'::bytea])"
        self._is_unsettled = False
        self._release = f"SELECT {schema}.release_lease($1, $2, $3)"
        self._leases = (
            "SELECT key, value, token, remaining_ms FROM (SELECT key, value, token,"
            " ceil(extract(epoch FROM expires - clock_timestamp()) * 1000)::bigint AS remaining_ms"
            f" FROM {schema}.lease JOIN {schema}.kv USING (shard, key)"
            " WHERE shard = $1 AND key >= $2 AND key < $3 AND token = version) AS held"
            " WHERE remaining_ms > 0 ORDER BY key"
        )

    async def get(self, addresses: Sequence[Address]) -> list[Entry | None]:
        if not addresses:
            return []
        wanted = ([shard.encode() for shard, _ in addresses], [key.encode() for _, key in addresses])
        found: list[Entry | None] = [None] * len(addresses)
        for number, version, value in await self._read(self._get, *wanted):
            found[number - 1] = Entry(addresses[number - 1].key, value, version)
        return found

    async def range(self, shard: str, start: str, end: str, *, limit: int | None = None) -> list[Entry]:
        rows = await self._read(self._range, shard.encode(), start.encode(), end.encode(), limit)
        return [Entry(key.decode(), value, version) for key, version, value in rows]

    async def shards(self, start: str, end: str) -> list[str]:
        return [name.decode() for (name,) in await self._read(self._shards, start.encode(), end.encode())]

    async def transact(self, transactions: Sequence[Transaction]) -> list[Outcome]:
        return [outcome for together in rounds(transactions) for outcome in await self._round(together)]

    async def _round(self, transactions: Sequence[Transaction]) -> list[Outcome]:
        applied: dict[int, int] = {}
        refused: dict[int, dict[str, Entry | None]] = {}
        for number, version, key, present, value in await self._write(self._transact, *arguments(transactions)):
            if version is not None:
                applied[number] = version
                continue
            name = key.decode()
            refused.setdefault(number, {})[name] = None if present is None else Entry(name, value, present)
        for number, version in applied.items():
            self._report(transactions[number - 1], version)
        numbers = range(1, len(transactions) + 1)
        return [Applied(applied[n]) if n in applied else Refused(refused[n]) for n in numbers]

    async def watch(self, seen: Mapping[Address, int], *, timeout_ms: int) -> bool:
        return await self._watchers.watch(seen, timeout_ms=timeout_ms)

    async def acquire_lease(self, address: Address, holder: str, *, ttl_ms: int) -> Lease:
        ours, damaged = codec.encode(holder, address), ABSENT
        while True:
            (grant,) = await self._write(self._acquire, *_bytes(address), ours, ttl_ms, damaged)
            value, token, remaining_ms, is_new = grant
            if value == ours:
                if is_new:
                    self._changed(address.shard, {address.key: token})
                return Lease(holder, token, remaining_ms)
            present = codec.decode_holder(value, address)
            if present is not None:
                return Lease(present, token, remaining_ms)
            damaged = token

    async def release_lease(self, address: Address, token: int) -> None:
        ((is_deleted,),) = await self._write(self._release, *_bytes(address), token)
        if is_deleted:
            self._changed(address.shard, {}, lambda key: key == address.key)

    async def leases(self, shard: str, start: str, end: str) -> list[tuple[str, Lease]]:
        rows = await self._read(self._leases, shard.encode(), start.encode(), end.encode())
        held = []
        for key, value, token, remaining_ms in rows:
            holder = codec.decode_holder(value, Address(shard, key.decode()))
            if holder is not None:
                held.append((key.decode(), Lease(holder, token, remaining_ms)))
        return held

    async def close(self) -> None:
        self._watchers.close()
        await self._notices.close()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    async def _read(self, query: str, *values: object) -> list[Any]:
        if self._is_unsettled:
            await self._write(self._settle)
        try:
            return await self._ask(query, *values)
        except Unavailable:  # an idle connection that the server has ended, say
            return await self._ask(query, *values)

    async def _write(self, query: str, *values: object) -> list[Any]:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                rows = await self._ask(query, *values)
                self._is_unsettled = False
                return rows
            except Unavailable as error:
                self._is_unsettled |= not isinstance(error.__cause__, ROLLED_BACK)
                if not isinstance(error.__cause__, asyncpg.TransactionRollbackError) or attempt == ATTEMPTS:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _ask(self, query: str, *values: object) -> list[Any]:
        if self._pool.is_closing():
            raise Unavailable("the metadata store is closed")
        with errors_translated(self._place):
            async with self._pool.acquire() as connection:
                try:
                    rows: list[Any] = await asked(connection, connection.fetch(query, *values))
                except LOST:
                    connection.terminate()  # the next one looks for the primary
                    raise
        return rows

    def _report(self, transaction: Transaction, version: int) -> None:
        deletes, ranges = transaction.deletes, transaction.delete_ranges

        def is_deleted(key: str) -> bool:
            return key in deletes or any(start <= key < end for start, end in ranges)

        self._changed(transaction.shard, dict.fromkeys(transaction.puts, version), is_deleted)

    def _changed(
        self, shard: str, versions: Mapping[str, int], is_deleted: Callable[[str], bool] = lambda _: False
    ) -> None:
        self._watchers.changed(shard, versions, is_deleted)
        self._notices.tell(shard)


def _bytes(address: Address) -> tuple[bytes, bytes]:
    return address.shard.encode(), address.key.encode()
