"""Tables in the simulation: files are lists of rows, written and read through the simulated bucket."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from lakestream.errors import LakestreamError, RetryableError
from lakestream.frontier.moving.tiles.naming import data_key
from lakestream.frontier.moving.tiles.reading import extent_bytes, read_tile
from lakestream.frontier.moving.tiles.tile import Tile, TileOutcome, last_offset
from lakestream.frontier.moving.tiles.visible import AbortedRanges, Gap, joined, visible
from lakestream.model import DataFile, WrittenFile
from lakestream.records import BatchCompression
from lakestream.runtime import Runtime
from lakestream.table.view import View
from lakestream.wal import WalStores
from simulator.backends import SimulatedObjects
from simulator.batches import TIMESTAMP_MS, Row, batch, rows
from simulator.typed_rows import rebuilt, stored

_ROWS = msgspec.msgpack.Decoder(list[tuple[int, int, bytes]])


def encode_rows(found: Iterable[Row]) -> bytes:
    return msgspec.msgpack.encode(list(found))


def decode_rows(data: bytes) -> list[Row]:
    return [Row(*row) for row in _ROWS.decode(data)]


def fetched_rows(found: list[Row], view: View) -> list[Row]:
    """With their values, which the rows of a typed table have as columns."""
    if not view.shape.codec:
        return found
    return [row._replace(value=rebuilt(row.value, view.shape)) for row in found]


async def read_rows(objects: SimulatedObjects, file: DataFile) -> list[Row]:
    return decode_rows(await objects.get(file.path.removeprefix(objects.url + "/")))


def written(path: str, found: Sequence[Row], size_bytes: int) -> WrittenFile:
    return WrittenFile(
        path=path,
        spec_id=0,
        size_bytes=size_bytes,
        record_count=len(found),
        partition_min=min(row.partition for row in found),
        partition_max=max(row.partition for row in found),
        offset_min=min(row.offset for row in found),
        offset_max=max(row.offset for row in found),
        timestamp_max_ms=TIMESTAMP_MS,
    )


class SimulatedTiles:
    """A `TileRunner`: the WAL is read by the real code, rows are written as the simulation keeps them."""

    parallelism = 2

    def __init__(self, objects: SimulatedObjects, runtime: Runtime, disks: WalStores | None = None) -> None:
        self._objects = objects
        self._wal = disks or WalStores(objects)
        self._runtime = runtime

    async def run(self, tiles: Sequence[Tile]) -> list[TileOutcome]:
        return [await self._write(tile) for tile in tiles]

    async def _write(self, tile: Tile) -> TileOutcome:
        try:
            held = await read_tile(tile, self._wal)
            found: list[Row] = []
            gaps: list[Gap] = []
            for part in tile.slices:
                aborted = AbortedRanges(part.aborted)
                for extent in part.extents:
                    data = extent_bytes(tile, part, extent, held)
                    inside = aborted.within(extent.base_offset, extent.end_offset)
                    seen = visible(part.partition, extent, data, part.start, part.end, inside)
                    gaps += seen.gaps
                    for run in seen.runs:
                        found += rows(run.data, part.partition, run.base_offset)
            if not found:
                return TileOutcome(gaps=joined(sorted(gaps)))
            kept, unknown = stored(found, tile)
            first = tile.slices[0]
            path = f"{tile.location}/{data_key(first.partition, last_offset(first), self._runtime.new_id())}"
            data_bytes = encode_rows(kept)
            await self._objects.put(path.removeprefix(self._objects.url + "/"), [data_bytes])
        except LakestreamError as error:
            return TileOutcome(error=str(error), retryable=isinstance(error, RetryableError))
        files = (written(path, found, len(data_bytes)),)
        return TileOutcome(files=files, unknown_schemas=unknown, gaps=joined(sorted(gaps)))


@dataclass(frozen=True, slots=True)
class History:
    parts: list[bytes] = field(default_factory=list)
    next_offset: int = 0


_LEFT_OUT: Final = 5
"""For every so many offsets there is no memory while others are read."""


class SimulatedHistory:
    """Reads what `SimulatedTiles` or an outside engine wrote."""

    def __init__(self, objects: SimulatedObjects) -> None:
        self._objects = objects

    async def read(
        self,
        view: View,
        *,
        partition: int,
        offset: int,
        end_offset: int,
        max_bytes: int,
        changed: bool = False,
        compression: BatchCompression | None = None,
        spare: bool = False,
    ) -> History:
        if spare and offset % _LEFT_OUT == 0:
            return History([], offset)
        found = await self._rows(view, partition, offset, end_offset)
        if not found:
            return History([], end_offset)
        taken = found[: max(1, max_bytes // 100)]
        data = batch([row.value for row in taken], offsets=[row.offset for row in taken])
        return History([data], taken[-1].offset + 1)

    async def first_at_or_after(
        self,
        view: View,
        *,
        partition: int,
        timestamp_ms: int,
        offset: int,
        end_offset: int,
    ) -> tuple[int, int] | None:
        found = await self._rows(view, partition, offset, end_offset)
        return (found[0].offset, TIMESTAMP_MS) if found and timestamp_ms <= TIMESTAMP_MS else None

    async def newest(
        self,
        view: View,
        *,
        partition: int,
        end_offset: int,
        offset: int = 0,
    ) -> tuple[int, int] | None:
        found = await self._rows(view, partition, offset, end_offset)
        return (found[0].offset, TIMESTAMP_MS) if found else None

    async def _rows(self, view: View, partition: int, offset: int, end_offset: int) -> list[Row]:
        found: list[Row] = []
        for file in view.files:
            if _may_hold(file, partition, offset, end_offset):
                rows_there = await read_rows(self._objects, file)
                found += [row for row in rows_there if row.partition == partition and offset <= row.offset < end_offset]
        found.sort()
        return fetched_rows(found, view)


def _may_hold(file: DataFile, partition: int, offset: int, end_offset: int) -> bool:
    if file.partition_min is None or file.partition_max is None or file.offset_min is None or file.offset_max is None:
        return True
    return file.partition_min <= partition <= file.partition_max and (
        offset <= file.offset_max and file.offset_min < end_offset
    )
