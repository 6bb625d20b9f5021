"""Records as Arrow arrays and back, sharing memory wherever the layouts agree."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakestream.errors import CorruptObject
from lakestream.records import Binary, Columns
from lakestream.table.parquet.codec import decoded, encoded
from lakestream.table.shape import (
    KEY_COLUMN,
    KIND_RAW,
    KIND_TOMBSTONE,
    KIND_TYPED,
    KIND_TYPED_AND_RAW,
    RAW,
    Kind,
    TableColumn,
    TableShape,
    key_shape,
)

_PLAIN_TYPES: Final[dict[Kind, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
}
_DICTIONARY: Final = pa.dictionary(pa.int32(), pa.string())
_KEPT_SHAPES: Final = 256


def _arrow_type(column: TableColumn) -> pa.DataType:
    if column.kind == "struct":
        return pa.struct([*map(_arrow_field, column.below)])
    if column.kind == "list":
        [element] = column.below
        return pa.list_(_arrow_field(element))
    if column.kind == "map":
        key, value = column.below
        return pa.map_(_arrow_field(key), _arrow_field(value))
    if column.kind == "decimal":
        return pa.decimal128(column.precision, column.scale)
    if column.content == "format":
        return _DICTIONARY
    return _PLAIN_TYPES[column.kind]


def _arrow_field(column: TableColumn) -> pa.Field:
    """Field ids are how Iceberg's readers find a column in a file."""
    metadata = {"PARQUET:field_id": str(column.field_id)}
    return pa.field(column.name, _arrow_type(column), nullable=not column.is_required, metadata=metadata)


@lru_cache(_KEPT_SHAPES)
def arrow_schema(shape: TableShape) -> pa.Schema:
    """The columns with 32 bit offsets: the layout that records decode into."""
    return pa.schema([*map(_arrow_field, shape.columns)])


_RAW_SCHEMA: Final = arrow_schema(RAW)
_HEADERS_TYPE: Final = _RAW_SCHEMA.field("_headers").type
_SYSTEM: Final = {field.name: field for field in _RAW_SCHEMA}
"""The columns of the log have these types in every shape; their ids may be others."""
_NO_ENTRIES: Final = pa.array([], _HEADERS_TYPE.value_type)


def to_arrow(columns: Columns, shape: TableShape, *, is_typed: bool = True, is_key_typed: bool = True) -> pa.Table:
    """The records as rows of a table of this shape. Shares the columns' memory: use it up before they change. Without
    `is_typed` values stay bytes, and columns that the shape has for them stay empty; so do those of keys without
    `is_key_typed`."""
    schema = arrow_schema(shape)
    value = binary_array(columns.value, pa.binary())
    kind = np.where(columns.value.valid == 0, KIND_TOMBSTONE, KIND_RAW).astype(np.int32)
    typed = decoded(shape, value) if is_typed else None
    schema_id = pa.nulls(len(columns), pa.int32())
    if typed is not None:
        kind[typed.is_typed] = KIND_TYPED_AND_RAW
        kind[typed.is_exact] = KIND_TYPED
        schema_id = typed.schema_ids
        value = _without(columns.value, typed.is_exact)
    headers = schema.field("_headers").type
    key = binary_array(columns.key, pa.binary())
    has_headers = np.diff(columns.header_offsets) > 0
    has_timestamp = columns.timestamp_ms >= 0
    arrays = {
        "_stream_partition": pa.array(columns.partition),
        "_offset": pa.array(columns.offset),
        "_timestamp": _fixed(columns.timestamp_ms * 1000, has_timestamp, pa.timestamp("us", tz="UTC")),
        "_timestamp_type": pa.array(columns.timestamp_type),
        "_kind": pa.array(kind),
        "_key": key,
        "_headers": pa.Array.from_buffers(
            headers,
            len(columns),
            [_bitmap(has_headers), pa.py_buffer(columns.header_offsets)],
            children=[
                pa.StructArray.from_arrays(
                    [binary_array(columns.header_key, pa.string()), binary_array(columns.header_value, pa.binary())],
                    fields=list(headers.value_type),
                )
            ],
        ),
        "_headers_raw": binary_array(columns.headers_raw, pa.binary()),
        "_value": value,
        "_schema_id": schema_id,
        "_crc": pa.array(columns.crc),
        **(_nothing(shape, len(columns)) if typed is None else typed.columns),
    }
    if KEY_COLUMN in schema.names:
        arrays[KEY_COLUMN] = (
            typed_keys(key, shape) if is_key_typed else pa.nulls(len(key), schema.field(KEY_COLUMN).type)
        )
    return pa.Table.from_arrays([arrays[name] for name in schema.names], schema=schema)


def typed_keys(keys: pa.Array, shape: TableShape) -> pa.StructArray:
    """`KEY_COLUMN` of a shape that has it: null where a key is null, or none of its schema."""
    kind = arrow_schema(shape).field(KEY_COLUMN).type
    found = decoded(key_shape(shape), keys)
    if found is None:
        return pa.nulls(len(keys), kind)
    fields = list(kind)
    children = [found.columns[field.name] for field in fields]
    return pa.StructArray.from_arrays(children, fields=fields, mask=pa.array(~found.is_typed))


def _nothing(shape: TableShape, rows: int) -> dict[str, pa.Array]:
    return {column.name: pa.nulls(rows, _arrow_type(column)) for column in shape.value_columns}


def _bitmap(valid: npt.NDArray[Any]) -> pa.Buffer | None:
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _fixed(values: npt.NDArray[Any], valid: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [_bitmap(valid), pa.py_buffer(values)])


def binary_array(column: Binary, kind: pa.DataType) -> pa.Array:
    """Shares the column's memory."""
    buffers = [_bitmap(column.valid), pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, len(column.valid), buffers)


def _without(column: Binary, left_out: npt.NDArray[np.bool_]) -> pa.Array:
    """The column, null where so many of its bytes need not be kept. Those stay where they are, and are not written."""
    valid = (column.valid != 0) & ~left_out
    if not valid.any():
        return pa.nulls(len(valid), pa.binary())
    return binary_array(Binary(column.offsets, column.data, valid), pa.binary())


def canonical(table: pa.Table, names: Sequence[str], shape: TableShape) -> pa.Table:
    """The columns in the shape's own types, each in one piece."""
    schema = arrow_schema(shape)
    fields = [schema.field(name) for name in names]
    former = {column.name: column.former for column in shape.columns if column.former}
    arrays = [_cast(table, field, former.get(field.name, ())) for field in fields]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def places_from_arrow(table: pa.Table) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Partition, offset and timestamp (-1: none) of the rows; no timestamps if the column was not read."""
    times = np.empty(0, np.int64) if _found(table, "_timestamp") is None else _timestamps(table)
    return numbers_in(_column(table, "_stream_partition")), offsets_from_arrow(table), times


def offsets_from_arrow(table: pa.Table) -> npt.NDArray[np.int64]:
    return numbers_in(_column(table, "_offset"))


def implied_column(name: str, first: int, rows: int) -> pa.Array:
    """A column that was not read because a row group's statistics tell it: `RowGroup.implied`."""
    if name == "_offset":
        return pa.array(np.arange(first, first + rows, dtype=np.int64))
    return pa.array(np.full(rows, first, np.int32))


def from_arrow(table: pa.Table, shape: TableShape) -> Columns:
    """Rows of any layout an engine may have chosen (dictionaries, 64 bit offsets, other time units) as columns. A
    missing optional column counts as null. Values that are only in the shape's value columns are made of them."""
    header_offsets, entries = _headers(table)
    return Columns(
        partition=numbers_in(_column(table, "_stream_partition")),
        offset=numbers_in(_column(table, "_offset")),
        timestamp_ms=_timestamps(table),
        timestamp_type=numbers_in(_column(table, "_timestamp_type")),
        crc=numbers_in(_column(table, "_crc")),
        key=_binary_column(table, "_key"),
        value=_values(table, shape),
        header_offsets=header_offsets,
        header_key=_from_binary(entries.field(0)),
        header_value=_from_binary(entries.field(1)),
        headers_raw=_binary_column(table, "_headers_raw"),
    )


def _values(table: pa.Table, shape: TableShape) -> Binary:
    raw = _binary_column(table, "_value")
    if not shape.codec or not table.num_rows:
        return raw
    is_typed = numbers_in(_column(table, "_kind")) == KIND_TYPED
    if not is_typed.any():
        return raw
    ids = _column(table, "_schema_id")
    schema_ids = np.where(is_typed & (valid_rows(ids) != 0), numbers_in(ids), -1).astype(np.int64)
    names = [column.name for column in shape.value_columns]
    columns = canonical(table, names, shape)
    return encoded(shape, {name: columns.column(name).chunk(0) for name in names}, schema_ids, raw)


def _found(table: pa.Table, name: str) -> pa.ChunkedArray | None:
    """The column as it is; None: it was left out. By position: to ask for all names takes longer than all else here."""
    positions = table.schema.get_all_field_indices(name)
    if len(positions) > 1:
        raise CorruptObject(f"there are several columns {name}")
    return table.column(positions[0]) if positions else None


def _column(table: pa.Table, name: str) -> pa.Array:
    """A column of the log, whatever the shape."""
    return _cast(table, _SYSTEM[name])


def _cast(table: pa.Table, field: pa.Field, former: Sequence[str] = ()) -> pa.Array:
    """One contiguous array of the type that the column has, which may be there under a former name. Its fields may have
    other ids."""
    name, kind = field.name, field.type
    column = next((found for each in (name, *former) if (found := _found(table, each)) is not None), None)
    if column is None:
        column = pa.chunked_array([pa.nulls(table.num_rows, kind)])
    if column.null_count and not field.nullable:
        raise CorruptObject(f"rows lack their column {name}, which every record has")
    if column.type != kind:
        column = column.cast(kind)
    chunks = column.chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks) if chunks else pa.array([], kind)


def _timestamps(table: pa.Table) -> npt.NDArray[np.int64]:
    if _found(table, "_timestamp") is None:
        return np.full(table.num_rows, -1, np.int64)
    column = _column(table, "_timestamp")
    timestamp_ms: npt.NDArray[np.int64] = np.floor_divide(numbers_in(column), 1000)
    if column.null_count:
        timestamp_ms[valid_rows(column) == 0] = -1
    return timestamp_ms


def valid_rows(array: pa.Array) -> npt.NDArray[np.uint8]:
    """1 where there is a value."""
    bitmap = array.buffers()[0]
    if bitmap is None or array.null_count == 0:
        return np.ones(len(array), np.uint8)
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little", count=array.offset + len(array))
    return bits[array.offset :]


def numbers_in(array: pa.Array) -> npt.NDArray[Any]:
    """The numbers, whatever stands where a null is."""
    dtype = np.int32 if array.type.bit_width == 32 else np.int64
    if not len(array):
        return np.empty(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]


def offsets_in(array: pa.Array) -> npt.NDArray[np.int32]:
    """Where each of its rows begins, and the last one ends, in what is below it."""
    if not len(array):
        return np.zeros(1, np.int32)
    return np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]


def _binary_column(table: pa.Table, name: str) -> Binary:
    """A column that was left out takes no detour over Arrow, which fills several buffers for nulls."""
    if _found(table, name) is None:
        rows = table.num_rows
        return Binary(np.zeros(rows + 1, np.int32), np.empty(0, np.uint8), np.zeros(rows, np.uint8))
    return _from_binary(_column(table, name))


def bytes_in(array: pa.Array) -> npt.NDArray[np.uint8]:
    """What the rows of a binary array are cut from, at their offsets."""
    data = array.buffers()[2] if len(array) else None
    return np.frombuffer(data, np.uint8) if data is not None and len(data) else np.empty(0, np.uint8)


def _from_binary(array: pa.Array) -> Binary:
    return Binary(offsets_in(array), bytes_in(array), valid_rows(array))


def _headers(table: pa.Table) -> tuple[npt.NDArray[np.int32], pa.StructArray]:
    """Where each row's entries are, and the entries. A null list has none, whatever its offsets say."""
    rows = table.num_rows
    headers = None if _found(table, "_headers") is None else _column(table, "_headers")
    if headers is None or headers.null_count == rows:
        return np.zeros(rows + 1, np.int32), _NO_ENTRIES
    if headers.null_count:
        headers = pc.fill_null(headers, pa.scalar([], _HEADERS_TYPE))
    return offsets_in(headers), headers.values
