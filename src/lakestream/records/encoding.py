"""Columns to record batches."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
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


class _Piece:
    """Columns with an order of their rows, as the kernel takes them."""

    def __init__(self, columns: Columns, rows: Longs) -> None:
        self.columns = columns
        self.rows = rows
        self.arrays = [np.ascontiguousarray(array) for array in source_arrays(columns)]
        self._table = address_table(self.arrays)
        self.addresses = (address(self._table), address(rows))
        self.most_bytes = _most_bytes(columns)


class Encoder:
    """Columns, ready to be turned into batches again, in the order of `rows` (default: as they are).

    `offsets[i]` is the offset of the i-th of those rows. Offsets must ascend; they may have gaps.
    """

    def __init__(self, columns: Columns, rows: Longs | None = None) -> None:
        order = np.arange(len(columns), dtype=np.int64) if rows is None else np.ascontiguousarray(rows, np.int64)
        self._pieces = [_Piece(columns, order)]
        self._starts = [0, len(order)]
        self._most_bytes = self._pieces[0].most_bytes
        self.offsets: Longs = columns.offset if rows is None else columns.offset[order]

    @classmethod
    def joined(cls, encoders: "Sequence[Encoder]") -> "Encoder":
        """The rows of all, one encoder's after the other's: what was decoded in pieces need not be copied into one."""
        if len(encoders) == 1:
            return encoders[0]
        made = cls.__new__(cls)
        made._pieces = [piece for encoder in encoders for piece in encoder._pieces]
        made._starts = [*accumulate((len(piece.rows) for piece in made._pieces), initial=0)]
        made._most_bytes = sum(piece.most_bytes for piece in made._pieces)
        made.offsets = np.concatenate([np.empty(0, np.int64), *(encoder.offsets for encoder in encoders)])
        return made

    @property
    def size_bytes(self) -> int:
        """Memory held."""
        pieces = sum(piece.rows.nbytes + sum(array.nbytes for array in piece.arrays) for piece in self._pieces)
        return pieces + self.offsets.nbytes

    def encode(
        self,
        start: int,
        stop: int,
        *,
        max_bytes: int,
        batch_bytes: int = BATCH_BYTES,
        batch_records: int = BATCH_RECORDS,
        checks: bool = True,
    ) -> tuple[memoryview, int]:
        """Uncompressed batches of the rows [start, stop): (bytes, first row not in them).

        At least one record, then only what fits max_bytes; a batch of several records keeps to batch_bytes. Every
        record is held against its checksum, unless the caller wants what is there (`checks`).

        Raises:
            CorruptObject: a record is not what it was, or stands twice; names its offset.
        """
        if start >= stop:
            return memoryview(b""), start
        sizes = (batch_bytes, batch_records, checks)
        out, after = self._run(start, stop, min(max_bytes, self._most_bytes), *sizes)
        if after == start:
            out, after = self._run(start, start + 1, self._most_bytes_of(start), *sizes)
        return out, after

    def _most_bytes_of(self, index: int) -> int:
        """At least the bytes of a batch that holds this row alone."""
        number = self._piece_of(index)
        piece = self._pieces[number]
        row = int(piece.rows[index - self._starts[number]])
        return _most_bytes(piece.columns.slice(row, row + 1))

    def _piece_of(self, index: int) -> int:
        return bisect_right(self._starts, index) - 1

    def _run(
        self, start: int, stop: int, limit: int, batch_bytes: int, batch_records: int, checks: bool
    ) -> tuple[memoryview, int]:
        out = np.empty(limit, np.uint8)
        last_offset = int(self.offsets[start - 1]) if start else -1
        cursor = np.array([0, 0, last_offset], np.int64)
        index = start
        status: int = Status.DONE
        while index < stop and status == Status.DONE:
            number = self._piece_of(index)
            piece, before = self._pieces[number], self._starts[number]
            cursor[0] = index - before
            status = kernels().encode_rows(
                *piece.addresses,
                min(stop, self._starts[number + 1]) - before,
                address(out),
                limit,
                batch_bytes,
                batch_records,
                address(cursor),
                checks,
            )
            index = before + int(cursor[0])
        if status not in (Status.DONE, Status.FULL):
            raise CorruptObject(f"the record at offset {self.offsets[index]} cannot be restored: {STATUS_TEXT[status]}")
        return out.data[: int(cursor[1])], index


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
