"""How far tables are behind their logs, as Prometheus gauges: one of each for every topic."""

from collections.abc import Callable, Iterable

from lakestream.frontier.lag import TopicLag

_GAUGES: tuple[tuple[str, str, Callable[[TopicLag], float]], ...] = (
    ("lakestream_table_lag_records", "Records of the log that are not in the table.", lambda lag: lag.records),
    ("lakestream_table_lag_seconds", "The age of the oldest of them.", lambda lag: lag.oldest_ms / 1000),
    (
        "lakestream_table_last_commit_timestamp_seconds",
        "When a pipeline last committed to the table.",
        lambda lag: (lag.committed_ms or 0) / 1000,
    ),
    ("lakestream_table_quarantined", "1: the topic cannot be moved; /lag says why.", lambda lag: int(bool(lag.error))),
)


def as_gauges(lags: Iterable[TopicLag]) -> str:
    """Prometheus text."""
    found = list(lags)
    lines = []
    for name, help, value in _GAUGES:
        lines += [f"# HELP {name} {help}", f"# TYPE {name} gauge"]
        lines += [f"{name}{{topic={_label(lag.topic)}}} {value(lag):g}" for lag in found]
    return "\n".join(lines) + "\n"


def _label(value: str) -> str:
    """As Prometheus wants it quoted."""
    escaped = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'"{escaped}"'
