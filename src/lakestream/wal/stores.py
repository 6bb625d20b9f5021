"""All stores that WAL objects may lie in: the bucket, and every disk store that was ever named.

An extent names the stores that had its object when it was committed. Readers try those, then the bucket, where an
object that was spilled lies under the same key, then the other disk stores, to which it may have been copied. An object
is missing only if every one of them says so and is whole; if one does not answer, it is unavailable.

As an `ObjectStore` it is all of them at once, for those who look after WAL objects without knowing where they lie.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from lakestream.errors import CorruptObject, LakestreamError, ObjectMissing, RetryableError, Unavailable
from lakestream.objects import Buffer, ObjectInfo, ObjectStore
from lakestream.objects.store import RangeReader
from lakestream.wal.disks import ANSWER_S, DiskStore

log = logging.getLogger(__name__)
T = TypeVar("T")

MAIN_STORE: Final = "main"
"""The name under which extents know the bucket."""
_PLACES_KEPT: Final = 100_000
_SUSPECT_S: Final = 10.0
"""For so long a disk store that did not answer is asked last."""


class NamedDisk(NamedTuple):
    """A disk store as others are told of it."""

    name: str
    url: str
    cluster: str
    label: str


LoadDisks = Callable[[], Awaitable[Sequence[NamedDisk]]]
"""Reads which disk stores were ever named."""


class WalStores:
    """Without `load` the disk stores are those that were given, for ever."""

    def __init__(
        self,
        bucket: ObjectStore,
        disks: Iterable[DiskStore] = (),
        *,
        load: LoadDisks | None = None,
        open_store: Callable[[str], ObjectStore] | None = None,
    ) -> None:
        self.bucket = bucket
        self._disks = {disk.name: disk for disk in disks}
        self._load = load
        self._open = open_store
        self._places: OrderedDict[str, tuple[str, ...]] = OrderedDict()
        """Where listings have seen an object last: a hint for the order in which stores are asked."""
        self._suspect_until_s: dict[str, float] = {}

    @property
    def disks(self) -> Mapping[str, DiskStore]:
        return self._disks

    def named(self) -> tuple[NamedDisk, ...]:
        return tuple(NamedDisk(disk.name, disk.objects.url, disk.cluster, disk.label) for disk in self._disks.values())

    async def refresh(self) -> None:
        """Learns which disk stores there are and what their labels must be."""
        if self._load is None or self._open is None:
            return
        for named in await self._load():
            disk = self._disks.get(named.name)
            if disk is None:
                disk = self._disks[named.name] = DiskStore(named.name, self._open(named.url), named.cluster)
            disk.cluster, disk.label = named.cluster, named.label

    async def read(
        self,
        names: Sequence[str],
        key: str,
        start: int,
        length: int,
        *,
        once: bool = False,
        is_right: Callable[[Buffer], bool] = lambda data: True,
        bucket: RangeReader | None = None,
    ) -> Buffer:
        """Bytes of an object that lies in these stores. `is_right`: whether they are the bytes that were written; if
        not, the next copy is tried. The last copy is returned as it is. `bucket`: how the bucket is read instead."""
        if all(name == MAIN_STORE for name in names):
            return await (bucket or self.bucket).get_range(key, start, length, once=once)
        if any(name != MAIN_STORE and name not in self._disks for name in names):
            await self.refresh()
        wrong: list[Buffer] = []

        async def read(objects: ObjectStore) -> Buffer:
            reader = bucket if bucket is not None and objects is self.bucket else objects
            data = await reader.get_range(key, start, length, once=once)
            if not is_right(data):
                wrong.append(data)
                raise CorruptObject(f"{objects.url}/{key} is damaged")
            return data

        try:
            return await self._first(names, key, read)
        except CorruptObject:
            if wrong:
                return wrong[-1]
            raise

    async def _first(self, names: Sequence[str], key: str, read: Callable[[ObjectStore], Awaitable[T]]) -> T:
        """What the first store tells that has the object."""
        damaged: CorruptObject | None = None
        silent: list[str] = [f"{name} is not known here" for name in names if not self._knows(name)]
        for name in self._order(names):
            disk = self._disks.get(name)
            try:
                if disk is None:
                    return await read(self.bucket)
                async with asyncio.timeout(ANSWER_S):
                    return await read(disk.objects)
            except ObjectMissing:
                if disk is not None and not await disk.is_whole():
                    silent.append(f"{disk.objects.url} is not whole")
            except CorruptObject as error:
                log.error("a copy of a WAL object cannot be used: %s", error)
                damaged = error
            except (RetryableError, TimeoutError) as error:
                self._suspect_until_s[name] = asyncio.get_running_loop().time() + _SUSPECT_S
                silent.append(str(error) or f"{name} does not answer")
        if silent:
            raise Unavailable(f"{key} cannot be read now: {'; '.join(silent)}")
        raise damaged or ObjectMissing(f"{key} is in none of the stores {', '.join(self._order(names))}")

    def _knows(self, name: str) -> bool:
        return name == MAIN_STORE or name in self._disks

    def _order(self, names: Sequence[str]) -> list[str]:
        order = [*(name for name in names if self._knows(name)), MAIN_STORE, *self._disks]
        now_s = asyncio.get_running_loop().time()
        return sorted(dict.fromkeys(order), key=lambda name: self._suspect_until_s.get(name, 0.0) > now_s)

    # As one store

    @property
    def url(self) -> str:
        return self.bucket.url

    async def put(self, key: str, parts: Sequence[Buffer], *, overwrite: bool = False) -> None:
        """Into the bucket."""
        await self.bucket.put(key, parts, overwrite=overwrite)

    async def get(self, key: str) -> bytes:
        return await self._anywhere(key, lambda objects: objects.get(key))

    async def get_range(self, key: str, start: int, length: int, *, once: bool = False) -> Buffer:
        return await self._anywhere(key, lambda objects: objects.get_range(key, start, length, once=once))

    async def get_tail(self, key: str, length: int) -> bytes:
        return await self._anywhere(key, lambda objects: objects.get_tail(key, length))

    async def _anywhere(self, key: str, read: Callable[[ObjectStore], Awaitable[T]]) -> T:
        if not self._disks:
            return await read(self.bucket)
        return await self._first(self._places.get(key, ()), key, read)

    def places(self, key: str) -> tuple[str, ...]:
        """The stores in which the last listing saw the object; all, if that is forgotten."""
        return self._places.get(key) or (MAIN_STORE, *self._disks)

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        """Of all stores, each key once, with the time of its oldest copy. A disk store that does not answer is left
        out: what is only there is found when it is back."""
        if not self._disks:
            async for info in self.bucket.list(prefix, after=after):
                yield info
            return
        rows = {MAIN_STORE: self.bucket.list(prefix, after=after)}
        rows |= {name: _lenient(disk, prefix, after) for name, disk in self._disks.items()}
        heads = {name: await anext(row, None) for name, row in rows.items()}
        while present := {name: info for name, info in heads.items() if info is not None}:
            key = min(info.key for info in present.values())
            found = {name: info for name, info in present.items() if info.key == key}
            self._remember(key, tuple(found))
            yield min(found.values(), key=lambda info: info.modified_ms)
            for name in found:
                heads[name] = await anext(rows[name], None)

    def _remember(self, key: str, names: tuple[str, ...]) -> None:
        self._places[key] = names
        self._places.move_to_end(key)
        if len(self._places) > _PLACES_KEPT:
            self._places.popitem(last=False)

    async def delete(self, keys: Sequence[str]) -> None:
        """From all stores. Raises if one of them did not answer, when the others are done."""
        failed: LakestreamError | None = None
        for objects in (*(disk.objects for disk in self._disks.values()), self.bucket):
            try:
                await objects.delete(keys)
            except RetryableError as error:
                failed = error
        if failed is not None:
            raise failed
        for key in keys:
            self._places.pop(key, None)


async def _lenient(disk: DiskStore, prefix: str, after: str | None) -> AsyncIterator[ObjectInfo]:
    try:
        async for info in disk.objects.list(prefix, after=after):
            yield info
    except RetryableError as error:
        log.warning("disk store %s cannot be listed now: %s", disk.objects.url, error)
