"""Columns to one Parquet file of a stream's table."""

from dataclasses import dataclass
from typing import BinaryIO, Final

import numpy as np
import pyarrow.parquet as pq

from lakestream.records import Columns
from lakestream.table.arrow import ARROW_SCHEMA, to_arrow
from lakestream.table.seal import reserve, seal

_DELTA: Final = "DELTA_BINARY_PACKED"
_OPTIONS: Final = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": ["_stream_partition"],
    "column_encoding": {"_offset": _DELTA, "_timestamp": _DELTA, "_timestamp_type": _DELTA, "_kind": _DELTA},
    # Bounds where they prune, null counts where a reader can then leave a column out.
    "write_statistics": [
        "_stream_partition",
        "_offset",
        "_timestamp",
        "_key",
        "_headers.list.element.key",
        "_headers_raw",
    ],
    "store_schema": False,
    # For other engines; our own reader has checksums that cover more.
    "write_page_checksum": True,
}


@dataclass(frozen=True, slots=True)
class WrittenStats:
    """What a finished file holds; bounds are inclusive. `timestamp_max_ms` is None if no record has a time."""

    record_count: int
    partition_min: int
    partition_max: int
    offset_min: int
    offset_max: int
    timestamp_max_ms: int | None
    size_bytes: int
    footer_checksum: int
    """Belongs in the file's name: `sealed_name`."""


class StreamFileWriter:
    """Writes records in (partition, offset) order, each `write` a row group: an arena's fill is the right size.

    Blocking; for workers. The sink, which is read from too, stays open and is the caller's to store: a `BytesIO`, a
    temporary file.
    """

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._start = sink.tell()
        self._parquet = pq.ParquetWriter(sink, ARROW_SCHEMA, **_OPTIONS)
        self._first_partition = -1
        self._last = (-1, -1)
        self._row_groups = 0
        self._record_count = 0
        self._offset_min = np.iinfo(np.int64).max
        self._offset_max = -1
        self._timestamp_max_ms = -1

    @property
    def record_count(self) -> int:
        return self._record_count

    @property
    def size_bytes(self) -> int:
        """Written so far."""
        return self._sink.tell() - self._start

    def write(self, columns: Columns) -> None:
        """One row group. The columns' memory is free again when this returns.

        Raises:
            ValueError: the records do not follow what was written in (partition, offset) order.
        """
        if not len(columns):
            return
        self._check_order(columns)
        self._parquet.write_table(to_arrow(columns), row_group_size=len(columns))
        if self._first_partition < 0:
            self._first_partition = int(columns.partition[0])
        self._last = (int(columns.partition[-1]), int(columns.offset[-1]))
        self._row_groups += 1
        self._record_count += len(columns)
        self._offset_min = min(self._offset_min, int(columns.offset.min()))
        self._offset_max = max(self._offset_max, int(columns.offset.max()))
        self._timestamp_max_ms = max(self._timestamp_max_ms, int(columns.timestamp_ms.max()))

    def close(self) -> WrittenStats:
        """Finishes the file. A file without records is a mistake: `ValueError`."""
        if not self._record_count:
            raise ValueError("a file needs records")
        reserve(self._parquet, self._row_groups, ARROW_SCHEMA)
        self._parquet.close()
        checksum = seal(self._sink, self._start)
        return WrittenStats(
            record_count=self._record_count,
            partition_min=self._first_partition,
            partition_max=self._last[0],
            offset_min=int(self._offset_min),
            offset_max=self._offset_max,
            timestamp_max_ms=self._timestamp_max_ms if self._timestamp_max_ms >= 0 else None,
            size_bytes=self.size_bytes,
            footer_checksum=checksum,
        )

    def _check_order(self, columns: Columns) -> None:
        first = (int(columns.partition[0]), int(columns.offset[0]))
        partition_steps, offset_steps = np.diff(columns.partition), np.diff(columns.offset)
        if first <= self._last or not np.all((partition_steps > 0) | ((partition_steps == 0) & (offset_steps > 0))):
            raise ValueError("records must come in (partition, offset) order, each once")
