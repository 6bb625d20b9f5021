"""What engines ask the HTTP door for."""

from prometheus_client import CollectorRegistry, Counter, Histogram

from lakestream.metrics.buckets import SECONDS


class HttpMetrics:
    """Routes are names of handlers, so their number is bounded."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._requests = Counter(
            "lakestream_http_requests",
            "Requests to the HTTP door.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "lakestream_http_request_seconds",
            "How long the HTTP door takes to answer.",
            ["route"],
            buckets=SECONDS,
            registry=self.registry,
        )

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)
