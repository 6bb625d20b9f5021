"""Views by name: where each one's present metadata is. A view is its name; everything about it is one row."""

from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from lakestream.errors import Conflict, TableExists, Unavailable, UnknownView
from lakestream.metadata import codec
from lakestream.metadata.names.rows import (
    ATTEMPTS,
    INSIDE,
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
    view_key,
)
from lakestream.metadata.store import ABSENT, Address, Entry, Store

_VIEWS: Final = ("view/", "view0")
_BUSY: Final = "the list of views changes all the time"


class ViewPointer(msgspec.Struct, frozen=True, array_like=True):
    view_id: UUID
    metadata_location: str


class ViewRow(NamedTuple):
    pointer: ViewPointer
    version: int


class Views:
    def __init__(self, store: Store) -> None:
        self._names = Names(store)

    async def get(self, name: TableName) -> ViewRow:
        """Raises `UnknownView`."""
        [entry] = await self._names.read(view_key(name))
        if entry is None:
            raise UnknownView(f"View does not exist: {name}")
        return _view_row(entry)

    async def every(self) -> list[tuple[TableName, ViewRow]]:
        """All views, in order of their namespaces and names."""
        return [(_view_name(entry.key), _view_row(entry)) for entry in await self._names.range("view/", "view0")]

    async def names(self, namespace: Namespace) -> list[str]:
        """Names of the views directly inside, in order. Raises `UnknownNamespace`."""
        await self._names.namespace(namespace)
        return await self._names.inside(view_key(TableName(namespace, "")))

    async def check_free(self, name: TableName) -> None:
        """Raises `TableExists`, `UnknownNamespace`."""
        await self._names.namespace(name.namespace)
        taken, present = await self._names.read(table_key(name), view_key(name))
        _check_free(name, taken, present)

    async def create(self, name: TableName, pointer: ViewPointer) -> int:
        """The row's version. Raises `TableExists` if a view or a table has the name, `UnknownNamespace`."""
        check_names((*name.namespace, name.name))
        space_key, key = namespace_key(name.namespace), view_key(name)
        for _ in range(ATTEMPTS):
            space, taken, present = await self._names.read(space_key, table_key(name), key)
            _check_free(name, taken, present)
            if space is None:
                raise missing(name.namespace)
            version = await self._names.write(
                {space_key: space.version, table_key(name): ABSENT, key: ABSENT},
                {space_key: space.value, key: encode(key, pointer)},
            )
            if version is not None:
                return version
        raise Unavailable(f"view {name} could not be made: {_BUSY}")

    async def swing(self, name: TableName, version: int, pointer: ViewPointer) -> int:
        """Replaces the row if it still has this version; the new one. Else raises `Conflict` and changes nothing."""
        key = view_key(name)
        swung = await self._names.write({key: version}, {key: encode(key, pointer)})
        if swung is None:
            raise Conflict(f"Cannot commit: view {name} was changed by somebody else, load it again")
        return swung

    async def rename(self, name: TableName, to: TableName) -> None:
        """Raises `UnknownView`, `TableExists`, `UnknownNamespace`."""
        check_names((*to.namespace, to.name))
        space_key, key = namespace_key(to.namespace), view_key(to)
        for _ in range(ATTEMPTS):
            row = await self.get(name)
            if name == to:
                return
            space, taken, present = await self._names.read(space_key, table_key(to), key)
            if space is None:
                raise missing(to.namespace)
            if taken is not None or present is not None:
                kind = "View" if taken is None else "Table"
                raise TableExists(f"Cannot rename {name} to {to}. {kind} already exists")
            if await self._names.write(
                {space_key: space.version, table_key(to): ABSENT, key: ABSENT, view_key(name): row.version},
                {space_key: space.value, key: encode(key, row.pointer)},
                deletes=[view_key(name)],
            ):
                return
        raise Unavailable(f"view {name} could not be renamed: {_BUSY}")

    async def metadata_locations(self) -> set[str]:
        """Of all views."""
        return {_view_row(row).pointer.metadata_location for row in await self._names.range(*_VIEWS)}

    async def drop(self, name: TableName) -> ViewPointer:
        """What it was. Raises `UnknownView`."""
        for _ in range(ATTEMPTS):
            row = await self.get(name)
            if await self._names.write({view_key(name): row.version}, {}, deletes=[view_key(name)]):
                return row.pointer
        raise Unavailable(f"view {name} could not be dropped: {_BUSY}")


def _check_free(name: TableName, table: Entry | None, view: Entry | None) -> None:
    if table is not None:
        raise TableExists(f"Table with same name already exists: {name}")
    if view is not None:
        raise TableExists(f"View already exists: {name}")


def _view_name(key: str) -> TableName:
    levels, _, name = key.removeprefix("view/").partition(INSIDE)
    return TableName(tuple(levels.split(LEVEL)), name)


def _view_row(entry: Entry) -> ViewRow:
    return ViewRow(codec.decode(entry.value, ViewPointer, Address(SHARD, entry.key)), entry.version)
