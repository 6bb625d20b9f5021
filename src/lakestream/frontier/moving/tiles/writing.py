"""A tile into Parquet files: read, check, decode, write, upload. Runs in this process or in a Spark worker.

Memory is bounded whatever the batches are: by the tile, which is read whole (a tile is a run of extents of which only
one may be larger than a tile should be), one row group (an arena's fill, or one larger batch) and the file under way
(which ends at the row group that brings it to its target size).
"""

import asyncio
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import count
from typing import Final
from uuid import UUID

import numpy as np
import numpy.typing as npt

from lakestream import objects, records
from lakestream.errors import LakestreamError, RetryableError
from lakestream.frontier.moving.tiles.decoding import borrowed_arena, decode_slices
from lakestream.frontier.moving.tiles.naming import data_key, nth_id
from lakestream.frontier.moving.tiles.reading import Bytes, read_tile
from lakestream.frontier.moving.tiles.tile import Slice, Tile, TileOutcome, last_offset, slice_bytes
from lakestream.frontier.moving.tiles.visible import Gap, joined
from lakestream.model import WrittenFile
from lakestream.objects import Buffer, ObjectStore
from lakestream.records import Arena, Columns
from lakestream.records.framing import unknown_ids
from lakestream.schemas.codecs import install as install_codecs
from lakestream.schemas.codecs import warm_up as warm_up_codecs
from lakestream.table.parquet.seal import sealed_name
from lakestream.table.parquet.writer import StreamFileWriter
from lakestream.table.schema import OFFSET_WINDOW, STREAM_SPEC_ID, UNPARTITIONED
from lakestream.table.shape import KIND_RAW, KINDS, key_shape
from lakestream.wal import DiskStore, WalStores

MAX_UNKNOWN: Final = 64
"""Ids that a tile tells of. Any bytes may look like one."""


def write_tile(tile: Tile, file_id: UUID, *, ends_at_once: bool = False) -> TileOutcome:
    """Blocking, for workers. Opens the stores by their URLs (`objects.open`). `file_id` makes the names of this attempt
    unique."""
    return asyncio.run(write_files(tile, _open(tile.bucket, ends_at_once), file_id, ends_at_once=ends_at_once))


def attempt_tile(tile: Tile, file_id: UUID, *, ends_at_once: bool = False) -> TileOutcome:
    """As `write_tile`, with what goes wrong in the outcome: one bad tile does not fail its neighbours."""
    try:
        return write_tile(tile, file_id, ends_at_once=ends_at_once)
    except LakestreamError as error:
        return failed(error)


def failed(error: LakestreamError) -> TileOutcome:
    return TileOutcome(error=f"{type(error).__name__}: {error}", retryable=isinstance(error, RetryableError))


async def write_files(tile: Tile, store: ObjectStore, file_id: UUID, *, ends_at_once: bool = False) -> TileOutcome:
    """`store` is the tile's bucket. The files of a tile that fails half-way stay behind as orphans."""
    install_codecs()
    disks = [DiskStore(each.name, _open(each.url, ends_at_once), each.cluster, each.label) for each in tile.disks]
    held = await read_tile(tile, WalStores(store, disks))
    table, prefix = _place(tile, store)
    written = []
    told = _Told()
    with borrowed_arena() as arena:
        for finished in _files(tile, held, file_id, arena, told):
            await table.put(prefix + finished.key, [finished.data])
            written.append(finished.about)
    return TileOutcome(
        tuple(written),
        unknown_schemas=_frequent(told.values),
        kinds=tuple(told.kinds.tolist()),
        unknown_key_schemas=_frequent(told.keys),
        gaps=joined(sorted(told.gaps)),
    )


def warm_up() -> None:
    """Loads the compiled kernels, so that processes forked from this one have them."""
    records.warm_up()
    install_codecs()
    warm_up_codecs()


@dataclass(frozen=True, slots=True)
class _Finished:
    """A file's bytes, its key below the table's location, and what the table is told of it."""

    key: str
    data: Buffer
    about: WrittenFile


@dataclass(slots=True)
class _Told:
    """What is found out about a tile's records on the way: `values` and `keys` count the ids of schemas before them
    that are not known. `gaps`: offsets that have no row."""

    kinds: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(KINDS, np.int64))
    values: Counter[int] = field(default_factory=Counter)
    keys: Counter[int] = field(default_factory=Counter)
    gaps: list[Gap] = field(default_factory=list)

    def add(self, tile: Tile, columns: Columns, kinds: npt.NDArray[np.int64]) -> None:
        """Only where values stayed bytes can there be ids that are not known."""
        self.kinds += kinds
        if tile.has_ids and kinds[KIND_RAW]:
            known = [schema.schema_id for schema in tile.shape.schemas]
            self.values.update(unknown_ids(columns.value, known, MAX_UNKNOWN))
        if tile.has_key_ids:
            known = [schema.schema_id for schema in key_shape(tile.shape).schemas]
            self.keys.update(unknown_ids(columns.key, known, MAX_UNKNOWN))


def _frequent(ids: Counter[int]) -> frozenset[int]:
    return frozenset(schema_id for schema_id, _ in ids.most_common(MAX_UNKNOWN))


class _OpenFile:
    """A Parquet file under way; its name says where the range ends that is committed with it."""

    def __init__(self, tile: Tile, part: Slice, spec_id: int, told: _Told) -> None:
        self._tile = tile
        self._told = told
        self._partition = part.partition
        self._last = last_offset(part)
        self._spec_id = spec_id
        self._sink = io.BytesIO()
        self._writer = StreamFileWriter(
            self._sink, tile.shape, tile.compression, is_typed=tile.is_typed, is_key_typed=tile.is_key_typed
        )

    def write(self, columns: Columns) -> None:
        self._told.add(self._tile, columns, self._writer.write(columns))

    @property
    def size_bytes(self) -> int:
        return self._writer.size_bytes

    def finish(self, location: str, file_id: UUID) -> _Finished:
        stats = self._writer.close()
        key = sealed_name(data_key(self._partition, self._last, file_id), stats.footer_checksum)
        return _Finished(key, self._sink.getbuffer(), stats.written(f"{location}/{key}", self._spec_id))


def _files(tile: Tile, held: Bytes, file_id: UUID, arena: Arena, told: _Told) -> Iterator[_Finished]:
    """Slices that are big enough get files of their own, one per offset window; the small ones share one file."""
    ids = map(partial(nth_id, file_id), count())
    small = [part for part in tile.slices if slice_bytes(part) < tile.own_file_bytes]
    if small:
        yield from _shared(tile, small, held, ids, arena, told)
    for part in tile.slices:
        if slice_bytes(part) >= tile.own_file_bytes:
            yield from _windows(tile, part, held, ids, arena, told)


def _shared(
    tile: Tile, parts: Sequence[Slice], held: Bytes, ids: Iterator[UUID], arena: Arena, told: _Told
) -> Iterator[_Finished]:
    file: _OpenFile | None = None
    for columns in decode_slices(tile, parts, held, arena, told.gaps):
        file = file or _OpenFile(tile, parts[0], UNPARTITIONED.spec_id, told)
        file.write(columns)
        if file.size_bytes >= tile.target_file_bytes:
            yield file.finish(tile.location, next(ids))
            file = None
    if file is not None:
        yield file.finish(tile.location, next(ids))


def _windows(
    tile: Tile, part: Slice, held: Bytes, ids: Iterator[UUID], arena: Arena, told: _Told
) -> Iterator[_Finished]:
    file: _OpenFile | None = None
    current = -1
    for columns in decode_slices(tile, [part], held, arena, told.gaps):
        for _, window, rows in columns.split(OFFSET_WINDOW):
            if file is not None and (window != current or file.size_bytes >= tile.target_file_bytes):
                yield file.finish(tile.location, next(ids))
                file = None
            current = window
            file = file or _OpenFile(tile, part, STREAM_SPEC_ID, told)
            file.write(rows)
    if file is not None:
        yield file.finish(tile.location, next(ids))


def _place(tile: Tile, store: ObjectStore) -> tuple[ObjectStore, str]:
    """The store that the table lies in, and the prefix of its keys there."""
    if tile.location.startswith(store.url + "/"):
        return store, tile.location.removeprefix(store.url + "/") + "/"
    return _open(tile.location), ""


@lru_cache(maxsize=16)
def _open(url: str, ends_at_once: bool = False) -> ObjectStore:
    """A worker process serves many tiles: its connections are worth keeping."""
    return objects.open(url, ends_at_once=ends_at_once)
