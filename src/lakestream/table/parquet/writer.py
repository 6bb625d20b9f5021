"""Columns to one Parquet file of a stream's table."""

from dataclasses import dataclass
from io import BytesIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakestream.model import FileMetrics, WrittenFile
from lakestream.records import Columns
from lakestream.table.parquet.arrow import numbers_in, places_from_arrow, to_arrow
from lakestream.table.parquet.compression import DEFAULT_COMPRESSION, Compression
from lakestream.table.parquet.file import ParquetFile
from lakestream.table.parquet.filters import FILTERED
from lakestream.table.shape import KINDS, TableShape

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


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
    metrics: FileMetrics
    order_id: int = 0

    def written(self, path: str, spec_id: int, place: tuple[object, ...] = ()) -> WrittenFile:
        """The file as it goes into a table's commit."""
        return WrittenFile(
            path=path,
            spec_id=spec_id,
            size_bytes=self.size_bytes,
            record_count=self.record_count,
            partition_min=self.partition_min,
            partition_max=self.partition_max,
            offset_min=self.offset_min,
            offset_max=self.offset_max,
            timestamp_max_ms=self.timestamp_max_ms,
            metrics=self.metrics,
            place=place,
            order_id=self.order_id,
        )


class StreamFileWriter:
    """Writes records, as a rule in (partition, offset) order, each `write` a row group: an arena's fill is the right
    size.

    Blocking; for workers. The sink stays open and is the caller's to store.
    """

    def __init__(
        self,
        sink: BytesIO,
        shape: TableShape,
        compression: Compression = DEFAULT_COMPRESSION,
        *,
        is_typed: bool = True,
        is_key_typed: bool = True,
        order_id: int = 0,
    ) -> None:
        """`is_typed`: values become columns, if the shape has a codec for them; `is_key_typed`: so do keys. `order_id`:
        records come in that sort order of the owner's, all of one partition."""
        self._shape = shape
        self._is_typed = is_typed
        self._is_key_typed = is_key_typed
        self._order_id = order_id
        self._parquet = ParquetFile(sink, shape, compression, in_log_order=not order_id, filtered=FILTERED)
        self._first_partition = -1
        self._last = (-1, -1)
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
        return self._parquet.size_bytes

    def write(self, columns: Columns) -> Longs:
        """One row group. The columns' memory is free again when this returns. How many rows are of each kind.

        Raises:
            ValueError: the records do not follow what was written in (partition, offset) order.
        """
        if not len(columns):
            return np.zeros(KINDS, np.int64)
        self._check_order(columns.partition, columns.offset)
        rows = to_arrow(columns, self._shape, is_typed=self._is_typed, is_key_typed=self._is_key_typed)
        self._write(rows, columns.partition, columns.offset, columns.timestamp_ms)
        return np.bincount(numbers_in(rows.column("_kind").chunk(0)), minlength=KINDS)

    def write_rows(self, rows: pa.Table) -> None:
        """The same for rows of a table as they are, in the schema of its shape."""
        if rows.num_rows:
            partition, offset, timestamp_ms = places_from_arrow(rows)
            self._check_order(partition, offset)
            self._write(rows, partition, offset, timestamp_ms)

    def close(self) -> WrittenStats:
        """Finishes the file. A file without records is a mistake: `ValueError`."""
        if not self._record_count:
            raise ValueError("a file needs records")
        closed = self._parquet.close()
        return WrittenStats(
            record_count=self._record_count,
            partition_min=self._first_partition,
            partition_max=self._last[0],
            offset_min=int(self._offset_min),
            offset_max=self._offset_max,
            timestamp_max_ms=self._timestamp_max_ms if self._timestamp_max_ms >= 0 else None,
            size_bytes=self.size_bytes,
            footer_checksum=closed.footer_checksum,
            metrics=closed.metrics,
            order_id=self._order_id,
        )

    def _write(self, rows: pa.Table, partition: Ints, offset: Longs, timestamp_ms: Longs) -> None:
        self._parquet.write(rows)
        if self._first_partition < 0:
            self._first_partition = int(partition[0])
        self._last = (int(partition[-1]), int(offset[-1]))
        self._record_count += len(offset)
        self._offset_min = min(self._offset_min, int(offset.min()))
        self._offset_max = max(self._offset_max, int(offset.max()))
        self._timestamp_max_ms = max(self._timestamp_max_ms, int(timestamp_ms.max()))

    def _check_order(self, partition: Ints, offset: Longs) -> None:
        if self._order_id:
            return
        first = (int(partition[0]), int(offset[0]))
        partition_steps, offset_steps = np.diff(partition), np.diff(offset)
        if first <= self._last or not np.all((partition_steps > 0) | ((partition_steps == 0) & (offset_steps > 0))):
            raise ValueError("records must come in (partition, offset) order, each once")
