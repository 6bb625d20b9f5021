"""One reader and one writer per API version, made once from kio's schemas."""

import datetime as dt
import functools
import struct
from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple, cast

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader
from kio.serial.errors import SerialError

from lakestream.kafka.errors import MalformedRequest
from lakestream.kafka.wire.reading import Reader, view_reader
from lakestream.kafka.wire.writing import Fields, Sink, Step, encoded, writer
from lakestream.objects import Buffer

_PREFIX: Final = struct.Struct(">hhi")
_MILLISECOND: Final = dt.timedelta(milliseconds=1)
_PRODUCE: Final = 0
_VIEW_FROM_BYTES: Final = 64 * 1024
"""From this size on a produce request is read without copying its records."""
# kio raises plain ValueError for overlong varints, OverflowError for times beyond what Python can hold, KeyError for
# tagged fields that it does not know.
_BAD_BYTES: Final = (SerialError, ValueError, OverflowError, TypeError, KeyError)


class Prefix(NamedTuple):
    """The part of a request header that every version shares."""

    api_key: int
    version: int
    correlation_id: int


class Wire(NamedTuple):
    """How one version of one API is read and written."""

    read_header: Callable[[Buffer, int], tuple[Any, int]]
    read_request: Callable[[Buffer, int], tuple[Any, int]]
    read_large: Reader
    write_header: Step
    write_response: Step


@functools.cache
def wire(api_key: int, version: int) -> Wire:
    request, response = load_request_schema(api_key, version), load_response_schema(api_key, version)
    read_request = entity_reader(request)
    return Wire(
        entity_reader(request.__header_schema__),
        read_request,
        view_reader(request) if api_key == _PRODUCE else read_request,
        writer(cast(Hashable, response.__header_schema__)),
        writer(cast(Hashable, response)),
    )


def read_prefix(frame: Buffer) -> Prefix:
    try:
        return Prefix._make(_PREFIX.unpack_from(frame))
    except struct.error as error:
        raise MalformedRequest("shorter than a request header") from error


def read_request(codec: Wire, frame: memoryview) -> tuple[str, Any]:
    """The client id and the request. Its bytes are copies, or views that keep the frame alive."""
    readable = frame.toreadonly()
    try:
        header, position = codec.read_header(readable, 0)
        read = codec.read_large if len(frame) >= _VIEW_FROM_BYTES else codec.read_request
        request, _ = read(readable, position)
    except _BAD_BYTES as error:
        raise MalformedRequest(f"{type(error).__name__}: {error}") from error
    return header.client_id or "", request


def write_response(codec: Wire, correlation_id: int, fields: Fields) -> list[Buffer]:
    """One frame, size included, as buffers for a vectored write."""
    sink = Sink()
    codec.write_header(sink, {"correlation_id": correlation_id})
    codec.write_response(sink, fields)
    return sink.finish()


def write_part(api_key: int, version: int, part: str, fields: Fields) -> bytes:
    """One entity of a response's array, to be given in its place as often as it is needed."""
    return encoded(load_response_schema(api_key, version), part, fields)


def milliseconds(span: dt.timedelta) -> int:
    return span // _MILLISECOND
