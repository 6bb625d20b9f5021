"""WAL objects that the pipeline leaves for too long go from the disk stores into the bucket, under the same key.

Disk stores are small and dear, and a pipeline that stalls must not fill them. The extents stay as they are: who does
not find an object where they say looks into the bucket. As with every copy, whether the object is dead is looked up
after it was made (`restoring`).
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID

from lakestream.errors import Conflict, CorruptObject, ObjectMissing, RetryableError
from lakestream.frontier.collecting.collector import FENCE_DISTANCE
from lakestream.metadata.counters import current_generation
from lakestream.metadata.log.head import Extent
from lakestream.metadata.log.partition import read_extents
from lakestream.metadata.store import Store
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.metadata.topics.options import DISK
from lakestream.runtime import Clock
from lakestream.wal import MAIN_STORE, Footer, WalStores, check_object, parse_key

log = logging.getLogger(__name__)


class Spiller:
    """An object's age is counted from when this spiller first saw an extent that names it: no clocks are compared."""

    def __init__(self, store: Store, wal: WalStores, topics: Topics, clock: Clock, after_ms: int) -> None:
        self._store = store
        self._wal = wal
        self._topics = topics
        self._clock = clock
        self._after_ms = after_ms
        self._first_seen_ms: dict[str, int] = {}
        self._held: set[UUID] | None = None
        """Topics that had something in disk stores at the last look. None: nothing is known yet."""

    async def spill(self) -> int:
        """How many objects were moved. Raises `RetryableError`."""
        now_ms = self._clock.now_ms()
        seen: dict[str, tuple[str, ...]] = {}
        held = set()
        for topic in await self._topics.list():
            found = await self._in_disks(topic)
            seen.update(found)
            if found:
                held.add(topic.topic_id)
        self._held = held
        self._first_seen_ms = {key: self._first_seen_ms.get(key, now_ms) for key in seen}
        due = [key for key, first_ms in self._first_seen_ms.items() if now_ms - first_ms >= self._after_ms]
        moved = 0
        for key in due:
            moved += await self._move(key, seen[key])
        if moved:
            log.warning("%d WAL objects that the pipeline has not moved yet were spilled into the bucket", moved)
        return moved

    async def _in_disks(self, topic: Topic) -> dict[str, tuple[str, ...]]:
        """The topic's objects that extents place in disk stores."""
        if topic.options.profile != DISK and self._held is not None and topic.topic_id not in self._held:
            return {}
        found: dict[str, tuple[str, ...]] = {}
        for partition in topic.each_partition():
            try:
                extents: Sequence[Extent] = await read_extents(self._store, partition)
            except CorruptObject as error:
                log.error("what is to be spilled of topic %s cannot be told: %s", topic.name, error)
                continue
            for extent in extents:
                if extent.object_key and extent.stores != (MAIN_STORE,):
                    found[extent.object_key] = extent.stores
        return found

    async def _move(self, key: str, names: tuple[str, ...]) -> bool:
        data = await self._read(key, names)
        if data is None:
            return False
        footer = check_object(data, key)
        with suppress(Conflict):
            await self._wal.bucket.put(key, [data])
        fence = await current_generation(self._store) - FENCE_DISTANCE
        if parse_key(key).generation < fence and not await self._is_named(key, footer):
            await self._wal.bucket.delete([key])
            return False
        for disk in self._wal.disks.values():
            try:
                await disk.objects.delete([key])
            except RetryableError as error:
                log.warning("%s still has %s, which was spilled: %s", disk.objects.url, key, error)
        return True

    async def _read(self, key: str, names: tuple[str, ...]) -> bytes | None:
        """A copy that is whole, from a disk store. None: there is none, it was spilled before, or is gone by now."""
        for name in dict.fromkeys((*names, *self._wal.disks)):
            disk = self._wal.disks.get(name)
            if disk is not None:
                try:
                    data = await disk.objects.get(key)
                    check_object(data, f"{disk.objects.url}/{key}")
                    return data
                except (ObjectMissing, RetryableError):
                    continue
                except CorruptObject as error:
                    log.error("a copy of a WAL object cannot be spilled: %s", error)
        return None

    async def _is_named(self, key: str, footer: Footer) -> bool:
        for span in footer.spans:
            if any(extent.object_key == key for extent in await read_extents(self._store, span.partition)):
                return True
        return False
