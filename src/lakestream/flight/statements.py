"""Statements as they travel in tickets and handles: any door serves what another has prepared, nothing is kept."""

import datetime as dt
import decimal
from typing import Any

import msgspec
import pyarrow as pa

from lakestream.errors import RequestError
from lakestream.query.messages import Value


class Statement(msgspec.Struct, frozen=True, array_like=True):
    """`parameters`: by position, or by name."""

    query: str
    parameters: tuple[Value, ...] | dict[str, Value] = ()
    names: tuple[str, ...] = ()
    """Of the parameters that the query has, as it calls them."""

    def bound(self, batch: pa.RecordBatch) -> "Statement":
        """With a row of values. Raises `RequestError`."""
        if batch.num_rows != 1 or batch.num_columns != len(self.names):
            raise RequestError(
                f"the statement takes one row of {len(self.names)} values, not {batch.num_rows} of {batch.num_columns}"
            )
        values = [_value(column[0].as_py()) for column in batch.columns]
        return msgspec.structs.replace(self, parameters=self.named(values))

    def named(self, values: list[Value]) -> "tuple[Value, ...] | dict[str, Value]":
        if all(name.isdigit() for name in self.names):
            by_number = dict(zip(self.names, values, strict=True))
            return tuple(by_number[name] for name in sorted(by_number, key=int))
        return dict(zip(self.names, values, strict=True))


def as_handle(statement: Statement) -> bytes:
    return msgspec.msgpack.encode(statement)


def from_handle(data: bytes) -> Statement:
    """Raises `RequestError`."""
    try:
        return msgspec.msgpack.decode(data, type=Statement)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(f"this handle is of no statement: {error}") from error


def _value(value: Any) -> Value:
    """Times and decimals become text, which takes the type that it is compared with."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    raise RequestError(f"a parameter is a number, a text, a time or a boolean, not {type(value).__name__}")
