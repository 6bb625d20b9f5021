"""Avro values that no column can hold as JSON text, for people who look: their bytes stay beside it.

Bytes are hexadecimal, numbers that JSON lacks text, a union is the value of its branch."""

import json
import struct
from typing import Any

from lakestream.schemas.avro import AvroSchema, AvroType


def json_text(schema: AvroSchema, kind: AvroType, data: bytes) -> str:
    """Of a value that was checked."""
    value, _ = _value(schema, schema.resolved(kind), data, 0)
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _long(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _long(data, at)
    return data[at : at + length], at + length


def _value(schema: AvroSchema, kind: AvroType, data: bytes, at: int) -> tuple[Any, int]:
    match kind.kind:
        case "null":
            return None, at
        case "boolean":
            return data[at] != 0, at + 1
        case "int" | "long":
            return _long(data, at)
        case "float":
            return _number(struct.unpack_from("<f", data, at)[0]), at + 4
        case "double":
            return _number(struct.unpack_from("<d", data, at)[0]), at + 8
        case "bytes":
            found, at = _bytes(data, at)
            return found.hex(), at
        case "string":
            found, at = _bytes(data, at)
            return found.decode(), at
        case "fixed":
            return data[at : at + kind.size].hex(), at + kind.size
        case "enum":
            place, at = _long(data, at)
            return kind.names[place], at
        case "union":
            place, at = _long(data, at)
            return _value(schema, schema.resolved(kind.below[place]), data, at)
        case "record":
            fields = {}
            for name, each in zip(kind.names, kind.below, strict=True):
                fields[name], at = _value(schema, schema.resolved(each), data, at)
            return fields, at
        case _:
            return _items(schema, kind, data, at)


def _items(schema: AvroSchema, kind: AvroType, data: bytes, at: int) -> tuple[Any, int]:
    item = schema.resolved(kind.below[0])
    items: list[Any] = []
    keys: list[str] = []
    count, at = _long(data, at)
    while count:
        if count < 0:
            _, at = _long(data, at)
        for _ in range(abs(count)):
            if kind.kind == "map":
                key, at = _bytes(data, at)
                keys.append(key.decode())
            found, at = _value(schema, item, data, at)
            items.append(found)
        count, at = _long(data, at)
    return (dict(zip(keys, items, strict=True)) if kind.kind == "map" else items), at


def _number(found: float) -> float | str:
    return found if -float("inf") < found < float("inf") else str(found)
