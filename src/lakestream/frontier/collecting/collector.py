"""Collection of dead WAL objects.

An object is dead when no extent names it and no broker can still make one name it. The second is what the fence is
for: first the fence of every partition in the object's footer is raised above its generation, *then* the extents are
read, *then* it is deleted. In any other order a broker that slept between PUT and commit would ack records whose
object is gone. Age is courtesy to readers, never part of the proof.

An insert that is under way needs its objects though no extent names them yet (`metadata.inserts`).

The log must be rebuildable from the bucket at every moment, so what a dead object's footer tells of others outlives it
(`frontier.receipts`). An object of another cluster, which may share the bucket, is never judged: its extents are not in
this metadata store. Objects are looked for in the bucket and in every disk store that was ever named, and deleted in
all of them.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from lakestream.errors import CorruptObject, ObjectMissing, RetryableError
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.receipts import given_up, write_given_up
from lakestream.frontier.moving.schedule import still_waits
from lakestream.metadata.counters import generation_and_clusters, raise_generation
from lakestream.metadata.inserts import Inserts, sessions_of
from lakestream.metadata.log.partition import raise_fence, read_extents
from lakestream.model import StreamPartition
from lakestream.objects import ObjectInfo
from lakestream.wal import WAL_PREFIX, Footer, Receipt, WalStores, is_foreign, parse_key, read_footer

T = TypeVar("T")
R = TypeVar("R")

FENCE_DISTANCE: Final = 2
"""Brokers may be this many generations behind before their uploads are refused."""
_CONCURRENT: Final = 16
_FOOTERS_KEPT: Final = 10_000


@dataclass(frozen=True, slots=True)
class Collected:
    """What one pass did. `corrupt` objects are never deleted: a person has to look at them. `more`: it deleted some and
    came to its limit, so that another is worth its while at once."""

    generation: int
    examined: int = 0
    deleted: int = 0
    undeleted: int = 0
    corrupt: tuple[str, ...] = ()
    more: bool = False


@dataclass(frozen=True, slots=True)
class _Contents:
    """What of a footer decides about life and death. Immutable, like its object."""

    partitions: frozenset[StreamPartition]
    receipt_keys: frozenset[str]


class Collector:
    """Remembers footers and how far it came; both only save work."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._wal = lake.wal
        self._contents: OrderedDict[str, _Contents] = OrderedDict()
        self._after: str | None = None
        self._raised_ms: int | None = None
        self._given_up: frozenset[str] = frozenset()

    async def collect(self) -> Collected:
        """One pass over a bounded number of objects; the next goes on behind them, whatever became of these."""
        await self._wal.refresh()
        present, clusters = await generation_and_clusters(self._lake.store)
        generation = await self._raise_generation(present)
        fence = generation - FENCE_DISTANCE
        candidates, unreadable = await self._candidates(fence, clusters)
        corrupt = list(unreadable)
        contents: dict[str, _Contents] = {}
        for info, found in zip(candidates, await _each(self._read, candidates), strict=True):
            if isinstance(found, CorruptObject):
                corrupt.append(f"{info.key}: {found}")
            elif found is not None:
                contents[info.key] = found
        named = await self._fence_then_name(contents, fence)
        dead = [key for key in contents if key not in named]
        gone = await self.delete_dead(dead, contents)
        for key in gone:
            self._contents.pop(key, None)
        more = bool(gone) and self._after is not None
        return Collected(generation, len(candidates), len(gone), len(dead) - len(gone), tuple(corrupt), more)

    async def delete_dead(self, dead: Sequence[str], contents: Mapping[str, _Contents]) -> list[str]:
        """Deletes take place in any order, and some may fail or never begin. An object that is left without receipt
        would be taken for one that no table has: so before the first goes it is written down that all of them are dead,
        with what their footers tell of objects that stay. What holds only receipts goes when all that it tells of is
        gone."""
        data = {key: contents[key].receipt_keys for key in dead if contents[key].partitions}
        told = {key: contents[key].receipt_keys for key in dead if not contents[key].partitions}
        fresh = [key for key in data if key not in self._given_up]
        if fresh:
            present = await self._present(_all(data) - data.keys())
            holding = [key for key in fresh if data[key] & present]
            kept = [each for found in await _each(self._receipts, holding) for each in found]
            receipts = [*given_up(fresh), *(each for each in kept if each.object_key in present)]
            key = await write_given_up(self._lake, receipts, max(parse_key(each).generation for each in fresh))
            told[key] = frozenset(receipt.object_key for receipt in receipts)
        gone = await self._lake.delete_wal(list(data))
        self._given_up = frozenset(data.keys() - set(gone))
        left = await self._present(_all(told) - set(gone))
        gone += await self._lake.delete_wal([key for key, spoken in told.items() if not spoken & left])
        return [key for key in gone if key in contents]

    async def _present(self, keys: Iterable[str]) -> frozenset[str]:
        asked = sorted(keys)
        return frozenset(key for key, there in zip(asked, await _each(self._exists, asked), strict=True) if there)

    async def _receipts(self, key: str) -> Sequence[Receipt]:
        """None if another collector deletes it, which writes them down."""
        try:
            return (await read_footer(self._wal, key)).receipts
        except ObjectMissing:
            return ()

    async def _exists(self, key: str) -> bool:
        try:
            await self._wal.get_tail(key, 1)
        except ObjectMissing:
            return False
        except RetryableError:
            return True
        return True

    async def _raise_generation(self, generation: int) -> int:
        """Raised at its pace while there is anything to collect one day."""
        settings, now_ms = self._lake.settings, self._lake.runtime.clock.now_ms()
        if self._raised_ms is None:
            first = await _first(self._wal)
            due = first is not None and now_ms - first.modified_ms >= settings.generation_interval_ms
        else:
            waits = still_waits(now_ms, self._raised_ms, settings.generation_interval_ms)
            due = not waits and await _first(self._wal) is not None
        if not due:
            return generation
        generation = await raise_generation(self._lake.store, generation)
        self._raised_ms = now_ms
        return generation

    async def _candidates(self, fence: int, clusters: frozenset[str]) -> tuple[list[ObjectInfo], list[str]]:
        """The next objects of ours below the fence and past the readers' grace. Names are in order of generation."""
        settings, now_ms = self._lake.settings, self._lake.runtime.clock.now_ms()
        found: list[ObjectInfo] = []
        unreadable: list[str] = []
        seen = 0
        async for info in self._wal.list(WAL_PREFIX, after=self._after):
            try:
                generation, session, _ = parse_key(info.key)
            except ValueError as error:
                unreadable.append(str(error))
                continue
            if generation >= fence:
                break
            seen += 1
            self._after = info.key
            if now_ms - info.modified_ms >= settings.grace_ms and not is_foreign(session, clusters):
                found.append(info)
            if seen >= settings.max_collect_objects:
                return found, unreadable
        self._after = None
        return found, unreadable

    async def _read(self, info: ObjectInfo) -> _Contents | CorruptObject | None:
        """None: another collector was faster, or the store did not answer; the object is left for a later pass."""
        known = self._contents.get(info.key)
        if known is not None:
            self._contents.move_to_end(info.key)
            return known
        try:
            footer = await read_footer(self._wal, info.key)
        except CorruptObject as error:
            return error
        except (ObjectMissing, RetryableError):
            return None
        found = self._contents[info.key] = _contents(footer)
        if len(self._contents) > _FOOTERS_KEPT:
            self._contents.popitem(last=False)
        return found

    async def _fence_then_name(self, contents: Mapping[str, _Contents], fence: int) -> frozenset[str]:
        """Every object that an extent of these partitions names, or an insert that is under way, read after no other
        can be named any more. Inserts first: one that has ended before has its extents by then."""
        fenced = sorted({partition for each in contents.values() for partition in each.partitions})
        await _each(lambda partition: raise_fence(self._lake.store, partition, fence), fenced)
        inserting = sessions_of(await Inserts(self._lake.store).live()) if fenced else frozenset()
        needed = frozenset(key for key in contents if parse_key(key).session in inserting)
        extents = await _each(lambda partition: read_extents(self._lake.store, partition), fenced)
        return needed | frozenset(extent.object_key for found in extents for extent in found)


def _contents(footer: Footer) -> _Contents:
    return _Contents(
        partitions=frozenset(span.partition for span in footer.spans),
        receipt_keys=frozenset(receipt.object_key for receipt in footer.receipts),
    )


def _all(receipt_keys: Mapping[str, frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*receipt_keys.values())


async def _first(wal: WalStores) -> ObjectInfo | None:
    async for info in wal.list(WAL_PREFIX):
        return info
    return None


async def _each(work: Callable[[T], Awaitable[R]], items: Sequence[T]) -> list[R]:
    """Results in order, a bounded number at a time."""
    results: list[R] = []
    for start in range(0, len(items), _CONCURRENT):
        results.extend(await asyncio.gather(*map(work, items[start : start + _CONCURRENT])))
    return results
