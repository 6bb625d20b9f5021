"""Namespaces, table names and table pointers.

A table is its id; a name only points at it. The pointer, which names the table's present
metadata, has a shard of its own, so commits of different tables never meet; `moves` says how several
pointers change at once. Names and namespaces share one shard (`names`).

Making a table writes the pointer first and the name last. Dropping takes the name away
first and leaves a `gone` row until the pointer is deleted too: whoever finds it finishes.
The table of a stream has the topic's UUID as its id and is *bound* until the topic is deleted.
Then it is marked as *leaving* until it has another name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from lakestream.errors import (
    Conflict,
    NamespaceExists,
    NamespaceNotEmpty,
    TableExists,
    Unavailable,
    UnknownTable,
)
from lakestream.metadata import codec
from lakestream.metadata.moves import INTENT, POINTER, Move, Moves, Pointer, intent_address, pointer_address
from lakestream.metadata.names import (
    ATTEMPTS,
    LEVEL,
    SHARD,
    Names,
    Namespace,
    TableName,
    check_names,
    encode,
    missing,
    namespace_key,
    table_key,
    version_of,
    view_key,
)
from lakestream.metadata.store import ABSENT, Address, Applied, Entry, Store, Transaction
from lakestream.metadata.views import Views

__all__ = ["Move", "Namespace", "Pointer", "PointerRow", "Pointers", "TableName", "check_names", "pointer_address"]

_GONE: Final = ("gone/", "gone0")


@dataclass(frozen=True, slots=True)
class PointerRow:
    pointer: Pointer
    version: int


def _id_key(table_id: UUID) -> str:
    return f"id/{table_id.hex}"


def _leaving_key(table_id: UUID) -> str:
    return f"leaving/{table_id.hex}"


class Pointers:
    def __init__(self, store: Store) -> None:
        self.views: Final = Views(store)
        self._store = store
        self._names = Names(store)
        self._moves = Moves(store)

    # Pointers

    async def get(self, table_id: UUID) -> PointerRow | None:
        while True:
            pointer, intent = await self._store.get([pointer_address(table_id), intent_address(table_id)])
            if intent is None or await self._moves.is_open(table_id, intent):
                return None if pointer is None else _pointer_row(pointer, table_id)
            await self._moves.settle(table_id, intent)

    async def add(self, table_id: UUID, pointer: Pointer) -> PointerRow:
        """Stores the first pointer of a table; one that is there already is returned as it is."""
        address = pointer_address(table_id)
        [outcome] = await self._store.transact(
            [Transaction(address.shard, {POINTER: ABSENT}, {POINTER: codec.encode(pointer, address)})]
        )
        if isinstance(outcome, Applied):
            return PointerRow(pointer, outcome.version)
        found = outcome.current[POINTER]
        if found is None:
            raise Conflict(f"table {table_id} is being dropped: try again")
        return _pointer_row(found, table_id)

    async def swing(self, table_id: UUID, version: int, pointer: Pointer) -> PointerRow:
        """Replaces the pointer if it still has this version, else raises `Conflict` and changes nothing."""
        address = pointer_address(table_id)
        value = codec.encode(pointer, address)
        while True:
            [outcome] = await self._store.transact(
                [Transaction(address.shard, {POINTER: version, INTENT: ABSENT}, {POINTER: value})]
            )
            if isinstance(outcome, Applied):
                return PointerRow(pointer, outcome.version)
            intent = outcome.current.get(INTENT)
            if POINTER in outcome.current or intent is None:
                raise Conflict(f"table {table_id} was changed by somebody else: load it again")
            await self._moves.settle(table_id, intent)

    async def swing_all(self, move_id: UUID, moves: Sequence[Move], now_ms: int) -> None:
        """Replaces the pointers of several tables, all or none: see `Moves.commit`. What is bound stays so."""
        await self._moves.commit(move_id, moves, now_ms)

    # Names

    async def resolve(self, name: TableName) -> UUID:
        """Raises `UnknownTable`."""
        [entry] = await self._store.get([Address(SHARD, table_key(name))])
        if entry is None:
            raise UnknownTable(f"Table does not exist: {name}")
        return codec.decode(entry.value, UUID, Address(SHARD, entry.key))

    async def name_of(self, table_id: UUID) -> TableName | None:
        [entry] = await self._store.get([Address(SHARD, _id_key(table_id))])
        return None if entry is None else _table_name(entry)

    async def tables(self, namespace: Namespace) -> list[str]:
        """Names of the tables directly inside, in order. Raises `UnknownNamespace`."""
        await self.namespace(namespace)
        return await self._names.inside(table_key(TableName(namespace, "")))

    async def bind(self, table_id: UUID, name: TableName, *, make_namespace: bool = False) -> TableName:
        """Gives an unnamed table its name; a table that has one keeps it, and that is returned.

        Raises `TableExists` if the name is another's, `UnknownNamespace`."""
        check_names((*name.namespace, name.name))
        space_key, name_key, id_key = namespace_key(name.namespace), table_key(name), _id_key(table_id)
        for _ in range(ATTEMPTS):
            space, taken, view, present = await self._names.read(space_key, name_key, view_key(name), id_key)
            if present is not None:
                return _table_name(present)
            if taken is not None:
                raise TableExists(f"Table already exists: {name}")
            if view is not None:
                raise TableExists(f"View with same name already exists: {name}")
            if space is None and not make_namespace:
                raise missing(name.namespace)
            if await self._names.write(
                {space_key: version_of(space), name_key: ABSENT, view_key(name): ABSENT, id_key: ABSENT},
                {
                    space_key: encode(space_key, {}) if space is None else space.value,
                    name_key: encode(name_key, table_id),
                    id_key: encode(id_key, name),
                },
            ):
                return name
        raise Unavailable(f"table {name} could not be named: the list of tables changes all the time")

    async def mark_leaving(self, table_id: UUID) -> None:
        """Until it is renamed: its name is to be freed, whoever comes by may finish that. Idempotent."""
        key = _leaving_key(table_id)
        await self._names.write({}, {key: encode(key, None)})

    async def is_leaving(self, table_id: UUID) -> bool:
        [entry] = await self._names.read(_leaving_key(table_id))
        return entry is not None

    async def rename(self, table_id: UUID, to: TableName) -> None:
        """Takes the mark of leaving away. Idempotent. Raises `UnknownTable`, `TableExists`, `UnknownNamespace`."""
        check_names((*to.namespace, to.name))
        space_key, name_key, id_key = namespace_key(to.namespace), table_key(to), _id_key(table_id)
        for _ in range(ATTEMPTS):
            space, taken, view, present = await self._names.read(space_key, name_key, view_key(to), id_key)
            if present is None:
                raise UnknownTable(f"table {table_id} has no name")
            old = _table_name(present)
            if old == to:
                return
            if taken is not None or view is not None:
                kind = "View" if taken is None else "Table"
                raise TableExists(f"Cannot rename {old} to {to}. {kind} already exists")
            if space is None:
                raise missing(to.namespace)
            if await self._names.write(
                {space_key: space.version, name_key: ABSENT, view_key(to): ABSENT, id_key: present.version},
                {space_key: space.value, name_key: encode(name_key, table_id), id_key: encode(id_key, to)},
                deletes=[table_key(old), _leaving_key(table_id)],
            ):
                return
        raise Unavailable(f"table {to} could not be named: the list of tables changes all the time")

    async def drop(self, table_id: UUID) -> None:
        """Takes name and pointer away, in that order. Idempotent."""
        id_key, gone_key = _id_key(table_id), _GONE[0] + table_id.hex
        for _ in range(ATTEMPTS):
            [present] = await self._names.read(id_key)
            old = None if present is None else _table_name(present)
            if await self._names.write(
                {id_key: version_of(present)},
                {gone_key: encode(gone_key, None)},
                deletes=[id_key, _leaving_key(table_id), *([] if old is None else [table_key(old)])],
            ):
                break
        await self.finish_drops()

    async def finish_drops(self) -> None:
        """Deletes the pointers of tables that were dropped, whoever began it."""
        for row in await self._names.range(*_GONE):
            await self._delete_pointer(UUID(row.key.removeprefix(_GONE[0])))
            await self._names.write({row.key: row.version}, {}, deletes=[row.key])

    async def _delete_pointer(self, table_id: UUID) -> None:
        shard = pointer_address(table_id).shard
        while True:
            [outcome] = await self._store.transact([Transaction(shard, {INTENT: ABSENT}, {}, deletes=[POINTER])])
            if isinstance(outcome, Applied):
                return
            intent = outcome.current[INTENT]
            if intent is not None:
                await self._moves.settle(table_id, intent)

    # Namespaces

    async def namespaces(self, parent: Namespace = ()) -> list[Namespace]:
        """The namespaces directly below `parent`, in order. Raises `UnknownNamespace`."""
        if parent:
            await self.namespace(parent)
        start = namespace_key((*parent, ""))
        rows = await self._names.range(start, start[:-1] + chr(ord(start[-1]) + 1))
        found = [tuple(row.key.removeprefix("namespace/").split(LEVEL)) for row in rows]
        return [namespace for namespace in found if len(namespace) == len(parent) + 1]

    async def namespace(self, namespace: Namespace) -> dict[str, str]:
        """Its properties. Raises `UnknownNamespace`."""
        return (await self._names.namespace(namespace))[1]

    async def create_namespace(self, namespace: Namespace, properties: Mapping[str, str]) -> None:
        """Raises `NamespaceExists`, or `UnknownNamespace` for a missing parent."""
        check_names(namespace)
        key = namespace_key(namespace)
        for _ in range(ATTEMPTS):
            checks, puts = {key: ABSENT}, {key: encode(key, dict(properties))}
            if len(namespace) > 1:
                above, _properties = await self._names.namespace(namespace[:-1])
                checks[above.key], puts[above.key] = above.version, above.value
            [present] = await self._names.read(key)
            if present is not None:
                raise NamespaceExists(f"Namespace already exists: {'.'.join(namespace)}")
            if await self._names.write(checks, puts):
                return
        raise Unavailable(f"namespace {'.'.join(namespace)} could not be made: the list changes all the time")

    async def set_properties(
        self, namespace: Namespace, updates: Mapping[str, str], removals: Sequence[str]
    ) -> tuple[list[str], list[str]]:
        """What was removed, and what should have been and was not there."""
        for _ in range(ATTEMPTS):
            entry, properties = await self._names.namespace(namespace)
            removed = [key for key in removals if key in properties]
            kept = {key: value for key, value in properties.items() if key not in removed}
            if await self._names.write({entry.key: entry.version}, {entry.key: encode(entry.key, {**kept, **updates})}):
                return removed, [key for key in removals if key not in removed]
        raise Unavailable(f"namespace {'.'.join(namespace)} could not be changed: others change it all the time")

    async def drop_namespace(self, namespace: Namespace) -> None:
        """Raises `UnknownNamespace`, `NamespaceNotEmpty`. Whoever adds something inside rewrites the
        namespace's row, so the check for emptiness cannot be overtaken."""
        for _ in range(ATTEMPTS):
            entry, _properties = await self._names.namespace(namespace)
            inside = await self.tables(namespace), await self.views.names(namespace), await self.namespaces(namespace)
            if any(inside):
                raise NamespaceNotEmpty(f"Namespace is not empty: {'.'.join(namespace)}")
            if await self._names.write({entry.key: entry.version}, {}, deletes=[entry.key]):
                return
        raise Unavailable(f"namespace {'.'.join(namespace)} could not be dropped: others change it all the time")


def _pointer_row(entry: Entry, table_id: UUID) -> PointerRow:
    return PointerRow(codec.decode(entry.value, Pointer, pointer_address(table_id)), entry.version)


def _table_name(entry: Entry) -> TableName:
    return codec.decode(entry.value, TableName, Address(SHARD, entry.key))
