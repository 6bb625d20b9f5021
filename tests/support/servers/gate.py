"""A gate in front of an S3 server: it passes requests on, or answers them itself as a store in trouble does."""

import http.client
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from support.worlds.processes import HOST

_OF_ONE_CONNECTION = {"connection", "transfer-encoding", "keep-alive", "date", "server"}
SLOW_DOWN = (503, "SlowDown", "Please reduce your request rate.")
DENIED = (403, "AccessDenied", "Access Denied")
Trouble = tuple[int, str, str]


class Gate:
    """`answered` counts what the gate itself has answered, by method, and `passed` the rest."""

    def __init__(self, behind: str) -> None:
        self.behind = urlsplit(behind).netloc
        self.answered: Counter[str] = Counter()
        self.passed: Counter[str] = Counter()
        self.address = ""
        self._trouble: dict[str, Trouble] = {}
        self._lock = threading.Lock()

    def shut(self, trouble: Trouble, *methods: str) -> None:
        """All requests, or those with these methods, are answered with the error."""
        with self._lock:
            self._trouble = dict.fromkeys(methods or ("GET", "HEAD", "PUT", "POST", "DELETE"), trouble)

    def open(self) -> None:
        with self._lock:
            self._trouble = {}

    def trouble_of(self, method: str) -> Trouble | None:
        with self._lock:
            found = self._trouble.get(method)
            (self.answered if found else self.passed)[method] += 1
            return found


@contextmanager
def gate(behind: str) -> Iterator[Gate]:
    """In front of the server at this address."""
    made = Gate(behind)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            return

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except OSError:
                self.close_connection = True

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            trouble = made.trouble_of(self.command)
            if trouble is None:
                status, headers, answer = self._pass_on(body)
            else:
                status, code, words = trouble
                answer = f"<Error><Code>{code}</Code><Message>{words}</Message></Error>".encode()
                headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(answer)))]
            self.send_response_only(status)
            for name, value in headers:
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer)

        def _pass_on(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
            connection = http.client.HTTPConnection(made.behind, timeout=30)
            try:
                connection.request(self.command, self.path, body, dict(self.headers.items()))
                answer = connection.getresponse()
                data = answer.read()
            finally:
                connection.close()
            headers = [(name, value) for name, value in answer.getheaders() if name.lower() not in _OF_ONE_CONNECTION]
            if not any(name.lower() == "content-length" for name, _ in headers):
                headers.append(("Content-Length", str(len(data))))
            return answer.status, headers, data

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer

    server = ThreadingHTTPServer((HOST, 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    made.address = f"http://{HOST}:{server.server_port}"
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
