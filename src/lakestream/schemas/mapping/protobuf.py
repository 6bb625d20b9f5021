"""Columns that the values of a Protobuf schema become, version 1.

Fields of the value's message are top-level columns, known by their numbers. Messages are structs, repeated fields
lists, maps maps; a field of a oneof is as optional as any other; enums are text. A uint32 is a long, a uint64 a decimal
of 20 digits; Google's wrappers are what they wrap and its timestamps are those with zone. What refers to itself
(`google.protobuf.Struct` does), nests too deep or holds nothing is JSON text.

A file may have several messages that are values: of the first schema's, the first one's fields are the columns of the
table; every other message is a struct of its own name.
"""

from collections.abc import Collection
from typing import Final

import msgspec

from lakestream.errors import InvalidSchema
from lakestream.schemas.mapping.merging import MAX_COLUMNS, MAX_LEVELS, leaf
from lakestream.schemas.protobuf import REPEATED, ProtoField, ProtoMessage, ProtoSchema
from lakestream.table.shape import Kind, TableColumn

TIMESTAMP: Final = "google.protobuf.Timestamp"
WRAPPERS: Final = frozenset(
    f"google.protobuf.{each}Value"
    for each in ("Bool", "Int32", "Int64", "UInt32", "UInt64", "Float", "Double", "String", "Bytes")
)
_TEXTS: Final = frozenset(f"google.protobuf.{each}" for each in ("Struct", "Value", "ListValue"))
_LONG_DIGITS: Final = 20
_KINDS: Final[dict[str, Kind]] = {
    "bool": "boolean",
    "int32": "int",
    "sint32": "int",
    "sfixed32": "int",
    "uint32": "long",
    "fixed32": "long",
    "int64": "long",
    "sint64": "long",
    "sfixed64": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "binary",
}
_DECIMALS: Final = frozenset({"uint64", "fixed64"})


def flat_message(first: ProtoSchema, wanted: str = "") -> str:
    """Whose fields are the columns of a table, by the first of its schemas. Raises `InvalidSchema` if the one that is
    wanted is not at the top of it."""
    if wanted and wanted not in first.own:
        raise InvalidSchema(f"the schema has no message {wanted} at its top: there are {', '.join(first.own)}")
    return wanted or first.value_messages()[0].name


def struct_messages(schema: ProtoSchema, flat: str, known: Collection[str] = ()) -> tuple[ProtoMessage, ...]:
    """The others, which are structs; among them those that the table has already. One without fields has no column."""
    found = {message.name: message for message in schema.value_messages()}
    found |= {name: schema.messages[name] for name in schema.own if name in known}
    return tuple(message for name, message in found.items() if name != flat and message.fields)


def columns_of(schema: ProtoSchema, flat: str, known: Collection[str] = ()) -> tuple[TableColumn, ...]:
    """What the schema alone asks for, under its own names, without ids. Raises `InvalidSchema` for what is too much."""
    maker = _Maker(schema)
    columns: list[TableColumn] = []
    if flat in schema.own:
        columns += maker.fields(schema.messages[flat], (flat,))
    for message in struct_messages(schema, flat, known):
        below = maker.fields(message, (message.name,))
        columns.append(TableColumn(0, message.short_name, "struct", below=below, source=message.name))
    return tuple(columns)


class _Maker:
    def __init__(self, schema: ProtoSchema) -> None:
        self._schema = schema
        self._made = 0

    def fields(self, message: ProtoMessage, path: tuple[str, ...]) -> tuple[TableColumn, ...]:
        return tuple(self._field(field, path) for field in message.fields)

    def _field(self, field: ProtoField, path: tuple[str, ...]) -> TableColumn:
        source = str(field.number)
        if field.label != REPEATED:
            return msgspec.structs.replace(self._value(field.name, field, path), source=source)
        message = self._schema.messages.get(field.type_name)
        if message is not None and message.is_entry:
            key, value = (self._value(name, each, path) for name, each in zip(_ENTRY, message.fields, strict=True))
            below = (msgspec.structs.replace(key, is_required=True, has_statistics=False), _unbounded(value))
            return TableColumn(0, field.name, "map", below=below, source=source)
        element = _unbounded(self._value("element", field, path))
        return TableColumn(0, field.name, "list", below=(element,), source=source)

    def _value(self, name: str, field: ProtoField, path: tuple[str, ...]) -> TableColumn:
        self._made += 1
        if self._made > MAX_COLUMNS:
            raise InvalidSchema(f"the schema has more than {MAX_COLUMNS} columns")
        if field.type_name in WRAPPERS:
            return self._value(name, self._schema.messages[field.type_name].fields[0], path)
        if field.type_name == TIMESTAMP:
            return leaf(name, "timestamptz", bounded=True)
        if field.kind == "message":
            message = self._schema.messages[field.type_name]
            if is_text(message, path) or not message.fields:
                return leaf(name, "string", "json")
            return TableColumn(0, name, "struct", below=self.fields(message, (*path, message.name)))
        if field.kind == "enum":
            return leaf(name, "string", "enum")
        if field.kind in _DECIMALS:
            return TableColumn(0, name, "decimal", precision=_LONG_DIGITS)
        return leaf(name, _KINDS[field.kind], bounded=True)


_ENTRY: Final = ("key", "value")


def is_text(message: ProtoMessage, path: tuple[str, ...]) -> bool:
    """That it has no column but of text, inside of those."""
    return message.name in _TEXTS or message.name in path or len(path) >= MAX_LEVELS


def _unbounded(column: TableColumn) -> TableColumn:
    return msgspec.structs.replace(column, has_statistics=False)
