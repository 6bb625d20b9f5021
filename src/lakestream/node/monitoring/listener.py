"""A small listener for whoever looks after a process: /metrics, /health, /ready.

It answers from threads of its own, so that a process whose event loop hangs still says so: /health is the loop's own
answer, in time. It is for the operators' network only, and changes nothing.
"""

import asyncio
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as TooLate
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from lakestream.errors import LakestreamError
from lakestream.settings import MonitorSettings

log = logging.getLogger(__name__)

LOOP_TIMEOUT_S: Final = 10.0
"""An event loop that takes longer to answer is not alive."""
_CLIENT_TIMEOUT_S: Final = 10.0

Ready = Callable[[], Awaitable[Sequence[str]]]
"""What keeps the process from serving, in sentences; nothing if it serves."""


@asynccontextmanager
async def monitoring(
    settings: MonitorSettings,
    registry: CollectorRegistry,
    ready: Ready,
    more: Callable[[], Awaitable[str]] | None = None,
) -> AsyncIterator[int]:
    """Listens while this is entered; the port, or 0 if nobody listens. A port that is taken is told and does not stop
    the process: what it is for goes on. `more`: further metrics, as text."""
    if settings.port is None:
        yield 0
        return
    monitor = _Monitor(registry, ready, more)
    try:
        server = _MonitorServer((settings.host, settings.port), monitor)
    except OSError as error:
        log.warning("nobody can monitor this process: port %d cannot be used: %s", settings.port, error.strerror)
        yield 0
        return
    thread = threading.Thread(target=server.serve_forever, name="monitor", daemon=True)
    thread.start()
    port = server.server_address[1]
    log.info("monitoring listens on %s:%d", settings.host, port)
    try:
        yield port
    finally:
        # Waits for the loop of the listener only: a request under way may itself wait for this event loop.
        await asyncio.to_thread(server.shutdown)
        server.server_close()


class _Monitor:
    """What is answered. Called from threads."""

    def __init__(self, registry: CollectorRegistry, ready: Ready, more: Callable[[], Awaitable[str]] | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._registry = registry
        self._ready = ready
        self._more = more
        self._lag = Gauge(
            "lakestream_event_loop_lag_seconds", "How long a new task waits for the event loop.", registry=registry
        )
        ProcessCollector(registry=registry)

    def health(self) -> tuple[int, str]:
        started = time.monotonic()
        try:
            self._ask(_nothing())
        except TooLate:
            return 503, f"the event loop has not answered for {LOOP_TIMEOUT_S:.0f} s"
        self._lag.set(time.monotonic() - started)
        return 200, ""

    def readiness(self) -> tuple[int, dict[str, Any]]:
        try:
            reasons = list(self._ask(self._ready()))
        except TooLate:
            reasons = [f"there was no answer within {LOOP_TIMEOUT_S:.0f} s"]
        return (503, {"status": "not ready", "reasons": reasons}) if reasons else (200, {"status": "ready"})

    def metrics(self) -> bytes:
        self.health()
        text = generate_latest(self._registry)
        if self._more is not None:
            try:
                text += self._ask(self._more()).encode()
            except (TooLate, LakestreamError) as error:
                log.warning("some metrics cannot be told now: %s", error or "time-out")
        return text

    def _ask(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LOOP_TIMEOUT_S)


async def _nothing() -> None:
    return None


class _MonitorServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], monitor: _Monitor) -> None:
        self.monitor = monitor
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, or a loop that ended meanwhile."""
        log.debug("a monitoring request ended", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _MonitorServer
    timeout = _CLIENT_TIMEOUT_S
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        monitor = self.server.monitor
        path = self.path.partition("?")[0]
        try:
            if path == "/metrics":
                self._answer(200, monitor.metrics(), CONTENT_TYPE_PLAIN_0_0_4)
            elif path == "/health":
                status, reason = monitor.health()
                self._answer_json(status, {"status": "failing", "reason": reason} if reason else {"status": "ok"})
            elif path == "/ready":
                self._answer_json(*monitor.readiness())
            else:
                self._answer_json(404, {"status": "unknown", "paths": ["/metrics", "/health", "/ready"]})
        except (CancelledError, RuntimeError):
            # The event loop ends: so does the process.
            self.close_connection = True

    def _answer_json(self, status: int, body: dict[str, Any]) -> None:
        self._answer(status, json.dumps(body).encode() + b"\n", "application/json")

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return
