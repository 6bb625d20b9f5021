"""Refusals of the REST door, with the numbers that Confluent's clients know: the place where errors become these."""

import logging
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Final, NamedTuple

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from lakestream.errors import (
    InvalidRecords,
    InvalidSchema,
    InvalidStream,
    LakestreamError,
    NotAuthorized,
    OffsetOutOfRange,
    Overloaded,
    RecordsKept,
    RecordsTooLarge,
    RegistryProblem,
    RegistryRefused,
    RequestError,
    RetryableError,
    StreamExists,
    UnknownStream,
)

_log = logging.getLogger(__name__)

_RETRY_AFTER_S: Final = 1
UNKNOWN_TOPIC: Final = 40403
BAD_REQUEST: Final = 40002
NOT_JSON: Final = 400
INVALID_PAYLOAD: Final = 42206
NOT_SERIALIZED: Final = 42207

_CODES: Final[tuple[tuple[type[LakestreamError], int], ...]] = (
    (NotAuthorized, 40301),
    (UnknownStream, UNKNOWN_TOPIC),
    (StreamExists, BAD_REQUEST),
    (InvalidStream, BAD_REQUEST),
    (RecordsKept, BAD_REQUEST),
    (RecordsTooLarge, 413),
    (OffsetOutOfRange, 416),
    (InvalidRecords, INVALID_PAYLOAD),
    (InvalidSchema, 42205),
    (RegistryRefused, NOT_SERIALIZED),
    (RequestError, BAD_REQUEST),
    (Overloaded, 42901),
    (RetryableError, 50003),
    (LakestreamError, 50002),
)
_WORDS: Final = {
    UNKNOWN_TOPIC: "This server does not host this topic-partition. {}",
    INVALID_PAYLOAD: "Payload error. {}",
    NOT_SERIALIZED: "Error serializing message. {}",
    42205: "Invalid schema: {}",
}
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class RestError(Exception):
    """What this door refuses by itself. The first three digits of the code are the status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Fault(NamedTuple):
    code: int
    message: str

    @property
    def status(self) -> int:
        return int(str(self.code)[:3])


def fault_of(error: LakestreamError | RestError) -> Fault:
    if isinstance(error, RestError):
        return Fault(error.code, str(error))
    code = next(code for kind, code in _CODES if isinstance(error, kind))
    if isinstance(error, RegistryRefused) and error.problem is RegistryProblem.INVALID_SCHEMA:
        return Fault(42205, str(error))
    return Fault(code, _WORDS.get(code, "{}").format(error))


def answered(handler: Handler) -> Handler:
    """The handler, whose errors are answers."""

    @wraps(handler)
    async def told(request: Request) -> Response:
        try:
            return await handler(request)
        except (LakestreamError, RestError) as error:
            fault = fault_of(error)
            if fault.code == 50002:
                _log.error("a request failed", exc_info=error)
            return refusal(fault)
        except HTTPException as error:
            return refusal(Fault(error.status_code, error.detail))
        except Exception as error:
            _log.error("a request failed", exc_info=error)
            return refusal(Fault(50002, "nobody foresaw this: the log of the HTTP door has the details"))

    return told


def refusal(fault: Fault) -> Response:
    headers = {"Retry-After": str(_RETRY_AFTER_S)} if fault.status in (429, 500, 503) else {}
    return Response(fault_json(fault), fault.status, media_type="application/json", headers=headers)


def fault_json(fault: Fault) -> bytes:
    return msgspec.json.encode({"error_code": fault.code, "message": fault.message})
