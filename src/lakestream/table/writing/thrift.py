"""Thrift's compact protocol, as far as the headers and the footer of a Parquet file are written in it.

A struct is fields by ascending number, each with its type and its value: a number, or the bytes of a text, a `struct`
or an `array`. It is one function because a file has thousands of numbers, and a call costs more than one of them.
"""

from collections.abc import Sequence
from typing import Final

TRUE: Final = 1
I32: Final = 5
I64: Final = 6
BINARY: Final = 8
LIST: Final = 9
STRUCT: Final = 12

Field = tuple[int, int, int | bytes | None]
"""Number, type, value; None: the field is left out. `TRUE` is its own value."""

_BYTES: Final = [bytes([value]) for value in range(256)]
_SHORT: Final = 15
"""Steps between field numbers and lengths of lists up to here share a byte with the type."""


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


def struct(*fields: Field) -> bytes:
    out = bytearray()
    last = 0
    for place, kind, value in fields:
        if value is None:
            continue
        step = place - last
        out += _BYTES[step << 4 | kind] if 0 < step <= _SHORT else _BYTES[kind] + varint(place << 1)
        last = place
        if isinstance(value, int):
            if kind != TRUE:
                _append(out, value)
        elif kind == BINARY:
            out += varint(len(value))
            out += value
        else:
            out += value
    out.append(0)
    return bytes(out)


def array(kind: int, values: Sequence[int] | Sequence[bytes]) -> bytes:
    """Of values of one type."""
    size = len(values)
    out = bytearray(_BYTES[size << 4 | kind] if size < _SHORT else _BYTES[0xF0 | kind] + varint(size))
    for value in values:
        if isinstance(value, int):
            _append(out, value)
        elif kind == BINARY:
            out += varint(len(value))
            out += value
        else:
            out += value
    return bytes(out)


def _append(out: bytearray, number: int) -> None:
    """Zigzag: small numbers are short, whatever their sign."""
    value = number << 1 if number >= 0 else (-number << 1) - 1
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
