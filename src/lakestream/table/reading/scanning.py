"""Rows of table files, in any engine's layout, without deleted ones: whole columns of them, file after file."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

import pyarrow as pa

from lakestream.model import DataFile, PositionDeletes
from lakestream.table.parquet.arrow import canonical, places_from_arrow
from lakestream.table.parquet.files import ParquetFiles
from lakestream.table.reading.cache import SharedCache
from lakestream.table.reading.deletes import load_deletes
from lakestream.table.reading.ranges import Ranges
from lakestream.table.reading.rows import DecodedGroup, RowReader
from lakestream.table.shape import TableShape

_PLACE: Final = ("_stream_partition", "_offset")
_CACHE_BYTES: Final = 64 * 1024 * 1024


async def scan_files(
    store: ParquetFiles,
    files: Sequence[DataFile],
    deletes: Sequence[PositionDeletes],
    ranges: Ranges,
    columns: Sequence[str],
    shape: TableShape,
    *,
    wanted: Callable[[DecodedGroup], Awaitable[bool]] | None = None,
) -> AsyncIterator[pa.Table]:
    """The rows of the files that are in the ranges, a row group at a time: their places and the columns. Row groups
    that hold nothing of the ranges, or are not `wanted`, are not read. `StorageError` if a file is missing or
    damaged."""
    cache = SharedCache(_CACHE_BYTES)
    rows = RowReader(store, cache)
    names = list(dict.fromkeys((*_PLACE, *columns)))
    stored = shape.stored_names(names)
    deleted = await load_deletes(deletes, store, cache)
    for file in files:
        for group in await rows.groups(file):
            about = group.row_group
            partitions, offsets = (about.partition_min, about.partition_max), (about.offset_min, about.offset_max)
            if not ranges.may_hold(partitions, offsets) or not (wanted is None or await wanted(group)):
                continue
            table = await store.read(about, group.footer, stored, lambda read: canonical(read, names, shape))
            partition, offset, _ = places_from_arrow(table.select(_PLACE))
            held = ranges.holds(partition, offset)
            kept = deleted.kept(file.path, about.first_row, about.row_count)
            if kept is not None:
                held &= kept
            yield table if held.all() else table.filter(pa.array(held))
