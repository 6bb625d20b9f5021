"""Rows of table files for a task, which is not on an event loop."""

import asyncio
from collections.abc import Iterator, Sequence
from functools import lru_cache

import pyarrow as pa

from lakestream import objects
from lakestream.model import DataFile, PositionDeletes
from lakestream.objects import ObjectStore
from lakestream.table.parquet.files import ParquetFiles
from lakestream.table.reading.ranges import Ranges
from lakestream.table.reading.rows import DecodedGroup
from lakestream.table.reading.scanning import scan_files
from lakestream.table.shape import TableShape


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

    async def is_young(group: DecodedGroup) -> bool:
        return group.row_group.timestamp_max_ms >= (oldest_ms or 0)

    found = scan_files(
        ParquetFiles(_open(location)),
        files,
        deletes,
        ranges,
        columns,
        shape,
        wanted=is_young,
    )

    async def following() -> pa.Table | None:
        return await anext(found, None)

    with asyncio.Runner() as runner:
        while (table := runner.run(following())) is not None:
            yield table


@lru_cache(maxsize=8)
def _open(location: str) -> ObjectStore:
    """A worker process serves many tasks: its connections are worth keeping."""
    return objects.open(location)
