"""Avro values from and to Avro's JSON: a union's value names its branch (`{"string": "x"}`), bytes are text of the
characters 0 to 255. Leniently a union takes its value bare where only one branch but null can be meant."""

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from lakestream.errors import InvalidRecords
from lakestream.schemas.avro import AvroSchema, AvroType, parse_avro

_DEPTH_MOST: Final = 100
_RANGES: Final = {"int": 1 << 31, "long": 1 << 63}
_FLOATS: Final = {"float": struct.Struct("<f"), "double": struct.Struct("<d")}
_NAMED_FLOATS: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class AvroValues:
    def __init__(self, text: str, references: tuple[tuple[str, str], ...]) -> None:
        """Raises `InvalidSchema`."""
        self._schema: AvroSchema = parse_avro(text, dict(references))
        root = self._schema.resolved(self._schema.root)
        self.name = root.name

    def encoded(self, value: Any) -> bytes:
        """Raises `InvalidRecords`."""
        out = bytearray()
        self._write(self._schema.root, value, out, "", 0)
        return bytes(out)

    def decoded(self, data: bytes) -> Any:
        """Raises `InvalidRecords`."""
        reader = _Reader(data)
        try:
            value = self._read(self._schema.root, reader, 0)
        except (IndexError, struct.error, UnicodeDecodeError) as error:
            raise InvalidRecords("the value is not of its Avro schema") from error
        if reader.at != len(data):
            raise InvalidRecords("the value is longer than its Avro schema says")
        return value

    def _write(self, kind: AvroType, value: Any, out: bytearray, where: str, depth: int) -> None:
        if depth > _DEPTH_MOST:
            raise InvalidRecords(f"the value nests more than {_DEPTH_MOST} levels")
        kind = self._schema.resolved(kind)
        match kind.kind:
            case "record":
                self._write_record(kind, value, out, where, depth)
            case "union":
                self._write_union(kind, value, out, where, depth)
            case "array":
                _expect(isinstance(value, list), "an array", value, where)
                if value:
                    out += _number(len(value))
                    for index, each in enumerate(value):
                        self._write(kind.below[0], each, out, f"{where}[{index}]", depth + 1)
                out.append(0)
            case "map":
                _expect(isinstance(value, dict), "an object", value, where)
                if value:
                    out += _number(len(value))
                    for name, each in value.items():
                        _write_text(name, out)
                        self._write(kind.below[0], each, out, f"{where}.{name}", depth + 1)
                out.append(0)
            case "enum":
                _expect(value in kind.names, f"one of {', '.join(kind.names)[:200]}", value, where)
                out += _number(kind.names.index(value))
            case _:
                _write_plain(kind, value, out, where)

    def _write_record(self, kind: AvroType, value: Any, out: bytearray, where: str, depth: int) -> None:
        _expect(isinstance(value, dict), "an object", value, where)
        for name, below in zip(kind.names, kind.below, strict=True):
            if name not in value:
                raise InvalidRecords(f"the field {where}.{name} is missing")
            self._write(below, value[name], out, f"{where}.{name}", depth + 1)
        strange = next((name for name in value if name not in kind.names), None)
        if strange is not None:
            raise InvalidRecords(f"{kind.name} has no field {strange[:100]!r}")

    def _write_union(self, kind: AvroType, value: Any, out: bytearray, where: str, depth: int) -> None:
        names = [branch.name or branch.kind for branch in kind.below]
        if value is None:
            _expect("null" in names, f"one of {', '.join(names)}", value, where)
            out += _number(names.index("null"))
            return
        if isinstance(value, dict) and len(value) == 1 and (named := next(iter(value))) in names:
            index = names.index(named)
            out += _number(index)
            self._write(kind.below[index], value[named], out, where, depth + 1)
            return
        others = [index for index, name in enumerate(names) if name != "null"]
        if len(others) != 1:
            raise InvalidRecords(f"{where or 'the value'} names none of its branches: {', '.join(names)[:200]}")
        out += _number(others[0])
        self._write(kind.below[others[0]], value, out, where, depth + 1)

    def _read(self, kind: AvroType, reader: "_Reader", depth: int) -> Any:
        if depth > _DEPTH_MOST:
            raise InvalidRecords(f"the value nests more than {_DEPTH_MOST} levels")
        kind = self._schema.resolved(kind)
        match kind.kind:
            case "record":
                return {
                    name: self._read(below, reader, depth + 1)
                    for name, below in zip(kind.names, kind.below, strict=True)
                }
            case "union":
                index = reader.number()
                if not 0 <= index < len(kind.below):
                    raise IndexError(index)
                branch = kind.below[index]
                found = self._read(branch, reader, depth + 1)
                return None if branch.kind == "null" else {branch.name or branch.kind: found}
            case "array":
                return [*reader.blocks(lambda: self._read(kind.below[0], reader, depth + 1))]
            case "map":
                return dict(reader.blocks(lambda: (reader.text(), self._read(kind.below[0], reader, depth + 1))))
            case "enum":
                index = reader.number()
                if index < 0:
                    raise IndexError(index)
                return kind.names[index]
            case _:
                return _read_plain(kind, reader)


@lru_cache(maxsize=256)
def avro_values(text: str, references: tuple[tuple[str, str], ...]) -> AvroValues:
    return AvroValues(text, references)


def _write_plain(kind: AvroType, value: Any, out: bytearray, where: str) -> None:
    match kind.kind:
        case "null":
            _expect(value is None, "null", value, where)
        case "boolean":
            _expect(isinstance(value, bool), "true or false", value, where)
            out.append(value)
        case "int" | "long":
            most = _RANGES[kind.kind]
            whole = isinstance(value, int) and not isinstance(value, bool) and -most <= value < most
            _expect(whole, f"a number of the type {kind.kind}", value, where)
            out += _number(value)
        case "float" | "double":
            value = _NAMED_FLOATS.get(value, value) if isinstance(value, str) else value
            _expect(isinstance(value, int | float) and not isinstance(value, bool), "a number", value, where)
            try:
                out += _FLOATS[kind.kind].pack(value)
            except (OverflowError, struct.error) as error:
                raise InvalidRecords(f"{where or 'the value'} is too large for {kind.kind}") from error
        case "string":
            _expect(isinstance(value, str), "text", value, where)
            _write_text(value, out)
        case _:
            _expect(isinstance(value, str), "text of the characters 0 to 255", value, where)
            try:
                data = value.encode("latin-1")
            except UnicodeEncodeError as error:
                raise InvalidRecords(f"{where or 'the value'} has characters beyond 255, and is bytes") from error
            if kind.kind == "fixed":
                _expect(len(data) == kind.size, f"{kind.size} bytes", value, where)
            else:
                out += _number(len(data))
            out += data


def _read_plain(kind: AvroType, reader: "_Reader") -> Any:
    match kind.kind:
        case "null":
            return None
        case "boolean":
            return reader.take(1) != b"\0"
        case "int" | "long":
            return reader.number()
        case "float" | "double":
            form = _FLOATS[kind.kind]
            (found,) = form.unpack(reader.take(form.size))
            return found if found == found and abs(found) != float("inf") else str(found)
        case "string":
            return reader.text()
        case "fixed":
            return reader.take(kind.size).decode("latin-1")
        case _:
            return reader.take(reader.number()).decode("latin-1")


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        found = self._data[self.at : self.at + size]
        if size < 0 or len(found) < size:
            raise IndexError("it ends too soon")
        self.at += size
        return found

    def number(self) -> int:
        shift = value = 0
        while True:
            byte = self._data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
            if shift > 63:
                raise IndexError("a number takes too many bytes")

    def text(self) -> str:
        return self.take(self.number()).decode()

    def blocks(self, read: Callable[[], Any]) -> list[Any]:
        found: list[Any] = []
        while count := self.number():
            if count < 0:
                self.number()
                count = -count
            if count > len(self._data):
                raise IndexError("it ends too soon")
            found += [read() for _ in range(count)]
        return found


def _number(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _write_text(value: str, out: bytearray) -> None:
    data = value.encode()
    out += _number(len(data))
    out += data


def _expect(holds: bool, wanted: str, value: Any, where: str) -> None:
    if not holds:
        raise InvalidRecords(f"{where.lstrip('.') or 'the value'} is {str(value)[:100]!r}, and should be {wanted}")
