"""Ranges out of whole objects: each is read once, by however many, and kept for a while."""

import asyncio

import pytest

from lakestream.errors import CorruptObject, ObjectMissing
from lakestream.objects import MemoryObjects
from lakestream.objects.whole import WholeObjects
from lakestream.runtime import system


class Counted(MemoryObjects):
    def __init__(self) -> None:
        super().__init__(system().clock)
        self.gets = 0

    async def get(self, key: str) -> bytes:
        self.gets += 1
        await asyncio.sleep(0)
        return await super().get(key)


async def test_many_ranges_of_one_object_are_one_request() -> None:
    objects = Counted()
    await objects.put("wal/a", [bytes(range(100))])
    reader = WholeObjects(objects, 1000)
    found = await asyncio.gather(*(reader.get_range("wal/a", start, 10) for start in range(0, 100, 10)))
    assert b"".join(found) == bytes(range(100))
    assert bytes(await reader.get_range("wal/a", 95, 5)) == bytes(range(95, 100))
    assert objects.gets == 1


async def test_the_least_recently_used_goes_first() -> None:
    objects = Counted()
    for name in "abc":
        await objects.put(f"wal/{name}", [bytes(40)])
    reader = WholeObjects(objects, 100)
    for name in "abacab":
        await reader.get_range(f"wal/{name}", 0, 40)
    assert objects.gets == 4


async def test_what_is_missing_or_too_short_is_said_and_asked_for_again() -> None:
    objects = Counted()
    reader = WholeObjects(objects, 100)
    with pytest.raises(ObjectMissing):
        await reader.get_range("wal/a", 0, 1)
    await objects.put("wal/a", [b"abc"])
    assert bytes(await reader.get_range("wal/a", 0, 3)) == b"abc"
    with pytest.raises(CorruptObject, match="too short"):
        await reader.get_range("wal/a", 1, 3)
