"""Keys in the tail: an extent is decoded once for its keys, and after that only for lookups of one of them.

What is kept of a stream is as long as its tail was at the last lookup, without values. Of few streams.
"""

from collections.abc import Callable, Mapping
from typing import Final
from uuid import UUID

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakestream.frontier.moving.tiles.decoding import borrowed_arena, decode_slices
from lakestream.frontier.moving.tiles.reading import read_tile
from lakestream.frontier.moving.tiles.tile import Slice, Tile
from lakestream.metadata.log.head import Extent
from lakestream.query.sources import StreamSource
from lakestream.query.worker.stores import wal_of
from lakestream.table.parquet.arrow import binary_array

_STREAMS: Final = 4
_Place = tuple[int, int, int, str, int]
"""A partition and the offsets of it that an extent has here, and where the extent is."""
_NO_KEYS: Final = pa.array([], pa.binary())
_Keys = Mapping[_Place, pa.Array]


class TailKeys:
    def __init__(self) -> None:
        self._kept: dict[UUID, _Keys] = {}

    async def with_key(self, rows: StreamSource, key: bytes) -> list[Tile]:
        """The tiles of the tail with those of their extents only that have the key."""
        if not rows.tiles:
            return []
        topic_id = rows.tiles[0].topic_id
        known = dict(self._kept.pop(topic_id, {}))
        for tile in rows.tiles:
            unknown = _only(tile, lambda place, known=known: place not in known)  # type: ignore[misc]
            if unknown is not None:
                known |= await _decoded(unknown)
        places = [_place(part, extent) for tile in rows.tiles for part in tile.slices for extent in part.extents]
        kept = {place: known[place] for place in places}
        self._kept[topic_id] = kept
        while len(self._kept) > _STREAMS:
            self._kept.pop(next(iter(self._kept)))
        found = _having(kept, key)
        tiles = [_only(tile, found.__contains__) for tile in rows.tiles]
        return [tile for tile in tiles if tile is not None]


def _place(part: Slice, extent: Extent) -> _Place:
    first, last = max(part.start, extent.base_offset), min(part.end, extent.end_offset)
    return part.partition, first, last, extent.object_key, extent.position


def _only(tile: Tile, wanted: Callable[[_Place], bool]) -> Tile | None:
    """The tile with some of its extents; None: with none."""
    slices = []
    for part in tile.slices:
        extents = tuple(extent for extent in part.extents if wanted(_place(part, extent)))
        if extents:
            slices.append(msgspec.structs.replace(part, extents=extents))
    return msgspec.structs.replace(tile, slices=tuple(slices)) if slices else None


def _having(keys: _Keys, key: bytes) -> set[_Place]:
    chunks = [*keys.values()]
    ends = np.cumsum([len(chunk) for chunk in chunks])
    rows = pc.indices_nonzero(pc.equal(pa.chunked_array(chunks, pa.binary()), pa.scalar(key, pa.binary())))
    numbers = np.unique(np.searchsorted(ends, rows.to_numpy(), "right"))
    places = [*keys]
    return {places[number] for number in numbers.tolist()}


async def _decoded(tile: Tile) -> _Keys:
    held = await read_tile(tile, wal_of(tile))
    found: dict[_Place, list[pa.Array]] = {_place(part, extent): [] for part in tile.slices for extent in part.extents}
    with borrowed_arena() as arena:
        for columns in decode_slices(tile, tile.slices, held, arena):
            # The arena is used again: what is kept is a copy.
            keys = binary_array(columns.key, pa.binary()).take(pa.array(np.arange(len(columns))))
            for part in tile.slices:
                low, high = np.searchsorted(columns.partition, (part.partition, part.partition + 1)).tolist()
                places = [_place(part, extent) for extent in part.extents]
                offsets = columns.offset[low:high]
                starts = low + np.searchsorted(offsets, [place[1] for place in places])
                ends = low + np.searchsorted(offsets, [place[2] for place in places])
                for place, start, end in zip(places, starts.tolist(), ends.tolist(), strict=True):
                    if start < end:
                        found[place].append(keys.slice(start, end - start))
    return {place: pa.concat_arrays(parts) if parts else _NO_KEYS for place, parts in found.items()}
