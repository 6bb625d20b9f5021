"""A tile's bytes out of the WAL: few large range reads, every extent checked."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from lakestream.errors import CorruptObject
from lakestream.frontier.moving.tiles.tile import Slice, Tile
from lakestream.metadata.log.head import Extent
from lakestream.objects import Buffer
from lakestream.records import crc32c
from lakestream.wal import WalStores

MAX_GAP_BYTES: Final = 64 * 1024
"""Two ranges of one object this close are read as one: cheaper than a second request."""
_CONCURRENT_READS: Final = 8


@dataclass(frozen=True, slots=True)
class Read:
    """One range request."""

    object_key: str
    start: int
    end: int
    stores: tuple[str, ...]


Bytes = Mapping[str, list[tuple[Read, Buffer]]]
"""Per object what was read of it."""


def reads(slices: Iterable[Slice]) -> list[Read]:
    """The range requests that cover the slices, each byte once."""
    spans = sorted(
        (extent.object_key, extent.position, extent.position + extent.length, extent.stores)
        for part in slices
        for extent in part.extents
        if not extent.inline
    )
    found: list[Read] = []
    for key, start, end, stores in spans:
        last = found[-1] if found else None
        if last is not None and last.object_key == key and start - last.end <= MAX_GAP_BYTES:
            found[-1] = Read(key, last.start, max(last.end, end), stores)
        else:
            found.append(Read(key, start, end, stores))
    return found


async def read_tile(tile: Tile, wal: WalStores) -> Bytes:
    """Everything the tile needs, in memory: tiles are cut so that it fits. `ObjectMissing` if an object is gone."""
    wanted = reads(tile.slices)
    turns = asyncio.Semaphore(_CONCURRENT_READS)

    async def one(read: Read) -> Buffer:
        async with turns:
            try:
                return await wal.read(read.stores, read.object_key, read.start, read.end - read.start, once=True)
            except CorruptObject as error:
                raise CorruptObject(f"{error}; {_concerned(tile, read)} cannot be trusted") from error

    held: dict[str, list[tuple[Read, Buffer]]] = {}
    for read, data in zip(wanted, await asyncio.gather(*map(one, wanted)), strict=True):
        held.setdefault(read.object_key, []).append((read, data))
    return held


def extent_bytes(tile: Tile, part: Slice, extent: Extent, held: Bytes) -> memoryview:
    """The extent's batches, their checksum verified. No copy."""
    data = memoryview(extent.inline) if extent.inline else _cut(extent, held)
    found = crc32c(data)
    if found != extent.checksum:
        raise CorruptObject(
            f"object {extent.object_key}, bytes {extent.position} to {extent.position + extent.length}: checksum "
            f"{found:#010x} instead of {extent.checksum:#010x}; topic {tile.topic} ({tile.topic_id}), partition "
            f"{part.partition}, offsets {extent.base_offset} to {extent.end_offset} cannot be trusted"
        )
    return data


def _concerned(tile: Tile, read: Read) -> str:
    """The stream and the offsets for which the range is read."""
    within = [
        f"partition {part.partition}, offsets {extent.base_offset} to {extent.end_offset}"
        for part in tile.slices
        for extent in part.extents
        if extent.object_key == read.object_key and read.start <= extent.position < read.end
    ]
    return f"topic {tile.topic} ({tile.topic_id}), {'; '.join(within)}"


def _cut(extent: Extent, held: Bytes) -> memoryview:
    for read, data in held[extent.object_key]:
        if read.start <= extent.position and extent.position + extent.length <= read.end:
            begin = extent.position - read.start
            return memoryview(data)[begin : begin + extent.length]
    raise AssertionError(f"{extent.object_key} was not read at {extent.position}")
