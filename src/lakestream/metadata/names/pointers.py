"""Namespaces, table names and table pointers.

A table is its id; a name only points at it. The pointer, which names the table's present
metadata, has a shard of its own, so commits of different tables never meet; `moves` says how several
pointers change at once. Names and namespaces share one shard (`names`).

Making a table writes the pointer first and the name last. Dropping announces with a `gone` row which version of the
pointer is to go, deletes the pointer if it still has it, then the name: whoever finds the row finishes. A pointer that
moved meanwhile stays, and so does its table: a topic has taken it over, or an engine has committed.
The table of a stream has the topic's UUID as its id and is *bound* until the topic is deleted.
Then it is marked as *leaving* until it has another name.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
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
from lakestream.metadata.names.derived import DerivedNames
from lakestream.metadata.names.moves import INTENT, POINTER, Move, Moves, Pointer, intent_address, pointer_address
from lakestream.metadata.names.places import Places
from lakestream.metadata.names.rows import (
    ATTEMPTS,
    LEVEL,
    SHARD,
    Names,
    Namespace,
    TableName,
    check_names,
    closing_key,
    encode,
    entering,
    id_key,
    missing,
    namespace_key,
    table_key,
    version_of,
    view_key,
)
from lakestream.metadata.names.views import Views
from lakestream.metadata.store import ABSENT, Address, Applied, Entry, Store, Transaction

__all__ = ["Move", "Namespace", "Pointer", "PointerRow", "Pointers", "TableName", "check_names", "pointer_address"]

_GONE: Final = ("gone/", "gone0")


@dataclass(frozen=True, slots=True)
class PointerRow:
    pointer: Pointer
    version: int


def _leaving_key(table_id: UUID) -> str:
    return f"leaving/{table_id.hex}"


class Pointers:
    def __init__(self, store: Store) -> None:
        self.views: Final = Views(store)
        self.places: Final = Places(store)
        self.derived: Final = DerivedNames(store)
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

    async def every(self) -> AsyncIterator[tuple[UUID, PointerRow]]:
        """All tables, named or not. For what is done once: nothing that is done often goes through all shards."""
        for shard in await self._store.shards("table/", "table0"):
            table_id = UUID(shard.removeprefix("table/"))
            row = await self.get(table_id)
            if row is not None:
                yield table_id, row

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

    async def resolve_all(self, names: Sequence[TableName]) -> dict[TableName, UUID]:
        """Those that there are."""
        entries = await self._store.get([Address(SHARD, table_key(name)) for name in names]) if names else []
        return {
            name: codec.decode(entry.value, UUID, Address(SHARD, entry.key))
            for name, entry in zip(names, entries, strict=True)
            if entry is not None
        }

    async def name_of(self, table_id: UUID) -> TableName | None:
        [entry] = await self._store.get([Address(SHARD, id_key(table_id))])
        return None if entry is None else _table_name(entry)

    async def tables(self, namespace: Namespace) -> list[str]:
        """Names of the tables directly inside, in order. Raises `UnknownNamespace`."""
        await self.namespace(namespace)
        return await self._names.inside(table_key(TableName(namespace, "")))

    async def bind(self, table_id: UUID, name: TableName, *, make_namespace: bool = False) -> TableName:
        """Gives an unnamed table its name; a table that has one keeps it, and that is returned.

        Raises `TableExists` if the name is another's, `UnknownNamespace`."""
        check_names((*name.namespace, name.name))
        space_keys, name_key, own_key = _space_keys(name.namespace), table_key(name), id_key(table_id)
        for _ in range(ATTEMPTS):
            space, closing, taken, view, present = await self._names.read(
                *space_keys, name_key, view_key(name), own_key
            )
            if present is not None:
                return _table_name(present)
            if taken is not None:
                raise TableExists(f"Table already exists: {name}")
            if view is not None:
                raise TableExists(f"View with same name already exists: {name}")
            if space is None and not make_namespace:
                raise missing(name.namespace)
            inside = entering(name.namespace, space, closing)
            if await self._names.write(
                inside.checks | {name_key: ABSENT, view_key(name): ABSENT, own_key: ABSENT},
                inside.puts | {name_key: encode(name_key, table_id), own_key: encode(own_key, name)},
                inside.deletes,
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
        space_keys, name_key, own_key = _space_keys(to.namespace), table_key(to), id_key(table_id)
        for _ in range(ATTEMPTS):
            space, closing, taken, view, present = await self._names.read(*space_keys, name_key, view_key(to), own_key)
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
            inside = entering(to.namespace, space, closing)
            if await self._names.write(
                inside.checks | {name_key: ABSENT, view_key(to): ABSENT, own_key: present.version},
                inside.puts | {name_key: encode(name_key, table_id), own_key: encode(own_key, to)},
                deletes=[table_key(old), _leaving_key(table_id), *inside.deletes],
            ):
                return
        raise Unavailable(f"table {to} could not be named: the list of tables changes all the time")

    async def drop(self, table_id: UUID, version: int | None = None) -> None:
        """Takes pointer and name away; with a version only if the pointer still has it, else raises `Conflict` and
        changes nothing. Without one it is idempotent."""
        while True:
            row = await self.get(table_id)
            found = ABSENT if row is None else row.version
            if version not in (None, found):
                break
            gone_key = _GONE[0] + table_id.hex
            await self._names.write({}, {gone_key: encode(gone_key, found)})
            await self.finish_drops()
            if await self.get(table_id) is None:
                return
        raise Conflict(f"table {table_id} was changed by somebody else: load it again")

    async def finish_drops(self) -> None:
        """Goes on with the tables that are being dropped, whoever began it."""
        for row in await self._names.range(*_GONE):
            table_id = UUID(row.key.removeprefix(_GONE[0]))
            version = codec.decode(row.value, int | None, Address(SHARD, row.key))  # type: ignore[arg-type]
            if await self._delete_pointer(table_id, version):
                await self._forget(table_id, row)
            else:
                await self._names.write({row.key: row.version}, {}, deletes=[row.key])

    async def _forget(self, table_id: UUID, gone: Entry) -> None:
        """The name of a table without a pointer. Whoever gives it another now, or takes it away, is looked at again."""
        own_key = id_key(table_id)
        for _ in range(ATTEMPTS):
            present, still = await self._names.read(own_key, gone.key)
            if still is None or still.version != gone.version:
                return
            name = [] if present is None else [own_key, table_key(_table_name(present))]
            if await self._names.write(
                {gone.key: gone.version, own_key: version_of(present)},
                {},
                deletes=[gone.key, _leaving_key(table_id), *name],
            ):
                return

    async def _delete_pointer(self, table_id: UUID, version: int | None) -> bool:
        """Whether there is none now. None as the version, which the version before this one wrote: whatever it is."""
        shard = pointer_address(table_id).shard
        checks = {INTENT: ABSENT} if version is None else {INTENT: ABSENT, POINTER: version}
        while True:
            [outcome] = await self._store.transact([Transaction(shard, checks, {}, deletes=[POINTER])])
            if isinstance(outcome, Applied):
                return True
            intent = outcome.current.get(INTENT)
            if intent is None:
                return outcome.current.get(POINTER) is None
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
        """Raises `UnknownNamespace`, `NamespaceNotEmpty`. See `names` for why nobody is overtaken."""
        closing = closing_key(namespace)
        for _ in range(ATTEMPTS):
            entry, _properties = await self._names.namespace(namespace)
            marked = await self._names.write(
                {entry.key: entry.version}, {entry.key: entry.value, closing: encode(closing, None)}
            )
            if marked is None:
                continue
            inside = await self.tables(namespace), await self.views.names(namespace), await self.namespaces(namespace)
            if any(inside):
                await self._names.write({entry.key: marked}, {}, deletes=[closing])
                raise NamespaceNotEmpty(f"Namespace is not empty: {'.'.join(namespace)}")
            if await self._names.write({entry.key: marked}, {}, deletes=[entry.key, closing]):
                return
        raise Unavailable(f"namespace {'.'.join(namespace)} could not be dropped: others change it all the time")


def _space_keys(namespace: Namespace) -> tuple[str, str]:
    return namespace_key(namespace), closing_key(namespace)


def _pointer_row(entry: Entry, table_id: UUID) -> PointerRow:
    return PointerRow(codec.decode(entry.value, Pointer, pointer_address(table_id)), entry.version)


def _table_name(entry: Entry) -> TableName:
    return codec.decode(entry.value, TableName, Address(SHARD, entry.key))
