"""Thrift's compact protocol, as far as the headers and the footer of a Parquet file are written in it.

A struct is a list of fields by ascending number, whose values come encoded.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

_TRUE, _FALSE, _I32, _I64, _BINARY, _LIST, _STRUCT = 1, 2, 5, 6, 8, 9, 12
_SHORT: Final = 15
"""Steps between field numbers and lengths of lists up to here share a byte with the type."""

_BYTES: Final = [bytes([value]) for value in range(256)]


class Value(NamedTuple):
    """What is written of a field or of an element: its type and its bytes."""

    kind: int
    data: bytes


def varint(value: int) -> bytes:
    """An unsigned number, seven bits to a byte."""
    if value < 0x80:
        return _BYTES[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(value: int) -> Value:
    """Of 32 bits, enumerations too."""
    return Value(_I32, _zigzag(value))


def long_number(value: int) -> Value:
    """Of 64 bits."""
    return Value(_I64, _zigzag(value))


def binary(value: bytes) -> Value:
    return Value(_BINARY, varint(len(value)) + value)


def text(value: str) -> Value:
    return binary(value.encode())


def flag(value: bool) -> Value:
    return Value(_TRUE if value else _FALSE, b"")


def array(values: Sequence[Value]) -> Value:
    """Of values of one type, at least one."""
    kind, size = values[0].kind, len(values)
    head = _BYTES[size << 4 | kind] if size < _SHORT else bytes([0xF0 | kind]) + varint(size)
    return Value(_LIST, head + b"".join(value.data for value in values))


def struct(*fields: tuple[int, Value | None]) -> Value:
    """Fields without a value are left out."""
    out = bytearray()
    last = 0
    for place, value in fields:
        if value is None:
            continue
        step = place - last
        out += _BYTES[step << 4 | value.kind] if 0 < step <= _SHORT else _BYTES[value.kind] + _zigzag(place)
        out += value.data
        last = place
    out.append(0)
    return Value(_STRUCT, bytes(out))


def _zigzag(value: int) -> bytes:
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)
