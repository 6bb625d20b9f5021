"""Which folder is whose: the locations that engines chose for their tables, so that no two tables share a file.

A claim is a row in the shard of names: the folder, and the table that has it. Nobody else gets that folder, one above
or one inside it. Whoever claims rewrites one row that all claims share, so two at once cannot miss each other. The
claim of a table without a name is left from one that was never finished or is dropped, and anybody may take it over:
so whoever made a table looks at its claim again when the table has its name (`holds`).
"""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from lakestream.errors import TableRefused, Unavailable
from lakestream.metadata import codec
from lakestream.metadata.names.rows import ATTEMPTS, SHARD, Names, encode, id_key, version_of
from lakestream.metadata.store import ABSENT, Address, Entry, Store

_ALL: Final = "places"
"""Its presence says that the tables that were there before claims have theirs."""
_FORMAT: Final = 1
_IDS: Final = ("id/", "id0")


class Places:
    def __init__(self, store: Store) -> None:
        self._names = Names(store)

    async def is_kept(self) -> bool:
        """Whether every table has its claim: see `begin`."""
        [row] = await self._names.read(_ALL)
        return row is not None

    async def tables(self) -> list[UUID]:
        """All that have a name, for `begin`."""
        return [UUID(row.key.removeprefix(_IDS[0])) for row in await self._names.range(*_IDS)]

    async def begin(self, claims: Mapping[str, UUID]) -> None:
        """Takes over the folders of the tables that are there. Idempotent; whoever comes second changes nothing."""
        puts = {_key(place): encode(_key(place), table_id) for place, table_id in claims.items()}
        await self._names.write({_ALL: ABSENT}, {_ALL: encode(_ALL, _FORMAT), **puts})

    async def claim(self, table_id: UUID, place: str) -> None:
        """`place` in one spelling, see `objects.paths.resolved`. Idempotent. Raises `TableRefused` if it is another
        table's, or overlaps with one."""
        key = _key(place)
        above = [_key(folder) for folder in _above(place)]
        for _ in range(ATTEMPTS):
            everything, present, *found = await self._names.read(_ALL, key, *above)
            found += await self._names.range(key, key[:-1] + "0")
            others = {row.key: row for row in (present, *found) if row is not None and _owner(row) != table_id}
            owners = {_owner(row) for row in others.values()}
            named = await self._names.read(*(id_key(owner) for owner in owners))
            for owner, row in zip(owners, named, strict=True):
                if row is not None:
                    raise TableRefused(
                        f"{place} is, holds or lies in the folder of table {owner}, and a file belongs to one table:"
                        " choose another location"
                    )
            if await self._names.write(
                {_ALL: version_of(everything), **{id_key(owner): ABSENT for owner in owners}},
                {_ALL: encode(_ALL, _FORMAT), key: encode(key, table_id)},
                deletes=[other for other in others if other != key],
            ):
                return
        raise Unavailable(f"{place} could not be claimed: the list of tables changes all the time")

    async def holds(self, table_id: UUID, place: str) -> bool:
        [row] = await self._names.read(_key(place))
        return row is not None and _owner(row) == table_id

    async def release(self, table_id: UUID, place: str) -> None:
        """Unless it is another's by now. Idempotent."""
        [row] = await self._names.read(_key(place))
        if row is not None and _owner(row) == table_id:
            await self._names.write({row.key: row.version}, {}, deletes=[row.key])


def _key(place: str) -> str:
    return f"place/{place}/"


def _above(place: str) -> list[str]:
    scheme, colon, path = place.partition("://")
    parts = path.split("/")
    return [f"{scheme}{colon}{'/'.join(parts[:count])}" for count in range(1, len(parts))]


def _owner(row: Entry) -> UUID:
    return codec.decode(row.value, UUID, Address(SHARD, row.key))
