"""Which tables are derived from which topics: rows beside the names of tables, in their shard.

A row is written before its table is made and goes after the table was put away, so whoever finds one goes on from
there. The table's id is drawn anew for every row: what was put away is never filled again.
"""

from typing import Final, Literal
from uuid import UUID

import msgspec

from lakestream.metadata import codec
from lakestream.metadata.names.rows import SHARD, Names, encode
from lakestream.metadata.store import ABSENT, Address, Entry, Store

DerivedKind = Literal["latest", "dlq"]

_TOPICS: Final = ("derived/", "derived0")
_TABLES: Final = "derives/"


class DerivedRow(msgspec.Struct, frozen=True, array_like=True):
    """`recipe` says what is made of the topic's rows; whose recipe has changed is put away and made anew. `frontier`:
    where the table begins, if rows before it were looked at and none was for it; empty: at the beginning."""

    topic_id: UUID
    kind: DerivedKind
    table_id: UUID
    recipe: str
    frontier: tuple[int, ...] = ()


class DerivedTopic(msgspec.Struct, frozen=True, array_like=True):
    """Of a derived table, by its id."""

    topic_id: UUID
    kind: DerivedKind


class DerivedNames:
    def __init__(self, store: Store) -> None:
        self._names = Names(store)

    async def every(self) -> list[DerivedRow]:
        """Of all topics, living or not."""
        return [_row(entry) for entry in await self._names.range(*_TOPICS)]

    async def of_topic(self, topic_id: UUID) -> list[DerivedRow]:
        prefix = f"{_TOPICS[0]}{topic_id.hex}"
        return [_row(entry) for entry in await self._names.range(f"{prefix}/", f"{prefix}0")]

    async def topics_of(self, table_ids: list[UUID]) -> dict[UUID, DerivedTopic]:
        """Of those of the tables that are derived."""
        keys = [_table_key(table_id) for table_id in table_ids]
        entries = await self._names.read(*keys) if keys else []
        return {
            table_id: codec.decode(entry.value, DerivedTopic, Address(SHARD, entry.key))
            for table_id, entry in zip(table_ids, entries, strict=True)
            if entry is not None
        }

    async def add(self, row: DerivedRow) -> DerivedRow:
        """One that is there already for its topic and kind is returned as it is."""
        key, table_key = _row_key(row), _table_key(row.table_id)
        while True:
            topic = DerivedTopic(row.topic_id, row.kind)
            puts = {key: encode(key, row), table_key: encode(table_key, topic)}
            if await self._names.write({key: ABSENT}, puts) is not None:
                return row
            [present] = await self._names.read(key)
            if present is not None:
                return _row(present)

    async def reached(self, row: DerivedRow, frontier: tuple[int, ...]) -> DerivedRow:
        """The row with another frontier, if it is still this one; else as it is, or as it was given if it is gone."""
        key, new = _row_key(row), msgspec.structs.replace(row, frontier=frontier)
        [present] = await self._names.read(key)
        if present is None or _row(present) != row:
            return row if present is None else _row(present)
        await self._names.write({key: present.version}, {key: encode(key, new)})
        return new

    async def remove(self, row: DerivedRow) -> None:
        """Idempotent: another row of the same topic and kind stays."""
        key = _row_key(row)
        [present] = await self._names.read(key)
        if present is not None and _row(present).table_id == row.table_id:
            await self._names.write({key: present.version}, {}, deletes=[key, _table_key(row.table_id)])


def _row_key(row: DerivedRow) -> str:
    return f"{_TOPICS[0]}{row.topic_id.hex}/{row.kind}"


def _table_key(table_id: UUID) -> str:
    return f"{_TABLES}{table_id.hex}"


def _row(entry: Entry) -> DerivedRow:
    return codec.decode(entry.value, DerivedRow, Address(SHARD, entry.key))
