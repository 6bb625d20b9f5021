"""Thrift's compact protocol, as far as the headers and the footer of a Parquet file are written in it.

A struct is fields by ascending number, each with its type and its value: a number, or the bytes of a text, a `struct`
or an `array`.
"""

from collections.abc import Sequence
from typing import Final

from lakestream.records.varint import varint

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


def struct(*fields: Field) -> bytes:
    out = bytearray()
    last = 0
    for place, kind, value in fields:
        if value is None:
            continue
        step = place - last
        out += _BYTES[step << 4 | kind] if 0 < step <= _SHORT else _BYTES[kind] + varint(place << 1)
        last = place
        _put(out, kind, value)
    out.append(0)
    return bytes(out)


def array(kind: int, values: Sequence[int] | Sequence[bytes]) -> bytes:
    """Of values of one type."""
    size = len(values)
    out = bytearray(_BYTES[size << 4 | kind] if size < _SHORT else _BYTES[0xF0 | kind] + varint(size))
    for value in values:
        _put(out, kind, value)
    return bytes(out)


def _put(out: bytearray, kind: int, value: int | bytes) -> None:
    if isinstance(value, bytes) and kind == BINARY:
        out += varint(len(value))
        out += value
    elif not isinstance(value, int):
        out += value
    elif kind != TRUE:
        # Zigzag: small numbers are short, whatever their sign.
        out += varint(value << 1 if value >= 0 else (-value << 1) - 1)
