"""A disk store that was lost (emptied, replaced, mounted anew) is copied again from the others.

Its new label is put there first and made the right one last: whatever empties the store meanwhile takes the label away,
and a run that is cut off leaves a store that is not whole. Brokers count a write only if the store has its label after
the last of the writes that they count; the others are listed here after the loss. So what counted is found, and what is
not committed yet as well: no extent names it, so nothing but the lists tells of it, and a list or an object that cannot
be read means that the store is not whole yet.

A copy must not outlive its object: a dead one that comes back after its receipts are gone would look like a flush of
which nobody knows the outcome. Whether an object is dead never changes back, so that is looked up after the copy.
"""

import logging
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from lakestream.errors import Conflict, CorruptObject, ObjectMissing, RetryableError
from lakestream.frontier.collecting.collector import FENCE_DISTANCE
from lakestream.metadata.counters import current_generation
from lakestream.metadata.disks import relabel_disk
from lakestream.metadata.log.partition import raise_fence, read_every_extent, read_extents
from lakestream.metadata.store import Store
from lakestream.runtime import Runtime
from lakestream.wal import WAL_PREFIX, DiskStore, Footer, WalStores, check_object, parse_key
from lakestream.wal.disks import label_of

log = logging.getLogger(__name__)

_DELETE_CHUNK: Final = 200


async def restore_disk(store: Store, wal: WalStores, disk: DiskStore, runtime: Runtime) -> bool:
    """False: not now. Only for a store that is whole for nobody. Raises `RetryableError`."""
    label = label_of(disk.name, runtime.new_id().hex)
    await disk.write_label(label)
    if disk.label and not await _Copying(store, wal, disk).copy():
        return False
    if await disk.read_label() != label or not await relabel_disk(store, disk.name, disk.label, label):
        return False
    log.info("disk store %s is whole", disk.objects.url)
    disk.label = label
    return True


@dataclass(slots=True)
class _Copying:
    store: Store
    wal: WalStores
    disk: DiskStore
    present: set[str] = field(default_factory=set)
    copied: dict[str, Footer] = field(default_factory=dict)

    async def copy(self) -> bool:
        """Whether the store has all that extents say it has."""
        self.present = {info.key async for info in self.disk.objects.list(WAL_PREFIX)}
        copied = [await self._copy_from(other) for other in self.wal.disks.values() if other is not self.disk]
        log.warning("%d WAL objects were copied to disk store %s", len(self.copied), self.disk.objects.url)
        has_all = await self._has_all(await self._named())
        await self._delete_dead((await self._named()).keys())
        return has_all and all(copied)

    async def _copy_from(self, other: DiskStore) -> bool:
        """False: not all that the other store has was seen."""
        try:
            for info in [info async for info in other.objects.list(WAL_PREFIX)]:
                if info.key not in self.present:
                    await self._copy_one(other, info.key)
        except RetryableError as error:
            log.warning("disk store %s waits for %s: %s", self.disk.objects.url, other.objects.url, error)
            return False
        return True

    async def _named(self) -> dict[str, set[str]]:
        """WAL object → the stores that extents name for it."""
        named: dict[str, set[str]] = {}
        async for _, extent in read_every_extent(self.store):
            if extent.object_key:
                named.setdefault(extent.object_key, set()).update(extent.stores)
        return named

    async def _copy_one(self, other: DiskStore, key: str) -> bool:
        """False: it is not there, or damaged. Raises `RetryableError`."""
        try:
            data = await other.objects.get(key)
            footer = check_object(data, f"{other.objects.url}/{key}")
        except ObjectMissing:
            return False
        except (CorruptObject, ValueError) as error:
            log.error("a WAL object is damaged and not copied: %s", error)
            return False
        with suppress(Conflict):
            await self.disk.objects.put(key, [data])
        self.present.add(key)
        self.copied[key] = footer
        return True

    async def _delete_dead(self, named: AbstractSet[str]) -> None:
        """As the collector does it: the fence, then the extents, then the delete."""
        fence = await current_generation(self.store) - FENCE_DISTANCE
        old = {
            key: footer for key, footer in self.copied.items() if key not in named and parse_key(key).generation < fence
        }
        partitions = sorted({span.partition for footer in old.values() for span in footer.spans})
        for partition in partitions:
            await raise_fence(self.store, partition, fence)
        living = {extent.object_key for partition in partitions for extent in await read_extents(self.store, partition)}
        everywhere = {info.key async for info in self.wal.list(WAL_PREFIX)} if old else set()
        dead = [
            key
            for key, footer in old.items()
            if key not in living
            and (footer.spans or not {receipt.object_key for receipt in footer.receipts} & everywhere)
        ]
        for start in range(0, len(dead), _DELETE_CHUNK):
            await self.disk.objects.delete(dead[start : start + _DELETE_CHUNK])

    async def _has_all(self, named: Mapping[str, AbstractSet[str]]) -> bool:
        """What nobody has any more, although all who should are whole and say so, is lost: then it is true that it is
        missing. No answer is not such a word."""
        for key, names in named.items():
            if self.disk.name not in names or key in self.present or await self._is_spilled(key):
                continue
            others = [self.wal.disks[name] for name in names if name in self.wal.disks and name != self.disk.name]
            for other in others:
                try:
                    if await self._copy_one(other, key):
                        break
                except RetryableError as error:
                    log.warning("disk store %s waits for %s: %s", self.disk.objects.url, other.objects.url, error)
                    return False
                if not await other.is_whole():
                    log.warning("%s waits for %s, which has %s", self.disk.objects.url, other.objects.url, key)
                    return False
            else:
                log.error("%s is in no store any more: records are lost", key)
        return True

    async def _is_spilled(self, key: str) -> bool:
        try:
            await self.wal.bucket.get_tail(key, 1)
        except ObjectMissing:
            return False
        return True
