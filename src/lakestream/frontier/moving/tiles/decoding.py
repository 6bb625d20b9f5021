"""The records of a tile out of its bytes: checked against the extents that claim them, in order."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lakestream.errors import CorruptObject, CorruptRecords
from lakestream.frontier.moving.tiles.reading import Bytes, extent_bytes
from lakestream.frontier.moving.tiles.tile import Slice, Tile
from lakestream.frontier.moving.tiles.visible import AbortedRanges, Gap, visible
from lakestream.metadata.log.head import Extent
from lakestream.records import Arena, Columns, Run, decode


def decode_slices(
    tile: Tile, parts: Sequence[Slice], held: Bytes, arena: Arena, gaps: list[Gap] | None = None
) -> Iterator[Columns]:
    """The records of the slices that are rows, in (partition, offset) order, nothing outside of a slice. `gaps` gets
    the offsets that have no row: those of aborted transactions, and of markers."""
    taken: list[Extent] = []

    def runs() -> Iterator[Run]:
        for part in parts:
            aborted = AbortedRanges(part.aborted)
            for extent in part.extents:
                taken[:] = [extent]
                data = extent_bytes(tile, part, extent, held)
                inside = aborted.within(extent.base_offset, extent.end_offset)
                found = visible(part.partition, extent, data, part.start, part.end, inside)
                if gaps is not None:
                    gaps.extend(found.gaps)
                yield from found.runs

    try:
        yield from decode(runs(), arena)
    except CorruptRecords as error:
        [extent] = taken
        raise CorruptObject(
            f"object {extent.object_key} at {extent.position}, topic {tile.topic} ({tile.topic_id}): the batches do not"
            f" decode, although their checksum holds: {error}"
        ) from error


_arenas: list[Arena] = []
"""Not in use now. Their memory is warm; two tiles that are written side by side never share one."""


@contextmanager
def borrowed_arena() -> Iterator[Arena]:
    arena = _arenas.pop() if _arenas else Arena()
    try:
        yield arena
    finally:
        _arenas.append(arena)
