"""Protobuf schemas: one `.proto` file, compiled by protoc with the files that it imports.

Clients may send the file's descriptor in base64 instead of its text: then its text is written from the descriptor, if
that says everything; else (custom options cannot be written) the schema's text stays the descriptor.
"""

import base64
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

from lakestream.schemas.registry.formats import proto_diff
from lakestream.schemas.registry.formats.format import MOST_MESSAGES, Dependency, ParsedSchema, invalid
from lakestream.schemas.registry.formats.proto_text import proto_text
from lakestream.schemas.registry.formats.protoc import ROOT_NAME, compile_files, with_descriptor


@dataclass(frozen=True, slots=True)
class ParsedProtobuf:
    """`files` has the schema's own file last, after all that it needs."""

    text: str
    files: FileDescriptorSet

    @property
    def own(self) -> FileDescriptorProto:
        return self.files.file[-1]

    def normalized(self) -> str:
        """A file with custom options stays as it is: they cannot be written."""
        return self.text if self.has_custom_options else proto_text(self.own, normalize=True)

    @property
    def has_custom_options(self) -> bool:
        """Which `proto_text` leaves out."""
        return _has_custom_options(self.own)

    def serialized(self) -> str:
        """The descriptor of its own file, in base64."""
        return base64.b64encode(self.own.SerializeToString()).decode()

    def incompatibilities(self, writer: ParsedSchema) -> list[str]:
        assert isinstance(writer, ParsedProtobuf)
        return proto_diff.differences(writer.files, self.files)[:MOST_MESSAGES]


class ProtobufFormat:
    def parse(self, text: str, dependencies: Sequence[Dependency]) -> ParsedProtobuf:
        known = [Dependency(each.name, _as_text(each)) for each in dependencies]
        sent = _descriptor(text)
        if sent is None:
            return ParsedProtobuf(_tidied(text), compile_files(text, known))
        plain = proto_text(sent)
        files = compile_files(plain, known)
        if _same(files.file[-1], sent):
            return ParsedProtobuf(plain, files)
        whole = with_descriptor(sent, known)
        _check_pool(whole)
        return ParsedProtobuf(base64.b64encode(sent.SerializeToString()).decode(), whole)


def serialized(parsed: ParsedSchema) -> str:
    """As clients ask for it with `format=serialized`."""
    return parsed.serialized() if isinstance(parsed, ParsedProtobuf) else parsed.text


def _descriptor(text: str) -> FileDescriptorProto | None:
    """None: it is no descriptor, so it is a file's text."""
    try:
        found = FileDescriptorProto.FromString(base64.b64decode("".join(text.split()), validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
    return found if found.message_type or found.enum_type or found.name else None


def _tidied(text: str) -> str:
    """Comments and layout stay as their author wrote them."""
    return text.replace("\r\n", "\n").strip() + "\n"


def _same(compiled: FileDescriptorProto, sent: FileDescriptorProto) -> bool:
    plain = []
    for each in (compiled, sent):
        copy = FileDescriptorProto.FromString(each.SerializeToString())
        copy.name = ROOT_NAME
        copy.ClearField("source_code_info")
        copy.syntax = copy.syntax or "proto2"
        for message in copy.message_type:
            _without_json_names(message)
        for field in copy.extension:
            field.ClearField("json_name")
        plain.append(copy.SerializeToString(deterministic=True))
    return bool(plain[0] == plain[1])


def _without_json_names(message: object) -> None:
    """They are implied: protoc fills them in, other writers of descriptors may not."""
    for field in [*message.field, *message.extension]:  # type: ignore[attr-defined]
        field.ClearField("json_name")
    for nested in message.nested_type:  # type: ignore[attr-defined]
        _without_json_names(nested)


def _as_text(dependency: Dependency) -> str:
    """Custom options of a file that is imported mean nothing to those that import it."""
    sent = _descriptor(dependency.text)
    return dependency.text if sent is None else proto_text(sent)


def _has_custom_options(own: FileDescriptorProto) -> bool:
    """They are fields of options that the options do not know, or extensions of them."""
    bare = FileDescriptorProto.FromString(own.SerializeToString())
    bare.DiscardUnknownFields()
    return bare.ByteSize() != own.ByteSize() or any(
        field.is_extension for _, message in _walk(own) for field, _ in message.ListFields()
    )


def _walk(message: Message) -> Iterator[tuple[str, Message]]:
    yield message.DESCRIPTOR.name, message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in value if field.is_repeated else [value]:
                yield from _walk(each)


def _check_pool(files: FileDescriptorSet) -> None:
    pool = DescriptorPool()
    try:
        for file in files.file:
            pool.Add(file)
        pool.FindFileByName(files.file[-1].name)
    except (TypeError, KeyError) as error:
        raise invalid(f"its descriptor is not valid: {error}") from error
