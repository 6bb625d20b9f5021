"""The next Protobuf schema of a table whose columns were changed: the latest one with just that changed. Blocking: it
is compiled first. Comments are not kept."""

from collections.abc import Mapping, Sequence
from typing import Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

from lakestream.errors import InvalidSchema, RegistryRefused
from lakestream.schemas.deriving.outlines import elsewhere, outline
from lakestream.schemas.deriving.protobuf import TIMESTAMP_FILE, add_field, uses_timestamp
from lakestream.schemas.registry.formats.proto_text import proto_text
from lakestream.schemas.registry.formats.protobuf import ProtobufFormat
from lakestream.table.shape import TableColumn

_WIDER: Final = {Field.TYPE_INT32: Field.TYPE_INT64, Field.TYPE_SINT32: Field.TYPE_SINT64}
_KEPT_FOR_PROTOC: Final = range(19_000, 20_000)


def edited_protobuf(text: str, before: Sequence[TableColumn], after: Sequence[TableColumn]) -> str:
    """`before`: the value's columns as they are in the table, `after`: as they shall be, those that stay by their ids.
    Raises `InvalidSchema` with a sentence for what the schema cannot follow."""
    try:
        parsed = ProtobufFormat().parse(text, [])
    except RegistryRefused as error:
        raise InvalidSchema(str(error)) from error
    if parsed.has_custom_options:
        raise InvalidSchema("the schema has options of its owner's: register the next version of the subject")
    file = parsed.own
    unchanged = file.SerializeToString(deterministic=True)
    messages = _messages(file)
    used = {field.type_name for message in messages.values() for field in message.field}
    space = f".{file.package}" if file.package else ""
    values = [name for each in file.message_type if (name := f"{space}.{each.name}") not in used]
    if len(values) != 1:
        raise InvalidSchema("the schema has several messages that are values: register the next version of the subject")
    _Editor(messages).message(values[0], before, after)
    if any(map(uses_timestamp, file.message_type)) and TIMESTAMP_FILE not in file.dependency:
        file.dependency.append(TIMESTAMP_FILE)
    return text if file.SerializeToString(deterministic=True) == unchanged else proto_text(file)


def _messages(file: FileDescriptorProto) -> dict[str, DescriptorProto]:
    """By their full names."""
    space = f".{file.package}" if file.package else ""
    waiting = [(f"{space}.{each.name}", each) for each in file.message_type]
    found: dict[str, DescriptorProto] = {}
    while waiting:
        name, message = waiting.pop()
        found[name] = message
        waiting += [(f"{name}.{each.name}", each) for each in message.nested_type]
    return found


class _Editor:
    def __init__(self, messages: Mapping[str, DescriptorProto]) -> None:
        self._messages = messages

    def message(self, path: str, before: Sequence[TableColumn], after: Sequence[TableColumn]) -> None:
        message = self._messages[path]
        old = {column.field_id: column for column in before}
        kept = {column.field_id for column in after}
        fields = {str(field.number): field for field in message.field}
        for column in before:
            if column.field_id not in kept and column.source in fields:
                _drop(message, fields[column.source])
        taken = [column.name for column in after]
        for column in after:
            present = old.get(column.field_id)
            if present is None:
                add_field(message, path, column, _next_number(message), taken)
            elif present.source in fields:
                self._changed(fields[present.source], present, column)

    def _changed(self, field: Field, before: TableColumn, after: TableColumn) -> None:
        if before.name != after.name:
            field.name = after.name
            field.ClearField("json_name")
        if outline(before) == outline(after):
            return
        if before.kind == after.kind == "list":
            before, after = before.below[0], after.below[0]
        if before.kind == after.kind == "struct":
            ids = [each.field_id for each in before.below]
            if field.type_name not in self._messages or ids != [each.field_id for each in after.below[: len(ids)]]:
                raise elsewhere(after)
            self.message(field.type_name, before.below, after.below)
        elif (before.kind, after.kind) == ("int", "long") and field.type in _WIDER:
            field.type = _WIDER[field.type]
        else:
            raise elsewhere(after)


def _drop(message: DescriptorProto, field: Field) -> None:
    """Its number and name are never another field's."""
    message.reserved_range.add(start=field.number, end=field.number + 1)
    message.reserved_name.append(field.name)
    message.field.remove(field)


def _next_number(message: DescriptorProto) -> int:
    used = [field.number for field in message.field]
    used += [each.end - 1 for each in (*message.reserved_range, *message.extension_range)]
    found = max(used, default=0) + 1
    return _KEPT_FOR_PROTOC.stop if found in _KEPT_FOR_PROTOC else found
