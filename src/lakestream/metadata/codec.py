"""Stored values: one format byte, then MessagePack. Unknown formats are refused, never guessed."""

from typing import TypeVar

import msgspec

from lakestream.errors import CorruptObject

T = TypeVar("T")

FORMAT = 1


def encode(value: object) -> bytes:
    return bytes((FORMAT,)) + msgspec.msgpack.encode(value)


def decode(data: bytes, kind: type[T], name: str) -> T:
    """`name` says in an error which value it was."""
    if not data or data[0] != FORMAT:
        found = data[0] if data else "nothing"
        raise CorruptObject(f"{name}: format {found} is not one this version reads (it reads {FORMAT})")
    try:
        return msgspec.msgpack.decode(memoryview(data)[1:], type=kind)
    except msgspec.DecodeError as error:
        raise CorruptObject(f"{name}: the stored value does not decode: {error}") from error
