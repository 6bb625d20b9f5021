"""Namespaces, table names and table pointers.

A table is its id; a name only points at it. The pointer, which names the table's present
metadata, has a shard of its own, so commits of different tables never meet. Names and
namespaces share one shard: naming, renaming and un-naming are one transaction each.

Making a table writes the pointer first and the name last. Dropping takes the name away
first and leaves a `gone` row until the pointer is deleted too: whoever finds it finishes.
The table of a stream has the topic's UUID as its id and is *bound* until the topic is deleted.
Then it is marked as *leaving* until it has another name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from lakestream.errors import (
    Conflict,
    NamespaceExists,
    NamespaceNotEmpty,
    RequestError,
    TableExists,
    Unavailable,
    UnknownNamespace,
    UnknownTable,
)
from lakestream.metadata import codec
from lakestream.metadata.store import ABSENT, Address, Applied, Entry, Refused, Store, Transaction

Namespace = tuple[str, ...]

_SHARD: Final = "tables"
_POINTER: Final = "pointer"
_GONE: Final = ("gone/", "gone0")
_LEVEL: Final = "\x1f"
"""Between the levels of a namespace."""
_INSIDE: Final = "\x1e"
"""Between a namespace and a table's name. Sorts before `_LEVEL`: tables of a namespace come before its children."""
_ATTEMPTS: Final = 50


class TableName(NamedTuple):
    namespace: Namespace
    name: str

    def __str__(self) -> str:
        return ".".join((*self.namespace, self.name))


class Pointer(msgspec.Struct, frozen=True, array_like=True):
    """`bound`: the table of a living topic."""

    metadata_location: str
    bound: bool = False


@dataclass(frozen=True, slots=True)
class PointerRow:
    pointer: Pointer
    version: int


def pointer_address(table_id: UUID) -> Address:
    """Where a table's pointer is: what a reader watches to learn of a new view."""
    return Address(f"table/{table_id.hex}", _POINTER)


def _namespace_key(namespace: Namespace) -> str:
    return "namespace/" + _LEVEL.join(namespace)


def _name_key(name: TableName) -> str:
    return f"name/{_LEVEL.join(name.namespace)}{_INSIDE}{name.name}"


def _id_key(table_id: UUID) -> str:
    return f"id/{table_id.hex}"


def _leaving_key(table_id: UUID) -> str:
    return f"leaving/{table_id.hex}"


def _version(entry: Entry | None) -> int:
    return ABSENT if entry is None else entry.version


def check_names(parts: Sequence[str]) -> None:
    """Raises `RequestError` unless these can be levels of a namespace or the name of a table."""
    if not parts:
        raise RequestError("a namespace needs at least one level")
    for part in parts:
        if not part or any(character < " " for character in part):
            raise RequestError(f"{part!r} cannot be a name: it is empty or has control characters")


class Pointers:
    def __init__(self, store: Store) -> None:
        self._store = store

    # Pointers

    async def get(self, table_id: UUID) -> PointerRow | None:
        [entry] = await self._store.get([pointer_address(table_id)])
        return None if entry is None else _pointer_row(entry, table_id)

    async def add(self, table_id: UUID, pointer: Pointer) -> PointerRow:
        """Stores the first pointer of a table; one that is there already is returned as it is."""
        address = pointer_address(table_id)
        [outcome] = await self._store.transact(
            [Transaction(address.shard, {_POINTER: ABSENT}, {_POINTER: codec.encode(pointer, address)})]
        )
        if isinstance(outcome, Applied):
            return PointerRow(pointer, outcome.version)
        found = outcome.current[_POINTER]
        if found is None:
            raise Conflict(f"table {table_id} is being dropped: try again")
        return _pointer_row(found, table_id)

    async def swing(self, table_id: UUID, version: int, pointer: Pointer) -> PointerRow:
        """Replaces the pointer if it still has this version, else raises `Conflict` and changes nothing."""
        address = pointer_address(table_id)
        [outcome] = await self._store.transact(
            [Transaction(address.shard, {_POINTER: version}, {_POINTER: codec.encode(pointer, address)})]
        )
        if isinstance(outcome, Refused):
            raise Conflict(f"table {table_id} was changed by somebody else: load it again")
        return PointerRow(pointer, outcome.version)

    # Names

    async def resolve(self, name: TableName) -> UUID:
        """Raises `UnknownTable`."""
        [entry] = await self._store.get([Address(_SHARD, _name_key(name))])
        if entry is None:
            raise UnknownTable(f"Table does not exist: {name}")
        return codec.decode(entry.value, UUID, Address(_SHARD, entry.key))

    async def name_of(self, table_id: UUID) -> TableName | None:
        [entry] = await self._store.get([Address(_SHARD, _id_key(table_id))])
        return None if entry is None else _table_name(entry)

    async def tables(self, namespace: Namespace) -> list[str]:
        """Names of the tables directly inside, in order. Raises `UnknownNamespace`."""
        await self.namespace(namespace)
        start = _name_key(TableName(namespace, ""))
        rows = await self._store.range(_SHARD, start, start[: -len(_INSIDE)] + _LEVEL)
        return [row.key[len(start) :] for row in rows]

    async def bind(self, table_id: UUID, name: TableName, *, make_namespace: bool = False) -> TableName:
        """Gives an unnamed table its name; a table that has one keeps it, and that is returned.

        Raises `TableExists` if the name is another's, `UnknownNamespace`."""
        check_names((*name.namespace, name.name))
        for _ in range(_ATTEMPTS):
            space_key, name_key, id_key = _namespace_key(name.namespace), _name_key(name), _id_key(table_id)
            space, taken, present = await self._read(space_key, name_key, id_key)
            if present is not None:
                return _table_name(present)
            if taken is not None:
                raise TableExists(f"Table already exists: {name}")
            if space is None and not make_namespace:
                raise UnknownNamespace(f"Namespace does not exist: {'.'.join(name.namespace)}")
            if await self._write(
                {space_key: _version(space), name_key: ABSENT, id_key: ABSENT},
                {
                    space_key: _row(space_key, {}) if space is None else space.value,
                    name_key: _row(name_key, table_id),
                    id_key: _row(id_key, name),
                },
            ):
                return name
        raise Unavailable(f"table {name} could not be named: the list of tables changes all the time")

    async def mark_leaving(self, table_id: UUID) -> None:
        """Until it is renamed: its name is to be freed, whoever comes by may finish that. Idempotent."""
        key = _leaving_key(table_id)
        await self._write({}, {key: _row(key, None)})

    async def is_leaving(self, table_id: UUID) -> bool:
        [entry] = await self._read(_leaving_key(table_id))
        return entry is not None

    async def rename(self, table_id: UUID, to: TableName) -> None:
        """Takes the mark of leaving away. Idempotent. Raises `UnknownTable`, `TableExists`, `UnknownNamespace`."""
        check_names((*to.namespace, to.name))
        space_key, name_key, id_key = _namespace_key(to.namespace), _name_key(to), _id_key(table_id)
        for _ in range(_ATTEMPTS):
            space, taken, present = await self._read(space_key, name_key, id_key)
            if present is None:
                raise UnknownTable(f"table {table_id} has no name")
            old = _table_name(present)
            if old == to:
                return
            if taken is not None:
                raise TableExists(f"Table already exists: {to}")
            if space is None:
                raise UnknownNamespace(f"Namespace does not exist: {'.'.join(to.namespace)}")
            if await self._write(
                {space_key: space.version, name_key: ABSENT, id_key: present.version},
                {space_key: space.value, name_key: _row(name_key, table_id), id_key: _row(id_key, to)},
                deletes=[_name_key(old), _leaving_key(table_id)],
            ):
                return
        raise Unavailable(f"table {to} could not be named: the list of tables changes all the time")

    async def drop(self, table_id: UUID) -> None:
        """Takes name and pointer away, in that order. Idempotent."""
        id_key, gone_key = _id_key(table_id), _GONE[0] + table_id.hex
        for _ in range(_ATTEMPTS):
            [present] = await self._read(id_key)
            old = None if present is None else _table_name(present)
            if await self._write(
                {id_key: _version(present)},
                {gone_key: _row(gone_key, None)},
                deletes=[id_key, _leaving_key(table_id), *([] if old is None else [_name_key(old)])],
            ):
                break
        await self.finish_drops()

    async def finish_drops(self) -> None:
        """Deletes the pointers of tables that were dropped, whoever began it."""
        for row in await self._store.range(_SHARD, *_GONE):
            shard = pointer_address(UUID(row.key.removeprefix(_GONE[0]))).shard
            await self._store.transact([Transaction(shard, {}, {}, deletes=[_POINTER])])
            await self._write({row.key: row.version}, {}, deletes=[row.key])

    # Namespaces

    async def namespaces(self, parent: Namespace = ()) -> list[Namespace]:
        """The namespaces directly below `parent`, in order. Raises `UnknownNamespace`."""
        if parent:
            await self.namespace(parent)
        start = _namespace_key((*parent, ""))
        rows = await self._store.range(_SHARD, start, start[:-1] + chr(ord(start[-1]) + 1))
        found = [tuple(row.key.removeprefix("namespace/").split(_LEVEL)) for row in rows]
        return [namespace for namespace in found if len(namespace) == len(parent) + 1]

    async def namespace(self, namespace: Namespace) -> dict[str, str]:
        """Its properties. Raises `UnknownNamespace`."""
        return (await self._namespace(namespace))[1]

    async def create_namespace(self, namespace: Namespace, properties: Mapping[str, str]) -> None:
        """Raises `NamespaceExists`, or `UnknownNamespace` for a missing parent."""
        check_names(namespace)
        key = _namespace_key(namespace)
        for _ in range(_ATTEMPTS):
            checks, puts = {key: ABSENT}, {key: _row(key, dict(properties))}
            if len(namespace) > 1:
                above, _properties = await self._namespace(namespace[:-1])
                checks[above.key], puts[above.key] = above.version, above.value
            [present] = await self._read(key)
            if present is not None:
                raise NamespaceExists(f"Namespace already exists: {'.'.join(namespace)}")
            if await self._write(checks, puts):
                return
        raise Unavailable(f"namespace {'.'.join(namespace)} could not be made: the list changes all the time")

    async def set_properties(
        self, namespace: Namespace, updates: Mapping[str, str], removals: Sequence[str]
    ) -> tuple[list[str], list[str]]:
        """What was removed, and what should have been and was not there."""
        for _ in range(_ATTEMPTS):
            entry, properties = await self._namespace(namespace)
            removed = [key for key in removals if key in properties]
            kept = {key: value for key, value in properties.items() if key not in removed}
            if await self._write({entry.key: entry.version}, {entry.key: _row(entry.key, {**kept, **updates})}):
                return removed, [key for key in removals if key not in removed]
        raise Unavailable(f"namespace {'.'.join(namespace)} could not be changed: others change it all the time")

    async def drop_namespace(self, namespace: Namespace) -> None:
        """Raises `UnknownNamespace`, `NamespaceNotEmpty`. Whoever adds something inside rewrites the
        namespace's row, so the check for emptiness cannot be overtaken."""
        for _ in range(_ATTEMPTS):
            entry, _properties = await self._namespace(namespace)
            if await self.tables(namespace) or await self.namespaces(namespace):
                raise NamespaceNotEmpty(f"Namespace is not empty: {'.'.join(namespace)}")
            if await self._write({entry.key: entry.version}, {}, deletes=[entry.key]):
                return
        raise Unavailable(f"namespace {'.'.join(namespace)} could not be dropped: others change it all the time")

    async def _namespace(self, namespace: Namespace) -> tuple[Entry, dict[str, str]]:
        [entry] = await self._read(_namespace_key(namespace))
        if entry is None:
            raise UnknownNamespace(f"Namespace does not exist: {'.'.join(namespace)}")
        return entry, codec.decode(entry.value, dict[str, str], Address(_SHARD, entry.key))

    async def _read(self, *keys: str) -> list[Entry | None]:
        return await self._store.get([Address(_SHARD, key) for key in keys])

    async def _write(self, checks: dict[str, int], puts: dict[str, bytes], deletes: Sequence[str] = ()) -> bool:
        [outcome] = await self._store.transact([Transaction(_SHARD, checks, puts, deletes)])
        return isinstance(outcome, Applied)


def _pointer_row(entry: Entry, table_id: UUID) -> PointerRow:
    return PointerRow(codec.decode(entry.value, Pointer, pointer_address(table_id)), entry.version)


def _table_name(entry: Entry) -> TableName:
    return codec.decode(entry.value, TableName, Address(_SHARD, entry.key))


def _row(key: str, value: object) -> bytes:
    return codec.encode(value, Address(_SHARD, key))
