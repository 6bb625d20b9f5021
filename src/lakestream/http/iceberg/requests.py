"""What requests of the Iceberg REST protocol have in common: names in paths, bodies, pages."""

import base64
import binascii
from collections.abc import Sequence
from typing import Final, TypeVar

from pyiceberg.exceptions import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from lakestream.errors import RequestError
from lakestream.http.iceberg.messages import Identifier, Message
from lakestream.metadata.names.pointers import Namespace, TableName

M = TypeVar("M", bound=Message)

LEVEL: Final = "\x1f"
_MAX_BODY_BYTES: Final = 64 * 1024 * 1024
_PAGE: Final = 1000


def namespace_of(request: Request) -> Namespace:
    return tuple(str(request.path_params["namespace"]).split(LEVEL))


def name_of(request: Request, kind: str) -> TableName:
    """`kind` is the path's own word: table or view."""
    return TableName(namespace_of(request), str(request.path_params[kind]))


def named(identifier: Identifier) -> TableName:
    return TableName(tuple(identifier.namespace), identifier.name)


async def read(request: Request) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _MAX_BODY_BYTES:
            raise HTTPException(413, f"the request is larger than {_MAX_BODY_BYTES} bytes")
    return bytes(body)


async def body_of(request: Request, kind: type[M]) -> M:
    """Raises pydantic's ValidationError, or `RequestError` for what a model's own code rejects in other ways."""
    data = await read(request)
    try:
        return kind.model_validate_json(data)
    except (KeyError, TypeError, ValidationError) as error:
        raise RequestError(f"the request is not understood: {error}") from error


def page_of(request: Request, names: Sequence[str]) -> tuple[Sequence[str], str | None]:
    """The names after the request's token, at most as many as it wants, and the token of the next page. `names` are in
    order. A token is the last name before its page, so a list that changes between two pages loses and doubles nothing
    else. Whoever does not ask for pages gets everything."""
    asked, size = request.query_params.get("pageToken"), request.query_params.get("pageSize")
    if asked is None and size is None:
        return names, None
    try:
        after = base64.b64decode(asked, b"-_", validate=True).decode() if asked else ""
        most = _PAGE if size is None else int(size)
    except (binascii.Error, ValueError) as error:
        raise RequestError("pageToken or pageSize is not one that was given out or makes sense here") from error
    if most < 1:
        raise RequestError(f"pageSize must be at least 1, not {most}")
    rest = [name for name in names if name > after]
    page = rest[:most]
    return page, base64.urlsafe_b64encode(page[-1].encode()).decode() if len(rest) > most else None
