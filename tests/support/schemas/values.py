"""Values of records on their way through a table's columns, with nothing else of the records."""

import io
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakestream.records import Binary, Columns
from lakestream.table.parquet.arrow import from_arrow, to_arrow
from lakestream.table.parquet.writer import StreamFileWriter
from lakestream.table.shape import TableShape

Values = list[bytes | None]


def binary(values: Values) -> Binary:
    offsets = np.cumsum([0, *(len(value or b"") for value in values)]).astype(np.int32)
    data = np.frombuffer(b"".join(value or b"" for value in values), np.uint8)
    return Binary(offsets, data, np.array([value is not None for value in values], np.uint8))


def values_in(made: Binary) -> Values:
    return [
        made.data[start:stop].tobytes() if there else None
        for (start, stop), there in zip(pairwise(made.offsets.tolist()), made.valid, strict=True)
    ]


def records_of(values: Values) -> Columns:
    rows = len(values)
    nothing = binary([None] * rows)
    return Columns(
        partition=np.zeros(rows, np.int32),
        offset=np.arange(rows, dtype=np.int64),
        timestamp_ms=np.zeros(rows, np.int64),
        timestamp_type=np.zeros(rows, np.int32),
        crc=np.zeros(rows, np.int32),
        key=nothing,
        value=binary(values),
        header_offsets=np.zeros(rows + 1, np.int32),
        header_key=binary([]),
        header_value=binary([]),
        headers_raw=nothing,
    )


def rows_of(values: Values, shape: TableShape) -> pa.Table:
    return to_arrow(records_of(values), shape)


def values_of(rows: pa.Table, shape: TableShape) -> Values:
    return values_in(from_arrow(rows, shape).value)


def parquet_of(rows: pa.Table, shape: TableShape) -> bytes:
    sink = io.BytesIO()
    writer = StreamFileWriter(sink, shape)
    writer.write_rows(rows)
    writer.close()
    return sink.getvalue()


def read_parquet(data: bytes) -> pa.Table:
    return pq.read_table(io.BytesIO(data))
