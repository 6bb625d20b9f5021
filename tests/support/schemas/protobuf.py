"""Random Protobuf schemas and values by Google's own library, which tells what the columns of a value are to hold."""

import base64
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from zoneinfo import ZoneInfo

import hypothesis.strategies as st
from google.protobuf import timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from lakestream.schemas.codecs.protobuf.codec import message_index
from lakestream.table.shape import TableColumn, ValueSchema

F: Final = FieldDescriptorProto
SCALARS: Final = {
    F.TYPE_BOOL: st.booleans(),
    F.TYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    F.TYPE_SINT32: st.integers(-(2**31), 2**31 - 1),
    F.TYPE_SFIXED32: st.integers(-(2**31), 2**31 - 1),
    F.TYPE_UINT32: st.integers(0, 2**32 - 1),
    F.TYPE_FIXED32: st.integers(0, 2**32 - 1),
    F.TYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    F.TYPE_SINT64: st.integers(-(2**63), 2**63 - 1),
    F.TYPE_SFIXED64: st.integers(-(2**63), 2**63 - 1),
    F.TYPE_UINT64: st.integers(0, 2**64 - 1),
    F.TYPE_FIXED64: st.integers(0, 2**64 - 1),
    F.TYPE_FLOAT: st.floats(width=32),
    F.TYPE_DOUBLE: st.floats(),
    F.TYPE_STRING: st.text(max_size=6),
    F.TYPE_BYTES: st.binary(max_size=6),
}
_KEYS: Final = [each for each in SCALARS if each not in (F.TYPE_FLOAT, F.TYPE_DOUBLE, F.TYPE_BYTES)]
_NUMBERS: Final = st.integers(1, 20) | st.integers(1, 2**29 - 1).filter(lambda each: not 19000 <= each < 20000)
_OTHERS: Final = [".google.protobuf.Timestamp", ".google.protobuf.Int64Value", ".google.protobuf.StringValue"]
_MESSAGES: Final = 3


def _field(draw: st.DrawFn, message: DescriptorProto, number: int, own: int, syntax: str) -> None:
    """`own`: of the message; it may hold those behind it, and sometimes itself."""
    field = message.field.add(name=f"f{number}", number=number, label=F.LABEL_OPTIONAL)
    what = draw(st.sampled_from(["scalar", "scalar", "scalar", "enum", "message", "other", "map"]))
    if what == "map":
        entry = message.nested_type.add(name=f"F{number}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=F.LABEL_OPTIONAL, type=draw(st.sampled_from(_KEYS)))
        value = entry.field.add(name="value", number=2, label=F.LABEL_OPTIONAL)
        _type(draw, value, draw(st.sampled_from(["scalar", "enum", "message", "other"])), own)
        field.label, field.type, field.type_name = F.LABEL_REPEATED, F.TYPE_MESSAGE, f".t.M{own}.F{number}Entry"
        return
    _type(draw, field, what, own)
    how = draw(st.sampled_from(["plain", "plain", "repeated", "special"]))
    if how == "repeated":
        field.label = F.LABEL_REPEATED
        if draw(st.booleans()) and field.type not in (F.TYPE_STRING, F.TYPE_BYTES, F.TYPE_MESSAGE):
            field.options.packed = draw(st.booleans())
    elif how == "special" and message.oneof_decl and draw(st.booleans()):
        field.oneof_index = 0
    elif how == "special" and syntax == "proto2" and field.type_name != f".t.M{own}":
        field.label = F.LABEL_REQUIRED


def _type(draw: st.DrawFn, field: FieldDescriptorProto, what: str, own: int) -> None:
    below = [*range(own + 1, _MESSAGES), *([own] if draw(st.integers(0, 5)) == 0 else [])]
    if what == "message" and below:
        field.type, field.type_name = F.TYPE_MESSAGE, f".t.M{draw(st.sampled_from(below))}"
    elif what == "other":
        field.type, field.type_name = F.TYPE_MESSAGE, draw(st.sampled_from(_OTHERS))
    elif what == "enum":
        field.type, field.type_name = F.TYPE_ENUM, ".t.E"
    else:
        field.type = draw(st.sampled_from([*SCALARS]))


@st.composite
def schemas(draw: st.DrawFn) -> FileDescriptorSet:
    syntax = draw(st.sampled_from(["proto2", "proto3"]))
    file = FileDescriptorProto(name="t.proto", package="t", syntax=syntax)
    for enum in (file.enum_type.add(name="E"),):
        for number, name in enumerate([0, 1, 7, -3]):
            enum.value.add(name=f"E{number}", number=name)
    for own in range(_MESSAGES):
        message = file.message_type.add(name=f"M{own}")
        if draw(st.booleans()):
            message.oneof_decl.add(name="o")
        for number in draw(st.lists(_NUMBERS, min_size=own == 0, max_size=5, unique=True)):
            _field(draw, message, number, own, syntax)
        if not any(field.HasField("oneof_index") for field in message.field):
            message.ClearField("oneof_decl")
    return file_set(file)


def file_set(file: FileDescriptorProto) -> FileDescriptorSet:
    found = FileDescriptorSet()
    for module in (timestamp_pb2, wrappers_pb2):
        module.DESCRIPTOR.CopyToProto(found.file.add())
        file.dependency.append(module.DESCRIPTOR.name)
    found.file.add().CopyFrom(file)
    return found


def kept(files: FileDescriptorSet, schema_id: int = 1) -> ValueSchema:
    return ValueSchema(schema_id, base64.b64encode(files.SerializeToString()).decode(), format="PROTOBUF")


def message_class(files: FileDescriptorSet, name: str) -> type[Message]:
    pool = DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(name))


def kept_class(schema: ValueSchema, name: str) -> type[Message]:
    return message_class(FileDescriptorSet.FromString(base64.b64decode(schema.text)), name)


@st.composite
def values(draw: st.DrawFn, kind: type[Message], level: int = 0) -> Message:
    message = kind()
    if kind.DESCRIPTOR.full_name == "google.protobuf.Timestamp":
        micros = draw(st.integers(-62_135_596_800 * 10**6, 253_402_300_800 * 10**6 - 1) | st.integers(-5, 5))
        return kind(seconds=micros // 10**6, nanos=micros % 10**6 * 1000)
    for field in kind.DESCRIPTOR.fields:
        if not field.is_required and (level > 3 or draw(st.integers(0, 3)) == 0):
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
            for each in draw(st.lists(SCALARS[key.type], max_size=3, unique=True)):
                if value.message_type is not None:
                    getattr(message, field.name)[each].MergeFrom(draw(values(_class(value), level + 1)))
                else:
                    getattr(message, field.name)[each] = draw(_scalars(value))
        elif field.is_repeated:
            for _ in range(draw(st.integers(0, 3))):
                if field.message_type is not None:
                    getattr(message, field.name).add().MergeFrom(draw(values(_class(field), level + 1)))
                else:
                    getattr(message, field.name).append(draw(_scalars(field)))
        elif field.message_type is not None:
            getattr(message, field.name).SetInParent()
            getattr(message, field.name).MergeFrom(draw(values(_class(field), level + 1)))
        else:
            setattr(message, field.name, draw(_scalars(field)))
    return message


def _class(field: Any) -> type[Message]:
    return GetMessageClass(field.message_type)


def _scalars(field: Any) -> st.SearchStrategy[Any]:
    if field.enum_type is None:
        return SCALARS[field.type]
    return st.sampled_from([0, 1, 7, -3, *([] if field.enum_type.is_closed else [2, -(2**31)])])


def framed(schema_id: int, index: int, value: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + message_index(index) + value


def agrees(column: TableColumn, found: Any, field: Any, value: Any) -> bool:
    """Whether a column holds what Google's library says of a field: an enum's number without a symbol is null."""
    if column.content == "json":
        return True
    if column.kind == "map":
        key, below = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        pairs = {each: item for each, item in found if item is not None}
        wanted = {_leaf(key, each): value[each] for each in value}
        wanted = {each: item for each, item in wanted.items() if not _is_unknown(below, item)}
        return pairs.keys() == wanted.keys() and all(
            agrees(column.below[1], item, below, wanted[each]) for each, item in pairs.items()
        )
    if column.kind == "list":
        items = [each for each in found if each is not None]
        wanted_items = [each for each in value if not _is_unknown(field, each)]
        return len(items) == len(wanted_items) and all(
            agrees(column.below[0], each, field, wanted) for each, wanted in zip(items, wanted_items, strict=True)
        )
    if column.kind == "struct":
        return found is not None and all(_same(each, found[each.name], value) for each in column.below)
    return repr(found) == repr(_leaf(field, value))


def row_agrees(columns: Sequence[TableColumn], row: dict[str, Any], message: Message) -> bool:
    return all(_same(column, row[column.name], message) for column in columns)


def _same(column: TableColumn, found: Any, message: Message) -> bool:
    field = message.DESCRIPTOR.fields_by_number[int(column.source)]
    if not field.is_repeated and field.has_presence and not message.HasField(field.name):
        return found is None
    return agrees(column, found, field, getattr(message, field.name))


def _leaf(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return _instant(value) if field.message_type.name == "Timestamp" else value.value
    if field.enum_type is not None:
        return next((each.name for each in field.enum_type.values if each.number == value), None)
    return Decimal(value) if field.type in (F.TYPE_UINT64, F.TYPE_FIXED64) else value


def _is_unknown(field: Any, value: Any) -> bool:
    """Of what has no column's value: also in lists."""
    is_leaf = field.enum_type is not None or (field.message_type is not None and field.message_type.name == "Timestamp")
    return is_leaf and _leaf(field, value) is None


def _instant(value: Any) -> datetime | None:
    seconds, nanos = value.seconds, value.nanos
    if not -62_135_596_800 <= seconds <= 253_402_300_799 or not 0 <= nanos <= 999_999_999:
        return None
    found = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds, microseconds=nanos // 1000)
    return found.astimezone(ZoneInfo("UTC"))
