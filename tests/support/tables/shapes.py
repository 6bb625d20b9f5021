"""A shape that no release has: values `<amount>:<item>` as two columns of their own, one before those of the log and
one after, which have other field ids than in a raw table."""

import msgspec
import numpy as np
import pyarrow as pa

from lakestream.table.parquet.codec import DecodedValues, add_codec
from lakestream.table.shape import SYSTEM_COLUMNS, TableColumn, TableShape


def _renumbered(column: TableColumn) -> TableColumn:
    below = tuple(map(_renumbered, column.below))
    return msgspec.structs.replace(column, field_id=column.field_id + 200, below=below)


ITEMS = TableShape(
    columns=(
        TableColumn(100, "amount", "long", encoding="delta", has_statistics=True, is_full=True),
        *map(_renumbered, SYSTEM_COLUMNS),
        TableColumn(1, "item", "string", encoding="dictionary"),
    ),
    codec="test-items",
)


def typed(value: bytes | None) -> tuple[int | None, str | None]:
    """What the two columns hold of a value."""
    amount, colon, item = (value or b"").partition(b":")
    return (int(amount), item.decode()) if colon and amount.isdigit() and item.isascii() else (None, None)


class ItemCodec:
    """Implements `ValueCodec`, a row at a time: made for few rows."""

    def decode(self, values: pa.Array, shape: TableShape) -> DecodedValues:
        rows = [typed(value) for value in values.to_pylist()]
        columns = {
            "amount": pa.array([amount for amount, _ in rows], pa.int64()),
            "item": pa.array([item for _, item in rows], pa.string()),
        }
        return DecodedValues(columns, np.array([item is not None for _, item in rows], np.bool_))


add_codec(ITEMS.codec, ItemCodec())
