"""What is asked of an object store, as the store sees it: every attempt counts."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from lakestream.metrics.buckets import SECONDS


class ObjectMetrics:
    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Without a registry nobody sees them."""
        kept = registry or CollectorRegistry()
        self._requests = Counter(
            "lakestream_store_requests",
            "Requests to the object store, retries and hedges among them.",
            ["operation", "purpose", "outcome"],
            registry=kept,
        )
        self._seconds = Histogram(
            "lakestream_store_request_seconds",
            "How long requests to the object store take, successful ones only.",
            ["operation"],
            buckets=SECONDS,
            registry=kept,
        )
        self._sent = Counter(
            "lakestream_store_sent_bytes", "Bytes put into the object store.", ["purpose"], registry=kept
        )
        self._received = Counter(
            "lakestream_store_received_bytes", "Bytes read from the object store.", ["purpose"], registry=kept
        )
        self.retries = Counter(
            "lakestream_store_retries", "Requests that were sent again after a failure.", registry=kept
        )
        self.hedges = Counter(
            "lakestream_store_hedges",
            "Reads that were sent a second time because the first was late, by which of them answered first.",
            ["winner"],
            registry=kept,
        )
        self.allowed = Gauge(
            "lakestream_store_allowed_requests",
            "How many requests to the object store may be under way; throttling halves it.",
            registry=kept,
        )
        self._known_requests: dict[tuple[str, str, str], Counter] = {}
        self._known_seconds: dict[str, Histogram] = {}

    def ended(self, operation: str, purpose: str, outcome: str, requests: int = 1) -> None:
        key = (operation, purpose, outcome)
        known = self._known_requests.get(key)
        if known is None:
            known = self._known_requests[key] = self._requests.labels(*key)
        known.inc(requests)

    def took(self, operation: str, seconds: float) -> None:
        known = self._known_seconds.get(operation)
        if known is None:
            known = self._known_seconds[operation] = self._seconds.labels(operation)
        known.observe(seconds)

    def sent(self, purpose: str, size_bytes: int) -> None:
        self._sent.labels(purpose).inc(size_bytes)

    def received(self, purpose: str, size_bytes: int) -> None:
        self._received.labels(purpose).inc(size_bytes)
