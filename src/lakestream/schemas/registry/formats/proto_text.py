"""A file's descriptor, written as `.proto` text.

Custom options are left out: whoever needs them compares what protoc makes of the text with the descriptor.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto as File

_EDITIONS: Final = {998: "", 999: "", 1000: "2023", 1001: "2024"}
_MOST_FIELD: Final = 536_870_911
_MOST_ENUM: Final = 2_147_483_647
_TYPES: Final = {
    getattr(Field, f"TYPE_{name.upper()}"): name
    for name in (
        *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes", "uint32"),
        *("sfixed32", "sfixed64", "sint32", "sint64"),
    )
}
_LABELS: Final = {Field.LABEL_REQUIRED: "required ", Field.LABEL_REPEATED: "repeated ", Field.LABEL_OPTIONAL: ""}


def proto_text(file: File, *, normalize: bool = False) -> str:
    """`normalize`: imports, messages' fields and options are in one order, whatever order they came in."""
    return _Writer(file, normalize=normalize).written()


class _Writer:
    def __init__(self, file: File, *, normalize: bool) -> None:
        self._file = file
        self._normalize = normalize
        self._lines: list[str] = []
        self._is_proto2 = file.syntax in ("", "proto2") and not file.edition

    def written(self) -> str:
        file = self._file
        edition = _EDITIONS.get(file.edition, str(file.edition)) if file.edition else ""
        self._lines.append(f'edition = "{edition}";' if edition else f'syntax = "{file.syntax or "proto2"}";')
        if file.package:
            self._lines.append(f"package {file.package};")
        kinds = dict.fromkeys(file.public_dependency, "public ") | dict.fromkeys(file.weak_dependency, "weak ")
        imports = [f"import {kinds.get(at, '')}{_quoted(name)};" for at, name in enumerate(file.dependency)]
        self._lines += sorted(imports) if self._normalize else imports
        self._option_lines(file.options, "")
        for enum in file.enum_type:
            self._enum(enum, "")
        for message in file.message_type:
            self._message(message, "")
        self._extensions(file.extension, "")
        for service in file.service:
            self._lines.append(f"service {service.name} {{")
            self._option_lines(service.options, "  ")
            for method in service.method:
                sent, answered = (
                    "stream " if flag else "" for flag in (method.client_streaming, method.server_streaming)
                )
                line = f"  rpc {method.name} ({sent}{method.input_type}) returns ({answered}{method.output_type})"
                options = list(_options(method.options))
                self._lines.append(f"{line} {{" if options else f"{line};")
                self._lines += [f"    option {option};" for option in options] + (["  }"] if options else [])
            self._lines.append("}")
        return "\n".join(self._lines) + "\n"

    def _message(self, message: DescriptorProto, indent: str, head: str = "") -> None:
        self._lines.append(f"{indent}{head or f'message {message.name}'} {{")
        inside = indent + "  "
        self._option_lines(message.options, inside)
        groups = {field.type_name.rpartition(".")[2] for field in message.field if field.type == Field.TYPE_GROUP}
        groups |= {field.type_name.rpartition(".")[2] for field in message.extension if field.type == Field.TYPE_GROUP}
        nested = {each.name: each for each in message.nested_type}
        done: set[int] = set()
        fields = sorted(message.field, key=lambda field: field.number) if self._normalize else message.field
        for field in fields:
            if field.HasField("oneof_index") and not field.proto3_optional:
                if field.oneof_index not in done:
                    done.add(field.oneof_index)
                    self._oneof(message, field.oneof_index, nested, inside)
            else:
                self._field(field, nested, inside, labelled=True)
        for enum in message.enum_type:
            self._enum(enum, inside)
        for each in message.nested_type:
            if not each.options.map_entry and each.name not in groups:
                self._message(each, inside)
        self._extensions(message.extension, inside, nested)
        for extended in message.extension_range:
            options = list(_options(extended.options))
            told = f" [{', '.join(options)}]" if options else ""
            self._lines.append(f"{inside}extensions {_range(extended.start, extended.end - 1, _MOST_FIELD)}{told};")
        ranges = [_range(each.start, each.end - 1, _MOST_FIELD) for each in message.reserved_range]
        self._reserved(ranges, message.reserved_name, inside)
        self._lines.append(f"{indent}}}")

    def _oneof(self, message: DescriptorProto, index: int, nested: dict[str, DescriptorProto], indent: str) -> None:
        self._lines.append(f"{indent}oneof {message.oneof_decl[index].name} {{")
        self._option_lines(message.oneof_decl[index].options, indent + "  ")
        fields = [field for field in message.field if field.HasField("oneof_index") and field.oneof_index == index]
        for field in sorted(fields, key=lambda field: field.number) if self._normalize else fields:
            self._field(field, nested, indent + "  ", labelled=False)
        self._lines.append(f"{indent}}}")

    def _field(self, field: Field, nested: dict[str, DescriptorProto], indent: str, *, labelled: bool) -> None:
        label = _LABELS[field.label]
        if field.proto3_optional or (self._is_proto2 and field.label == Field.LABEL_OPTIONAL):
            label = "optional "
        own = nested.get(field.type_name.rpartition(".")[2])
        if own is not None and own.options.map_entry and field.label == Field.LABEL_REPEATED:
            key, value = own.field
            kind, label = f"map<{_type(key)}, {_type(value)}>", ""
        else:
            kind = _type(field)
        label = label if labelled else ""
        told = self._field_options(field)
        if field.type == Field.TYPE_GROUP and own is not None:
            self._message(own, indent, f"{label}group {own.name} = {field.number}{told}")
        else:
            self._lines.append(f"{indent}{label}{kind} {field.name} = {field.number}{told};")

    def _field_options(self, field: Field) -> str:
        options = list(_options(field.options))
        if field.HasField("default_value"):
            options.insert(0, f"default = {_default(field)}")
        if field.json_name and field.json_name != _json_name(field.name) and not field.extendee:
            options.append(f"json_name = {_quoted(field.json_name)}")
        return f" [{', '.join(sorted(options) if self._normalize else options)}]" if options else ""

    def _extensions(
        self, fields: Sequence[Field], indent: str, nested: dict[str, DescriptorProto] | None = None
    ) -> None:
        for field in fields:
            self._lines.append(f"{indent}extend {field.extendee} {{")
            self._field(field, nested or {}, indent + "  ", labelled=True)
            self._lines.append(f"{indent}}}")

    def _enum(self, enum: EnumDescriptorProto, indent: str) -> None:
        self._lines.append(f"{indent}enum {enum.name} {{")
        inside = indent + "  "
        self._option_lines(enum.options, inside)
        for value in enum.value:
            options = list(_options(value.options))
            told = f" [{', '.join(options)}]" if options else ""
            self._lines.append(f"{inside}{value.name} = {value.number}{told};")
        ranges = [_range(each.start, each.end, _MOST_ENUM) for each in enum.reserved_range]
        self._reserved(ranges, enum.reserved_name, inside)
        self._lines.append(f"{indent}}}")

    def _reserved(self, ranges: Sequence[str], names: Iterable[str], indent: str) -> None:
        if ranges:
            self._lines.append(f"{indent}reserved {', '.join(ranges)};")
        # From editions on names are identifiers.
        quoted = [name if self._file.edition else _quoted(name) for name in names]
        if quoted:
            self._lines.append(f"{indent}reserved {', '.join(quoted)};")

    def _option_lines(self, options: Any, indent: str) -> None:
        self._lines += [f"{indent}option {option};" for option in _options(options)]


def _options(options: Any) -> Iterable[str]:
    """In the order of their numbers. Those that are not Google's own are not told."""
    for field, value in options.ListFields():
        if field.is_extension or field.name in ("uninterpreted_option", "map_entry"):
            continue
        for each in value if field.is_repeated else [value]:
            yield f"{field.name} = {_value(field, each)}"


def _value(field: Any, value: Any) -> str:
    if field.message_type is not None:
        inside = ", ".join(f"{part.name}: {_value(part, each)}" for part, each in value.ListFields())
        return f"{{ {inside} }}"
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quoted(value) if isinstance(value, str) else str(value)


def _type(field: Field) -> str:
    return field.type_name or _TYPES[field.type]


def _default(field: Field) -> str:
    if field.type == Field.TYPE_BYTES:
        # It is escaped already.
        return f'"{field.default_value}"'
    return _quoted(field.default_value) if field.type == Field.TYPE_STRING else field.default_value


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _range(start: int, end: int, most: int) -> str:
    return str(start) if start == end else f"{start} to {'max' if end >= most else end}"


def _json_name(name: str) -> str:
    """What protoc makes of a field's name."""
    found, upper = "", False
    for letter in name:
        if letter == "_":
            upper = True
        else:
            found += letter.upper() if upper else letter
            upper = False
    return found
