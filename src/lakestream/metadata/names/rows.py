"""Names of tables, views and namespaces: how their rows are laid out, and one transaction over them.

All names share one shard, so naming, renaming and un-naming are one transaction each. Tables and views share one
set of names: whoever takes a name checks that neither has it.

Whoever adds a table to a namespace checks the namespace's row and leaves it as it is, so that a thousand may do so at
once. Whoever drops a namespace rewrites the row first, together with a mark that it is *closing*; then he looks
whether it is empty, and drops it if the row is still the one he wrote. Who adds something to a closing
namespace rewrites the row and takes the mark away: a check for emptiness cannot be overtaken.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from lakestream.errors import RequestError, UnknownNamespace
from lakestream.metadata import codec
from lakestream.metadata.store import ABSENT, Address, Applied, Entry, Store, Transaction

Namespace = tuple[str, ...]

SHARD: Final = "tables"
ATTEMPTS: Final = 50
LEVEL: Final = "\x1f"
"""Between the levels of a namespace."""
INSIDE: Final = "\x1e"
"""Between a namespace and a name in it. Sorts before `LEVEL`: what is in a namespace comes before its children."""


class TableName(NamedTuple):
    """Of a table or a view."""

    namespace: Namespace
    name: str

    def __str__(self) -> str:
        return ".".join((*self.namespace, self.name))


def check_names(parts: Sequence[str]) -> None:
    """Raises `RequestError` unless these can be levels of a namespace or the name of a table."""
    if not parts:
        raise RequestError("a namespace needs at least one level")
    for part in parts:
        if not part or any(character < " " for character in part):
            raise RequestError(f"{part!r} cannot be a name: it is empty or has control characters")


def namespace_key(namespace: Namespace) -> str:
    return "namespace/" + LEVEL.join(namespace)


def closing_key(namespace: Namespace) -> str:
    return "closing/" + LEVEL.join(namespace)


def table_key(name: TableName) -> str:
    return f"name/{LEVEL.join(name.namespace)}{INSIDE}{name.name}"


def view_key(name: TableName) -> str:
    return f"view/{LEVEL.join(name.namespace)}{INSIDE}{name.name}"


def id_key(table_id: UUID) -> str:
    return f"id/{table_id.hex}"


def version_of(entry: Entry | None) -> int:
    return ABSENT if entry is None else entry.version


def encode(key: str, value: object) -> bytes:
    return codec.encode(value, Address(SHARD, key))


def missing(namespace: Namespace) -> UnknownNamespace:
    return UnknownNamespace(f"Namespace does not exist: {'.'.join(namespace)}")


class Entering(NamedTuple):
    """What a transaction that adds a table to a namespace has to check and write for that."""

    checks: dict[str, int]
    puts: dict[str, bytes]
    deletes: list[str]


def entering(namespace: Namespace, row: Entry | None, closing: Entry | None) -> Entering:
    """`row` and `closing` as they were read; a namespace without a row is made."""
    key = namespace_key(namespace)
    if row is None:
        return Entering({key: ABSENT}, {key: encode(key, {})}, [])
    if closing is None:
        return Entering({key: row.version}, {}, [])
    return Entering({key: row.version}, {key: row.value}, [closing.key])


class Names:
    """The shard of names."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self, *keys: str) -> list[Entry | None]:
        return await self._store.get([Address(SHARD, key) for key in keys])

    async def inside(self, first_key: str) -> list[str]:
        """What the keys that begin with `first_key`, the key of an empty name in a namespace, end with; in order."""
        rows = await self._store.range(SHARD, first_key, first_key[: -len(INSIDE)] + LEVEL)
        return [row.key[len(first_key) :] for row in rows]

    async def range(self, start: str, end: str) -> list[Entry]:
        return await self._store.range(SHARD, start, end)

    async def write(self, checks: dict[str, int], puts: dict[str, bytes], deletes: Sequence[str] = ()) -> int | None:
        """The version of what was put, never 0. None: a check did not hold, and nothing has changed."""
        [outcome] = await self._store.transact([Transaction(SHARD, checks, puts, deletes)])
        return outcome.version if isinstance(outcome, Applied) else None

    async def namespace(self, namespace: Namespace) -> tuple[Entry, dict[str, str]]:
        """Its row and its properties. Raises `UnknownNamespace`."""
        [entry] = await self.read(namespace_key(namespace))
        if entry is None:
            raise missing(namespace)
        return entry, codec.decode(entry.value, dict[str, str], Address(SHARD, entry.key))
