"""`/lag`, and the same as gauges: how far each table is behind its log, and which topics are quarantined."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from lakestream.frontier.lag import TopicLag
from lakestream.http.metrics import label

ReadLag = Callable[[], Awaitable[Sequence[TopicLag]]]

_GAUGES: tuple[tuple[str, Callable[[TopicLag], float]], ...] = (
    ("lakestream_table_lag_records", lambda lag: lag.records),
    ("lakestream_table_lag_seconds", lambda lag: lag.oldest_ms / 1000),
    ("lakestream_table_last_commit_timestamp_seconds", lambda lag: (lag.committed_ms or 0) / 1000),
    ("lakestream_table_quarantined", lambda lag: int(bool(lag.error))),
)


def as_json(lag: TopicLag) -> dict[str, Any]:
    return {
        "topic": lag.topic,
        "topic_id": str(lag.topic_id),
        "lag_records": lag.records,
        "lag_ms": lag.oldest_ms,
        "frontier": lag.frontier,
        "end": lag.end,
        "committed_ms": lag.committed_ms,
        "error": lag.error or None,
        "failures": lag.failures,
        "retry_in_ms": lag.retry_in_ms if lag.error else None,
    }


def as_gauges(lags: Iterable[TopicLag]) -> str:
    """Prometheus text."""
    found = list(lags)
    lines = []
    for name, value in _GAUGES:
        lines.append(f"# TYPE {name} gauge")
        lines += [f"{name}{{topic={label(lag.topic)}}} {value(lag):g}" for lag in found]
    return "\n".join(lines) + "\n"
