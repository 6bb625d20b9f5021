"""The Protobuf schema whose values are the columns of a table, by version 1 of the mapping: fields with presence, so
that each may be null. Numbers are those of the columns' order."""

import re
from collections.abc import Container, Sequence
from typing import Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

from lakestream.errors import InvalidSchema
from lakestream.schemas.mapping.protobuf import TIMESTAMP
from lakestream.schemas.registry.formats.proto_text import proto_text
from lakestream.table.shape import TableColumn

TIMESTAMP_FILE: Final = "google/protobuf/timestamp.proto"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TYPES: Final = {
    "boolean": Field.TYPE_BOOL,
    "int": Field.TYPE_INT32,
    "long": Field.TYPE_INT64,
    "float": Field.TYPE_FLOAT,
    "double": Field.TYPE_DOUBLE,
    "string": Field.TYPE_STRING,
    "binary": Field.TYPE_BYTES,
}
_KEYS: Final = ("boolean", "int", "long", "string")
_LONG_DIGITS: Final = 20
_INSTEAD: Final = {
    "date": "use int, for days since 1970",
    "timestamp": "use one with a time zone",
    "decimal": "use double, or string for all digits; decimal(20, 0) is uint64",
}


def protobuf_text(name: str, columns: Sequence[TableColumn]) -> str:
    """Raises `InvalidSchema`."""
    file = FileDescriptorProto(syntax="proto3")
    message = file.message_type.add(name=name)
    for number, column in enumerate(columns, 1):
        add_field(message, f".{name}", column, number, [column.name for column in columns])
    if uses_timestamp(message):
        file.dependency.append(TIMESTAMP_FILE)
    return proto_text(file)


def add_field(message: DescriptorProto, path: str, column: TableColumn, number: int, taken: Container[str]) -> None:
    """`path`: the message's full name. `taken`: of its fields. What the column needs is defined inside of the message.
    Raises `InvalidSchema`."""
    if not _NAME.fullmatch(column.name):
        raise InvalidSchema(f"{column.name!r} cannot be a field in Protobuf: use letters, digits and _, no digit first")
    field = message.field.add(name=column.name, number=number)
    if column.kind == "map":
        field.label = Field.LABEL_REPEATED
        field.type = Field.TYPE_MESSAGE
        field.type_name = _entry(message, path, column, taken)
    elif column.kind == "list":
        field.label = Field.LABEL_REPEATED
        _set_type(field, message, path, column.name, column.below[0], taken)
    else:
        field.label = Field.LABEL_OPTIONAL
        field.proto3_optional = True
        _set_type(field, message, path, column.name, column, taken)


def uses_timestamp(message: DescriptorProto) -> bool:
    own = any(field.type_name == f".{TIMESTAMP}" for field in message.field)
    return own or any(map(uses_timestamp, message.nested_type))


def _set_type(
    field: Field, message: DescriptorProto, path: str, name: str, column: TableColumn, taken: Container[str]
) -> None:
    if column.kind == "timestamptz":
        field.type, field.type_name = Field.TYPE_MESSAGE, f".{TIMESTAMP}"
    elif column.kind == "struct":
        field.type, field.type_name = Field.TYPE_MESSAGE, _struct(message, path, name, column, taken)
    elif (column.kind, column.precision, column.scale) == ("decimal", _LONG_DIGITS, 0):
        field.type = Field.TYPE_UINT64
    elif column.kind in ("list", "map"):
        raise InvalidSchema(
            f"{name} has a {column.kind} inside of a list or map, which Protobuf has not: put it into a struct"
        )
    elif column.kind not in _TYPES:
        raise InvalidSchema(f"column {name} cannot be {column.kind} in Protobuf: {_INSTEAD[column.kind]}")
    else:
        field.type = _TYPES[column.kind]


def _struct(message: DescriptorProto, path: str, name: str, column: TableColumn, taken: Container[str]) -> str:
    """The full name of a message of its own."""
    own = _free(message, name, taken, "")
    nested = message.nested_type.add(name=own)
    below = [each.name for each in column.below]
    for number, each in enumerate(column.below, 1):
        add_field(nested, f"{path}.{own}", each, number, below)
    return f"{path}.{own}"


def _entry(message: DescriptorProto, path: str, column: TableColumn, taken: Container[str]) -> str:
    key, value = column.below
    if key.kind not in _KEYS:
        raise InvalidSchema(
            f"{column.name} has keys of type {key.kind}: keys of a map are {', '.join(_KEYS)} in Protobuf"
        )
    own = _free(message, column.name, taken, "Entry")
    entry = message.nested_type.add(name=own)
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=Field.LABEL_OPTIONAL, type=_TYPES[key.kind])
    found = entry.field.add(name="value", number=2, label=Field.LABEL_OPTIONAL)
    _set_type(found, message, path, column.name, value, taken)
    return f"{path}.{own}"


def _free(message: DescriptorProto, name: str, taken: Container[str], suffix: str) -> str:
    """A message's name, which is none of a field beside it."""
    words = "".join(f"{word[:1].upper()}{word[1:]}" for word in name.split("_")) or "Part"
    plain = f"{'' if words[:1].isalpha() else 'T'}{words}{suffix}"
    used = {each.name for each in message.nested_type}
    found, number = plain, 2
    while found in used or found in taken:
        found, number = f"{plain}{number}", number + 1
    return found
