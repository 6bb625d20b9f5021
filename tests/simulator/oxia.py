"""A made-up Oxia: what its documentation promises, and no more.

One key at a time is compared and set; each write of a batch stands alone, and a batch may end after any of them.
Version ids grow within a shard and are never given twice, also after a delete. Every answer to a put carries the
server's time.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from lakestream.errors import Unavailable
from lakestream.metadata.stores.oxia.service import NO_VERSION, DeleteKey, Heard, PutKey, Record, Stamp
from simulator.world import World

T = TypeVar("T")


@dataclass
class OxiaCore:
    """One shard of Oxia. `now_ms` is its clock; `written` hears each key that was written or deleted."""

    now_ms: Callable[[], int]
    records: dict[str, Record] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    listeners: list[Callable[[str], None]] = field(default_factory=list)
    _version_id: int = NO_VERSION

    def put(self, put: PutKey) -> Stamp | None:
        found = self.records.get(put.key)
        if put.expected is not None and put.expected != (NO_VERSION if found is None else found.version_id):
            return None
        self._version_id += 1
        if found is None:
            insort(self.order, put.key, key=str.encode)
        record = self.records[put.key] = Record(put.key, put.value, self._version_id, self.now_ms())
        self._tell(put.key)
        return Stamp(record.version_id, record.modified_ms)

    def delete(self, delete: DeleteKey) -> bool:
        found = self.records.get(delete.key)
        if found is None or found.version_id != delete.expected:
            return False
        del self.records[delete.key]
        del self.order[bisect_left(self.order, delete.key.encode(), key=str.encode)]
        self._tell(delete.key)
        return True

    def following(self, key: str) -> Record | None:
        at = bisect_left(self.order, key.encode(), key=str.encode)
        return self.records[self.order[at]] if at < len(self.order) else None

    def scan(self, start: str, end: str, limit: int | None) -> list[Record]:
        first, last = (bisect_left(self.order, bound.encode(), key=str.encode) for bound in (start, end))
        return [self.records[key] for key in self.order[first:last][:limit]]

    def _tell(self, key: str) -> None:
        for listener in self.listeners:
            listener(key)


class SimulatedOxia:
    """Implements `OxiaService` for one process: the made-up server behind a network that loses, delays and repeats."""

    def __init__(self, world: World, core: OxiaCore, sent: Callable[[PutKey], None]) -> None:
        """`sent` hears each put before it is on its way."""
        self._world = world
        self._core = core
        self._sent = sent

    async def put(self, partition: str, puts: Sequence[PutKey]) -> list[Stamp | None]:
        for put in puts:
            self._sent(put)
        kind = "transact" if len(puts) == 1 and puts[0].key.startswith("r") else "apply"
        return await self._some(f"{kind} {partition}", [lambda put=put: self._core.put(put) for put in puts])

    async def delete(self, partition: str, deletes: Sequence[DeleteKey]) -> list[bool]:
        return await self._some(f"apply {partition}", [lambda each=each: self._core.delete(each) for each in deletes])

    async def read(self, partition: str, keys: Sequence[str]) -> list[Record | None]:
        """Of several keys each at its own moment."""
        name, records = f"get {partition}", self._core.records
        return [await self._world.operation(name, lambda key=key: records.get(key)) for key in keys]

    async def following(self, places: Sequence[tuple[str, str]]) -> list[Record | None]:
        return await self._world.operation("shards", lambda: [self._core.following(key) for _, key in places])

    async def scan(self, partition: str, start: str, end: str, *, limit: int | None = None) -> list[Record]:
        """In two parts, each at its own moment."""
        name = f"range {partition}"
        found = await self._world.operation(name, lambda: self._core.scan(start, end, limit))
        if len(found) < 2 or self._world.is_calm:
            return found
        cut = found[self._world.random.randrange(1, len(found))].key
        rest = None if limit is None else limit - sum(record.key < cut for record in found)
        later = await self._world.operation(name, lambda: self._core.scan(cut, end, rest))
        return [*(record for record in found if record.key < cut), *later]

    async def scan_all(self, start: str, end: str) -> list[Record]:
        return await self.scan("everything", start, end)

    def listen(self, heard: Heard) -> None:
        self._core.listeners.append(lambda key: heard([key]))

    async def close(self) -> None:
        """Nothing is held."""

    async def _some(self, name: str, steps: Sequence[Callable[[], T]]) -> list[T]:
        """One after another; the connection may break between any two."""
        kept, world = len(steps), self._world
        if kept > 1 and world.chance(world.faults.split):
            kept = world.random.randrange(kept)
        done = await world.operation(name, lambda: [step() for step in steps[:kept]])
        if kept < len(steps):
            world.trace(f"{name}: cut off after {kept}")
            raise Unavailable("the connection broke in the middle")
        return done
