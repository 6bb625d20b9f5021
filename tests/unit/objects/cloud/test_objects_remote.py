"""Cloud stores beyond the contract: what fails, and how it is told."""

import base64
import hashlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from support.servers.s3 import environment

from lakestream.errors import RequestError, StoreRefused, Throttled, Unavailable
from lakestream.objects.cloud.failures import words
from lakestream.objects.cloud.remote import RemoteObjects, integrity

AT_AWS = {"unsigned_payload": True, "checksum_algorithm": "crc64nvme"}


@pytest.fixture
def silent_address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        for variable, value in environment(address).items():
            monkeypatch.setenv(variable, value)
        yield address


def impatient(url: str, *, ends_at_once: bool = False) -> RemoteObjects:
    return RemoteObjects(
        url,
        request_timeout=timedelta(milliseconds=50),
        ends_at_once=ends_at_once,
    )


async def test_a_store_that_does_not_answer_is_unavailable(silent_address: str) -> None:
    store = impatient("s3://bucket/prefix")
    for attempt in (store.put("a", [b"x"]), store.get("a"), store.get_tail("a", 5), store.delete(["a"])):
        with pytest.raises(Unavailable, match="s3://bucket/prefix/a: the object store failed"):
            await attempt
    with pytest.raises(Unavailable):
        async for _ in store.list("wal/"):
            pass


@pytest.mark.parametrize("ends_at_once", [False, True])
async def test_a_large_read_without_an_answer_is_told_as_any_other(silent_address: str, ends_at_once: bool) -> None:
    with pytest.raises(Unavailable, match="s3://bucket/prefix/a: the object store failed"):
        await impatient("s3://bucket/prefix", ends_at_once=ends_at_once).get_range("a", 0, 9, once=True)


async def test_a_store_that_is_not_there_is_unavailable(silent_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT", f"http://127.0.0.1:{port}")
    with pytest.raises(Unavailable):
        await impatient("s3://bucket").get("a")


def test_a_url_that_cannot_be_opened_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(RequestError, match="az://container cannot be opened"):
        RemoteObjects("az://container")


@contextmanager
def answering(monkeypatch: pytest.MonkeyPatch, status: int, body: str) -> Iterator[list[str]]:
    """A server that answers every request so; the list has the requests."""
    asked: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            asked.append(self.command)
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body.encode())

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _answer

        def log_message(self, format: str, *args: object) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            for variable, value in environment(f"http://127.0.0.1:{server.server_port}").items():
                monkeypatch.setenv(variable, value)
            yield asked
        finally:
            server.shutdown()


DENIED, NO_BUCKET = "access was denied, check the credentials", "the bucket of s3://b/p does not exist: create it"


@pytest.mark.parametrize(
    ("status", "body", "expected", "sentence"),
    [
        (503, "<Code>SlowDown</Code>", Throttled, "asks for fewer requests"),
        (429, "", Throttled, "asks for fewer requests"),
        (500, "", Unavailable, "the object store failed"),
        (408, "", Unavailable, "the object store failed"),
        (403, "<Code>AccessDenied</Code>", StoreRefused, DENIED),
        (401, "", StoreRefused, DENIED),
        (404, "<Code>NoSuchBucket</Code>", StoreRefused, NO_BUCKET),
        (400, "<Code>AuthorizationHeaderMalformed</Code>", StoreRefused, "refused the request"),
    ],
)
async def test_each_answer_has_its_sentence_and_costs_one_request(
    monkeypatch: pytest.MonkeyPatch, status: int, body: str, expected: type[Exception], sentence: str
) -> None:
    async def keys(store: RemoteObjects) -> None:
        async for _ in store.list("wal/"):
            pass

    with answering(monkeypatch, status, body) as asked:
        store = RemoteObjects("s3://b/p")
        requests = [store.put("a", [b"x"]), store.get("a"), store.get_range("a", 0, 1), store.get_tail("a", 1)]
        for number, request in enumerate([*requests, store.delete(["a", "b"]), keys(store)], 1):
            with pytest.raises(expected, match=sentence) as caught:
                await request
            assert type(caught.value) is expected
            assert len(asked) == number


def test_signatures_in_addresses_are_not_repeated() -> None:
    said = words(ValueError("Error performing GET https://a.blob/c/k?sig=secret&se=2 in 3ms\nmore"))
    assert said == "Error performing GET https://a.blob/c/k in 3ms"


def test_a_process_may_end_right_after_a_call(silent_address: str) -> None:
    """obstore's asynchronous calls abort the interpreter then, now and again."""
    script = (
        "import asyncio\n"
        "from obstore.store import MemoryStore\n"
        "from lakestream.objects.cloud.remote import RemoteObjects\n"
        "async def main():\n"
        "    store = RemoteObjects('s3://bucket')\n"
        "    store._store = MemoryStore()\n"
        "    await store.put('a/b', [b'x'])\n"
        "    assert [info.key async for info in store.list('')] == ['a/b']\n"
        "    assert await store.get_tail('a/b', 1) == await store.get('a/b') == b'x'\n"
        "asyncio.run(main())\n"
    )
    for _ in range(3):
        assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("url", "variables", "expected"),
    [
        ("s3://bucket/prefix", {"AWS_REGION": "eu-west-1"}, AT_AWS),
        ("s3://bucket", {"AWS_ENDPOINT": "https://elsewhere"}, None),
        ("s3://bucket", {"AWS_ENDPOINT_URL": "http://elsewhere"}, None),
        ("s3://bucket", {"AWS_ENDPOINT_URL_S3": "http://elsewhere"}, None),
        ("s3://bucket", {"AWS_UNSIGNED_PAYLOAD": "false"}, None),
        ("s3://bucket", {"AWS_CHECKSUM_ALGORITHM": "sha256"}, None),
        ("gs://bucket", {}, None),
        ("az://container", {}, None),
    ],
)
def test_bodies_are_signed_everywhere_but_at_aws(
    url: str, variables: Mapping[str, str], expected: Mapping[str, object] | None
) -> None:
    assert integrity(url, variables) == expected


def test_a_bucket_at_aws_gets_a_checksum_with_each_object(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(variable, raising=False)
    settings = RemoteObjects("s3://bucket")._store.config
    assert {name: str(value).lower() for name, value in settings.items() if name in AT_AWS} == {
        "unsigned_payload": "true",
        "checksum_algorithm": "crc64nvme",
    }


async def test_a_body_is_vouched_for_by_its_hash_or_by_its_checksum(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b"123456789"
    crc64nvme_of_body = 0xAE8B14860A799888
    heard: list[tuple[str | None, str | None]] = []

    class Listener(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            heard.append((self.headers["x-amz-content-sha256"], self.headers["x-amz-checksum-crc64nvme"]))
            self.send_response(200)
            self.send_header("etag", '"x"')
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Listener) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            for variable, value in environment(f"http://127.0.0.1:{server.server_port}").items():
                monkeypatch.setenv(variable, value)
            await RemoteObjects("s3://bucket").put("a", [body])
            monkeypatch.setenv("AWS_UNSIGNED_PAYLOAD", "true")
            monkeypatch.setenv("AWS_CHECKSUM_ALGORITHM", "crc64nvme")
            await RemoteObjects("s3://bucket").put("a", [body[:4], body[4:]])
        finally:
            server.shutdown()
    assert heard == [
        (hashlib.sha256(body).hexdigest(), None),
        ("UNSIGNED-PAYLOAD", base64.b64encode(crc64nvme_of_body.to_bytes(8, "big")).decode()),
    ]
