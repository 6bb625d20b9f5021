"""What clients of the REST door send beside streams of records, checked before anything is looked up."""

import asyncio
from typing import Final, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from lakestream.http.rest.errors import NOT_JSON, RestError

_BODY_S: Final = 30.0
"""A body that takes longer is given up."""
T = TypeVar("T")


async def body_of(request: Request, kind: type[T], most_bytes: int = 1 << 20) -> T:
    """Raises `RestError`."""
    return decoded(await bytes_of(request, most_bytes), kind)


async def optional_body_of(request: Request, kind: type[T]) -> T | None:
    """None where nothing was sent. Raises `RestError`."""
    data = await bytes_of(request, 1 << 20)
    return decoded(data, kind) if data.strip() else None


async def bytes_of(request: Request, most_bytes: int) -> bytes:
    data = bytearray()
    try:
        async with asyncio.timeout(_BODY_S):
            async for part in request.stream():
                data += part
                if len(data) > most_bytes:
                    raise RestError(413, f"the request has more than {most_bytes} bytes")
    except TimeoutError:
        raise RestError(408, f"the request did not arrive within {_BODY_S:.0f} s") from None
    except ClientDisconnect:
        raise RestError(400, "the client is gone") from None
    return bytes(data)


def decoded(data: bytes | memoryview, kind: type[T]) -> T:
    """Raises `RestError`."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise RestError(NOT_JSON, f"Cannot deserialize the request: {error}") from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise RestError(NOT_JSON, f"Error processing JSON: {error}") from error


def path_number(request: Request, name: str) -> int:
    """A number below 2^31 out of the path. Raises `RestError`."""
    text = request.path_params[name]
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) < 1 << 31):
        raise RestError(404, f"HTTP 404 Not Found: {name} is a number, not {text[:50]!r}")
    return int(text)


def query_number(request: Request, name: str, default: int, least: int, most: int) -> int:
    """Raises `RestError`."""
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        found = int(text) if len(text) <= 20 else most + 1
    except ValueError:
        found = least - 1
    if not least <= found <= most:
        raise RestError(400, f"{name} is a number from {least} to {most}, not {text[:50]!r}")
    return found


def query_flag(request: Request, name: str) -> bool:
    return request.query_params.get(name, "").lower() in ("true", "1")
