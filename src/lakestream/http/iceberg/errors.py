"""Errors as the Iceberg REST protocol words them. The one place where they are mapped."""

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from lakestream.errors import (
    Conflict,
    InvalidView,
    LakestreamError,
    NamespaceExists,
    NamespaceNotEmpty,
    NotAuthorized,
    ObjectMissing,
    RequestError,
    RetryableError,
    TableExists,
    TableRefused,
    Unavailable,
    UnknownNamespace,
    UnknownTable,
    UnknownView,
)

_KINDS: tuple[tuple[type[LakestreamError], int, str], ...] = (
    (UnknownTable, 404, "NoSuchTableException"),
    (UnknownView, 404, "NoSuchViewException"),
    (UnknownNamespace, 404, "NoSuchNamespaceException"),
    (TableExists, 409, "AlreadyExistsException"),
    (NamespaceExists, 409, "AlreadyExistsException"),
    (NamespaceNotEmpty, 409, "NamespaceNotEmptyException"),
    (NotAuthorized, 403, "NotAuthorizedException"),
    (TableRefused, 403, "ForbiddenException"),
    (Conflict, 409, "CommitFailedException"),
    (InvalidView, 400, "IllegalArgumentException"),
    (RequestError, 400, "BadRequestException"),
    (RetryableError, 503, "ServiceUnavailableException"),
    (ObjectMissing, 404, "NotFoundException"),
    (LakestreamError, 500, "InternalServerError"),
)


class OutcomeUnknown(Unavailable):
    """A commit that may have happened: engines must not clean up after it."""


def error_response(request: Request, status: int, kind: str, message: str) -> Response:
    """The protocol's error body; an answer to HEAD has none."""
    if request.method == "HEAD":
        return Response(status_code=status)
    return JSONResponse({"error": {"message": message, "type": kind, "code": status}}, status_code=status)


def on_lakestream_error(request: Request, error: Exception) -> Response:
    if isinstance(error, OutcomeUnknown):
        return error_response(request, 504, "CommitStateUnknownException", str(error))
    for kind, status, name in _KINDS:
        if isinstance(error, kind):
            return error_response(request, status, name, str(error))
    raise error


def on_invalid_request(request: Request, error: Exception) -> Response:
    if not isinstance(error, ValidationError):
        raise error
    places = [f"{'.'.join(map(str, found['loc'])) or 'body'}: {found['msg']}" for found in error.errors()[:5]]
    return error_response(request, 400, "BadRequestException", f"the request is not understood: {'; '.join(places)}")


def on_http_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    kind = {404: "NotFoundException", 405: "UnsupportedOperationException", 413: "BadRequestException"}
    return error_response(request, error.status_code, kind.get(error.status_code, "BadRequestException"), error.detail)


def on_unexpected_error(request: Request, _error: Exception) -> Response:
    """The error itself is for the log, which the server writes."""
    return error_response(request, 500, "InternalServerError", "the server failed: its log says why")
