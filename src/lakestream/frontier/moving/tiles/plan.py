"""Which tiles a topic's tail is cut into. Pure: the same input gives the same tiles.

Objects are sorted by partition, so a range of adjacent partitions is one contiguous range in each object: a tile
takes such a range and reads every byte once. A partition too big for one tile is cut into runs of objects.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from lakestream.errors import StorageError
from lakestream.frontier.moving.tiles.tile import Slice, Tile, size_of
from lakestream.frontier.moving.tiles.visible import AbortedRanges
from lakestream.frontier.settings import PipelineSettings
from lakestream.metadata.log.head import Extent
from lakestream.table.parquet.compression import DEFAULT_COMPRESSION, Compression
from lakestream.table.shape import RAW, TableShape
from lakestream.wal import NamedDisk

_SLACK: Final = 16
"""A tile may be larger than its share by one part in so many: partitions are never quite of one size."""


NOWHERE: Final[Mapping[int, int]] = {}
NONE_ABORTED: Final[Mapping[int, AbortedRanges]] = {}


@dataclass(frozen=True, slots=True)
class Range:
    """[start, end) of one partition, to be committed whole."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Target:
    """Where a topic's tiles come from and go to."""

    topic_id: UUID
    topic: str
    bucket: str
    location: str
    own_file_bytes: int
    target_file_bytes: int
    compression: Compression = DEFAULT_COMPRESSION
    shape: TableShape = RAW
    disks: tuple[NamedDisk, ...] = ()
    is_typed: bool = False
    has_ids: bool = False
    is_key_typed: bool = False
    has_key_ids: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Invariant: the tiles' slices of a partition, put together, are exactly its range."""

    ranges: tuple[Range, ...]
    tiles: tuple[Tile, ...]


def due(topic: str, partition: int, frontier: int, extents: Sequence[Extent]) -> tuple[Extent, ...]:
    """The extents that hold frontier or anything after it. They start at the frontier and are dense, or something
    that was acked is lost: `StorageError`, never a skip."""
    after = tuple(extent for extent in extents if extent.end_offset > frontier)
    expected = frontier
    for extent in after:
        if extent.base_offset != expected and not extent.base_offset < expected == frontier:
            raise StorageError(
                f"topic {topic}, partition {partition}: offsets {expected} to {extent.base_offset} are neither in "
                f"the table nor in the WAL (table frontier {frontier}); nothing of this topic moves until that is cured"
            )
        expected = extent.end_offset
    return after


def below(extents: Sequence[Extent], end: int) -> tuple[Extent, ...]:
    """Those that hold something below `end`."""
    return tuple(extents[: bisect_left(extents, end, key=lambda extent: extent.base_offset)])


def tile_bytes(total_bytes: int, parallelism: int, settings: PipelineSettings) -> int:
    """The tile size that keeps every worker busy to the end without cutting small ticks to crumbs: as few tiles as
    their largest size allows, and as many for each worker. Large ones are good: they read large ranges of objects."""
    workers = max(1, parallelism)
    each = max(1, -(-total_bytes // (workers * settings.target_tile_bytes)))
    share = -(-total_bytes // (workers * each))
    return min(settings.target_tile_bytes, max(settings.min_tile_bytes, share + share // _SLACK))


def limit(tails: Mapping[int, Sequence[Extent]], max_bytes: int) -> dict[int, tuple[Extent, ...]]:
    """A first part of each tail, together about max_bytes, each in proportion: no partition starves."""
    total = sum(size_of(extent) for extents in tails.values() for extent in extents)
    if total <= max_bytes:
        return {partition: tuple(extents) for partition, extents in tails.items()}
    return {
        partition: _first(extents, sum(map(size_of, extents)) * max_bytes // total)
        for partition, extents in tails.items()
    }


def plan(
    target: Target,
    frontier: Sequence[int],
    tails: Mapping[int, Sequence[Extent]],
    *,
    tile_size: int,
    ends: Mapping[int, int] = NOWHERE,
    aborted: Mapping[int, AbortedRanges] = NONE_ABORTED,
) -> Plan:
    """`tails`: per partition its due extents. Partitions beyond the frontier vector start at 0. `ends`: where ranges
    end, if not with their last extents, on batch boundaries of those. `aborted`: what of partitions is no row."""
    ranges: list[Range] = []
    tiles: list[Tile] = []
    group: list[Slice] = []
    group_bytes = 0

    def slice_of(partition: int, start: int, part: Sequence[Extent], end: int) -> Slice:
        first, last = max(start, part[0].base_offset), min(end, part[-1].end_offset)
        inside = aborted[partition].within(first, last) if partition in aborted else ()
        return Slice(partition, first, last, tuple(part), end, tuple(inside))

    def close_group() -> None:
        nonlocal group_bytes
        if group:
            tiles.append(_tile(target, group))
        group.clear()
        group_bytes = 0

    for partition in sorted(tails):
        extents = tails[partition]
        if not extents:
            continue
        start = frontier[partition] if partition < len(frontier) else 0
        end = min(extents[-1].end_offset, ends.get(partition, extents[-1].end_offset))
        ranges.append(Range(partition, start, end))
        part_bytes = sum(map(size_of, extents))
        if group_bytes + part_bytes > tile_size:
            close_group()
        if part_bytes > tile_size:
            runs = _runs(extents, part_bytes, tile_size)
            tiles.extend(_tile(target, [slice_of(partition, start, run, end)]) for run in runs)
        else:
            group.append(slice_of(partition, start, extents, end))
            group_bytes += part_bytes
    close_group()
    return Plan(tuple(ranges), tuple(tiles))


def _tile(target: Target, slices: Iterable[Slice]) -> Tile:
    return Tile(
        topic_id=target.topic_id,
        topic=target.topic,
        bucket=target.bucket,
        location=target.location,
        slices=tuple(slices),
        own_file_bytes=target.own_file_bytes,
        target_file_bytes=target.target_file_bytes,
        compression=target.compression,
        shape=target.shape,
        disks=target.disks,
        is_typed=target.is_typed,
        has_ids=target.has_ids,
        is_key_typed=target.is_key_typed,
        has_key_ids=target.has_key_ids,
    )


def _first(extents: Sequence[Extent], max_bytes: int) -> tuple[Extent, ...]:
    """At least one extent, so that the partition moves."""
    taken = 0
    for count, extent in enumerate(extents):
        if taken >= max_bytes and count:
            return tuple(extents[:count])
        taken += size_of(extent)
    return tuple(extents)


def _runs(extents: Sequence[Extent], total_bytes: int, tile_size: int) -> list[list[Extent]]:
    """Runs of about equal size, none above tile_size unless one extent is."""
    share = -(-total_bytes // -(-total_bytes // tile_size))
    runs: list[list[Extent]] = [[]]
    taken = 0
    for extent in extents:
        if runs[-1] and taken + size_of(extent) > share:
            runs.append([])
            taken = 0
        runs[-1].append(extent)
        taken += size_of(extent)
    return runs
