"""What Spark's filters say about where rows are. Only used to leave out what cannot match: Spark filters again."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from lakestream.pipeline.source.ranges import Ranges

_MOST: Final = 2**63 - 1
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Interval:
    """Inclusive."""

    low: int = 0
    high: int = _MOST

    def within(self, low: int, high: int) -> "Interval":
        return Interval(max(self.low, low), min(self.high, high))


@dataclass(frozen=True, slots=True)
class Bounds:
    """Rows that can match lie in these. A row without timestamp matches no bound on it."""

    partition: Interval = Interval()
    offset: Interval = Interval()
    timestamp_ms: Interval = Interval()

    @property
    def oldest_ms(self) -> int | None:
        """None: time does not matter."""
        return self.timestamp_ms.low or None

    def clip(self, ranges: Ranges) -> Ranges:
        inside = {
            partition: (start, end)
            for partition, start, end in ranges
            if self.partition.low <= partition <= self.partition.high
        }
        starts = {partition: max(start, self.offset.low) for partition, (start, _) in inside.items()}
        ends = {partition: min(end, self.offset.high + 1) for partition, (_, end) in inside.items()}
        return Ranges.between(starts, ends)


_FIELDS: Final[Mapping[tuple[str, ...], str]] = {
    ("_stream_partition",): "partition",
    ("_offset",): "offset",
    ("_timestamp",): "timestamp_ms",
}


def bounds_of(filters: Iterable[Filter]) -> Bounds:
    """Of all filters together; those that say nothing of a row's place are passed over."""
    bounds = Bounds()
    for filter in filters:
        found = _interval(filter)
        name = _FIELDS.get(getattr(filter, "attribute", ()))
        if found is not None and name is not None:
            bounds = replace(bounds, **{name: getattr(bounds, name).within(*found)})
    return bounds


def _interval(filter: Filter) -> tuple[int, int] | None:
    if isinstance(filter, In):
        values = [_number(value) for value in filter.value]
        numbers = [value for value in values if value is not None]
        return (min(numbers), max(numbers)) if numbers and len(numbers) == len(values) else None
    number = _number(getattr(filter, "value", None))
    if number is None:
        return None
    # Times are rounded down to milliseconds, so both ends stay inclusive for them.
    exact = isinstance(getattr(filter, "value", None), int)
    match filter:
        case EqualTo() | EqualNullSafe():
            return number, number
        case GreaterThan():
            return number + exact, _MOST
        case GreaterThanOrEqual():
            return number, _MOST
        case LessThan():
            return 0, number - exact
        case LessThanOrEqual():
            return 0, number
    return None


def _number(value: Any) -> int | None:
    """None: it is not a number or a moment."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // _MILLISECOND
    return None
