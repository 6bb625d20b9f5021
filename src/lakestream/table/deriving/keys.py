"""Keys of derived rows: as bytes that are the same exactly where the keys are, and by bucket as Iceberg counts them."""

from collections.abc import Sequence
from typing import Final

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakestream.table.shape import TableColumn

_WIDTH: Final = 16
"""Of a decimal in memory."""
_POSITIVE: Final = 0x7FFFFFFF


def key_bytes(rows: pa.Table, keys: Sequence[TableColumn]) -> pa.Array:
    """One array of bytes; null where a part of the key is."""
    parts = [_as_bytes(_whole(rows, column.name), column) for column in keys]
    if len(parts) == 1:
        return parts[0]
    framed: list[pa.Array] = []
    for part in parts:
        framed += [_numbers(pc.fill_null(pc.binary_length(part), 0)), part]
    return pc.binary_join_element_wise(*framed, b"")


def buckets_of(rows: pa.Table, key: TableColumn, buckets: int) -> npt.NDArray[np.int32]:
    """The bucket of each row, none of whose keys is null, by the bucket transform of Iceberg."""
    column = _whole(rows, key.name)
    if key.kind in ("string", "binary"):
        hashes = [mmh3.hash(value, signed=True) for value in column.to_pylist()]
    elif key.kind == "decimal":
        hashes = [mmh3.hash(_unscaled(value, key.scale), signed=True) for value in column.to_pylist()]
    else:
        data = np.ascontiguousarray(_integers(column), "<i8").tobytes()
        hashes = [mmh3.hash(data[at : at + 8], signed=True) for at in range(0, len(data), 8)]
    return ((np.asarray(hashes, np.int64) & _POSITIVE) % buckets).astype(np.int32)


def _whole(rows: pa.Table, name: str) -> pa.Array:
    column = rows.column(name)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _as_bytes(column: pa.Array, key: TableColumn) -> pa.Array:
    if key.kind == "binary":
        return column
    if key.kind == "string":
        return column.cast(pa.binary())
    if key.kind == "decimal":
        validity, data = column.buffers()
        fixed = pa.Array.from_buffers(pa.binary(_WIDTH), len(column), [validity, data], offset=column.offset)
        return fixed.cast(pa.binary())
    found = _numbers(pa.array(_integers(column)))
    return pc.if_else(column.is_valid(), found, pa.scalar(None, pa.binary()))


def _integers(column: pa.Array) -> npt.NDArray[np.int64]:
    """Whatever stands where a null is."""
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    found: npt.NDArray[np.int64] = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return found


def _numbers(column: pa.Array) -> pa.Array:
    data = np.ascontiguousarray(column.to_numpy(zero_copy_only=False).astype(">i8"))
    return pa.Array.from_buffers(pa.binary(8), len(data), [None, pa.py_buffer(data)]).cast(pa.binary())


def _unscaled(value: object, scale: int) -> bytes:
    """The fewest bytes that hold the number, in two's complement."""
    number = int(value.scaleb(scale))  # type: ignore[attr-defined]
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)
