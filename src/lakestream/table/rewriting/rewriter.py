"""Files of a stream's table into fewer, larger ones: the same rows, less those that are deleted, in the order of their
offsets or, inside of a file of one partition, in one that the owner wants.

Nothing is decoded into records: rows go from Parquet to Parquet as columns, with their checksums.
"""

import asyncio
import io
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakestream.model import DataFile, PositionDeletes
from lakestream.objects.store import Buffer, ObjectStore
from lakestream.table.layout import Layout, RowOrder
from lakestream.table.parquet.arrow import arrow_schema, canonical, places_from_arrow
from lakestream.table.parquet.compression import DEFAULT_COMPRESSION, Compression
from lakestream.table.parquet.files import ParquetFiles
from lakestream.table.parquet.writer import StreamFileWriter, WrittenStats
from lakestream.table.reading.cache import SharedCache
from lakestream.table.reading.deletes import Deleted, load_deletes
from lakestream.table.reading.rows import DecodedGroup, RowReader, check_unique
from lakestream.table.rewriting.groups import MAX_GROUPS, groups_of
from lakestream.table.rewriting.ordering import ordered
from lakestream.table.schema import OFFSET_WINDOW, STREAM_SPEC_ID, UNPARTITIONED
from lakestream.table.shape import RAW, TableShape

Keep = Callable[[pa.Table], npt.NDArray[np.bool_]]
"""Which of the rows, in (partition, offset) order, are to stay. Runs in a thread."""
Change = Callable[[pa.Table], pa.Table]
"""What becomes of the rows of a row group: as many, of the same places. Runs in a thread."""

_CACHE_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A finished file, not stored yet."""

    data: Buffer
    stats: WrittenStats
    spec_id: int
    place: tuple[object, ...] = ()
    """In a spec of the owner's."""


class Unmergeable(Exception):
    """These files are not to be rewritten here: they are too large together, or have columns that are not ours."""


class Rewriter:
    """Holds the rows of one call in memory, about three times: `max_bytes` is what they may be, uncompressed. One file
    that is larger goes through a row group at a time."""

    def __init__(self, store: ObjectStore, *, max_bytes: int) -> None:
        self._files = ParquetFiles(store)
        self._cache = SharedCache(_CACHE_BYTES)
        self._rows = RowReader(self._files, self._cache)
        self._max_bytes = max_bytes

    async def rewrite(
        self,
        files: Sequence[DataFile],
        deletes: Sequence[PositionDeletes],
        *,
        shape: TableShape,
        own_file_bytes: int,
        compression: Compression = DEFAULT_COMPRESSION,
        keep: Keep | None = None,
        change: Change | None = None,
        layout: Layout | None = None,
        order: RowOrder | None = None,
    ) -> list[Rewritten]:
        """A partition with at least `own_file_bytes` in the files gets files of its own, one per offset window; the
        others share one. With a layout that much in all gets files for each of its places, or rather for the largest;
        the others share one. With an order files of one partition are in it. No file if no row is left. Raises
        `Unmergeable`, `ObjectMissing`, `CorruptObject`."""
        groups = [group for file in files for group in await self._groups(file, shape)]
        size_bytes = sum(group.row_group.size_bytes for group in groups)
        deleted = await load_deletes(deletes, self._files, self._cache)
        if size_bytes > self._max_bytes and len(files) > 1:
            raise Unmergeable(f"{size_bytes} bytes are more than the {self._max_bytes} that are rewritten at once")
        if size_bytes > self._max_bytes and order is None:
            return await self._stream(files[0], groups, deleted, shape, compression, keep, change, layout)
        stored_bytes = sum(file.size_bytes for file in files)
        rewritten: list[Rewritten] = []
        # A file that is too large for this becomes several, each in order.
        for part in _parts(groups, self._max_bytes):
            tables = [await self._read(group, deleted, shape, change) for group in part]
            part_bytes = stored_bytes * sum(group.row_group.size_bytes for group in part) // max(size_bytes, 1)
            rewritten += await asyncio.to_thread(
                _write, tables, part_bytes, own_file_bytes, shape, compression, keep, layout, order
            )
        return rewritten

    async def read(
        self,
        file: DataFile,
        deleted: Deleted,
        columns: Sequence[str],
        take: Callable[[pa.Table], None],
        shape: TableShape = RAW,
    ) -> None:
        """Hands over those of the columns, which are the log's unless a shape is given, and of the rows of a file that
        are there, by row group, in a thread."""
        for group in await self._rows.groups(file):
            row_group, footer = group.row_group, group.footer
            take_there = partial(_take_there, columns=columns, shape=shape, group=group, deleted=deleted, take=take)
            await self._files.read(row_group, footer, columns, take_there)

    async def deleted(self, deletes: Sequence[PositionDeletes]) -> Deleted:
        return await load_deletes(deletes, self._files, self._cache)

    async def _stream(
        self,
        file: DataFile,
        groups: Sequence[DecodedGroup],
        deleted: Deleted,
        shape: TableShape,
        compression: Compression,
        keep: Keep | None,
        change: Change | None,
        layout: Layout | None,
    ) -> list[Rewritten]:
        """One large file, row group by row group, which must be in order; only what is written is held as a whole. It
        goes into the layout's places as they are met."""
        own = (file.spec_id, file.place)
        under_way: dict[tuple[int, tuple[object, ...]], tuple[io.BytesIO, StreamFileWriter]] = {}

        def write(rows: pa.Table) -> None:
            rows = _sorted([rows], shape)
            rows = rows if keep is None or not rows.num_rows else rows.filter(pa.array(keep(rows)))
            for spec_id, place, part in _streamed(rows, layout, shape, own, under_way):
                if (spec_id, place) not in under_way:
                    sink = io.BytesIO()
                    under_way[spec_id, place] = sink, StreamFileWriter(sink, shape, compression)
                under_way[spec_id, place][1].write_rows(part)

        for group in groups:
            rows = await self._read(group, deleted, shape, change)
            try:
                await asyncio.to_thread(write, rows)
            except ValueError as error:
                raise Unmergeable(f"{file.path} is too large to be sorted: {error}") from error
        done = []
        for (spec_id, place), (sink, writer) in under_way.items():
            if writer.record_count:
                stats = await asyncio.to_thread(writer.close)
                done.append(Rewritten(sink.getbuffer(), stats, spec_id, place))
        return done

    async def _groups(self, file: DataFile, shape: TableShape) -> list[DecodedGroup]:
        groups = await self._rows.groups(file)
        for group in groups[:1]:
            names = group.footer.metadata.schema.to_arrow_schema().names
            foreign = sorted(set(names) - set(shape.stored_names(shape.names)))
            if foreign:
                raise Unmergeable(f"{file.path} has the columns {', '.join(foreign)}, which would be lost")
        return groups

    async def _read(self, group: DecodedGroup, deleted: Deleted, shape: TableShape, change: Change | None) -> pa.Table:
        names = shape.names

        def take(table: pa.Table) -> pa.Table:
            rows = _there(table, names, shape, group, deleted)
            return rows if change is None else change(rows)

        return await self._files.read(group.row_group, group.footer, shape.stored_names(names), take)


def _parts(groups: Sequence[DecodedGroup], max_bytes: int) -> Iterator[list[DecodedGroup]]:
    """As many at once as the bytes allow, one at least."""
    part: list[DecodedGroup] = []
    size_bytes = 0
    for group in groups:
        if part and size_bytes + group.row_group.size_bytes > max_bytes:
            yield part
            part, size_bytes = [], 0
        part.append(group)
        size_bytes += group.row_group.size_bytes
    if part:
        yield part


def _take_there(
    table: pa.Table,
    columns: Sequence[str],
    shape: TableShape,
    group: DecodedGroup,
    deleted: Deleted,
    take: Callable[[pa.Table], None],
) -> None:
    take(_there(table, columns, shape, group, deleted))


def _there(
    table: pa.Table, columns: Sequence[str], shape: TableShape, group: DecodedGroup, deleted: Deleted
) -> pa.Table:
    kept = deleted.kept(group.row_group.path, group.row_group.first_row, group.row_group.row_count)
    rows = canonical(table, columns, shape)
    return rows if kept is None else rows.filter(pa.array(kept))


def _write(
    tables: Sequence[pa.Table],
    stored_bytes: int,
    own_file_bytes: int,
    shape: TableShape,
    compression: Compression,
    keep: Keep | None,
    layout: Layout | None,
    order: RowOrder | None,
) -> list[Rewritten]:
    rows = _sorted(tables, shape)
    all_rows = rows.num_rows
    if keep is not None and all_rows:
        rows = rows.filter(pa.array(keep(rows)))
    if not rows.num_rows:
        return []
    row_bytes = max(1, stored_bytes // all_rows)
    chunk_rows = max(1, shape.row_group_bytes // max(1, rows.nbytes // rows.num_rows))
    write = partial(_file, shape=shape, compression=compression, order=order, chunk_rows=chunk_rows)
    if layout is not None:
        placed = _placed(rows, layout, shape, splits=stored_bytes >= own_file_bytes)
        if placed is not None:
            return [write([part], spec_id, place) for spec_id, place, part in placed]
    own, shared = _layout(rows, max(1, -(-own_file_bytes // row_bytes)))
    found = [write([rows.slice(start, stop - start)], STREAM_SPEC_ID) for start, stop in own]
    if shared:
        found.append(write([rows.slice(start, stop - start) for start, stop in shared], UNPARTITIONED.spec_id))
    return found


def _sorted(tables: Sequence[pa.Table], shape: TableShape) -> pa.Table:
    rows = pa.concat_tables(tables) if tables else arrow_schema(shape).empty_table()
    rows = canonical(rows, shape.names, shape)
    partition, offset, _ = places_from_arrow(rows)
    order = np.lexsort((offset, partition))
    if not np.array_equal(order, np.arange(len(order))):
        rows = rows.take(pa.array(order))
        partition, offset = partition[order], offset[order]
    for start, stop in pairwise([0, *(np.flatnonzero(np.diff(partition)) + 1).tolist(), len(partition)]):
        check_unique(offset[start:stop])
    return canonical(rows, shape.names, shape)


_Part = tuple[int, tuple[object, ...], pa.Table]
"""Rows in their order, with the spec and the place of the file that they go to."""


def _placed(rows: pa.Table, layout: Layout, shape: TableShape, *, splits: bool) -> list[_Part] | None:
    """The rows by the layout's places. None: they are of several, and too few to be split."""
    groups = groups_of(rows, layout, shape)
    if len(groups.places) > 1 and not splits:
        return None
    counts = np.bincount(groups.numbers, minlength=len(groups.places))
    largest = np.argsort(-counts, kind="stable")[:MAX_GROUPS]
    parts: list[_Part] = [
        (layout.spec_id, groups.places[number], rows.filter(pa.array(groups.numbers == number)))
        for number in largest.tolist()
    ]
    others = ~np.isin(groups.numbers, largest)
    if others.any():
        parts.append((UNPARTITIONED.spec_id, (), rows.filter(pa.array(others))))
    return parts


def _streamed(
    rows: pa.Table,
    layout: Layout | None,
    shape: TableShape,
    own: tuple[int, tuple[object, ...]],
    under_way: Collection[tuple[int, tuple[object, ...]]],
) -> Iterator[_Part]:
    """The same of some rows of a file that lies in `own`, while files are under way: those of places that have one, or
    come while there are few, and the others together."""
    if not rows.num_rows:
        return
    if layout is None or own[0] == layout.spec_id:
        yield *own, rows
        return
    groups = groups_of(rows, layout, shape)
    known = [number for number, place in enumerate(groups.places) if (layout.spec_id, place) in under_way]
    new = [number for number in range(len(groups.places)) if number not in known]
    taken = [*known, *new[: max(0, MAX_GROUPS - len(under_way))]]
    for number in taken:
        yield layout.spec_id, groups.places[number], rows.filter(pa.array(groups.numbers == number))
    others = ~np.isin(groups.numbers, np.array(taken, np.int64))
    if others.any():
        yield UNPARTITIONED.spec_id, (), rows.filter(pa.array(others))


def _layout(rows: pa.Table, own_rows: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The runs of rows that get files of their own, and those that share one."""
    partition, offset, _ = places_from_arrow(rows)
    window = offset // OFFSET_WINDOW
    cuts = np.flatnonzero((np.diff(partition) != 0) | (np.diff(window) != 0)) + 1
    runs = list(pairwise([0, *cuts.tolist(), len(offset)]))
    if len(runs) == 1:
        return runs, []
    numbers, counts = np.unique(partition, return_counts=True)
    large = {int(number) for number, count in zip(numbers, counts, strict=True) if count >= own_rows}
    own = [run for run in runs if int(partition[run[0]]) in large]
    return own, [run for run in runs if int(partition[run[0]]) not in large]


def _file(
    parts: Sequence[pa.Table],
    spec_id: int,
    place: tuple[object, ...] = (),
    *,
    shape: TableShape,
    compression: Compression,
    order: RowOrder | None,
    chunk_rows: int,
) -> Rewritten:
    """Of several partitions rows stay by offset: who reads one would read all of them."""
    sink = io.BytesIO()
    rows = pa.concat_tables(parts)
    partition, _, _ = places_from_arrow(rows)
    if order is not None and partition[0] == partition[-1]:
        rows = canonical(ordered(rows, order, shape), shape.names, shape)
        writer = StreamFileWriter(sink, shape, compression, order_id=order.order_id)
    else:
        writer = StreamFileWriter(sink, shape, compression)
    for chunk in _chunks(rows, chunk_rows):
        writer.write_rows(chunk)
    stats = writer.close()
    return Rewritten(sink.getbuffer(), stats, spec_id, place)


def _chunks(rows: pa.Table, chunk_rows: int) -> Iterator[pa.Table]:
    for start in range(0, rows.num_rows, chunk_rows):
        yield rows.slice(start, chunk_rows)
