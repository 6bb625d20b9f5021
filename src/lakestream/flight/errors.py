"""Refusals as Flight words them: a sentence that begins with a code, the same codes as at the other doors. The one
place where errors become these.

Flight's own errors, for those of Arrow reach a client with a stack of ours behind them.
"""

from typing import Final

from pyarrow import flight

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

_KINDS: Final[tuple[tuple[type[LakestreamError], str, type[Exception]], ...]] = (
    (QueryRefused, "query_refused", flight.FlightServerError),
    (QueryLimit, "query_limit", flight.FlightServerError),
    (CitationRefused, "citation_refused", flight.FlightServerError),
    (NoLongerThere, "expired", flight.FlightServerError),
    (OffsetOutOfRange, "offset_out_of_range", flight.FlightServerError),
    (UnknownTable, "unknown_table", flight.FlightServerError),
    (UnknownNamespace, "unknown_table", flight.FlightServerError),
    (UnknownStream, "unknown_table", flight.FlightServerError),
    (NotAuthorized, "not_authorized", flight.FlightUnauthorizedError),
    (RequestError, "bad_request", flight.FlightServerError),
    (Overloaded, "overloaded", flight.FlightUnavailableError),
    (RetryableError, "unavailable", flight.FlightUnavailableError),
    (LakestreamError, "storage_error", flight.FlightServerError),
)


def as_flight(error: LakestreamError) -> Exception:
    return next(there(f"{code}: {error}") for kind, code, there in _KINDS if isinstance(error, kind))
