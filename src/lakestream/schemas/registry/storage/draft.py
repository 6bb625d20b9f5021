"""A change of the registry: what was read for it, and what is to become of it. It is applied whole, and only if nothing
that was read has changed meanwhile."""

from typing import TypeVar

import msgspec

from lakestream.metadata import codec
from lakestream.metadata.store import ABSENT, Address, Applied, Entry, Store, Transaction
from lakestream.schemas.registry.storage.rows import LAST, SHARD, ContextRow, SubjectRow, encoded

T = TypeVar("T")
KeptRow = SubjectRow | ContextRow


class Draft:
    """Reads see the change itself."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: dict[str, Entry | None] = {}
        self._puts: dict[str, bytes] = {}
        self._deletes: set[str] = set()
        self.kept: dict[str, KeptRow] = {}
        """Rows of the state that change, by key, as they will be."""

    async def get(self, key: str, kind: type[T]) -> T | None:
        if key in self._deletes:
            return None
        data = self._puts.get(key)
        if data is None:
            if key not in self._seen:
                [self._seen[key]] = await self._store.get([Address(SHARD, key)])
            entry = self._seen[key]
            if entry is None:
                return None
            data = entry.value
        return codec.decode(data, kind, Address(SHARD, key))

    async def keys(self, prefix: str) -> list[str]:
        """Those in the store. They are not checked when the change is applied: whoever adds one rewrites a row that
        is."""
        return [entry.key for entry in await self._store.range(SHARD, prefix, prefix + LAST)]

    def put(self, key: str, value: object) -> None:
        self._deletes.discard(key)
        self._puts[key] = encoded(key, value)

    def keep(self, key: str, row: KeptRow) -> None:
        """Puts a row of the state, under its next revision."""
        self.kept[key] = row = msgspec.structs.replace(row, revision=row.revision + 1)
        self.put(key, row)

    def delete(self, key: str) -> None:
        self._puts.pop(key, None)
        self._deletes.add(key)

    async def commit(self) -> bool:
        """False: somebody else changed something first. Nothing to change is no change: what was read was so."""
        if not self._puts and not self._deletes:
            return True
        checks = {key: ABSENT if entry is None else entry.version for key, entry in self._seen.items()}
        [outcome] = await self._store.transact(
            [Transaction(SHARD, checks, self._puts, deletes=sorted(self._deletes))],
        )
        return isinstance(outcome, Applied)
