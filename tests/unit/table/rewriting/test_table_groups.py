"""Rows by the partitions of a layout, beside Iceberg's own transforms."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.transforms import parse_transform
from support.properties import examples

from lakestream.table.layout import Layout, LayoutField
from lakestream.table.parquet.arrow import arrow_schema
from lakestream.table.rewriting.groups import groups_of
from lakestream.table.schema import iceberg_schema
from lakestream.table.shape import RAW, TableColumn

SHAPE = msgspec.structs.replace(
    RAW,
    columns=(
        TableColumn(100, "l", "long"),
        TableColumn(101, "i", "int"),
        TableColumn(102, "s", "string"),
        TableColumn(103, "d", "date"),
        TableColumn(104, "ts", "timestamptz"),
        TableColumn(105, "b", "binary"),
        TableColumn(106, "dec", "decimal", precision=12, scale=2),
        TableColumn(107, "flag", "boolean"),
        TableColumn(108, "x", "double"),
    ),
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "l": st.integers(-(1 << 40), 1 << 40),
    "i": st.integers(-(1 << 31), (1 << 31) - 1),
    "s": st.text(max_size=6),
    "d": st.dates(date(1900, 1, 1), date(2200, 1, 1)),
    "ts": st.integers(-(10**15), 4 * 10**15).map(lambda us: EPOCH + timedelta(microseconds=us)),
    "b": st.binary(max_size=6),
    "dec": st.integers(-(10**9), 10**9).map(lambda n: Decimal(n).scaleb(-2)),
    "flag": st.booleans(),
    "x": st.sampled_from([0.5, -1.0, 1e9]),
}
TRANSFORMS = {
    "l": ("identity", "bucket[7]", "truncate[10]"),
    "i": ("identity", "bucket[7]", "truncate[10]"),
    "s": ("identity", "bucket[7]", "truncate[2]"),
    "d": ("identity", "bucket[7]", "day", "month", "year"),
    "ts": ("identity", "bucket[7]", "hour", "day", "month", "year"),
    "b": ("identity", "bucket[7]", "truncate[2]"),
    "dec": ("identity", "bucket[7]", "truncate[50]"),
    "flag": ("identity",),
    "x": ("identity",),
}
EVERY = [(column, transform) for column, listed in TRANSFORMS.items() for transform in listed]


def stored(value: Any) -> Any:
    """As Iceberg counts days and times."""
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(microseconds=1)
    return (value - EPOCH.date()).days if isinstance(value, date) else value


@pytest.mark.parametrize(("column", "transform"), EVERY)
@given(data=st.data())
@examples(30)
def test_each_transform_is_icebergs(column: str, transform: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | VALUES[column], min_size=1, max_size=20))
    field = arrow_schema(SHAPE).field(column)
    rows = pa.table({column: pa.array(values, field.type)})
    groups = groups_of(rows, Layout(2, (LayoutField(column, transform),)), SHAPE)
    apply = parse_transform(transform).transform(iceberg_schema(SHAPE).find_field(column).field_type)
    wanted = [None if value is None else apply(stored(value)) for value in values]
    assert [groups.places[number][0] for number in groups.numbers] == wanted
    assert len(set(groups.places)) == len(groups.places)


def test_several_fields() -> None:
    rows = pa.table({"l": [1, 1, 12, None], "s": ["a", "b", "a", "a"]})
    layout = Layout(2, (LayoutField("l", "truncate[10]"), LayoutField("s", "identity")))
    groups = groups_of(rows, layout, SHAPE)
    assert [groups.places[number] for number in groups.numbers] == [(0, "a"), (0, "b"), (10, "a"), (None, "a")]
