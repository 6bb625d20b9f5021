"""What the pipeline tells of derived tables."""

from prometheus_client import CollectorRegistry

from lakestream.frontier.derived.deriving import Derivation
from lakestream.metrics import PipelineMetrics


def test_lag_rows_and_failures() -> None:
    registry = CollectorRegistry()
    metrics = PipelineMetrics(registry)
    metrics.derived([Derivation("orders", "latest", records=9, commits=2, lag=4, rows=5)], 0)
    metrics.derived([Derivation("orders", "latest", records=4, commits=1, lag=0, rows=6)], 1)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    of = {"topic": "orders", "kind": "latest"}
    assert value("lakestream_derived_lag_records", **of) == 0
    assert value("lakestream_derived_rows", **of) == 6
    assert value("lakestream_derived_records_total", **of) == 13
    assert value("lakestream_derived_commits_total", **of) == 3
    assert value("lakestream_derived_failures_total") == 1
