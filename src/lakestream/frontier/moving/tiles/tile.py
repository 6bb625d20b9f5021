"""A tile: the unit of work of the pipeline, as it travels to a worker and back."""

from collections.abc import Iterable
from typing import Final
from uuid import UUID

import msgspec

from lakestream.frontier.moving.tiles.visible import AbortedPart, Gap
from lakestream.metadata.log.head import Extent
from lakestream.model import WrittenFile
from lakestream.table.parquet.compression import DEFAULT_COMPRESSION, Compression
from lakestream.table.shape import RAW, TableShape
from lakestream.wal import NamedDisk


class Slice(msgspec.Struct, frozen=True, array_like=True):
    """[start, end) of one partition and the extents that hold it, dense and in order. Only the first extent may begin
    below `start` and only the last end beyond `end`, which then are batch boundaries of theirs. `planned_end`: where
    the partition's whole range ends that is committed together, if other slices follow this one. `aborted`:
    transactions that were, with batches in here."""

    partition: int
    start: int
    end: int
    extents: tuple[Extent, ...]
    planned_end: int = 0
    aborted: tuple[AbortedPart, ...] = ()


class Tile(msgspec.Struct, frozen=True, array_like=True):
    """A run of objects × a range of adjacent partitions of one topic. Slices are in partition order."""

    topic_id: UUID
    topic: str
    bucket: str
    location: str
    slices: tuple[Slice, ...]
    own_file_bytes: int
    target_file_bytes: int
    compression: Compression = DEFAULT_COMPRESSION
    shape: TableShape = RAW
    disks: tuple[NamedDisk, ...] = ()
    """The disk stores that its extents may lie in."""
    is_typed: bool = False
    """Values become columns, where the shape has a codec for them. Otherwise they stay bytes, whatever the shape."""
    has_ids: bool = False
    """Values have ids of schemas before them: those that the shape does not know are told with the outcome."""
    is_key_typed: bool = False
    has_key_ids: bool = False
    """The same of keys."""


class TileOutcome(msgspec.Struct, frozen=True, array_like=True):
    """The files of one tile, or what went wrong and whether the same tile may succeed later. `gaps`: offsets of the
    tile that have no row, in order.

    The files can be committed as they are. `unknown_schemas`: had the shape known these, more values might be columns;
    of very many the most frequent. `kinds`: how many rows there are of each `_kind`. `unknown_key_schemas`: as
    `unknown_schemas`, of keys."""

    files: tuple[WrittenFile, ...] = ()
    error: str = ""
    retryable: bool = False
    unknown_schemas: frozenset[int] = frozenset()
    kinds: tuple[int, ...] = ()
    unknown_key_schemas: frozenset[int] = frozenset()
    gaps: tuple[Gap, ...] = ()

    @property
    def has_unknown(self) -> bool:
        return bool(self.unknown_schemas or self.unknown_key_schemas)


_TILES: Final = msgspec.msgpack.Decoder(Tile)
_OUTCOMES: Final = msgspec.msgpack.Decoder(TileOutcome)


def kinds_of(outcomes: Iterable[TileOutcome]) -> tuple[int, ...]:
    """Together."""
    return tuple(map(sum, zip(*(outcome.kinds for outcome in outcomes if outcome.kinds), strict=True)))


def size_of(extent: Extent) -> int:
    return len(extent.inline) or extent.length


def last_offset(part: Slice) -> int:
    """The last that is committed of the slice's partition, together with the slice."""
    return max(part.end, part.planned_end) - 1


def slice_bytes(part: Slice) -> int:
    return sum(map(size_of, part.extents))


def pack(value: Tile | TileOutcome) -> bytes:
    return msgspec.msgpack.encode(value)


def unpack_tile(data: bytes) -> Tile:
    return _TILES.decode(data)


def unpack_outcome(data: bytes) -> TileOutcome:
    return _OUTCOMES.decode(data)
