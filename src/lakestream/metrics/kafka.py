"""What Kafka clients ask for, by API."""

from prometheus_client import CollectorRegistry, Counter, Histogram

from lakestream.metrics.buckets import SECONDS


class KafkaMetrics:
    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Without a registry nobody sees them."""
        kept = registry or CollectorRegistry()
        self._seconds = Histogram(
            "lakestream_kafka_request_seconds",
            "From a whole request to its answer. A fetch waits for records as long as its client lets it.",
            ["api"],
            buckets=SECONDS,
            registry=kept,
        )
        self._received = Counter(
            "lakestream_kafka_received_bytes", "Bytes of requests that were answered.", ["api"], registry=kept
        )
        self._sent = Counter("lakestream_kafka_sent_bytes", "Bytes of answers.", ["api"], registry=kept)
        self._errors = Counter(
            "lakestream_kafka_errors",
            "Error codes that clients were told, each partition's by itself.",
            ["api", "code"],
            registry=kept,
        )
        self.closed = Counter(
            "lakestream_kafka_connections_closed",
            "Connections that the broker closed because of what came, or did not come, over them.",
            registry=kept,
        )
        self._known: dict[str, tuple[Histogram, Counter, Counter]] = {}

    def answered(self, api: str, seconds: float, received_bytes: int, sent_bytes: int) -> None:
        known = self._known.get(api)
        if known is None:
            known = self._seconds.labels(api), self._received.labels(api), self._sent.labels(api)
            self._known[api] = known
        known[0].observe(seconds)
        known[1].inc(received_bytes)
        known[2].inc(sent_bytes)

    def refused(self, api: str, code: str) -> None:
        self._errors.labels(api, code).inc()
