"""The SQL half of the SQLite store: plain functions on a connection, called from the store's threads.

Every step of a statement gives up the interpreter lock, and under a busy event loop getting
it back can take milliseconds. So many rows travel in one step: writes as multi-row
statements, results as one concatenated text (hexadecimal where it may hold anything).
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Final, TypeVar

from lakestream.errors import CorruptObject
from lakestream.metadata import codec
from lakestream.metadata.store import Address, Entry, Lease

T = TypeVar("T")

ROWS_PER_STATEMENT: Final = 128
"""Statements hold a power of two of rows, this at most: few texts, so that their compiled form is reused."""

_APPLICATION_ID: Final = 0x4C4B5354
_SCHEMA_VERSION: Final = 2
_SCHEMA: Final = (
    "CREATE TABLE kv (shard TEXT NOT NULL, key TEXT NOT NULL, version INTEGER NOT NULL, value BLOB NOT NULL,"
    " PRIMARY KEY (shard, key)) WITHOUT ROWID",
    "CREATE TABLE lease (shard TEXT NOT NULL, key TEXT NOT NULL, token INTEGER NOT NULL, expires_ms INTEGER NOT NULL,"
    " PRIMARY KEY (shard, key)) WITHOUT ROWID",
    # Versions must never be given twice, so the counter is kept twice: `mirror` has all its bits turned.
    "CREATE TABLE counter (id INTEGER PRIMARY KEY CHECK (id = 0), version INTEGER NOT NULL, mirror INTEGER NOT NULL)",
    "INSERT INTO counter VALUES (0, 0, -1)",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {_SCHEMA_VERSION}",
)
_NOW_MS: Final = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"


def prepare(connection: sqlite3.Connection, path: str) -> None:
    """Creates the tables in a new file; refuses one that is another's or of another format."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if (application, version, tables) == (0, 0, 0):
        for statement in _SCHEMA:
            connection.execute(statement)
    elif (application, version) != (_APPLICATION_ID, _SCHEMA_VERSION):
        raise CorruptObject(
            f"{path}: format {version} of application {application:#x} is not a metadata store that this version reads"
        )


def data_version(connection: sqlite3.Connection) -> int:
    """Changes when, and only when, another connection has committed."""
    (version,) = connection.execute("PRAGMA data_version").fetchone()
    return int(version)


def read_counter(connection: sqlite3.Connection) -> int:
    row = connection.execute("SELECT version, mirror FROM counter").fetchone()
    if row is None or not isinstance(row[0], int) or row[1] != ~row[0]:
        raise ValueError("the counter of versions does not hold: restore the file from a backup")
    version: int = row[0]
    return version


def write_counter(connection: sqlite3.Connection, version: int) -> None:
    connection.execute("UPDATE counter SET version = ?, mirror = ?", (version, ~version))


def read_versions(connection: sqlite3.Connection, addresses: Sequence[Address]) -> dict[Address, int]:
    """The versions of those that exist."""
    found: dict[Address, int] = {}
    for chunk in _padded(addresses):
        (text,) = connection.execute(_select_versions(len(chunk)), tuple(_numbered(chunk))).fetchone()
        for row in text.split(",") if text else ():
            index, version = row.split(":")
            found[chunk[int(index)]] = int(version)
    return found


def read_entries(connection: sqlite3.Connection, addresses: Sequence[Address]) -> dict[Address, Entry]:
    """Those that exist. One point in time up to ROWS_PER_STATEMENT addresses; beyond, if a transaction is open."""
    found: dict[Address, Entry] = {}
    for chunk in _padded(addresses):
        (text,) = connection.execute(_select_entries(len(chunk)), tuple(_numbered(chunk))).fetchone()
        for row in text.split(",") if text else ():
            index, version, value = row.split(":")
            address = chunk[int(index)]
            found[address] = Entry(address.key, bytes.fromhex(value), int(version))
    return found


def read_range(connection: sqlite3.Connection, shard: str, start: str, end: str, limit: int | None) -> list[Entry]:
    (text,) = connection.execute(
        "SELECT group_concat(hex(key) || ':' || version || ':' || hex(value)) FROM (SELECT key, version, value FROM kv"
        " WHERE shard = ? AND key >= ? AND key < ? ORDER BY key LIMIT ?)",
        (shard, start, end, -1 if limit is None else limit),
    ).fetchone()
    entries = []
    for row in text.split(",") if text else ():
        key, version, value = row.split(":")
        entries.append(Entry(bytes.fromhex(key).decode(), bytes.fromhex(value), int(version)))
    entries.sort(key=lambda entry: entry.key)  # SQLite does not promise the order of a concatenation
    return entries


def read_shards(connection: sqlite3.Connection, start: str, end: str) -> list[str]:
    """From one to the next by the primary key, whatever they hold."""
    (text,) = connection.execute(
        "WITH RECURSIVE found(name) AS (SELECT min(shard) FROM kv WHERE shard >= ?1 UNION ALL"
        " SELECT (SELECT min(shard) FROM kv WHERE shard > name) FROM found WHERE name < ?2)"
        " SELECT group_concat(hex(name)) FROM found WHERE name < ?2",
        (start, end),
    ).fetchone()
    return sorted(bytes.fromhex(name).decode() for name in text.split(",")) if text else []


def put_rows(connection: sqlite3.Connection, rows: Sequence[tuple[str, str, int, bytes]]) -> None:
    for chunk in _chunks(rows):
        connection.execute(_insert(len(chunk)), tuple(chain.from_iterable(chunk)))


def delete_rows(connection: sqlite3.Connection, addresses: Sequence[Address]) -> None:
    for chunk in _chunks(addresses):
        connection.execute(_delete(len(chunk)), tuple(chain.from_iterable(chunk)))


def delete_ranges(connection: sqlite3.Connection, ranges: Iterable[tuple[str, str, str]]) -> None:
    connection.executemany("DELETE FROM kv WHERE shard = ? AND key >= ? AND key < ?", ranges)


def read_grant(connection: sqlite3.Connection, address: Address) -> tuple[int, int]:
    """The token of the last grant (0: none) and the milliseconds it has left."""
    row = connection.execute(
        f"SELECT token, expires_ms - {_NOW_MS} FROM lease WHERE shard = ? AND key = ?", address
    ).fetchone()
    return (0, 0) if row is None else (int(row[0]), int(row[1]))


def write_grant(connection: sqlite3.Connection, address: Address, token: int, ttl_ms: int) -> None:
    connection.execute(f"INSERT OR REPLACE INTO lease VALUES (?, ?, ?, {_NOW_MS} + ?)", (*address, token, ttl_ms))


def delete_grant(connection: sqlite3.Connection, address: Address) -> None:
    connection.execute("DELETE FROM lease WHERE shard = ? AND key = ?", address)


def read_leases(connection: sqlite3.Connection, shard: str, start: str, end: str) -> list[tuple[str, Lease]]:
    (text,) = connection.execute(
        "SELECT group_concat(hex(key) || ':' || hex(value) || ':' || token || ':' || remaining_ms) FROM ("
        f" SELECT key, value, token, expires_ms - {_NOW_MS} AS remaining_ms FROM lease JOIN kv USING (shard, key)"
        " WHERE shard = ? AND key >= ? AND key < ? AND token = version) WHERE remaining_ms > 0",
        (shard, start, end),
    ).fetchone()
    leases = []
    for row in text.split(",") if text else ():
        key, holder, token, remaining_ms = row.split(":")
        address = Address(shard, bytes.fromhex(key).decode())
        named = codec.decode_holder(bytes.fromhex(holder), address)
        if named is not None:
            leases.append((address.key, Lease(named, int(token), int(remaining_ms))))
    leases.sort(key=lambda pair: pair[0])
    return leases


def _chunks(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """Splits into powers of two, the largest first."""
    position = 0
    while position < len(rows):
        size = min(ROWS_PER_STATEMENT, 1 << (len(rows) - position).bit_length() - 1)
        yield rows[position : position + size]
        position += size


def _padded(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """Pieces of a power of two, filled up with repetitions: for reads, where a row twice is no harm."""
    for position in range(0, len(rows), ROWS_PER_STATEMENT):
        piece = rows[position : position + ROWS_PER_STATEMENT]
        yield [*piece, *piece[: (1 << (len(piece) - 1).bit_length()) - len(piece)]]


def _numbered(addresses: Sequence[Address]) -> Iterator[int | str]:
    for index, (shard, key) in enumerate(addresses):
        yield index
        yield shard
        yield key


def _rows(pattern: str, count: int) -> str:
    return ", ".join([pattern] * count)


@cache
def _select_versions(count: int) -> str:
    return (
        f"WITH wanted (i, s, k) AS (VALUES {_rows('(?, ?, ?)', count)}) SELECT group_concat(i || ':' || version)"
        " FROM wanted CROSS JOIN kv ON shard = s AND key = k"
    )


@cache
def _select_entries(count: int) -> str:
    return (
        f"WITH wanted (i, s, k) AS (VALUES {_rows('(?, ?, ?)', count)}) SELECT"
        " group_concat(i || ':' || version || ':' || hex(value)) FROM wanted CROSS JOIN kv ON shard = s AND key = k"
    )


@cache
def _insert(count: int) -> str:
    return f"INSERT OR REPLACE INTO kv VALUES {_rows('(?, ?, ?, ?)', count)}"


@cache
def _delete(count: int) -> str:
    return f"DELETE FROM kv WHERE (shard, key) IN (VALUES {_rows('(?, ?)', count)})"
