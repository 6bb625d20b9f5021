"""What is told to those who ask questions, over `/sql` or `/mcp`, when something is wrong: a status, and a code that
programs can tell apart. The one place where errors become these."""

from typing import Final

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


def code_of(error: LakestreamError) -> tuple[int, str]:
    """Status and code."""
    return next((status, code) for kind, status, code in _KINDS if isinstance(error, kind))
