"""Ranges read straight from the socket: only exactly the answer is taken, everything else is left to `get_range`."""

import asyncio
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from support.s3 import environment

from lakestream.objects import Buffer, BulkReader, ByteRange
from lakestream.objects.remote import RemoteObjects

DATA = bytes(range(256)) * 64
Answer = Callable[[int, int], bytes]
"""From the first and last byte that were asked for, to what the server sends."""


def right(first: int, last: int) -> bytes:
    return head(first, last) + DATA[first : last + 1]


def head(first: int, last: int, *more: str, status: str = "206 Partial Content", length: int | None = None) -> bytes:
    lines = [
        f"HTTP/1.1 {status}",
        f"Content-Length: {last + 1 - first if length is None else length}",
        f"Content-Range: bytes {first}-{last}/{len(DATA)}",
        *more,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


class Server:
    """Answers each request as it is told; counts connections and requests. An empty answer: it hangs up."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.answer: Answer = right
        self.hangs_up_after_answers = False
        self.connections = 0
        self.requests: list[str] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._open: list[socket.socket] = []
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            held = b""
            while True:
                try:
                    more = connection.recv(4096)
                except OSError:
                    return
                if not more:
                    return
                held += more
                if not held.endswith(b"\r\n\r\n"):
                    continue
                text, held = held.decode(), b""
                self.requests.append(text)
                found = re.search(r"Range: bytes=(\d+)-(\d+)", text)
                assert found is not None
                answer = self.answer(int(found[1]), int(found[2]))
                connection.sendall(answer)
                if not answer or self.hangs_up_after_answers:
                    return

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for connection in self._open:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in self._threads:
            thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


@contextmanager
def opened(server: Server, monkeypatch: pytest.MonkeyPatch, url: str = "s3://bucket") -> Iterator[RemoteObjects]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for variable, value in environment(f"http://127.0.0.1:{server.port}").items():
        monkeypatch.setenv(variable, value)
    yield RemoteObjects(url, request_timeout=timedelta(milliseconds=300), retry_timeout=timedelta(milliseconds=300))


def read(store: RemoteObjects, *ranges: tuple[int, int]) -> list[Buffer | None]:
    wanted = [ByteRange("wal/a b", start, length) for start, length in ranges]
    return [None if data is None else bytes(data) for data in asyncio.run(store.try_ranges(wanted))]


def test_ranges_are_read_over_connections_that_are_kept(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(server, monkeypatch, "s3://bucket/below") as store:
        assert isinstance(store, BulkReader)
        wanted = [(start, 1 + start % 700) for start in range(0, 15_000, 100)]
        for _ in range(2):
            assert read(store, *wanted) == [DATA[start : start + length] for start, length in wanted]
        assert server.connections <= 8 < len(server.requests) == 2 * len(wanted)
        assert all("/bucket/below/wal/a%20b?" in request.partition("\r\n")[0] for request in server.requests)


def test_an_answer_may_come_in_pieces(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    big = os.urandom(3_000_000)
    server.answer = lambda first, last: head(first, last) + big[first : last + 1]
    with opened(server, monkeypatch) as store:
        assert read(store, (5, 2_900_000)) == [big[5:2_900_005]]


@pytest.mark.parametrize("says_so", [True, False])
def test_a_store_may_close_its_connections(server: Server, monkeypatch: pytest.MonkeyPatch, says_so: bool) -> None:
    server.hangs_up_after_answers = True
    more = ["Connection: close"] if says_so else []
    server.answer = lambda first, last: head(first, last, *more) + DATA[first : last + 1]
    with opened(server, monkeypatch) as store:
        for start in range(6):
            assert read(store, (start, 10)) == [DATA[start : start + 10]]
        assert server.connections == 6


WRONG: dict[str, Answer] = {
    "hangs up": lambda first, last: b"",
    "all of it": lambda first, last: head(first, last, status="200 OK") + DATA[first : last + 1],
    "not there": lambda first, last: head(first, last, status="404 Not Found", length=0),
    "another range": lambda first, last: right(first + 1, last + 1),
    "too short": lambda first, last: right(first, last - 1),
    "encoded": lambda first, last: head(first, last, "Content-Encoding: gzip") + DATA[first : last + 1],
    "in chunks": lambda first, last: head(first, last, "Transfer-Encoding: chunked") + DATA[first : last + 1],
    "more than promised": lambda first, last: right(first, last) + b"x",
    "no HTTP": lambda first, last: b"\xff\x00garbage\r\n\r\n",
    "an endless head": lambda first, last: b"HTTP/1.1 206 x\r\nX: " + b"x" * 20_000,
    "part of it, then silence": lambda first, last: head(first, last) + DATA[first:last],
    "part of the head, then silence": lambda first, last: b"HTTP/1.1 206",
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_not_the_answer_is_no_answer(server: Server, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    with opened(server, monkeypatch) as store:
        assert read(store, (0, 10)) == [DATA[:10]]
        server.answer = WRONG[case]
        assert read(store, (100, 10)) == [None]
        server.answer = right
        assert read(store, (200, 10)) == [DATA[200:210]]


def test_a_store_that_keeps_failing_is_left_alone(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.answer = WRONG["not there"]
    with opened(server, monkeypatch) as store:
        ranges = [(start, 1) for start in range(40)]
        assert read(store, *ranges) == [None] * 40
        asked = len(server.requests)
        assert asked < 40
        server.answer = right
        assert read(store, *ranges) == [None] * 40
        assert len(server.requests) == asked


@pytest.mark.parametrize("url", ["gs://bucket", "s3://bucket"])
def test_only_plain_http_without_a_proxy_is_read_so(server: Server, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    with opened(server, monkeypatch) as store:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server.port}")
        monkeypatch.setenv("no_proxy", "elsewhere")
        assert read(store, (0, 10)) == [None]
    assert not server.requests
    monkeypatch.setenv("AWS_ENDPOINT", f"https://127.0.0.1:{server.port}")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"https://127.0.0.1:{server.port}")
    assert read(RemoteObjects(url), (0, 10)) == [None]
    assert not server.connections


def test_a_forked_process_opens_connections_of_its_own(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(server, monkeypatch) as store:
        assert read(store, (0, 10)) == [DATA[:10]]
        direct = store._direct
        assert direct is not None
        monkeypatch.setattr(direct, "_owner", os.getpid() + 1)
        assert read(store, (7, 10)) == [DATA[7:17]]
        assert server.connections == 2
