"""The columns that an engine asks for, in the words of a shape. Pure."""

from collections.abc import Sequence
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lakestream.errors import InvalidSchema
from lakestream.schemas.mapping import MAX_LEVELS, RESERVED_NAMES
from lakestream.table.shape import Kind, TableColumn

_KINDS: Final[dict[type[IcebergType], Kind]] = {
    BooleanType: "boolean",
    IntegerType: "int",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    DateType: "date",
    TimestampType: "timestamp",
    TimestamptzType: "timestamptz",
    StringType: "string",
    BinaryType: "binary",
}
_INSTEAD: Final[dict[type[IcebergType], str]] = {
    TimeType: "Spark reads no table that has one: use long, for microseconds since midnight",
    UUIDType: "use string",
    FixedType: "use binary",
}


def asked_columns(schema: Schema) -> tuple[TableColumn, ...]:
    """With the ids that the engine has for them. Raises `InvalidSchema` with a sentence for what no stream can have."""
    if schema.identifier_field_ids:
        raise InvalidSchema("a stream has no primary key: say which columns are its records' key in lakestream.key")
    names = [field.name.lower() for field in schema.fields]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidSchema(f"there are two columns {twice}, if nobody tells upper from lower case")
    reserved = next((field.name for field in schema.fields if field.name.lower() in RESERVED_NAMES), None)
    if reserved is not None:
        raise InvalidSchema(f"column {reserved} cannot be the value's: it is the log's own, or Iceberg's")
    return tuple(_column(field, field.name, 0) for field in schema.fields)


def same_columns(one: Sequence[TableColumn], other: Sequence[TableColumn]) -> str:
    """Where they differ in name or type, in a sentence; empty: nowhere."""
    for first, second in zip(one, other, strict=False):
        if first.name != second.name:
            return f"column {first.name} would be called {second.name}"
        if _told(first) != _told(second):
            return f"column {first.name} is {_told(first)}, and would become {_told(second)}"
        found = same_columns(first.below, second.below)
        if found:
            return f"{first.name}: {found}"
    return "" if len(one) == len(other) else f"there would be {len(other)} columns instead of {len(one)}"


def _told(column: TableColumn) -> str:
    return f"decimal({column.precision}, {column.scale})" if column.kind == "decimal" else column.kind


def _column(field: NestedField, path: str, level: int) -> TableColumn:
    if field.required:
        raise InvalidSchema(
            f"column {path} cannot be NOT NULL: a record whose value cannot be read is a row without it"
        )
    if field.initial_default is not None or field.write_default is not None:
        raise InvalidSchema(f"column {path} cannot have a default: producers say what a record holds")
    return _typed(field.field_id, field.name, field.field_type, path, level)


def _typed(field_id: int, name: str, found: IcebergType, path: str, level: int) -> TableColumn:
    if level > MAX_LEVELS:
        raise InvalidSchema(f"column {path} nests more than {MAX_LEVELS} levels")
    if isinstance(found, StructType):
        if not found.fields:
            raise InvalidSchema(f"column {path} is a struct without fields")
        below = tuple(_column(field, f"{path}.{field.name}", level + 1) for field in found.fields)
        return TableColumn(field_id, name, "struct", below=below)
    if isinstance(found, ListType):
        # Whatever the engine said of nulls: values of no format are bound to have none there.
        element = _typed(found.element_id, "element", found.element_type, f"{path}.element", level + 1)
        return TableColumn(field_id, name, "list", below=(element,))
    if isinstance(found, MapType):
        key = _typed(found.key_id, "key", found.key_type, f"{path}.key", level + 1)
        value = _typed(found.value_id, "value", found.value_type, f"{path}.value", level + 1)
        return TableColumn(field_id, name, "map", below=(key, value))
    if isinstance(found, DecimalType):
        return TableColumn(field_id, name, "decimal", precision=found.precision, scale=found.scale)
    kind = _KINDS.get(type(found))
    if kind is None:
        instead = _INSTEAD.get(type(found), "a stream's table is in format version 2")
        raise InvalidSchema(f"column {path} cannot be {found}: {instead}")
    return TableColumn(field_id, name, kind)
