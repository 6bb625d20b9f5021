"""Keys of derived rows: bytes that are the same where the keys are, buckets as Iceberg counts them."""

import decimal
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)
from support.properties import examples

from lakestream.table.deriving.keys import buckets_of, key_bytes
from lakestream.table.parquet.arrow import arrow_schema
from lakestream.table.shape import TableColumn, TableShape

_TIMES = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1))
KINDS: dict[str, tuple[TableColumn, IcebergType, st.SearchStrategy[Any]]] = {
    "int": (TableColumn(1, "k", "int"), IntegerType(), st.integers(-(2**31), 2**31 - 1)),
    "long": (TableColumn(1, "k", "long"), LongType(), st.integers(-(2**63), 2**63 - 1)),
    "string": (TableColumn(1, "k", "string"), StringType(), st.text(st.characters(exclude_categories=["Cs"]))),
    "binary": (TableColumn(1, "k", "binary"), BinaryType(), st.binary()),
    "date": (TableColumn(1, "k", "date"), DateType(), st.dates(date(1900, 1, 1), date(2200, 1, 1))),
    "timestamp": (TableColumn(1, "k", "timestamp"), TimestampType(), _TIMES),
    "timestamptz": (
        TableColumn(1, "k", "timestamptz"),
        TimestamptzType(),
        _TIMES.map(lambda time: time.replace(tzinfo=UTC)),
    ),
    "decimal": (
        TableColumn(1, "k", "decimal", precision=20, scale=3),
        DecimalType(20, 3),
        st.integers(-(10**20) + 1, 10**20 - 1).map(lambda n: decimal.Decimal(n).scaleb(-3)),
    ),
}


def rows_of(column: TableColumn, values: list[Any]) -> pa.Table:
    schema = arrow_schema(TableShape((column,)))
    return pa.Table.from_arrays([pa.array(values, schema.field(0).type)], schema=schema)


def _stored(kind: str, value: Any) -> Any:
    """As PyIceberg's transforms take it."""
    if kind == "date":
        return (value - date(1970, 1, 1)).days
    if kind.startswith("timestamp"):
        since = value - datetime(1970, 1, 1, tzinfo=value.tzinfo)
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return value


@pytest.mark.parametrize("kind", KINDS)
@examples(60)
@given(data=st.data())
def test_buckets_are_icebergs(kind: str, data: st.DataObject) -> None:
    column, iceberg, values = KINDS[kind]
    given_values = data.draw(st.lists(values, min_size=1, max_size=20))
    bucket = BucketTransform(16).transform(iceberg)  # type: ignore[var-annotated]
    want = [bucket(_stored(kind, value)) for value in given_values]
    found = buckets_of(rows_of(column, given_values), column, 16)
    assert found.tolist() == want
    assert buckets_of(rows_of(column, [given_values[0], *given_values]).slice(1), column, 16).tolist() == want


@pytest.mark.parametrize("kind", KINDS)
@examples(60)
@given(data=st.data())
def test_keys_are_the_same_where_their_bytes_are(kind: str, data: st.DataObject) -> None:
    column, _, values = KINDS[kind]
    other = TableColumn(2, "l", "binary")
    pairs = data.draw(st.lists(st.tuples(values | st.none(), st.binary(max_size=3) | st.none()), max_size=20))
    schema = arrow_schema(TableShape((column, other)))
    arrays = [pa.array([pair[at] for pair in pairs], schema.field(at).type) for at in (0, 1)]
    rows = pa.Table.from_arrays(arrays, schema=schema)
    for keys, chosen in (((column,), [pair[:1] for pair in pairs]), ((column, other), pairs)):
        found = key_bytes(rows, keys).to_pylist()
        assert [value is None for value in found] == [None in pair for pair in chosen]
        whole = {(pair, value) for pair, value in zip(chosen, found, strict=True) if value is not None}
        assert len({pair for pair, _ in whole}) == len({value for _, value in whole}) == len(whole)
