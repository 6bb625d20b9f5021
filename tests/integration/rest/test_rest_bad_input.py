"""What clients of the REST door may do wrong, by mistake or not: a clear error, bounded memory, others unharmed."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import pytest
from support.clients.rest import JSON, RestClient, rest_client, text

CHUNKED = "Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n"
QUICK_S = 5.0


@pytest.fixture(scope="module")
def rest(door: str) -> Iterator[RestClient]:
    with rest_client(door) as client:
        client.create("bad", 1)
        yield client


def connected(rest: RestClient, path: str = "/topics/bad/records") -> socket.socket:
    """A connection over which a request has begun."""
    place = urlsplit(rest.door)
    opened = socket.create_connection((place.hostname or "", place.port or 0), timeout=20)
    opened.sendall(f"POST {rest.base}{path} HTTP/1.1\r\nHost: {place.netloc}\r\n{CHUNKED}\r\n".encode())
    return opened


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def is_well(rest: RestClient) -> bool:
    began = time.monotonic()
    [report] = rest.produce("bad", {"value": text("fine")})
    return report["error_code"] == 200 and time.monotonic() - began < QUICK_S


@pytest.mark.parametrize(
    ("body", "codes"),
    [
        (b"[]", [400]),
        (b"null", [400]),
        (b'"text"', [400]),
        (b"\xff\xfe", [400]),
        (b" \n ", [42206]),
        (b'{"value": 5}', [400]),
        (b'{"value": {"type": 5}}', [400]),
        (b'{"value": {"type": "JSON", "data": {"a": }}}', [400]),
        (b'{"value": {"type": "JSON", "data": 1}, "partition_id": -1}', [40402]),
        (b'{"value": {"type": "JSON", "data": 1}, "partition_id": 1e99}', [400]),
        (b'{"value": {"type": "STRING", "data": 1}}', [400]),
        (b'{"value": {"type": "STRING", "data": "\\ud800"}}', [400]),
        (b'{"value": {"type": "JSON", "data": 1}, "timestamp": "yesterday"}', [400]),
        (b'{"value": {"type": "JSON", "data": 1}, "timestamp": "9999-12-31T23:59:59Z"}', [42206]),
        (b'{"value": {"type": "JSON", "data": 1}, "headers": [{"name": "h", "value": "%"}]}', [400]),
        (b'{"value": {"type": "JSON", "data": 1}, "headers": {"h": "x"}}', [400]),
        (b'{"value": {"type": "JSON", "data": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}", [400]),
        (b'{"value": {"type": "AVRO", "schema": "' + b"[" * 100_000 + b'", "data": 1}}', [42205]),
        (b'{"value": {"type": "STRING", "data": "' + b"x" * 1_500_000 + b'"}}', [413]),
    ],
)
def test_each_record_that_is_wrong_is_told_so(rest: RestClient, body: bytes, codes: list[int]) -> None:
    answer = rest.http.post(f"{rest.base}/topics/bad/records", content=body, headers=JSON)
    assert answer.status_code == 200
    told = [json.loads(line) for line in answer.text.splitlines()]
    assert [each["error_code"] for each in told] == codes
    assert all(each["message"] for each in told)
    assert is_well(rest)


def test_what_is_no_request_is_refused_in_words_of_the_api(rest: RestClient) -> None:
    path = f"{rest.base}/topics/bad/records"
    empty = rest.http.post(path, content=b"", headers=JSON)
    assert (empty.status_code, empty.json()["error_code"]) == (422, 42206)
    plain = rest.http.post(path, content=b"{}", headers={"Content-Type": "text/plain"})
    assert (plain.status_code, plain.json()["error_code"]) == (415, 415)
    foreign = rest.http.post(path, content=b"{}", headers=JSON | {"Origin": "http://elsewhere.example"})
    assert (foreign.status_code, foreign.json()["error_code"]) == (403, 403)
    large = rest.http.post("/topics/bad", content=b" " * (17 << 20), headers=JSON)
    assert (large.status_code, large.json()["error_code"]) == (413, 413)
    many = rest.http.post(f"{rest.base}/topics", content=b'{"topic_name": "' + b"x" * (2 << 20) + b'"}', headers=JSON)
    assert many.status_code == 413
    assert is_well(rest)


def test_a_record_without_an_end_is_ended(rest: RestClient) -> None:
    with closing(connected(rest)) as opened:
        opened.sendall(chunk(b'{"value": {"type": "STRING", "data": "'))
        sent, heard = 0, b""
        opened.settimeout(0.01)
        while b"413" not in heard and sent < 200 << 20:
            try:
                opened.sendall(chunk(b"x" * 65_536))
                sent += 65_536
            except (TimeoutError, ConnectionError, BrokenPipeError):
                time.sleep(0.01)
            try:
                heard += opened.recv(65_536)
            except TimeoutError:
                continue
            except ConnectionError:
                break
        assert b'"error_code":413' in heard
        assert sent < 50 << 20
    assert is_well(rest)


def test_who_reads_no_reports_is_read_no_further(rest: RestClient) -> None:
    """The door takes in what fits, and waits; others go on. When the client reads at last every report is there."""
    rest.create("unread", 1)
    record = b'{"value": {"type": "STRING", "data": "%d"}}\n' % 7
    piece, most = chunk(record * 500), 3_000
    with closing(connected(rest, "/topics/unread/records")) as opened:
        opened.settimeout(2)
        count = 0
        rest_of_it = b""
        while count < most:
            view = memoryview(rest_of_it or piece)
            try:
                done = opened.send(view)
            except TimeoutError:
                break
            rest_of_it = bytes(view[done:])
            count += 0 if rest_of_it else 1
        assert count < most, "it was read without an end"
        assert is_well(rest)
        opened.setblocking(True)
        opened.settimeout(20)
        heard, reported = b"", 0
        while reported < count * 400:
            heard += opened.recv(1 << 20)
            reported += heard.count(b'"error_code":200')
            heard = heard[heard.rfind(b"\n") + 1 :]
    assert is_well(rest)


def test_slow_clients_hold_nobody_up(rest: RestClient) -> None:
    slow = [connected(rest) for _ in range(50)]
    try:
        for opened in slow:
            opened.sendall(chunk(b'{"value"'))
        assert is_well(rest)
        for opened in slow:
            opened.sendall(chunk(b': {"type": "STRING", "data": "slow"}}') + b"0\r\n\r\n")
        for opened in slow:
            heard = b""
            while b'"error_code":200' not in heard:
                part = opened.recv(65_536)
                assert part, heard
                heard += part
    finally:
        for opened in slow:
            opened.close()


def test_a_client_that_goes_away_leaves_nothing_open(rest: RestClient) -> None:
    def streams() -> float:
        found = [
            line for line in rest.http.get("/metrics").text.splitlines() if line.startswith("lakestream_rest_streams")
        ]
        return float(found[0].split()[1])

    for _ in range(10):
        with closing(connected(rest)) as opened:
            opened.sendall(chunk(b'{"value": {"type": "STRING", "data": "half'))
    with rest.http.stream("GET", f"{rest.base}/topics/bad/records", headers={"Accept": "text/event-stream"}) as answer:
        next(answer.iter_lines())
    deadline = time.monotonic() + 10
    while streams():
        assert time.monotonic() < deadline
        time.sleep(0.05)
