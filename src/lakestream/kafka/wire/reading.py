"""Large produce requests without a copy: their records are views of the frame, all else is read by kio.

kio copies every byte string out of the frame. For small requests that costs less than a reader in Python;
for large ones it would double the memory that is touched.
"""

import dataclasses
import functools
import types
import typing
from collections.abc import Callable
from typing import Any, Final

from kio.serial.errors import BufferUnderflow, NegativeByteLength
from kio.serial.readers import (
    read_compact_array_length,
    read_compact_string,
    read_compact_string_nullable,
    read_int16,
    read_int32,
    read_legacy_array_length,
    read_legacy_string,
    read_nullable_legacy_string,
    read_timedelta_i32,
    read_unsigned_varint,
    read_uuid,
)

Reader = Callable[[memoryview, int], tuple[Any, int]]
"""From a read-only buffer and a position: the value and how many bytes it took."""

_PLAIN: Final[dict[str, Reader]] = {
    "int16": read_int16,
    "int32": read_int32,
    "timedelta_i32": read_timedelta_i32,
    "uuid": read_uuid,
}


@functools.cache
def view_reader(kind: Any) -> Reader:
    """Reads an entity with its records as views. Knows the types that produce requests are made of."""
    hints = typing.get_type_hints(kind)
    flexible: bool = kind.__flexible__
    readers = [
        (field.name, _reader(hints[field.name], field.metadata.get("kafka_type", ""), flexible))
        for field in dataclasses.fields(kind)
    ]

    def read(frame: memoryview, start: int) -> tuple[Any, int]:
        values, position = {}, start
        for name, reader in readers:
            values[name], size = reader(frame, position)
            position += size
        if flexible:
            position += _skip_tags(frame, position)
        return kind(**values), position - start

    return read


def _reader(hint: Any, kafka_type: str, flexible: bool) -> Reader:
    arguments = [argument for argument in typing.get_args(hint) if argument not in (types.NoneType, ...)]
    if kafka_type == "records":
        return _compact_view if flexible else _legacy_view
    if typing.get_origin(hint) is tuple:
        return _array(view_reader(arguments[0]), read_compact_array_length if flexible else read_legacy_array_length)
    if kafka_type == "string":
        nullable = typing.get_origin(hint) in (types.UnionType, typing.Union)
        if flexible:
            return read_compact_string_nullable if nullable else read_compact_string
        return read_nullable_legacy_string if nullable else read_legacy_string
    return _PLAIN[kafka_type]


def _array(item: Reader, read_count: Callable[[memoryview, int], tuple[int | None, int]]) -> Reader:
    def read(frame: memoryview, start: int) -> tuple[Any, int]:
        count, size = read_count(frame, start)
        values, position = [], start + size
        for _ in range(count or 0):
            value, size = item(frame, position)
            values.append(value)
            position += size
        return tuple(values), position - start

    return read


def _compact_view(frame: memoryview, start: int) -> tuple[memoryview | None, int]:
    length, size = read_unsigned_varint(frame, start)
    return (None, size) if length == 0 else _view(frame, start, size, length - 1)


def _legacy_view(frame: memoryview, start: int) -> tuple[memoryview | None, int]:
    length, size = read_int32(frame, start)
    return (None, size) if length == -1 else _view(frame, start, size, length)


def _view(frame: memoryview, start: int, prefix: int, length: int) -> tuple[memoryview, int]:
    if length < 0:
        raise NegativeByteLength(f"{length} bytes of records")
    end = start + prefix + length
    if end > len(frame):
        raise BufferUnderflow("the records end after the frame")
    return frame[start + prefix : end], prefix + length


def _skip_tags(frame: memoryview, start: int) -> int:
    """Tagged fields of a version that is newer than the schema: none of them is known."""
    count, size = read_unsigned_varint(frame, start)
    position = start + size
    for _ in range(count):
        _, size = read_unsigned_varint(frame, position)
        position += size
        length, size = read_unsigned_varint(frame, position)
        position += size + length
        if position > len(frame):
            raise BufferUnderflow("a tagged field ends after the frame")
    return position - start
