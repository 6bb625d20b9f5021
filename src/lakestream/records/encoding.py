"""Columns to record batches."""

from typing import Final

import numpy as np

from lakestream.errors import CorruptObject
from lakestream.records.columns import Columns, Longs, address_table, source_arrays
from lakestream.records.layout import HEADER_BYTES, STATUS_TEXT, Status
from lakestream.records.native import address, kernels

BATCH_BYTES: Final = 512 * 1024
BATCH_RECORDS: Final = 65_536
_RECORD_OVERHEAD_BYTES: Final = 40
"""More than a record's numbers ever take: 5 + 1 + 10 + 5 + 5 + 5 + 5."""
_HEADER_OVERHEAD_BYTES: Final = 10


class Encoder:
    """Columns, ready to be turned into batches again, in the order of `rows` (default: as they are).

    `offsets[i]` is the offset of the i-th of those rows. Offsets must ascend; they may have gaps.
    """

    def __init__(self, columns: Columns, rows: Longs | None = None) -> None:
        self._columns = columns
        self._rows = np.arange(len(columns), dtype=np.int64) if rows is None else np.ascontiguousarray(rows, np.int64)
        self._arrays = [np.ascontiguousarray(array) for array in source_arrays(columns)]
        self._table = address_table(self._arrays)
        self._total_bytes = _most_bytes(columns)
        self.offsets: Longs = columns.offset[self._rows]

    @property
    def size_bytes(self) -> int:
        """Memory held."""
        return sum(array.nbytes for array in self._arrays) + self._rows.nbytes + self.offsets.nbytes

    def encode(
        self,
        start: int,
        stop: int,
        *,
        max_bytes: int,
        batch_bytes: int = BATCH_BYTES,
        batch_records: int = BATCH_RECORDS,
    ) -> tuple[memoryview, int]:
        """Uncompressed batches of the rows [start, stop): (bytes, first row not in them).

        At least one record, then only what fits max_bytes; a batch of several records keeps to batch_bytes. Every
        record is held against its checksum.

        Raises:
            CorruptObject: a record is not what it was, or stands twice; names its offset.
        """
        if start >= stop:
            return memoryview(b""), start
        out, after = self._run(start, stop, min(max_bytes, self._total_bytes), batch_bytes, batch_records)
        if after == start:
            out, after = self._run(start, start + 1, self._most_bytes(start), batch_bytes, batch_records)
        return out, after

    def _most_bytes(self, index: int) -> int:
        """At least the bytes of a batch that holds this row alone."""
        row = int(self._rows[index])
        return _most_bytes(self._columns.slice(row, row + 1))

    def _run(self, start: int, stop: int, limit: int, batch_bytes: int, batch_records: int) -> tuple[memoryview, int]:
        out = np.empty(limit, np.uint8)
        last_offset = int(self.offsets[start - 1]) if start else -1
        cursor = np.array([start, 0, last_offset], np.int64)
        status = kernels().encode_rows(
            address(self._table),
            address(self._rows),
            stop,
            address(out),
            limit,
            batch_bytes,
            batch_records,
            address(cursor),
        )
        row, written = int(cursor[0]), int(cursor[1])
        if status not in (Status.DONE, Status.FULL):
            raise CorruptObject(f"the record at offset {self.offsets[row]} cannot be restored: {STATUS_TEXT[status]}")
        return out.data[:written], row


def _most_bytes(columns: Columns) -> int:
    """At least the bytes that the records take, however they fall into batches."""
    first, last = int(columns.header_offsets[0]), int(columns.header_offsets[-1])
    data_bytes = sum(
        int(column.offsets[-1]) - int(column.offsets[0]) for column in (columns.key, columns.value, columns.headers_raw)
    ) + sum(
        int(column.offsets[last]) - int(column.offsets[first]) for column in (columns.header_key, columns.header_value)
    )
    return data_bytes + (_RECORD_OVERHEAD_BYTES + HEADER_BYTES) * len(columns) + _HEADER_OVERHEAD_BYTES * (last - first)


def encode(columns: Columns, *, batch_bytes: int = BATCH_BYTES, batch_records: int = BATCH_RECORDS) -> memoryview:
    """All of the columns' records, as uncompressed batches."""
    encoder = Encoder(columns)
    count = len(columns)
    out, _ = encoder.encode(0, count, max_bytes=1 << 62, batch_bytes=batch_bytes, batch_records=batch_records)
    return out
