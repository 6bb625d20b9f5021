"""Rows of a stream's table in the order that its owner wants inside of files."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import IcebergType

from lakestream.table.layout import OrderField, RowOrder
from lakestream.table.parquet.arrow import numbers_in, places_from_arrow, valid_rows
from lakestream.table.rewriting.groups import transformed
from lakestream.table.schema import iceberg_schema
from lakestream.table.shape import TableShape

Longs = npt.NDArray[np.int64]
_IDENTITY: Final = "identity"
_BEYOND: Final = 1 << 62
"""No rank is."""


def ordered(rows: pa.Table, order: RowOrder, shape: TableShape) -> pa.Table:
    """`rows` have all columns of the shape, each in one piece; equal ones stay in the log's order."""
    partition, offset, _ = places_from_arrow(rows)
    schema = iceberg_schema(shape)
    ranks = [_ranks(rows, field, schema.find_field(field.column).field_type) for field in order.fields]
    keys: list[npt.NDArray[Any]] = [offset, partition, *reversed(ranks)]
    return rows.take(pa.array(np.lexsort(keys)))


def _ranks(rows: pa.Table, field: OrderField, kind: IcebergType) -> Longs:
    """Numbers that are in the order of the field's values."""
    column = rows.column(field.column).combine_chunks()
    column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    if field.transform == _IDENTITY:
        valid = valid_rows(column) != 0
        # NaN is the greatest of values, as in Iceberg.
        found = pc.rank(column, sort_keys="ascending", tiebreaker="dense")
        ranks: Longs = numbers_in(found).astype(np.int64)
    else:
        codes, values = transformed(column, field.transform, kind)
        inside: list[Any] = [value for value in values if value is not None]
        known: dict[object, int] = {value: rank for rank, value in enumerate(sorted(inside))}
        ranks = np.array([known.get(value, -1) for value in values], np.int64)[codes]
        valid = ranks >= 0
    if field.is_descending:
        ranks = -ranks
    ranks[~valid] = -_BEYOND if field.nulls_first else _BEYOND
    return ranks
