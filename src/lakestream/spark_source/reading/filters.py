"""The option `filter`: a condition on rows that is applied where they are read, and before that to what is read at all.

Spark's own push-down is left alone on purpose. Spark 4.1 keeps the plan that a filter made with the data source, not
with the scan: the next query on the same DataFrame, or the other side of a self-join, gets that plan and misses rows.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import pyarrow as pa
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    BoundEqualTo,
    BoundGreaterThan,
    BoundGreaterThanOrEqual,
    BoundIn,
    BoundLessThan,
    BoundLessThanOrEqual,
    BoundLiteralPredicate,
)
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyparsing import ParseException

from lakestream.errors import RequestError
from lakestream.table.reading.ranges import Ranges
from lakestream.table.schema import iceberg_schema
from lakestream.table.shape import RAW, TableShape

_MOST: Final = 2**63 - 1
_US_PER_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class Interval:
    """Inclusive."""

    low: int = 0
    high: int = _MOST

    def within(self, other: "Interval") -> "Interval":
        return Interval(max(self.low, other.low), min(self.high, other.high))


@dataclass(frozen=True, slots=True)
class Bounds:
    """Rows that can match lie in these. A row without timestamp matches no bound on it."""

    partition: Interval = Interval()
    offset: Interval = Interval()
    timestamp_us: Interval = Interval()

    @property
    def oldest_ms(self) -> int | None:
        """None: time does not matter."""
        return self.timestamp_us.low // _US_PER_MS or None

    def clip(self, ranges: Ranges) -> Ranges:
        inside = {
            partition: (start, end)
            for partition, start, end in ranges
            if self.partition.low <= partition <= self.partition.high
        }
        starts = {partition: max(start, self.offset.low) for partition, (start, _) in inside.items()}
        ends = {partition: min(end, self.offset.high + 1) for partition, (_, end) in inside.items()}
        return Ranges.between(starts, ends)


_PLACES: Final = {"_stream_partition": "partition", "_offset": "offset", "_timestamp": "timestamp_us"}


class RowFilter:
    """A condition in Iceberg's filter language; None lets every row pass. `RequestError` if it makes no sense."""

    def __init__(self, text: str | None, shape: TableShape = RAW) -> None:
        self._text = text
        self._shape = shape
        self.bounds = Bounds() if text is None else _bounds(_bound(text, shape), Bounds())

    @property
    def columns(self) -> tuple[str, ...]:
        """Those it looks at."""
        if self._text is None:
            return ()
        schema, found = iceberg_schema(self._shape), extract_field_ids(_bound(self._text, self._shape))
        return tuple(schema.find_column_name(field) or "" for field in sorted(found))

    def keep(self, table: pa.Table) -> pa.Table:
        """The rows that match."""
        return table if self._text is None else table.filter(expression_to_pyarrow(_bound(self._text, self._shape)))


@lru_cache(maxsize=16)
def _bound(text: str, shape: TableShape) -> BooleanExpression:
    try:
        return bind(iceberg_schema(shape), parse(text), case_sensitive=True)
    except ParseException as error:
        raise RequestError(
            f"the filter {text!r} is not understood at character {error.loc}: write it as _offset >= 5 and "
            "_timestamp < '2026-01-31T12:00:00+00:00'"
        ) from error
    except (ValueError, TypeError) as error:
        raise RequestError(f"the filter {text!r} does not fit the columns of a stream: {error}") from error


def _bounds(condition: BooleanExpression, bounds: Bounds) -> Bounds:
    """Narrowed by what must hold for every row: conditions joined by `and`, on the columns that tell a place."""
    if isinstance(condition, And):
        return _bounds(condition.right, _bounds(condition.left, bounds))
    if not isinstance(condition, BoundIn | BoundLiteralPredicate):
        return bounds
    name = _PLACES.get(condition.term.ref().field.name)
    if name is None:
        return bounds
    return replace(bounds, **{name: getattr(bounds, name).within(_interval(condition))})


def _interval(condition: "BoundIn | BoundLiteralPredicate") -> Interval:
    if isinstance(condition, BoundIn):
        values = [int(literal.value) for literal in condition.literals]
        return Interval(min(values), max(values))
    value = int(condition.literal.value)
    match condition:
        case BoundEqualTo():
            return Interval(value, value)
        case BoundGreaterThan():
            return Interval(low=value + 1)
        case BoundGreaterThanOrEqual():
            return Interval(low=value)
        case BoundLessThan():
            return Interval(high=value - 1)
        case BoundLessThanOrEqual():
            return Interval(high=value)
    return Interval()
