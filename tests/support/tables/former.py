"""Files of a stream's table as former versions wrote them: with Arrow's own writer, sealed as they are now."""

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakestream.records import crc32c
from lakestream.table.parquet.arrow import arrow_schema
from lakestream.table.parquet.seal import chunk_range, seal
from lakestream.table.shape import RAW

_DELTA = "DELTA_BINARY_PACKED"
OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": ["_stream_partition"],
    "column_encoding": {"_offset": _DELTA, "_timestamp": _DELTA, "_timestamp_type": _DELTA, "_kind": _DELTA},
    "write_statistics": [
        "_stream_partition",
        "_offset",
        "_timestamp",
        "_timestamp_type",
        "_key",
        "_headers.list.element.key",
        "_headers_raw",
    ],
    "store_schema": False,
    "write_page_checksum": True,
}


def former(groups: list[pa.Table], **options: object) -> tuple[bytes, int]:
    """The file, a row group of each table, and its footer's checksum."""
    plain = _written(groups, {}, options)
    metadata = pq.read_metadata(io.BytesIO(plain))
    chunks = [
        metadata.row_group(group).column(column)
        for group in range(metadata.num_row_groups)
        for column in range(metadata.num_columns)
    ]
    data = _written(groups, seal([crc32c(plain[slice(*chunk_range(chunk))]) for chunk in chunks]), options)
    return data, crc32c(data[-8 - int.from_bytes(data[-8:-4], "little") :])


def _written(groups: list[pa.Table], about: dict[str, str], options: dict[str, object]) -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, arrow_schema(RAW), **OPTIONS | options) as writer:
        for rows in groups:
            writer.write_table(rows, row_group_size=rows.num_rows)
        if about:
            writer.add_key_value_metadata(about)
    return sink.getvalue()
