"""Refusals of the SQL door, as it words them."""

import logging
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from lakestream.errors import LakestreamError
from lakestream.http.refusals import code_of

_log = logging.getLogger(__name__)

_CODES: Final = {408: "too_slow", 413: "too_large"}
_RETRY_AFTER_S: Final = 1
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def answered(handler: Handler) -> Handler:
    """The handler, whose errors are answers."""

    @wraps(handler)
    async def told(request: Request) -> Response:
        try:
            return await handler(request)
        except LakestreamError as error:
            status, code = code_of(error)
            if status == 500:
                _log.error("a query failed", exc_info=error)
            return refusal(status, code, str(error))
        except HTTPException as error:
            return refusal(error.status_code, _CODES.get(error.status_code, "bad_request"), error.detail)

    return told


def refusal(status: int, code: str, message: str) -> Response:
    headers = {"Retry-After": str(_RETRY_AFTER_S)} if status == 503 else {}
    body = msgspec.json.encode({"error": {"code": code, "message": message}})
    return Response(body, status_code=status, media_type="application/json", headers=headers)
