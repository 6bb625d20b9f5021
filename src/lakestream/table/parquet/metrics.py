"""What a table is told of a file that was just written, out of the footer that its writer holds in its hands: nobody
has to read it back."""

import struct
from collections.abc import Sequence
from typing import Any, Final

import pyarrow.parquet as pq

from lakestream.model import ColumnMetrics, FileMetrics
from lakestream.table.parquet.seal import chunk_range
from lakestream.table.shape import Kind, TableColumn, TableShape

_NUMBERS: Final[dict[Kind, struct.Struct]] = {
    "boolean": struct.Struct("<?"),
    "int": struct.Struct("<i"),
    "long": struct.Struct("<q"),
    "float": struct.Struct("<f"),
    "double": struct.Struct("<d"),
    "date": struct.Struct("<i"),
    "timestamp": struct.Struct("<q"),
    "timestamptz": struct.Struct("<q"),
}
"""As Iceberg stores bounds. Text and bytes are stored as they are."""


def file_metrics(metadata: pq.FileMetaData, shape: TableShape) -> FileMetrics:
    """Of a file with all columns of the shape, in their order."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    return FileMetrics(
        tuple(
            _column(leaf, [group.column(position) for group in groups])
            for position, (_, leaf) in enumerate(shape.leaves())
        ),
        tuple(chunk_range(group.column(0))[0] for group in groups),
    )


def _column(leaf: TableColumn, chunks: Sequence[Any]) -> ColumnMetrics:
    size_bytes = sum(chunk.total_compressed_size for chunk in chunks)
    value_count = sum(chunk.num_values for chunk in chunks)
    found = [chunk.statistics for chunk in chunks]
    if not all(each is not None and each.has_null_count for each in found):
        return ColumnMetrics(leaf.field_id, size_bytes, value_count)
    null_count = sum(each.null_count for each in found)
    # A chunk that has values and no bounds of them leaves the file without.
    filled = [each for each, chunk in zip(found, chunks, strict=True) if each.null_count < chunk.num_values]
    if not filled or not all(each.has_min_max for each in filled):
        return ColumnMetrics(leaf.field_id, size_bytes, value_count, null_count)
    low, high = min(each.min_raw for each in filled), max(each.max_raw for each in filled)
    return ColumnMetrics(
        leaf.field_id, size_bytes, value_count, null_count, _stored(leaf.kind, low), _stored(leaf.kind, high)
    )


def _stored(kind: Kind, bound: Any) -> bytes:
    return _NUMBERS[kind].pack(bound) if kind in _NUMBERS else bytes(bound)
