"""Avro files as plain values, whatever their columns: what is not looked at stays as it was.

PyIceberg reads manifests into the columns that it knows and would drop the others; here a file keeps its own schema and
header. A record is a dict, a union `Choice`, so that what is written again takes the same branch. Pure.
"""

import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from lakestream.errors import CorruptObject

_MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
_RAW_DEFLATE: Final = -15
_FIXED_SIZES: Final = {"float": 4, "double": 8}


@dataclass(slots=True)
class Choice:
    """The value of a union, and which of its types it has."""

    branch: int
    value: Any


def rewrite(data: bytes, name: str, change: Callable[[dict[str, Any]], None]) -> bytes:
    """The file after `change` was called with each of its records. Raises `CorruptObject`."""
    try:
        return _rewrite(data, change)
    except (KeyError, ValueError, IndexError, TypeError, zlib.error, struct.error) as error:
        raise CorruptObject(f"{name} is no Avro file that can be read: {error!r}") from error


def _rewrite(data: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    reader = _Reader(data)
    if reader.take(len(_MAGIC)) != _MAGIC:
        raise ValueError("it does not begin as an Avro file does")
    header = reader.value({"type": "map", "values": "bytes"}, {})
    sync = reader.take(_SYNC_BYTES)
    schema = json.loads(header["avro.schema"])
    codec = header.get("avro.codec", b"null").decode()
    names: dict[str, Any] = {}
    writer = bytearray(_MAGIC)
    _write(writer, {"type": "map", "values": "bytes"}, header, names)
    writer += sync
    while reader.position < len(data):
        count = reader.long()
        block = _Reader(_unpacked(codec, reader.take(reader.long())))
        if reader.take(_SYNC_BYTES) != sync:
            raise ValueError("a block does not end as it should")
        body = bytearray()
        for _ in range(count):
            record = block.value(schema, names)
            change(record)
            _write(body, schema, record, names)
        packed = _packed(codec, bytes(body))
        _write(writer, "long", count, names)
        _write(writer, "bytes", packed, names)
        writer += sync
    return bytes(writer)


def _unpacked(codec: str, data: bytes) -> bytes:
    match codec:
        case "null":
            return data
        case "deflate":
            return zlib.decompress(data, _RAW_DEFLATE)
    raise ValueError(f"its compression is {codec}, and only deflate and none are read")


def _packed(codec: str, data: bytes) -> bytes:
    if codec == "null":
        return data
    squeeze = zlib.compressobj(wbits=_RAW_DEFLATE)
    return squeeze.compress(data) + squeeze.flush()


def _kind(schema: Any, names: dict[str, Any]) -> tuple[str, Any]:
    """The type's name and its schema, a named one looked up."""
    if isinstance(schema, list):
        return "union", schema
    if isinstance(schema, str):
        return (schema, schema) if schema not in names else (names[schema]["type"], names[schema])
    kind = schema["type"]
    if not isinstance(kind, str):
        return _kind(kind, names)
    if kind in ("record", "fixed", "enum"):
        names[schema["name"]] = schema
    elif kind in names:
        return _kind(kind, names)
    return kind, schema


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def take(self, count: int) -> bytes:
        end = self.position + count
        if count < 0 or end > len(self._data):
            raise ValueError("it ends too early")
        taken = self._data[self.position : end]
        self.position = end
        return taken

    def long(self) -> int:
        number = shift = 0
        while True:
            [byte] = self.take(1)
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)

    def value(self, schema: Any, names: dict[str, Any]) -> Any:
        kind, schema = _kind(schema, names)
        match kind:
            case "null":
                return None
            case "boolean":
                return self.take(1)
            case "int" | "long" | "enum":
                return self.long()
            case "float" | "double":
                return self.take(_FIXED_SIZES[kind])
            case "fixed":
                return self.take(schema["size"])
            case "bytes":
                return self.take(self.long())
            case "string":
                return self.take(self.long()).decode()
            case "record":
                return {field["name"]: self.value(field["type"], names) for field in schema["fields"]}
            case "union":
                branch = self.long()
                return Choice(branch, self.value(schema[branch], names))
            case "array":
                return [self.value(schema["items"], names) for _ in self._items()]
            case "map":
                return {self.take(self.long()).decode(): self.value(schema["values"], names) for _ in self._items()}
        raise ValueError(f"it has a column of type {kind}")

    def _items(self) -> "Any":
        while count := self.long():
            if count < 0:
                count = -count
                self.long()
            yield from range(count)


def _write(into: bytearray, schema: Any, value: Any, names: dict[str, Any]) -> None:
    kind, schema = _kind(schema, names)
    match kind:
        case "null":
            pass
        case "boolean" | "float" | "double" | "fixed":
            into += value
        case "int" | "long" | "enum":
            _write_long(into, value)
        case "bytes" | "string":
            data = value.encode() if kind == "string" else value
            _write_long(into, len(data))
            into += data
        case "record":
            for field in schema["fields"]:
                _write(into, field["type"], value[field["name"]], names)
        case "union":
            _write_long(into, value.branch)
            _write(into, schema[value.branch], value.value, names)
        case "array" | "map":
            if value:
                _write_long(into, len(value))
            for item in value:
                if kind == "map":
                    _write(into, "string", item, names)
                    _write(into, schema["values"], value[item], names)
                else:
                    _write(into, schema["items"], item, names)
            into.append(0)


def _write_long(into: bytearray, number: int) -> None:
    number = (number << 1) ^ (number >> 63)
    while number > 0x7F:
        into.append(number & 0x7F | 0x80)
        number >>= 7
    into.append(number)
