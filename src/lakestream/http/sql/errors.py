"""Refusals of the SQL door: a status, a code that programs can tell apart, and a sentence. The one place of that."""

import logging
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from lakestream.errors import (
    CitationRefused,
    LakestreamError,
    NoLongerThere,
    NotAuthorized,
    OffsetOutOfRange,
    Overloaded,
    QueryLimit,
    QueryRefused,
    RequestError,
    RetryableError,
    UnknownNamespace,
    UnknownStream,
    UnknownTable,
)

_log = logging.getLogger(__name__)

_KINDS: Final[tuple[tuple[type[LakestreamError], int, str], ...]] = (
    (QueryRefused, 400, "query_refused"),
    (QueryLimit, 422, "query_limit"),
    (CitationRefused, 400, "citation_refused"),
    (NoLongerThere, 410, "expired"),
    (OffsetOutOfRange, 416, "offset_out_of_range"),
    (UnknownTable, 404, "unknown_table"),
    (UnknownNamespace, 404, "unknown_table"),
    (UnknownStream, 404, "unknown_table"),
    (NotAuthorized, 403, "not_authorized"),
    (RequestError, 400, "bad_request"),
    (Overloaded, 503, "overloaded"),
    (RetryableError, 503, "unavailable"),
    (LakestreamError, 500, "storage_error"),
)
_CODES: Final = {408: "too_slow", 413: "too_large"}
_RETRY_AFTER_S: Final = 1
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def code_of(error: LakestreamError) -> tuple[int, str]:
    """Status and code."""
    return next((status, code) for kind, status, code in _KINDS if isinstance(error, kind))


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
