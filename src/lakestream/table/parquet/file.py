"""Rows of any shape into one Parquet file, by Arrow's writer, sealed."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from lakestream.model import FileMetrics
from lakestream.records import crc32c
from lakestream.table.parquet.arrow import arrow_schema
from lakestream.table.parquet.compression import Compression
from lakestream.table.parquet.filters import filter_checksums, filter_options, filter_seal
from lakestream.table.parquet.metrics import file_metrics
from lakestream.table.parquet.seal import chunk_range, seal
from lakestream.table.shape import TableShape

_ENCODINGS: Final = {"plain": "PLAIN", "delta": "DELTA_BINARY_PACKED"}
_KEPT_OPTIONS: Final = 256
_END_BYTES: Final = 8
"""Length of the footer and magic."""


@dataclass(frozen=True, slots=True)
class ClosedFile:
    """`footer_checksum` is of the footer with its length and the magic behind it."""

    footer_checksum: int
    metrics: FileMetrics


class ParquetFile:
    """Under way in `sink`, which is empty. The footer holds the checksums of the chunks, whose places it tells: room is
    left for them, and filled when Arrow is done. `filtered`: columns whose row groups have bloom filters, whose
    checksums the footer holds as well."""

    def __init__(
        self,
        sink: BytesIO,
        shape: TableShape,
        compression: Compression,
        *,
        in_log_order: bool = True,
        filtered: Sequence[str] = (),
    ) -> None:
        self._sink = sink
        self._schema = arrow_schema(shape)
        self._shape = shape
        self._compression = compression
        self._filtered = filtered
        self._leaves = sum(1 for _ in shape.leaves())
        self._groups = 0
        self._in_log_order = in_log_order
        self._writer: pq.ParquetWriter | None = None

    @property
    def size_bytes(self) -> int:
        """Written so far."""
        return self._sink.tell()

    def write(self, rows: pa.Table) -> None:
        """One row group, of at least one row."""
        if rows.schema != self._schema:
            raise ValueError(f"rows with the columns {rows.schema.names} are not what this file is for")
        if self._writer is None:
            filters = filter_options(self._filtered, rows.num_rows) or None
            options = _options(self._shape, self._compression)
            self._writer = pq.ParquetWriter(self._sink, self._schema, bloom_filter_options=filters, **options)
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._groups += 1

    def close(self) -> ClosedFile:
        """Ends the file, which has rows."""
        assert self._writer is not None
        rooms = [seal([0] * (self._groups * self._leaves), in_log_order=self._in_log_order)]
        if self._filtered:
            rooms.append(filter_seal(self._filtered, [0] * (self._groups * len(self._filtered))))
        for room in rooms:
            self._writer.add_key_value_metadata(room)
        self._writer.close()
        with self._sink.getbuffer() as data:
            footer = data[-int.from_bytes(data[-_END_BYTES:-4], "little") - _END_BYTES :]
            metadata = pq.read_metadata(pa.BufferReader(footer))
            ranges = [
                chunk_range(metadata.row_group(group).column(column))
                for group in range(self._groups)
                for column in range(self._leaves)
            ]
            seals = [seal([crc32c(data[start:stop]) for start, stop in ranges])]
            if self._filtered:
                seals.append(filter_seal(self._filtered, filter_checksums(self._filtered, metadata, data)))
            for room, sealed in zip(rooms, seals, strict=True):
                _fill(footer, room, sealed)
            return ClosedFile(crc32c(footer), file_metrics(metadata, self._shape))


def _fill(footer: memoryview, room: dict[str, str], sealed: dict[str, str]) -> None:
    """Keys and values stand behind all that came from the rows."""
    [(_, empty)], [(_, filled)] = room.items(), sealed.items()
    at = bytes(footer).rindex(empty.encode())
    footer[at : at + len(empty)] = filled.encode()


@lru_cache(_KEPT_OPTIONS)
def _options(shape: TableShape, compression: Compression) -> dict[str, Any]:
    """Shared: never change them."""
    leaves = dict(shape.leaves())
    return {
        "compression": {path: "none" if leaf.is_noise else compression.codec for path, leaf in leaves.items()},
        "compression_level": None
        if compression.level is None
        else {path: compression.level for path, leaf in leaves.items() if not leaf.is_noise},
        "use_dictionary": [path for path, leaf in leaves.items() if leaf.encoding == "dictionary"],
        "column_encoding": {
            path: _ENCODINGS[leaf.encoding] for path, leaf in leaves.items() if leaf.encoding != "dictionary"
        },
        "write_statistics": [path for path, leaf in leaves.items() if leaf.has_statistics],
        "store_schema": False,
        "store_decimal_as_integer": True,
        "write_page_checksum": True,
    }
