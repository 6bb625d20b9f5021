"""Columns of every kind, and what Iceberg's transforms can make of them."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
from hypothesis import strategies as st

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
