"""Rows in an owner's sort order, beside plain Python; files that are so are read by offset all the same."""

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.transforms import parse_transform
from support.properties import examples
from support.tables.transforms import EVERY, SHAPE, VALUES, stored

from lakestream.table.layout import OrderField, RowOrder
from lakestream.table.parquet.arrow import arrow_schema
from lakestream.table.rewriting.ordering import ordered
from lakestream.table.schema import iceberg_schema


def rows_of(column: str, values: list[Any]) -> pa.Table:
    count = len(values)
    return pa.table(
        {
            column: pa.array(values, arrow_schema(SHAPE).field(column).type),
            "_stream_partition": pa.array([0] * count, pa.int32()),
            "_offset": pa.array(range(count), pa.int64()),
            "_timestamp": pa.nulls(count, pa.timestamp("us", "UTC")),
        }
    )


def by_offset(rows: pa.Table, *fields: OrderField) -> list[int]:
    found: list[int] = ordered(rows, RowOrder(1, fields), SHAPE).column("_offset").to_pylist()
    return found


@pytest.mark.parametrize(("column", "transform"), EVERY)
@given(data=st.data())
@examples(15)
def test_each_transform_both_ways(column: str, transform: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | VALUES[column], min_size=1, max_size=20))
    descending, nulls_first = data.draw(st.booleans()), data.draw(st.booleans())
    apply = parse_transform(transform).transform(iceberg_schema(SHAPE).find_field(column).field_type)
    found: list[Any] = [None if value is None else apply(stored(value)) for value in values]
    there = sorted({value for value in found if value is not None}, reverse=descending)
    nulls = -1 if nulls_first else len(there)
    places = [nulls if value is None else there.index(value) for value in found]
    wanted = sorted(range(len(values)), key=lambda row: (places[row], row))
    assert by_offset(rows_of(column, values), OrderField(column, transform, descending, nulls_first)) == wanted


def test_nan_is_the_greatest() -> None:
    rows = rows_of("x", [math.nan, 1.0, None, math.inf, -1.0])
    assert by_offset(rows, OrderField("x", "identity", False, True)) == [2, 4, 1, 3, 0]
    assert by_offset(rows, OrderField("x", "identity", True, False)) == [0, 3, 1, 4, 2]


def test_equal_rows_stay_by_offset_and_later_fields_decide() -> None:
    rows = rows_of("l", [5, 15, 3, 12, 5])
    tens, plain = OrderField("l", "truncate[10]", True, True), OrderField("l", "identity", False, True)
    assert by_offset(rows, tens) == [1, 3, 0, 2, 4]
    assert by_offset(rows, tens, plain) == [3, 1, 2, 0, 4]
