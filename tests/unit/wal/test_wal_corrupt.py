"""A flipped bit anywhere in a WAL object: who reads that byte says what is damaged, everybody else reads on."""

import asyncio
import random
from collections.abc import Callable
from uuid import UUID

import pytest
from support.clients.batches import batch

from lakestream import wal
from lakestream.errors import CorruptObject
from lakestream.frontier.moving.tiles.tile import Slice, Tile
from lakestream.frontier.moving.tiles.writing import write_files
from lakestream.metadata.log.head import Extent
from lakestream.model import StreamPartition
from lakestream.objects import MemoryObjects
from lakestream.runtime import system
from lakestream.stream.fetching.cache import ExtentCache
from lakestream.wal import Section, WalStores

KEY = wal.object_key(1, "session", 1)
TOPIC = UUID(int=7)
PARTITIONS = 3


def built(value_bytes: int) -> tuple[bytes, dict[int, Extent]]:
    """An object with two batches for each partition, and the extents that a commit would make of it."""
    sections = [
        Section(StreamPartition(TOPIC, index), [batch(b"a" * value_bytes, b"b"), batch(b"c")], 3, 0)
        for index in range(PARTITIONS)
    ]
    made = wal.build(sections, (), session="session", flush=1, generation=1)
    extents = {
        span.partition.index: Extent(10, 13, ("main",), KEY, span.position, span.length, 0, span.checksum)
        for span in made.spans
    }
    return b"".join(made.parts), extents


async def fetch(store: MemoryObjects, index: int, extent: Extent) -> None:
    await ExtentCache(WalStores(store), 1 << 30).read(StreamPartition(TOPIC, index), extent)


async def move(store: MemoryObjects, index: int, extent: Extent) -> None:
    tile = Tile(TOPIC, "orders", store.url, f"{store.url}/t", (Slice(index, 10, 13, (extent,)),), 1 << 30, 1 << 30)
    await write_files(tile, store, UUID(int=1))


Read = Callable[[MemoryObjects, int, Extent], "asyncio.Future[None]"]


async def check(data: bytes, position: int, bit: int, extents: dict[int, Extent], reads: list[Read]) -> None:
    damaged = bytearray(data)
    damaged[position] ^= 1 << bit
    store = MemoryObjects(system().clock)
    await store.put(KEY, [bytes(damaged)])
    hit = [index for index, extent in extents.items() if extent.position <= position < extent.position + extent.length]
    if hit:
        await wal.read_footer(store, KEY)
    else:
        with pytest.raises(CorruptObject, match=KEY):
            await wal.read_footer(store, KEY)
    for index, extent in extents.items():
        for read in reads:
            if index not in hit:
                await read(store, index, extent)
                continue
            with pytest.raises(CorruptObject) as caught:
                await read(store, index, extent)
            told = str(caught.value)
            assert KEY in told
            assert "offsets 10 to 13" in told
            assert str(TOPIC) in told


async def test_every_byte_of_a_small_object() -> None:
    data, extents = built(5)
    assert sum(extent.length for extent in extents.values()) == extents[2].position + extents[2].length
    for position in range(len(data)):
        await check(data, position, position % 8, extents, [fetch])


async def test_random_bytes_of_a_large_object() -> None:
    data, extents = built(100_000)
    assert len(data) > 4 * 64 * 1024
    rng = random.Random(3)
    places = [0, 7, 8, len(data) - 1, len(data) - 28, *(rng.randrange(len(data)) for _ in range(20))]
    for position in places:
        await check(data, position, rng.randrange(8), extents, [fetch, move])


async def test_a_truncated_object_names_the_stream_too() -> None:
    data, extents = built(5)
    store = MemoryObjects(system().clock)
    await store.put(KEY, [data[: extents[2].position + 10]])
    for read in (fetch, move):
        await read(store, 0, extents[0])
        with pytest.raises(CorruptObject, match=rf"{TOPIC}.*offsets 10 to 13|offsets 10 to 13.*{TOPIC}"):
            await read(store, 2, extents[2])


async def test_batches_that_are_not_the_extents_offsets_are_not_served() -> None:
    """The checksum holds and the extent lies, which no flipped bit can do."""
    data, extents = built(5)
    store = MemoryObjects(system().clock)
    await store.put(KEY, [data])
    good = extents[1]
    lying = Extent(10, 14, ("main",), KEY, good.position, good.length, 0, good.checksum)
    for read in (fetch, move):
        with pytest.raises(CorruptObject, match=KEY):
            await read(store, 1, lying)
