"""Answers in bytes, and their digest, which is the same in whatever order and format the rows come."""

import datetime as dt
import decimal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lakestream.errors import QueryLimit
from lakestream.query.messages import AnswerFormat, Done

_ENCODER: Final = msgspec.json.Encoder(order=None)
_NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


@dataclass(frozen=True, slots=True)
class Column:
    """`type`: in SQL's words."""

    name: str
    type: str


def encode(
    columns: Sequence[Column], reader: pa.RecordBatchReader, form: AnswerFormat, *, most_rows: int, most_bytes: int
) -> Done:
    """The first rows, as many as there may be. Raises `QueryLimit` if those are too large."""
    taken, truncated = _taken(reader, most_rows)
    lines: list[bytes] = []
    size_bytes = 0
    for batch in taken:
        for line in _lines(columns, batch):
            lines.append(line)
            size_bytes += len(line) + 1
            if size_bytes > most_bytes:
                raise _too_large(most_bytes)
    told = tuple((column.name, column.type) for column in columns)
    digest = sha256(_ENCODER.encode(told))
    for line in sorted(lines):
        digest.update(line)
        digest.update(b"\n")
    if form is AnswerFormat.ARROW:
        body = _arrow(columns, reader.schema, taken)
        if len(body) > most_bytes:
            raise _too_large(most_bytes)
    elif form is AnswerFormat.NDJSON:
        body = b"".join(line + b"\n" for line in lines)
    else:
        body = b"[" + b",".join(lines) + b"]"
    return Done(told, body, len(lines), truncated, digest.hexdigest())


def unique_names(names: Sequence[str]) -> list[str]:
    """Two columns of one name cannot both be fields of a row."""
    found: list[str] = []
    for name in names:
        candidate, number = name, 0
        while candidate in found:
            number += 1
            candidate = f"{name}_{number}"
        found.append(candidate)
    return found


def _too_large(most_bytes: int) -> QueryLimit:
    return QueryLimit(
        f"the answer is larger than {most_bytes} bytes: ask for fewer columns or rows, or aggregate them in the query"
    )


def _taken(batches: Iterable[pa.RecordBatch], most_rows: int) -> tuple[list[pa.RecordBatch], bool]:
    taken: list[pa.RecordBatch] = []
    left = most_rows
    for batch in batches:
        if batch.num_rows > left:
            taken.append(batch.slice(0, left))
            return taken, True
        taken.append(batch)
        left -= batch.num_rows
    return taken, False


def _arrow(columns: Sequence[Column], schema: pa.Schema, taken: Sequence[pa.RecordBatch]) -> bytes:
    named = pa.schema([field.with_name(column.name) for field, column in zip(schema, columns, strict=True)])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, named) as writer:
        for batch in taken:
            writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=named))
    found: bytes = sink.getvalue().to_pybytes()
    return found


def _lines(columns: Sequence[Column], batch: pa.RecordBatch) -> Iterator[bytes]:
    """Each row as a JSON object."""
    names = [column.name for column in columns]
    values = [_values(column) for column in batch.columns]
    for row in zip(*values, strict=True):
        yield _ENCODER.encode(dict(zip(names, row, strict=True)))


def _values(column: pa.Array) -> list[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return [*map(_moment(kind), column.cast(pa.int64()).to_pylist())]
    if pa.types.is_floating(kind):
        if pc.all(pc.is_finite(column), skip_nulls=True).as_py() in (True, None):
            return column.to_pylist()  # type: ignore[no-any-return]
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_string(kind):
        return column.to_pylist()  # type: ignore[no-any-return]
    return [*map(plain, column.to_pylist())]


def _moment(kind: pa.DataType) -> Any:
    unit = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}[kind.unit]
    is_time = pa.types.is_time(kind)
    zone = "Z" if not is_time and kind.tz is not None else ""

    def told(value: int | None) -> str | None:
        """With as many digits of a second as it has."""
        if value is None:
            return None
        seconds, fraction = divmod(value, unit)
        digits = f".{fraction:0{len(str(unit)) - 1}d}".rstrip("0").rstrip(".") if fraction else ""
        if is_time:
            return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{digits}"
        try:
            moment = dt.datetime(1970, 1, 1) + dt.timedelta(seconds=seconds)
        except OverflowError:
            return f"{seconds}{digits}s since 1970"
        return f"{moment.isoformat()}{digits}{zone}"

    return told


def plain(value: Any) -> Any:
    """As JSON can have it: whole numbers of any size as numbers, other decimals and what is no number as text, bytes in
    base64."""
    if isinstance(value, float):
        return _NOT_FINITE.get(str(value), value)
    if isinstance(value, decimal.Decimal):
        exponent = value.as_tuple().exponent
        return msgspec.Raw(str(int(value)).encode()) if exponent == 0 else str(value)
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [*map(plain, value)]
    if isinstance(value, tuple):
        return [*map(plain, value)]
    if isinstance(value, dt.datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, dt.timedelta):
        return f"{value.total_seconds()}s"
    if value is None or isinstance(value, int | str | bytes | dt.date | dt.time | msgspec.Raw):
        return value
    return str(value)
