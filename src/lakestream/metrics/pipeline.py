"""How the pipeline fills tables."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge

_KINDS = ("raw", "", "typed", "typed and raw")
"""By the number that rows have in `_kind`; tombstones have no value to tell of."""


class DerivedCounts(Protocol):
    """What a pass did for one derived table."""

    @property
    def topic(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def records(self) -> int: ...
    @property
    def commits(self) -> int: ...
    @property
    def lag(self) -> int: ...
    @property
    def rows(self) -> int: ...


class DerivedMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        names = ("topic", "kind")
        self._records = Counter(
            "lakestream_derived_records", "Records read for derived tables.", names, registry=registry
        )
        self._commits = Counter("lakestream_derived_commits", "Commits to derived tables.", names, registry=registry)
        self._lag = Gauge(
            "lakestream_derived_lag_records",
            "Records of the stream's table that a derived table has not seen.",
            names,
            registry=registry,
        )
        self._rows = Gauge(
            "lakestream_derived_rows", "Rows of a derived table; of kind dlq: dead letters.", names, registry=registry
        )
        self._failures = Counter(
            "lakestream_derived_failures",
            "Times that a derived table could not be brought on; it is tried again.",
            registry=registry,
        )

    def passed(self, done: Iterable[DerivedCounts], failures: int) -> None:
        self._failures.inc(failures)
        for each in done:
            self._records.labels(each.topic, each.kind).inc(each.records)
            self._commits.labels(each.topic, each.kind).inc(each.commits)
            self._lag.labels(each.topic, each.kind).set(each.lag)
            self._rows.labels(each.topic, each.kind).set(each.rows)


class PipelineMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._ticks = Counter("lakestream_pipeline_ticks", "Looks at the log.", registry=registry)
        self._records = Counter("lakestream_pipeline_records", "Records moved into tables.", registry=registry)
        self._bytes = Counter("lakestream_pipeline_wal_bytes", "WAL bytes moved into tables.", registry=registry)
        self._kinds = Counter(
            "lakestream_pipeline_rows",
            "Rows of topics that are not raw: with their values in columns alone, with the bytes beside, as bytes.",
            ("topic", "kind"),
            registry=registry,
        )
        self._commits = Counter("lakestream_pipeline_commits", "Commits to tables.", registry=registry)
        self._failures = Counter(
            "lakestream_pipeline_failures",
            "Times that a topic could not be moved; it is tried again.",
            registry=registry,
        )
        self._last = Gauge(
            "lakestream_pipeline_last_tick_timestamp_seconds", "When the log was last looked at.", registry=registry
        )

        self._derived = DerivedMetrics(registry)

    def derived(self, done: Iterable[DerivedCounts], failures: int) -> None:
        """After a pass over derived tables, of those that were brought on."""
        self._derived.passed(done, failures)

    def filled(self, topic: str, kinds: Sequence[int]) -> None:
        """After a commit to the table of a topic whose values are columns: its rows by their kind."""
        for name, count in zip(_KINDS, kinds, strict=False):
            if name:
                self._kinds.labels(topic, name).inc(count)

    def ticked(self, records: int, wal_bytes: int, commits: int, failures: int) -> None:
        self._ticks.inc()
        self._records.inc(records)
        self._bytes.inc(wal_bytes)
        self._commits.inc(commits)
        self._failures.inc(failures)
        self._last.set_to_current_time()
