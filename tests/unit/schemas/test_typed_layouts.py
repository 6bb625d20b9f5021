"""Rows with values in columns alone, in the layouts that engines choose when they rewrite files."""

import pyarrow as pa
import pytest
from support.schemas.orders import ORDERS, order
from support.schemas.values import Values, rows_of, values_of

from lakestream.schemas.codecs import install

install()
SENT: Values = [
    order(
        id=number,
        who="é" * number,
        items=[{"sku": "s", "count": number, "prices": [-0.0, 0.5]}] * (number % 3),
        counts={f"k{each}": each for each in range(number % 4)},
        kind=5 if number % 2 else 0,
        at={"seconds": -number, "nanos": 1000} if number % 2 else None,
        item={"sku": "q"} if number % 5 == 0 else None,
        large=2**64 - 1 - number,
        notes=[{"value": "n"}] * (number % 2),
    )
    for number in range(40)
]


def rewritten(table: pa.Table, kinds: dict[str, pa.DataType]) -> pa.Table:
    for name, kind in kinds.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, table.column(name).cast(kind))
    return table


ITEM = pa.struct([("prices", pa.large_list(pa.float64())), ("count", pa.int64()), ("sku", pa.large_string())])


@pytest.mark.parametrize(
    "kinds",
    [
        {"who": pa.large_string(), "_value": pa.large_binary()},
        {"who": pa.dictionary(pa.int32(), pa.string()), "kind": pa.dictionary(pa.int8(), pa.string())},
        {"who": pa.string_view()},
        {"items": pa.large_list(ITEM), "item": ITEM},
        {"id": pa.int32(), "small": pa.int32(), "_schema_id": pa.int64(), "_kind": pa.int64()},
        {"at": pa.timestamp("ns", "UTC")},
        {"at": pa.timestamp("us", "Europe/Berlin")},
        {"large": pa.decimal256(20, 0)},
        {"large": pa.decimal128(38, 0)},
        {"counts": pa.map_(pa.large_string(), pa.int64())},
    ],
    ids=str,
)
def test_columns_of_another_layout_hold_the_same_value(kinds: dict[str, pa.DataType]) -> None:
    table = rewritten(rows_of(SENT, ORDERS), kinds)
    assert table["_value"].null_count == len(SENT)
    assert values_of(table, ORDERS) == SENT
    assert values_of(table.slice(7, 20), ORDERS) == SENT[7:27]


def test_rows_in_pieces_in_another_order() -> None:
    table = rows_of(SENT, ORDERS)
    pieces = pa.concat_tables([table.slice(begin, 3) for begin in range(0, 39, 3)])
    assert values_of(pieces, ORDERS) == SENT[:39]
    assert values_of(table.take(pa.array(range(39, -1, -1))), ORDERS) == SENT[::-1]
    assert values_of(table.select(table.column_names[::-1]), ORDERS) == SENT


def test_rows_of_files_from_before_a_column_came() -> None:
    """They are not read at all: absent is null, which is the default."""
    sent = [order(id=number) for number in range(5)]
    table = rows_of([*sent], ORDERS)
    kept = [name for name in table.column_names if name not in ("notes", "who", "Cancelled")]
    assert values_of(table.select(kept), ORDERS) == sent
    inner = pa.list_(pa.struct([("sku", pa.string())]))
    assert values_of(rewritten(table, {"items": inner}), ORDERS) == sent
