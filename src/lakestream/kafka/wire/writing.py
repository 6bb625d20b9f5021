"""Responses → bytes, by kio's schemas and quicker than kio's own writer (8 µs against 60 for a produce response).

What is written is a mapping of the fields that any version has; each version's writer, made once from its schema,
picks its own. Neighbouring fields of fixed size are packed in one go, record bytes are never touched. Times are in
milliseconds. Tagged fields that are not mentioned are left out.
"""

import dataclasses
import functools
import struct
import types
import typing
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, cast
from uuid import UUID

from lakestream.objects import Buffer
from lakestream.records.varint import varint

Fields = Mapping[str, Any]
"""A response, or a part of one, in terms of all versions."""

_SIZE: Final = struct.Struct(">i")
_MISSING: Final = b"\xff"
_PRESENT: Final = b"\x01"
_NULL_UUID: Final = bytes(16)
_FORMATS: Final = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "bool": "?",
    "error_code": "h",
    "timedelta_i32": "i",
    "datetime_i64": "q",
    "timedelta_i64": "q",
    "uint16": "H",
    "float64": "d",
}
_IMPLIED: Final = {"throttle_time": 0, "error_code": 0, "log_append_time": -1}
"""Fields without a default in the schema, or with one that is no number, that answers need not mention."""


class RecordParts:
    """Record bytes in several buffers."""

    __slots__ = ("parts", "size_bytes")

    def __init__(self, parts: Sequence[Buffer]) -> None:
        self.parts = parts
        self.size_bytes = sum(map(len, parts))


class Sink:
    """One frame: small fields gather in `tail`, record bytes stay where they are."""

    __slots__ = ("parts", "tail")

    def __init__(self) -> None:
        self.tail = bytearray(_SIZE.size)
        self.parts: list[Buffer] = [self.tail]

    def add(self, records: RecordParts) -> None:
        if records.size_bytes:
            self.parts.extend(records.parts)
            self.tail = bytearray()
            self.parts.append(self.tail)

    def finish(self) -> list[Buffer]:
        """The frame with its size in front, as buffers for one vectored write."""
        head, parts = self.parts[0], self.parts
        if len(parts) > 1 and not self.tail:
            parts.pop()
        _SIZE.pack_into(cast(bytearray, head), 0, sum(map(len, parts)) - _SIZE.size)
        return parts


Step = Callable[[Sink, Fields], None]
_Put = Callable[[Sink, Any], None]


@functools.cache
def writer(kind: Any) -> Step:
    """Writes an entity of this version from the fields of all versions."""
    steps: list[Step] = []
    fixed: list[tuple[str, str, Any]] = []
    hints = typing.get_type_hints(kind)
    tagged: list[tuple[int, str, _Put]] = []
    for field in dataclasses.fields(kind):
        if "tag" in field.metadata:
            put = _put(hints[field.name], field.metadata.get("kafka_type"), kind.__flexible__)
            tagged.append((field.metadata["tag"], field.name, put))
            continue
        missing = field.default is dataclasses.MISSING
        default = _IMPLIED.get(field.name, field.default if not missing else dataclasses.MISSING)
        hint = hints[field.name]
        code = _FORMATS.get(field.metadata.get("kafka_type", ""))
        if code is not None and not _is_array(hint):
            fixed.append((field.name, code, default))
            continue
        if fixed:
            steps.append(_packed(fixed))
            fixed = []
        steps.append(_field(field.name, default, _put(hint, field.metadata.get("kafka_type"), kind.__flexible__)))
    if kind.__flexible__ and not tagged:
        fixed.append(("", "b", 0))
    if fixed:
        steps.append(_packed(fixed))
    if tagged:
        steps.append(_tagged(sorted(tagged)))
    return steps[0] if len(steps) == 1 else _sequence(tuple(steps))


def encoded(kind: Any, part: str, fields: Fields) -> bytes:
    """One entity of the array `part` of a response, without record bytes: to be used in its place."""
    hint = typing.get_type_hints(kind)[part]
    while typing.get_origin(hint) is not None:
        hint = next(each for each in typing.get_args(hint) if each not in (types.NoneType, ...))
    sink = Sink()
    writer(hint)(sink, fields)
    return bytes(sink.tail[_SIZE.size :])


def _is_array(hint: Any) -> bool:
    """Also one that may be null."""
    return any(typing.get_origin(each) is tuple for each in (hint, *typing.get_args(hint)))


def _sequence(steps: tuple[Step, ...]) -> Step:
    def write(sink: Sink, fields: Fields) -> None:
        for step in steps:
            step(sink, fields)

    return write


def _packed(fixed: Sequence[tuple[str, str, Any]]) -> Step:
    """Numbers of fixed size in one go. An entity without tagged fields ends in their count, 0, which has no name."""
    pack = struct.Struct(">" + "".join(code for _, code, _ in fixed)).pack
    named = tuple((name, default) for name, _, default in fixed)

    def write(sink: Sink, fields: Fields) -> None:
        sink.tail += pack(*[fields.get(name, default) for name, default in named])

    return write


def _tagged(tagged: Sequence[tuple[int, str, _Put]]) -> Step:
    """How many are there, and each with its tag and its size."""

    def write(sink: Sink, fields: Fields) -> None:
        present = [(tag, put, fields[name]) for tag, name, put in tagged if name in fields]
        sink.tail += varint(len(present))
        for tag, put, value in present:
            inner = Sink()
            put(inner, value)
            sink.tail += varint(tag) + varint(len(inner.tail) - _SIZE.size) + inner.tail[_SIZE.size :]

    return write


def _field(name: str, default: Any, put: _Put) -> Step:
    if default is dataclasses.MISSING:

        def required(sink: Sink, fields: Fields) -> None:
            put(sink, fields[name])

        return required

    def optional(sink: Sink, fields: Fields) -> None:
        put(sink, fields.get(name, default))

    return optional


def _put(hint: Any, kafka_type: str | None, flexible: bool) -> _Put:
    """How one value of this type is written, its length included."""
    arguments = [argument for argument in typing.get_args(hint) if argument not in (types.NoneType, ...)]
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        put = _put(arguments[0], kafka_type, flexible)
        return _nullable(put) if dataclasses.is_dataclass(arguments[0]) else put
    if typing.get_origin(hint) is tuple:
        return _array(_put(arguments[0], kafka_type, flexible), _counts(flexible, ">i"))
    if dataclasses.is_dataclass(hint):
        return _entity(writer(cast(Hashable, hint)))
    if kafka_type in _FORMATS:
        return _number(struct.Struct(">" + _FORMATS[kafka_type]).pack)
    if kafka_type == "uuid":
        return _uuid
    if kafka_type == "string":
        return _string(_counts(flexible, ">h"))
    if kafka_type in ("bytes", "records"):
        return _bytes(_counts(flexible, ">i"))
    raise TypeError(f"no writer for {kafka_type} {hint}")


def _entity(step: Step) -> _Put:
    """From its fields, or as `encoded` has written it before."""

    def put(sink: Sink, value: Fields | bytes) -> None:
        if isinstance(value, bytes):
            sink.tail += value
        else:
            step(sink, value)

    return put


def _nullable(put: _Put) -> _Put:
    """An entity that may be missing: a byte says whether it follows."""

    def put_if_any(sink: Sink, value: Fields | None) -> None:
        sink.tail += _MISSING if value is None else _PRESENT
        if value is not None:
            put(sink, value)

    return put_if_any


def _counts(flexible: bool, old_format: str) -> Callable[[int], bytes]:
    """How a length is written; -1 is null."""
    return (lambda length: varint(length + 1)) if flexible else struct.Struct(old_format).pack


def _array(item: _Put, count: Callable[[int], bytes]) -> _Put:
    def put(sink: Sink, values: Sequence[Any] | None) -> None:
        if values is None:
            sink.tail += count(-1)
            return
        sink.tail += count(len(values))
        for value in values:
            item(sink, value)

    return put


def _number(pack: Callable[[int], bytes]) -> _Put:
    def put(sink: Sink, value: int) -> None:
        sink.tail += pack(value)

    return put


def _uuid(sink: Sink, value: UUID | None) -> None:
    sink.tail += _NULL_UUID if value is None else value.bytes


def _string(length: Callable[[int], bytes]) -> _Put:
    def put(sink: Sink, value: str | None) -> None:
        if value is None:
            sink.tail += length(-1)
        else:
            data = value.encode()
            sink.tail += length(len(data))
            sink.tail += data

    return put


def _bytes(length: Callable[[int], bytes]) -> _Put:
    def put(sink: Sink, value: bytes | RecordParts | None) -> None:
        if value is None:
            sink.tail += length(-1)
        elif isinstance(value, RecordParts):
            sink.tail += length(value.size_bytes)
            sink.add(value)
        else:
            sink.tail += length(len(value))
            sink.tail += value

    return put
