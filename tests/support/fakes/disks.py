"""Disk stores that fail as they are told to."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from lakestream.errors import Unavailable
from lakestream.objects import Buffer, MemoryObjects, ObjectInfo
from lakestream.runtime import system
from lakestream.wal import DiskStore
from lakestream.wal.disks import label_key, label_of

CLUSTER = "cluster"


class FailingObjects:
    """Implements `ObjectStore`. `down`: nothing is answered with anything but an error. `hangs`: puts never end.
    `lost`: of the next reads of WAL objects, and of lists, so many get no answer."""

    def __init__(self, url: str) -> None:
        self.core = MemoryObjects(system().clock, url)
        self.down = False
        self.hangs = False
        self.lost = 0
        self.puts = 0

    @property
    def url(self) -> str:
        return self.core.url

    def empty(self) -> None:
        self.core = MemoryObjects(system().clock, self.url)

    def _check(self) -> None:
        if self.down:
            raise Unavailable(f"{self.url} is down")

    def _lose(self) -> None:
        if self.lost:
            self.lost -= 1
            raise Unavailable(f"{self.url}: the answer is lost")

    async def put(self, key: str, parts: Sequence[Buffer], *, overwrite: bool = False) -> None:
        self.puts += 1
        self._check()
        if self.hangs:
            await asyncio.Event().wait()
        await self.core.put(key, parts, overwrite=overwrite)

    async def get(self, key: str) -> bytes:
        self._check()
        if key.startswith("wal/"):
            self._lose()
        return await self.core.get(key)

    async def get_range(self, key: str, start: int, length: int, *, once: bool = False) -> Buffer:
        self._check()
        return await self.core.get_range(key, start, length)

    async def get_tail(self, key: str, length: int) -> bytes:
        self._check()
        return await self.core.get_tail(key, length)

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        self._check()
        self._lose()
        async for info in self.core.list(prefix, after=after):
            yield info

    async def delete(self, keys: Sequence[str]) -> None:
        self._check()
        await self.core.delete(keys)


async def labelled(count: int) -> list[tuple[DiskStore, FailingObjects]]:
    """So many disk stores that are whole."""
    made = []
    for number in range(1, count + 1):
        objects = FailingObjects(f"memory://disk{number}")
        disk = DiskStore(f"disk{number}", objects, CLUSTER, label_of(f"disk{number}", "first"), usable=True, trouble="")
        await objects.put(label_key(CLUSTER), [disk.label.encode()])
        objects.puts = 0
        made.append((disk, objects))
    return made
