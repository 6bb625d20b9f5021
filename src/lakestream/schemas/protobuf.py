"""A Protobuf schema as messages and their fields, out of a set of descriptors.

A table keeps the files of a schema compiled, as Google's `FileDescriptorSet` in base64 with the schema's own file last:
who reads the table needs no compiler. Only what binary values depend on is kept in the tree.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from lakestream.errors import InvalidSchema

_KEPT_SCHEMAS: Final = 64
_KINDS: Final = {
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_SINT32: "sint32",
    FieldDescriptor.TYPE_SFIXED32: "sfixed32",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_FIXED32: "fixed32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_SINT64: "sint64",
    FieldDescriptor.TYPE_SFIXED64: "sfixed64",
    FieldDescriptor.TYPE_UINT64: "uint64",
    FieldDescriptor.TYPE_FIXED64: "fixed64",
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_ENUM: "enum",
    FieldDescriptor.TYPE_MESSAGE: "message",
}
OPTIONAL: Final = "optional"
IMPLICIT: Final = "implicit"
REQUIRED: Final = "required"
REPEATED: Final = "repeated"


@dataclass(frozen=True, slots=True)
class ProtoField:
    """`kind` is Protobuf's word, `type_name` the full name of the enum or message. `label`: OPTIONAL if absent and
    default are not the same, IMPLICIT if they are, REQUIRED or REPEATED. `oneof`: of which it is, or empty."""

    number: int
    name: str
    kind: str
    label: str
    is_packed: bool = False
    type_name: str = ""
    oneof: str = ""


@dataclass(frozen=True, slots=True)
class ProtoMessage:
    """`fields` by their numbers. `is_entry`: of a map."""

    name: str
    fields: tuple[ProtoField, ...]
    is_entry: bool = False

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class ProtoSchema:
    """`own`: the messages at the top of the schema's file, in their order, by which values name theirs. `enums`: symbol
    and number of each value, as declared."""

    own: tuple[str, ...]
    messages: Mapping[str, ProtoMessage]
    enums: Mapping[str, tuple[tuple[str, int], ...]]

    def value_messages(self) -> tuple[ProtoMessage, ...]:
        """Those that a value may be, the one that most will be first: messages at the top that no other refers to. If
        all refer to each other, the first."""
        referred: set[str] = set()
        for message in self.messages.values():
            referred |= {field.type_name for field in message.fields if not _is_within(message.name, field.type_name)}
        found = [self.messages[name] for name in self.own if name not in referred]
        return tuple(found or [self.messages[name] for name in self.own[:1]])


def _is_within(name: str, other: str) -> bool:
    return name == other or name.startswith(f"{other}.")


@lru_cache(_KEPT_SCHEMAS)
def parse_descriptors(text: str) -> ProtoSchema:
    """Raises `InvalidSchema` with a sentence for what is none, or has what no columns can hold."""
    try:
        files = FileDescriptorSet.FromString(base64.b64decode(text, validate=True))
        pool = DescriptorPool()
        for file in files.file:
            pool.Add(file)
        found = [pool.FindFileByName(file.name) for file in files.file]
    except (binascii.Error, ValueError, DecodeError, TypeError, KeyError) as error:
        raise InvalidSchema(f"it is no set of Protobuf descriptors: {error}") from error
    own = [message.name for file in files.file[-1:] for message in file.message_type]
    if not own:
        raise InvalidSchema("the Protobuf schema has no message")
    messages: dict[str, ProtoMessage] = {}
    enums: dict[str, tuple[tuple[str, int], ...]] = {}
    for message in _all_messages(found):
        messages[message.full_name] = _message(message)
        for field in message.fields:
            if field.enum_type is not None:
                enums[field.enum_type.full_name] = _enum(field.enum_type)
    by_name = found[-1].message_types_by_name
    return ProtoSchema(tuple(by_name[name].full_name for name in own), messages, enums)


def _all_messages(files: list[FileDescriptor]) -> Iterator[Descriptor]:
    waiting = [message for file in files for message in file.message_types_by_name.values()]
    while waiting:
        message = waiting.pop()
        yield message
        waiting += message.nested_types


def _enum(found: EnumDescriptor) -> tuple[tuple[str, int], ...]:
    return tuple((value.name, value.number) for value in found.values)


def _message(found: Descriptor) -> ProtoMessage:
    fields = sorted(map(_field, found.fields), key=lambda each: each.number)
    return ProtoMessage(found.full_name, tuple(fields), found.GetOptions().map_entry)


def _field(found: FieldDescriptor) -> ProtoField:
    if found.type == FieldDescriptor.TYPE_GROUP:
        raise InvalidSchema(f"the field {found.full_name} is a group, which no column holds: make it a message")
    label = OPTIONAL if found.has_presence else IMPLICIT
    if found.is_repeated:
        label = REPEATED
    elif found.is_required:
        label = REQUIRED
    named = found.message_type or found.enum_type
    return ProtoField(
        found.number,
        found.name,
        _KINDS[found.type],
        label,
        is_packed=bool(found.is_packed),
        type_name=named.full_name if named is not None else "",
        oneof=found.containing_oneof.name if found.containing_oneof is not None else "",
    )
