"""The media types of version 2, which say how keys and values are embedded."""

from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lakestream.http.rest.errors import RestError

V2: Final = "application/vnd.kafka.v2+json"
FORMATS: Final = ("binary", "json", "avro", "protobuf", "jsonschema")
EMBEDDED: Final = tuple(f"application/vnd.kafka.{each}.v2+json" for each in FORMATS)
_OPEN: Final = ("", "*/*", "application/*", "application/json", V2)


def sent_format(request: Request) -> str:
    """Of what the client sends: binary where it does not say. Raises `RestError`."""
    kind = request.headers.get("Content-Type", "").split(";")[0].strip().lower()
    if kind in _OPEN:
        return "binary"
    if kind not in EMBEDDED:
        raise RestError(415, f"HTTP 415 Unsupported Media Type: {kind[:100]}")
    return FORMATS[EMBEDDED.index(kind)]


def accepts_format(request: Request, form: str) -> bool:
    """Whether the client takes records in that format."""
    wanted = [each.split(";")[0].strip().lower() for each in request.headers.get("Accept", "").split(",")]
    return any(each in _OPEN or each == f"application/vnd.kafka.{form}.v2+json" for each in wanted)


def told(value: Any, status: int = 200, kind: str = V2) -> Response:
    return Response(msgspec.json.encode(value), status, media_type=kind)
