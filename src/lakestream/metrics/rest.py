"""What comes and goes through the REST door."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class RestMetrics:
    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Without a registry nobody sees them."""
        kept = registry or CollectorRegistry()
        self._produced = Counter("lakestream_rest_produced_records", "Records that clients sent.", registry=kept)
        self._produced_bytes = Counter("lakestream_rest_produced_bytes", "Their keys and values.", registry=kept)
        self._refused = Counter(
            "lakestream_rest_refused_records", "Records that were not taken.", ["code"], registry=kept
        )
        self._read = Counter("lakestream_rest_read_records", "Records that clients were sent.", registry=kept)
        self.streams = Gauge(
            "lakestream_rest_streams", "Open streams: of records sent, and of those that are followed.", registry=kept
        )
        self.consumers = Gauge("lakestream_rest_consumers", "Consumers that live at this door.", registry=kept)

    def produced(self, records: int, size_bytes: int) -> None:
        self._produced.inc(records)
        self._produced_bytes.inc(size_bytes)

    def refused(self, code: int) -> None:
        self._refused.labels(str(code)).inc()

    def read(self, records: int) -> None:
        self._read.inc(records)
