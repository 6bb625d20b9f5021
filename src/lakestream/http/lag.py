"""`/lag`: how far each table is behind its log, and which topics are quarantined."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from lakestream.frontier.lag import TopicLag

ReadLag = Callable[[], Awaitable[Sequence[TopicLag]]]


def as_json(lag: TopicLag) -> dict[str, Any]:
    return {
        "topic": lag.topic,
        "topic_id": str(lag.topic_id),
        "lag_records": lag.records,
        "lag_ms": lag.oldest_ms,
        "frontier": lag.frontier,
        "stable": lag.stable,
        "end": lag.end,
        "held_records": lag.held,
        "committed_ms": lag.committed_ms,
        "error": lag.error or None,
        "failures": lag.failures,
        "retry_in_ms": lag.retry_in_ms if lag.error else None,
    }
