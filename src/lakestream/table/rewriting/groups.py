"""Rows of a stream's table by the partitions of a layout: which of them go into one file, and what the file's place is
called in a manifest."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
    parse_transform,
)
from pyiceberg.types import IcebergType

from lakestream.table.layout import Layout
from lakestream.table.parquet.arrow import numbers_in, valid_rows
from lakestream.table.schema import iceberg_schema
from lakestream.table.shape import TableShape

MAX_GROUPS: Final = 64
"""Files of their own that rows which are laid out get at once, the largest groups first; the others share one."""

Longs = npt.NDArray[np.int64]
_UNITS: Final[dict[type[Any], str]] = {
    YearTransform: "Y",
    MonthTransform: "M",
    DayTransform: "D",
    HourTransform: "h",
}


@dataclass(frozen=True, slots=True)
class PlacedRows:
    """`numbers`: of each row's group. `places`: of each group the values of the fields, as manifests have them."""

    numbers: Longs
    places: tuple[tuple[object, ...], ...]


def groups_of(rows: pa.Table, layout: Layout, shape: TableShape) -> PlacedRows:
    """`rows` have all columns of the shape, each in one piece."""
    codes: list[Longs] = []
    values: list[Sequence[object]] = []
    schema = iceberg_schema(shape)
    for field in layout.fields:
        column = rows.column(field.column).combine_chunks()
        column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        code, found = transformed(column, field.transform, schema.find_field(field.column).field_type)
        codes.append(code)
        values.append(found)
    together, numbers = np.unique(np.stack(codes), axis=1, return_inverse=True)
    places = tuple(
        tuple(known[code] for known, code in zip(values, place, strict=True)) for place in together.T.tolist()
    )
    return PlacedRows(np.asarray(numbers, np.int64).reshape(-1), places)


@lru_cache(256)
def _parsed(text: str) -> Transform[Any, Any]:
    return parse_transform(text)


def transformed(column: pa.Array, text: str, kind: IcebergType) -> tuple[Longs, Sequence[object]]:
    """Each row's place in the list of values that there are."""
    transform = _parsed(text)
    plain = _numbers(column)
    if plain is not None:
        numbers = _on_numbers(plain, transform, column.type)
        if numbers is not None:
            return _numbered(numbers, valid_rows(column) != 0)
        column = pa.array(plain, mask=valid_rows(column) == 0)
    encoded = column.dictionary_encode(null_encoding="encode")
    apply = transform.transform(kind)
    found = [None if each is None else apply(each) for each in encoded.dictionary.to_pylist()]
    known = list(dict.fromkeys(found))
    places = {value: place for place, value in enumerate(known)}
    codes = np.array([places[value] for value in found], np.int64)
    return codes[numbers_in(encoded.indices).astype(np.int64)], known


def _numbers(column: pa.Array) -> Longs | None:
    """Of numbers, dates and times, which are numbers of days or microseconds; null counts as 0."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        return numbers_in(column).astype(np.int64)
    return None


def _on_numbers(numbers: Longs, transform: Transform[Any, Any], kind: pa.DataType) -> Longs | None:
    """All at once, for what can be done so."""
    if isinstance(transform, IdentityTransform):
        return numbers
    if isinstance(transform, TruncateTransform):
        return numbers - np.mod(numbers, transform.width)
    unit = _UNITS.get(type(transform))
    if unit is None:
        return None
    stored = "D" if pa.types.is_date32(kind) else "us"
    return numbers.view(f"datetime64[{stored}]").astype(f"datetime64[{unit}]").astype(np.int64)


def _numbered(numbers: Longs, valid: npt.NDArray[np.bool_]) -> tuple[Longs, Sequence[object]]:
    known, codes = np.unique(numbers[valid], return_inverse=True)
    result = np.full(len(numbers), len(known), np.int64)
    result[valid] = codes
    return result, [*known.tolist(), None]
