"""Rows by the partitions of a layout, beside Iceberg's own transforms."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.transforms import parse_transform
from support.properties import examples
from support.tables.transforms import EVERY, SHAPE, VALUES, stored

from lakestream.table.layout import Layout, LayoutField
from lakestream.table.parquet.arrow import arrow_schema
from lakestream.table.rewriting.groups import groups_of
from lakestream.table.schema import iceberg_schema


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
