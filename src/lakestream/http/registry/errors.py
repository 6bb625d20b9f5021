"""Refusals as Confluent's registry words them: a number that clients know, and a sentence."""

import logging
from http import HTTPStatus
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from lakestream.errors import (
    LakestreamError,
    NotAuthorized,
    RegistryProblem,
    RegistryRefused,
    RequestError,
    RetryableError,
)
from lakestream.http.registry.answers import answer

_log = logging.getLogger(__name__)

_CODES: Final = {
    RegistryProblem.UNKNOWN_SUBJECT: 40401,
    RegistryProblem.UNKNOWN_VERSION: 40402,
    RegistryProblem.UNKNOWN_SCHEMA: 40403,
    RegistryProblem.SUBJECT_DELETED: 40404,
    RegistryProblem.SUBJECT_NOT_DELETED: 40405,
    RegistryProblem.VERSION_DELETED: 40406,
    RegistryProblem.VERSION_NOT_DELETED: 40407,
    RegistryProblem.NO_CONFIG: 40408,
    RegistryProblem.NO_MODE: 40409,
    RegistryProblem.INCOMPATIBLE: 409,
    RegistryProblem.INVALID_SCHEMA: 42201,
    RegistryProblem.INVALID_VERSION: 42202,
    RegistryProblem.INVALID_LEVEL: 42203,
    RegistryProblem.INVALID_MODE: 42204,
    RegistryProblem.NOT_PERMITTED: 42205,
    RegistryProblem.REFERENCED: 42206,
    RegistryProblem.ID_DIFFERS: 42207,
    RegistryProblem.INVALID_SUBJECT: 42208,
    RegistryProblem.TOO_LARGE: 42209,
    RegistryProblem.INVALID_RULES: 42210,
}
_NOT_AUTHORIZED: Final = 40301
_STORE: Final = 50001
_AGAIN: Final = 50302


async def on_lakestream_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, LakestreamError)
    if isinstance(error, RegistryRefused):
        return refusal(_CODES[error.problem], str(error))
    if isinstance(error, NotAuthorized):
        return refusal(_NOT_AUTHORIZED, str(error))
    if isinstance(error, RequestError):
        return refusal(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
    if isinstance(error, RetryableError):
        return refusal(_AGAIN, str(error))
    _log.error("the schema registry failed", exc_info=error)
    return refusal(_STORE, f"Error in the backend data store: {error}")


async def on_http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return refusal(error.status_code, error.detail)


async def on_unexpected_error(_request: Request, error: Exception) -> Response:
    _log.error("the schema registry failed", exc_info=error)
    return refusal(_STORE, "nobody foresaw this: the log of the HTTP door has the details")


def refusal(code: int, message: str) -> Response:
    """The first three digits are the status."""
    return answer({"error_code": int(code), "message": message}, status=int(str(int(code))[:3]))
