"""Bugs with several stores of WAL objects."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from lakestream.errors import ObjectMissing, Unavailable
from lakestream.frontier.copying import keeping
from lakestream.frontier.copying.restoring import restore_disk
from lakestream.metadata.disks import relabel_disk
from lakestream.objects import Buffer, ObjectInfo
from lakestream.stream.appending.lanes import Lanes
from lakestream.wal import DiskStore, MajorityWriter, WalStores
from lakestream.wal.disks import label_of
from simulator.bugs.registry import disk_bug, swapped


@disk_bug
def acked_on_one_store() -> Iterator[None]:
    """The first store that has the object is enough."""
    real = MajorityWriter.put

    async def hasty(self: MajorityWriter, key: str, parts: Sequence[Buffer]) -> tuple[str, ...]:
        for disk in self._configured():
            if disk.usable:
                await disk.objects.put(key, parts)
                return (disk.name,)
        raise Unavailable("no disk store can be used")

    with swapped(MajorityWriter, real, hasty):
        yield


@disk_bug
def store_whole_before_its_copies() -> Iterator[None]:
    """A store that was emptied counts again as soon as it answers."""

    async def hasty(store: Any, wal: WalStores, disk: DiskStore, runtime: Any) -> bool:
        label = label_of(disk.name, runtime.new_id().hex)
        await disk.write_label(label)
        return await relabel_disk(store, disk.name, disk.label, label)

    with swapped(keeping, restore_disk, hasty):
        yield


@disk_bug
def collector_forgets_a_store() -> Iterator[None]:
    """Objects are looked for in the bucket only."""
    real = WalStores.list

    async def bucket_only(self: WalStores, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        async for info in self.bucket.list(prefix, after=after):
            yield info

    with swapped(WalStores, real, bucket_only):
        yield


@disk_bug
def switch_overtakes() -> Iterator[None]:
    """What comes after a change of profile does not wait for what is under way."""
    real = Lanes.append

    def hasty(self: Lanes, *appended: Any, disk: bool = False) -> asyncio.Future[Any]:
        lane = self._disk if disk and self._disk is not None else self._bucket
        return lane.append(*appended)

    def plain(self: Lanes, *more: Any) -> None:
        real_init(self, *more)
        for lane in (self._bucket, self._disk):
            if lane is not None:
                lane.settled = lambda flush: None

    real_init = Lanes.__init__
    with swapped(Lanes, real, hasty), swapped(Lanes, real_init, plain):
        yield


@disk_bug
def unreachable_taken_for_missing() -> Iterator[None]:
    """A store that does not answer does not have the object."""
    real = WalStores.read

    async def rash(self: WalStores, names: Sequence[str], key: str, *more: Any, **named: Any) -> Any:
        try:
            return await real(self, names, key, *more, **named)
        except Unavailable as error:
            if set(names) == {"main"}:
                raise
            raise ObjectMissing(str(error)) from error

    with swapped(WalStores, real, rash):
        yield
