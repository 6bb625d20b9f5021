"""A shape that no release has: values `<amount>:<item>` as two columns of their own, one before those of the log and
one after, which have other field ids than in a raw table."""

from collections.abc import Mapping
from operator import eq

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakestream.records import Binary
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


SCHEMA_ID = 5


class ItemCodec:
    """Implements `ValueCodec`, a row at a time: made for few rows."""

    def decode(self, values: pa.Array, shape: TableShape) -> DecodedValues:
        rows = [typed(value) for value in values.to_pylist()]
        columns = {
            "amount": pa.array([amount for amount, _ in rows], pa.int64()),
            "item": pa.array([item for _, item in rows], pa.string()),
        }
        is_typed = np.array([item is not None for _, item in rows], np.bool_)
        again = [None if item is None else f"{amount}:{item}".encode() for amount, item in rows]
        is_exact = is_typed & np.array([*map(eq, again, values.to_pylist())], np.bool_)
        return DecodedValues(
            columns, is_typed, is_exact, pa.array(np.full(len(rows), SCHEMA_ID, np.int32), mask=~is_typed)
        )

    def encode(
        self, columns: Mapping[str, pa.Array], schema_ids: npt.NDArray[np.int64], raw: Binary, shape: TableShape
    ) -> Binary:
        rows = zip(columns["amount"].to_pylist(), columns["item"].to_pylist(), schema_ids.tolist(), strict=True)
        values = [
            f"{amount}:{item}".encode() if schema_id == SCHEMA_ID else _raw(raw, row)
            for row, (amount, item, schema_id) in enumerate(rows)
        ]
        lengths = [0, *(len(value or b"") for value in values)]
        data = np.frombuffer(b"".join(value or b"" for value in values), np.uint8)
        valid = np.array([value is not None for value in values], np.uint8)
        return Binary(np.cumsum(lengths).astype(np.int32), data, valid)

    def explain(self, value: bytes, shape: TableShape) -> str:
        return f"{value[:20]!r} is not <amount>:<item>"


def _raw(raw: Binary, row: int) -> bytes | None:
    return raw.data[raw.offsets[row] : raw.offsets[row + 1]].tobytes() if raw.valid[row] else None


add_codec(ITEMS.codec, ItemCodec())
