"""Protobuf schemas compiled, as tables keep them (`schemas.protobuf`). Blocking: protoc is a process of its own."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet

from lakestream.errors import InvalidSchema, RegistryRefused
from lakestream.schemas.registry.formats.format import Dependency
from lakestream.schemas.registry.formats.protobuf import ProtobufFormat

_KEPT: Final = 64


@lru_cache(_KEPT)
def compiled_descriptors(text: str, references: Sequence[tuple[str, str]]) -> str:
    """The files of a schema as the registry has it, with what its messages need of the files that it imports and
    nothing that values do not depend on. Raises `InvalidSchema`."""
    try:
        parsed = ProtobufFormat().parse(text, [Dependency(*each) for each in references])
    except RegistryRefused as error:
        raise InvalidSchema(str(error)) from error
    return base64.b64encode(_pruned(parsed.files).SerializeToString(deterministic=True)).decode()


def _pruned(files: FileDescriptorSet) -> FileDescriptorSet:
    own = files.file[-1]
    defined = {name: file for file in files.file for name in _names(file)}
    needed = {own.name}
    waiting = [own]
    while waiting:
        for name in _types(waiting.pop()):
            file = defined[name]
            if file.name not in needed:
                needed.add(file.name)
                waiting.append(file)
    imports = _imports(files.file)
    return FileDescriptorSet(file=[_bare(each, needed, imports) for each in files.file if each.name in needed])


def _imports(files: Iterable[FileDescriptorProto]) -> Mapping[str, frozenset[str]]:
    """What each file sees: also what its imports import publicly. All of what those see does no harm."""
    seen: dict[str, frozenset[str]] = {}
    for file in files:
        seen[file.name] = frozenset(file.dependency).union(*(seen.get(each, frozenset()) for each in file.dependency))
    return seen


def _bare(file: FileDescriptorProto, needed: set[str], imports: Mapping[str, frozenset[str]]) -> FileDescriptorProto:
    bare = FileDescriptorProto(name=file.name, package=file.package)
    if file.HasField("syntax"):
        bare.syntax = file.syntax
    if file.syntax == "editions":
        bare.edition = file.edition
        bare.options.features.CopyFrom(file.options.features)
    bare.dependency.extend(sorted(imports[file.name] & needed))
    for message in file.message_type:
        _add_message(bare.message_type.add(), message)
    for enum in file.enum_type:
        _add_enum(bare.enum_type.add(), enum)
    return bare


def _add_message(bare: DescriptorProto, message: DescriptorProto) -> None:
    bare.CopyFrom(message)
    for name in (
        "extension",
        "extension_range",
        "reserved_range",
        "reserved_name",
        "nested_type",
        "enum_type",
        "options",
    ):
        bare.ClearField(name)
    if message.options.map_entry:
        bare.options.map_entry = True
    if message.options.HasField("features"):
        bare.options.features.CopyFrom(message.options.features)
    for field, whole in zip(bare.field, message.field, strict=True):
        field.ClearField("json_name")
        field.ClearField("default_value")
        field.ClearField("options")
        if whole.options.HasField("packed"):
            field.options.packed = whole.options.packed
        if whole.options.HasField("features"):
            field.options.features.CopyFrom(whole.options.features)
    for oneof in bare.oneof_decl:
        oneof.ClearField("options")
    for nested in message.nested_type:
        _add_message(bare.nested_type.add(), nested)
    for enum in message.enum_type:
        _add_enum(bare.enum_type.add(), enum)


def _add_enum(bare: EnumDescriptorProto, enum: EnumDescriptorProto) -> None:
    bare.name = enum.name
    for value in enum.value:
        bare.value.add(name=value.name, number=value.number)
    if enum.options.allow_alias:
        bare.options.allow_alias = True
    if enum.options.HasField("features"):
        bare.options.features.CopyFrom(enum.options.features)


def _names(file: FileDescriptorProto) -> Iterable[str]:
    """Of all types of the file, as fields refer to them."""
    space = f".{file.package}" if file.package else ""
    yield from (f"{space}.{enum.name}" for enum in file.enum_type)
    waiting = [(f"{space}.{message.name}", message) for message in file.message_type]
    while waiting:
        name, message = waiting.pop()
        yield name
        yield from (f"{name}.{enum.name}" for enum in message.enum_type)
        waiting += [(f"{name}.{nested.name}", nested) for nested in message.nested_type]


def _types(file: FileDescriptorProto) -> Iterable[str]:
    """Those that fields of the file have."""
    waiting = list(file.message_type)
    while waiting:
        message = waiting.pop()
        yield from (field.type_name for field in message.field if field.type_name)
        waiting += message.nested_type
