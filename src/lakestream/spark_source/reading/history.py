"""Rows of table files, in any engine's layout, without deleted ones."""

import asyncio
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

import pyarrow as pa

from lakestream import objects
from lakestream.model import DataFile, PositionDeletes
from lakestream.objects import ObjectStore
from lakestream.spark_source.reading.ranges import Ranges
from lakestream.table.parquet.arrow import canonical, places_from_arrow
from lakestream.table.parquet.files import ParquetFiles
from lakestream.table.reading.cache import SharedCache
from lakestream.table.reading.deletes import load_deletes
from lakestream.table.reading.rows import RowReader
from lakestream.table.shape import TableShape

_PLACE: Final = ("_stream_partition", "_offset")
_CACHE_BYTES: Final = 64 * 1024 * 1024


def read_history(
    location: str,
    files: Sequence[DataFile],
    deletes: Sequence[PositionDeletes],
    ranges: Ranges,
    columns: Sequence[str],
    shape: TableShape,
    *,
    oldest_ms: int | None = None,
) -> Iterator[pa.Table]:
    """The rows of the files that are in the ranges, a row group at a time. Row groups that hold nothing of them, or
    nothing as young as oldest_ms, are not read. `StorageError` if a file is missing or damaged."""
    store = ParquetFiles(_open(location))
    cache = SharedCache(_CACHE_BYTES)
    rows = RowReader(store, cache)
    names = list(dict.fromkeys((*_PLACE, *columns)))
    stored = shape.stored_names(names)
    with asyncio.Runner() as runner:
        deleted = runner.run(load_deletes(deletes, store, cache))
        for file in files:
            for group in runner.run(rows.groups(file)):
                about = group.row_group
                partitions, offsets = (about.partition_min, about.partition_max), (about.offset_min, about.offset_max)
                if not ranges.may_hold(partitions, offsets) or about.timestamp_max_ms < (oldest_ms or 0):
                    continue
                table = runner.run(store.read(about, group.footer, stored, lambda read: canonical(read, names, shape)))
                partition, offset, _ = places_from_arrow(table.select(_PLACE))
                held = ranges.holds(partition, offset)
                kept = deleted.kept(file.path, about.first_row, about.row_count)
                if kept is not None:
                    held &= kept
                yield table if held.all() else table.filter(pa.array(held))


@lru_cache(maxsize=8)
def _open(location: str) -> ObjectStore:
    """A worker process serves many tasks: its connections are worth keeping."""
    return objects.open(location)
