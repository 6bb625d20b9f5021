"""The records of a tile out of its bytes: checked against the extents that claim them, in order."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lakestream.errors import CorruptObject, CorruptRecords
from lakestream.frontier.moving.tiles.reading import Bytes, extent_bytes
from lakestream.frontier.moving.tiles.tile import Slice, Tile
from lakestream.metadata.log.head import Extent
from lakestream.records import Arena, Columns, Run, decode, walk


def decode_slices(tile: Tile, parts: Sequence[Slice], held: Bytes, arena: Arena) -> Iterator[Columns]:
    """The records of the slices in (partition, offset) order, nothing below a slice's start."""
    taken: list[Extent] = []

    def runs() -> Iterator[Run]:
        for part in parts:
            for extent in part.extents:
                taken[:] = [extent]
                yield _run(tile, part, extent, held)

    try:
        yield from decode(runs(), arena)
    except CorruptRecords as error:
        [extent] = taken
        raise CorruptObject(
            f"object {extent.object_key} at {extent.position}, topic {tile.topic} ({tile.topic_id}): the batches do not"
            f" decode, although their checksum holds: {error}"
        ) from error


def _run(tile: Tile, part: Slice, extent: Extent, held: Bytes) -> Run:
    """The extent's batches from the slice's start on, which must give exactly the offsets that the extent claims."""
    data = extent_bytes(tile, part, extent, held)
    if extent.base_offset >= part.start:
        return Run(part.partition, extent.base_offset, data, extent.end_offset)
    offset = extent.base_offset
    for batch in walk(data):
        if offset == part.start:
            return Run(part.partition, offset, data[batch.position :], extent.end_offset)
        offset += batch.last_offset_delta + 1
    raise CorruptRecords(f"no batch of partition {part.partition} starts at {part.start}, where the table ends")


_arenas: list[Arena] = []
"""Not in use now. Their memory is warm; two tiles that are written side by side never share one."""


@contextmanager
def borrowed_arena() -> Iterator[Arena]:
    arena = _arenas.pop() if _arenas else Arena()
    try:
        yield arena
    finally:
        _arenas.append(arena)
