"""How the pipeline fills tables."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class PipelineMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._ticks = Counter("lakestream_pipeline_ticks", "Looks at the log.", registry=registry)
        self._records = Counter("lakestream_pipeline_records", "Records moved into tables.", registry=registry)
        self._bytes = Counter("lakestream_pipeline_wal_bytes", "WAL bytes moved into tables.", registry=registry)
        self._commits = Counter("lakestream_pipeline_commits", "Commits to tables.", registry=registry)
        self._failures = Counter(
            "lakestream_pipeline_failures",
            "Times that a topic could not be moved; it is tried again.",
            registry=registry,
        )
        self._last = Gauge(
            "lakestream_pipeline_last_tick_timestamp_seconds", "When the log was last looked at.", registry=registry
        )

    def ticked(self, records: int, wal_bytes: int, commits: int, failures: int) -> None:
        self._ticks.inc()
        self._records.inc(records)
        self._bytes.inc(wal_bytes)
        self._commits.inc(commits)
        self._failures.inc(failures)
        self._last.set_to_current_time()
