"""Protobuf values read slowly, a field at a time: for what the interpreter leaves, for text and for explanations."""

import json
import struct
from collections.abc import Iterator
from typing import Any, Final

from lakestream.schemas.codecs.protobuf.program import wire_type
from lakestream.schemas.protobuf import REPEATED, ProtoField, ProtoMessage, ProtoSchema

MAX_LEVELS: Final = 100
_VARINT, _FIXED64, _LENGTH, _GROUP, _GROUP_END, _FIXED32 = range(6)
_MAX_TAG: Final = (1 << 32) - 1
_FORMATS: Final = {
    "fixed32": "<I",
    "sfixed32": "<i",
    "fixed64": "<Q",
    "sfixed64": "<q",
    "float": "<f",
    "double": "<d",
}
_SCALARS: Final = frozenset({"bool", "int32", "sint32", "uint32", "int64", "sint64", "uint64", "enum", *_FORMATS})


class Malformed(ValueError):
    """With a sentence's end: what is wrong."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """(number without sign, position after)."""
    value = shift = 0
    while True:
        if at >= len(data):
            raise Malformed("ends in the middle of a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
        if shift >= 70:
            raise Malformed("has a number that does not end after ten bytes")
    if value >> 64:
        raise Malformed("has a number of more than 64 bits")
    return value, at


def fields_in(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(number, wire type, value without length) of each field."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        if not 8 <= tag <= _MAX_TAG:
            raise Malformed(f"has a field of the number {tag >> 3}")
        value, at = _value(data, at, tag, 0)
        yield tag >> 3, tag & 7, value


def _value(data: bytes, at: int, tag: int, level: int) -> tuple[bytes, int]:
    begin = at
    match tag & 7:
        case 0:
            _, at = varint(data, at)
        case 1:
            at += 8
        case 5:
            at += 4
        case 2:
            length, begin = varint(data, at)
            at = begin + length
        case 3:
            if level > MAX_LEVELS:
                raise Malformed(f"nests more than {MAX_LEVELS} levels")
            while True:
                inner, at = varint(data, at)
                if inner == (tag & ~7 | _GROUP_END):
                    break
                if not 8 <= inner <= _MAX_TAG:
                    raise Malformed(f"has a field of the number {inner >> 3}")
                _, at = _value(data, at, inner, level + 1)
        case wire:
            raise Malformed(f"has the wire type {wire}, which there is not here")
    if at > len(data):
        raise Malformed(f"claims {at - begin} bytes, and there are {len(data) - begin} left")
    return data[begin:at], at


def values_of(field: ProtoField, wire: int, value: bytes) -> list[bytes]:
    """The single values in what was read, each as it would be alone. Raises `Malformed`."""
    own = wire_type(field.kind)
    if wire == own:
        return [value]
    if field.label != REPEATED or wire != _LENGTH or field.kind not in _SCALARS:
        raise Malformed(f"has the wire type {wire}, and a {field.kind} has {own}")
    if own:
        size = 8 if own == _FIXED64 else 4
        if len(value) % size:
            raise Malformed(f"has {len(value)} bytes, which are no whole number of values")
        return [value[at : at + size] for at in range(0, len(value), size)]
    found, at = [], 0
    while at < len(value):
        _, after = varint(value, at)
        found.append(value[at:after])
        at = after
    return found


def plain_form(schema: ProtoSchema, message: ProtoMessage, data: bytes, level: int = 0) -> bytes:
    """The same value with its fields in order, each once: the last of several counts, messages are merged, and so is
    the last of a oneof. Raises `Malformed`."""
    if level > MAX_LEVELS:
        raise Malformed(f"nests more than {MAX_LEVELS} levels")
    known = {field.number: field for field in message.fields}
    found: dict[int, list[bytes]] = {}
    for number, wire, value in fields_in(data):
        field = known.get(number)
        if field is None:
            continue
        values = values_of(field, wire, value)
        if field.oneof:
            for other in message.fields:
                if other.oneof == field.oneof and other.number != number:
                    found.pop(other.number, None)
        if field.label == REPEATED:
            found.setdefault(number, []).extend(values)
        elif field.kind == "message":
            found[number] = [found.get(number, [b""])[0] + value]
        else:
            found[number] = values
    parts = []
    for number in sorted(found):
        field = known[number]
        wire = wire_type(field.kind)
        for value in found[number]:
            if field.kind == "message":
                value = plain_form(schema, schema.messages[field.type_name], value, level + 1)
            length = _written(len(value)) if wire == _LENGTH else b""
            parts += [_written(number << 3 | wire), length, value]
    return b"".join(parts)


def _written(number: int) -> bytes:
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def json_text(schema: ProtoSchema, message: ProtoMessage, data: bytes) -> str:
    """Of a message that was checked, for people who look: its bytes stay beside it. Bytes are hexadecimal, numbers
    that JSON lacks text."""
    return json.dumps(_json(schema, message, data), separators=(",", ":"), ensure_ascii=False)


def _json(schema: ProtoSchema, message: ProtoMessage, data: bytes) -> Any:
    found: dict[str, Any] = {}
    known = {field.number: field for field in message.fields}
    parts: dict[int, bytes] = {}
    for number, wire, value in fields_in(data):
        field = known.get(number)
        if field is None:
            continue
        if field.kind == "message" and field.label != REPEATED:
            parts[number] = parts.get(number, b"") + value
            found[field.name] = _json(schema, schema.messages[field.type_name], parts[number])
            continue
        values = [_scalar(schema, field, each) for each in values_of(field, wire, value)]
        if field.label != REPEATED:
            found[field.name] = values[-1]
        elif field.kind == "message" and schema.messages[field.type_name].is_entry:
            entries = [(str(each.get("key", "")), each.get("value")) for each in values]
            found[field.name] = found.get(field.name, {}) | dict(entries)
        else:
            found[field.name] = found.get(field.name, []) + values
    return _plain_json(message, found)


def _plain_json(message: ProtoMessage, found: dict[str, Any]) -> Any:
    """Google's own messages that stand for any JSON are that JSON."""
    if message.name == "google.protobuf.Struct":
        return found.get("fields", {})
    if message.name == "google.protobuf.ListValue":
        return found.get("values", [])
    if message.name == "google.protobuf.Value":
        return next((None if name == "null_value" else value for name, value in found.items()), None)
    return found


def _scalar(schema: ProtoSchema, field: ProtoField, value: bytes) -> Any:
    if field.kind == "message":
        return _json(schema, schema.messages[field.type_name], value)
    if field.kind == "string":
        return value.decode()
    if field.kind == "bytes":
        return value.hex()
    if field.kind in _FORMATS:
        number = struct.unpack(_FORMATS[field.kind], value)[0]
        return number if number == number and abs(number) != float("inf") else str(number)
    number = varint(value, 0)[0]
    if field.kind == "bool":
        return number != 0
    if field.kind in ("sint32", "sint64"):
        number &= 0xFFFFFFFF if field.kind == "sint32" else -1
        return (number >> 1) ^ -(number & 1)
    if field.kind in ("uint32", "uint64"):
        return number & 0xFFFFFFFF if field.kind == "uint32" else number
    bits = 64 if field.kind == "int64" else 32
    number &= (1 << bits) - 1
    number -= (number >> (bits - 1)) << bits
    if field.kind == "enum":
        return next((symbol for symbol, each in schema.enums[field.type_name] if each == number), number)
    return number
