"""Ranges of small objects, out of whole ones: each object is read once, whoever asks for whichever part of it.

A bucket charges by the request and answers a large one as soon as a small one, and who follows many partitions wants
many ranges of one object within a moment.
"""

import asyncio
from collections import OrderedDict

from lakestream.errors import CorruptObject
from lakestream.objects.store import Buffer, ObjectStore


class WholeObjects:
    """Implements `RangeReader`. Least recently used objects go first."""

    def __init__(self, objects: ObjectStore, limit_bytes: int) -> None:
        self._objects = objects
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._reads: dict[str, asyncio.Task[bytes]] = {}

    async def get_range(self, key: str, start: int, length: int, *, once: bool = False) -> Buffer:
        whole = self._kept.get(key)
        if whole is None:
            whole = await self._read(key)
        else:
            self._kept.move_to_end(key)
        if start + length > len(whole):
            raise CorruptObject(f"{self._objects.url}/{key} is too short for {length} bytes at {start}")
        return memoryview(whole)[start : start + length]

    async def _read(self, key: str) -> bytes:
        task = self._reads.get(key)
        if task is None:
            task = asyncio.create_task(self._load(key))
            self._reads[key] = task
            task.add_done_callback(lambda _: self._reads.pop(key, None))
        return await asyncio.shield(task)

    async def _load(self, key: str) -> bytes:
        whole = await self._objects.get(key)
        self._kept[key] = whole
        self._used_bytes += len(whole)
        while self._used_bytes > self._limit_bytes:
            _, dropped = self._kept.popitem(last=False)
            self._used_bytes -= len(dropped)
        return whole
