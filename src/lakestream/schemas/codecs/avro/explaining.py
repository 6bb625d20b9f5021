"""Why bytes are no Avro value of a schema: read slowly, a field at a time, until something is wrong."""

from typing import Final

from lakestream.schemas.avro import AvroSchema, AvroType
from lakestream.schemas.codecs.layout import MAX_EMPTY_ITEMS
from lakestream.schemas.mapping.avro import is_decimal

_MAX_STEPS: Final = 100_000
_MAX_LEVELS: Final = 100
_MILLIS_MAX: Final = (1 << 63) // 1000 - 1
_SIZES: Final = {"float": 4, "double": 8}


class _Wrong(Exception):
    """With the sentence."""


def explain_avro(schema: AvroSchema, data: bytes) -> str:
    """Of a value without framing. Empty: nothing is wrong with its bytes as far as this reads."""
    reader = _Reader(schema, data)
    try:
        reader.value(schema.root, "", 0)
    except _Wrong as wrong:
        return str(wrong)
    return ""


class _Reader:
    def __init__(self, schema: AvroSchema, data: bytes) -> None:
        self._schema = schema
        self._data = data
        self._at = 0
        self._steps = 0
        self._budget = MAX_EMPTY_ITEMS

    def value(self, kind: AvroType, path: str, level: int) -> None:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise _Wrong(f"it is too long to say where it is not of its schema; up to {_told(path)} it is")
        if level > _MAX_LEVELS:
            raise _Wrong(f"{_told(path)} nests more than {_MAX_LEVELS} levels")
        kind = self._schema.resolved(kind)
        match kind.kind:
            case "null":
                pass
            case "boolean":
                if (byte := self._take(1, path)[0]) > 1:
                    raise _Wrong(f"{_told(path)} is a boolean with the byte {byte}: only 0 and 1 are")
            case "int" | "long" | "enum":
                self._number(kind, path)
            case "float" | "double":
                self._take(_SIZES[kind.kind], path)
            case "bytes" | "string" | "fixed":
                self._bytes(kind, path)
            case "union":
                branch = self._long(path)
                if not 0 <= branch < len(kind.below):
                    raise _Wrong(f"{_told(path)} has the branch {branch} of a union that has {len(kind.below)}")
                self.value(kind.below[branch], path, level + 1)
            case "record":
                for name, each in zip(kind.names, kind.below, strict=True):
                    self.value(each, f"{path}.{name}" if path else name, level + 1)
            case _:
                self._items(kind, path, level)

    def _number(self, kind: AvroType, path: str) -> None:
        number = self._long(path)
        if kind.kind == "enum" and not 0 <= number < len(kind.names):
            raise _Wrong(f"{_told(path)} has the symbol {number} of an enum that has {len(kind.names)}")
        if kind.kind == "int" and not -(1 << 31) <= number < 1 << 31:
            raise _Wrong(f"{_told(path)} is {number}, more than an int holds")
        if kind.logical.endswith("timestamp-millis") and abs(number) > _MILLIS_MAX:
            raise _Wrong(f"{_told(path)} is {number} ms, a time that no column holds")

    def _bytes(self, kind: AvroType, path: str) -> None:
        found = self._take(kind.size if kind.kind == "fixed" else self._long(path), path)
        if kind.kind == "string":
            try:
                found.decode()
            except UnicodeDecodeError as error:
                raise _Wrong(f"{_told(path)} is a string that is no UTF-8 at its byte {error.start}") from None
        elif is_decimal(kind):
            number = int.from_bytes(found, "big", signed=True)
            if not 1 <= len(found) <= 16 or abs(number) >= 10**kind.precision:
                raise _Wrong(f"{_told(path)} is a decimal of more than {kind.precision} digits, or of none")

    def _items(self, kind: AvroType, path: str, level: int) -> None:
        place = 0
        while count := self._long(path):
            if count < 0:
                count = -count
                self._check(self._long(path), path)
            if count > len(self._data) - self._at + self._budget:
                raise _Wrong(f"{_told(path)} claims {count} items, more than its bytes can be")
            for _ in range(count):
                before = self._at
                if kind.kind == "map":
                    self._bytes(_KEY, f"{path}[{place}].key")
                self.value(kind.below[0], f"{path}[{place}]", level + 1)
                self._budget -= self._at == before
                if self._budget < 0:
                    raise _Wrong(f"{_told(path)} has too many items that take no bytes")
                place += 1

    def _take(self, size: int, path: str) -> bytes:
        self._check(size, path)
        self._at += size
        return self._data[self._at - size : self._at]

    def _check(self, size: int, path: str) -> None:
        left = len(self._data) - self._at
        if not 0 <= size <= left:
            raise _Wrong(f"{_told(path)} claims {size} bytes, and there are {left} left")

    def _long(self, path: str) -> int:
        value = shift = 0
        while True:
            byte = self._take(1, path)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift >= 70:
                raise _Wrong(f"{_told(path)} has a number that does not end after ten bytes")
        if value >> 64:
            raise _Wrong(f"{_told(path)} has a number of more than 64 bits")
        return (value >> 1) ^ -(value & 1)


_KEY: Final = AvroType("string")


def _told(path: str) -> str:
    return f"the field {path}" if path else "it"
