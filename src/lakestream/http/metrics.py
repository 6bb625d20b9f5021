"""Counts of requests, and whatever gauges the owner adds, as Prometheus text."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Gauges = Callable[[], Mapping[str, float]]


def label(value: str) -> str:
    """As Prometheus wants it quoted."""
    escaped = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'"{escaped}"'


class Metrics:
    """For one event loop. Routes are names of handlers, so their number is bounded."""

    def __init__(self, gauges: Gauges | None = None) -> None:
        self._gauges = gauges
        self._requests: dict[tuple[str, str, int], int] = defaultdict(int)
        self._seconds: dict[str, float] = defaultdict(float)

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests[method, route, status] += 1
        self._seconds[route] += seconds

    def text(self) -> str:
        lines = ["# TYPE lakestream_http_requests_total counter"]
        for (method, route, status), number in sorted(self._requests.items()):
            labels = f'method={label(method)},route={label(route)},status="{status}"'
            lines.append(f"lakestream_http_requests_total{{{labels}}} {number}")
        lines.append("# TYPE lakestream_http_request_seconds_total counter")
        for route, seconds in sorted(self._seconds.items()):
            lines.append(f"lakestream_http_request_seconds_total{{route={label(route)}}} {seconds:.6f}")
        for name, value in sorted((self._gauges() if self._gauges else {}).items()):
            lines += [f"# TYPE {name} gauge", f"{name} {value}"]
        return "\n".join(lines) + "\n"
