"""kio at work: one reader and one writer per API version, made once.

Handlers answer with a mapping of the fields that any version of a response has;
the version's own are picked here. Record bytes are never joined: a response is a
list of buffers, ready for one vectored write.
"""

import dataclasses
import datetime as dt
import functools
import struct
import types
import typing
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError

from lakestream.kafka.errors import MalformedRequest
from lakestream.objects import Buffer

Fields = Mapping[str, Any]
"""A response, or a part of one, in terms of all versions."""

_PREFIX: Final = struct.Struct(">hhi")
_SIZE: Final = struct.Struct(">i")
_ZERO: Final = dt.timedelta(0)
_IMPLIED: Final[dict[str, object]] = {"throttle_time": _ZERO, "error_code": ErrorCode.none}
# kio raises plain ValueError for overlong varints, OverflowError for times beyond what Python can hold.
_BAD_BYTES: Final = (SerialError, ValueError, OverflowError, TypeError)


class Prefix(NamedTuple):
    """The part of a request header that every version shares."""

    api_key: int
    version: int
    correlation_id: int


class RecordParts:
    """Record bytes in several buffers. To kio it is a value with a length; `_Sink` takes the buffers as they are."""

    __slots__ = ("parts", "size_bytes")

    def __init__(self, parts: Sequence[Buffer]) -> None:
        self.parts = parts
        self.size_bytes = sum(len(memoryview(part)) for part in parts)

    def __len__(self) -> int:
        return self.size_bytes


class _Sink:
    """Where kio writes: small fields gather in one buffer, record bytes stay where they are."""

    __slots__ = ("large_bytes", "parts", "tail")

    def __init__(self) -> None:
        self.tail = bytearray(_SIZE.size)
        self.parts: list[Buffer] = [self.tail]
        self.large_bytes = 0

    def write(self, data: bytes | RecordParts) -> None:
        if type(data) is not RecordParts:
            self.tail += data  # type: ignore[arg-type]
        elif data.size_bytes:
            self.parts.extend(data.parts)
            self.large_bytes += data.size_bytes
            self.tail = bytearray()
            self.parts.append(self.tail)

    def finish(self) -> list[Buffer]:
        head = self.parts[0]
        assert isinstance(head, bytearray)
        small_bytes = sum(len(part) for part in self.parts if type(part) is bytearray)
        _SIZE.pack_into(head, 0, small_bytes + self.large_bytes - _SIZE.size)
        if not self.tail:
            self.parts.pop()
        return self.parts


class Wire(NamedTuple):
    """How one version of one API is read and written."""

    read_header: Callable[[Buffer, int], tuple[Any, int]]
    read_request: Callable[[Buffer, int], tuple[Any, int]]
    header: Callable[..., Any]
    write_header: Callable[[Any, Any], None]
    response: type[Any]
    write_response: Callable[[Any, Any], None]


def versions(api_key: int) -> tuple[int, int]:
    """The lowest and the highest version that kio has."""
    known = schema_name_map[api_key_map[api_key]].keys()
    return min(known), max(known)


@functools.cache
def wire(api_key: int, version: int) -> Wire:
    request, response = load_request_schema(api_key, version), load_response_schema(api_key, version)
    return Wire(
        entity_reader(request.__header_schema__),
        entity_reader(request),
        response.__header_schema__,
        entity_writer(response.__header_schema__),
        response,
        entity_writer(response),
    )


def read_prefix(frame: Buffer) -> Prefix:
    try:
        return Prefix._make(_PREFIX.unpack_from(frame))
    except struct.error as error:
        raise MalformedRequest("shorter than a request header") from error


def read_request(codec: Wire, frame: memoryview) -> tuple[str, Any]:
    """The client id and the request. Bytes in the request are copies: the frame may go."""
    readable = frame.toreadonly()
    try:
        header, position = codec.read_header(readable, 0)
        request, _ = codec.read_request(readable, position)
    except _BAD_BYTES as error:
        raise MalformedRequest(f"{type(error).__name__}: {error}") from error
    return header.client_id or "", request


def write_response(codec: Wire, correlation_id: int, fields: Fields) -> list[Buffer]:
    """One frame, size included, as buffers for a vectored write."""
    sink = _Sink()
    codec.write_header(sink, codec.header(correlation_id=correlation_id))
    codec.write_response(sink, compose(codec.response, fields))
    return sink.finish()


def compose(kind: type[Any], fields: Fields) -> Any:
    """An entity of this version from the fields of all versions."""
    values: dict[str, Any] = {}
    for name, build, default in _plan(cast(Hashable, kind)):
        value = fields.get(name, default)
        if value is dataclasses.MISSING:
            raise KeyError(f"{kind.__name__}.{name}")
        values[name] = value if build is None or value is default else build(value)
    return kind(**values)


@functools.cache
def _plan(kind: Any) -> tuple[tuple[str, Callable[[Any], Any] | None, Any], ...]:
    hints = typing.get_type_hints(kind)
    plan = []
    for field in dataclasses.fields(kind):
        default = (
            _IMPLIED.get(field.name, dataclasses.MISSING) if field.default is dataclasses.MISSING else field.default
        )
        plan.append((field.name, _builder(hints[field.name]), default))
    return tuple(plan)


def _builder(hint: Any) -> Callable[[Any], Any] | None:
    """What turns a plain value into this field's type; None when it is the same already."""
    arguments = [argument for argument in typing.get_args(hint) if argument not in (types.NoneType, ...)]
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        inner = _builder(arguments[0])
        return None if inner is None else lambda value: None if value is None else inner(value)
    if typing.get_origin(hint) is tuple:
        item = _builder(arguments[0])
        return tuple if item is None else lambda values: tuple([item(value) for value in values])
    return functools.partial(compose, cast(type[Any], hint)) if dataclasses.is_dataclass(hint) else None


def milliseconds(span: dt.timedelta) -> int:
    return span // dt.timedelta(milliseconds=1)
