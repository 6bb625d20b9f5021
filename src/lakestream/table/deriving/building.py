"""Files of a derived table: rows in the order of their keys, and deleted places."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakestream.model import FileMetrics
from lakestream.objects.store import Buffer
from lakestream.table.deriving.recipe import DerivedShape
from lakestream.table.parquet.arrow import arrow_schema, canonical
from lakestream.table.parquet.compression import Compression
from lakestream.table.parquet.file import ParquetFile
from lakestream.table.shape import TableColumn, TableShape

_PLACES: Final = TableShape(
    (
        TableColumn(2147483546, "file_path", "string", True, "dictionary", has_statistics=True),
        TableColumn(2147483545, "pos", "long", True, "delta", has_statistics=True),
    )
)
"""The columns of Iceberg's position deletes, with the ids that it reserves for them."""


@dataclass(frozen=True, slots=True)
class Built:
    """A finished file, not stored yet."""

    bucket: int
    is_deletes: bool
    data: Buffer
    record_count: int
    footer_checksum: int
    metrics: FileMetrics

    @property
    def size_bytes(self) -> int:
        return len(self.data)


def build_rows(
    rows: pa.Table, bucket: int, derived: DerivedShape, compression: Compression, target_bytes: int
) -> list[Built]:
    """In as many files as it takes for none to be larger than the target, uncompressed. Blocking."""
    if not rows.num_rows:
        return []
    shape = derived.columns
    order = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in derived.recipe.keys])
    rows = canonical(rows.take(order), shape.names, shape)
    row_bytes = max(1, rows.nbytes // rows.num_rows)
    file_rows = max(1, target_bytes // row_bytes)
    group_rows = max(1, shape.row_group_bytes // row_bytes)
    return [
        _file(rows.slice(start, file_rows), bucket, shape, compression, group_rows, is_deletes=False)
        for start in range(0, rows.num_rows, file_rows)
    ]


def build_deletes(places: Mapping[str, npt.NDArray[np.int64]], bucket: int, compression: Compression) -> Built:
    """Of the places of each data file, in order. Blocking."""
    paths = sorted(places)
    counts = [len(places[path]) for path in paths]
    names = pa.DictionaryArray.from_arrays(
        pa.array(np.repeat(np.arange(len(paths), dtype=np.int32), counts)), pa.array(paths, pa.string())
    )
    rows = pa.table(
        [names.cast(pa.string()), pa.array(np.concatenate([places[path] for path in paths]), pa.int64())],
        schema=arrow_schema(_PLACES),
    )
    return _file(rows, bucket, _PLACES, compression, rows.num_rows, is_deletes=True)


def _file(
    rows: pa.Table, bucket: int, shape: TableShape, compression: Compression, group_rows: int, *, is_deletes: bool
) -> Built:
    sink = io.BytesIO()
    parquet = ParquetFile(sink, shape, compression)
    for start in range(0, rows.num_rows, group_rows):
        parquet.write(rows.slice(start, group_rows))
    closed = parquet.close()
    return Built(bucket, is_deletes, sink.getbuffer(), rows.num_rows, closed.footer_checksum, closed.metrics)
