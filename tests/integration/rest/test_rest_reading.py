"""Records read over HTTP: from an offset, with waiting, as events with resuming, as lines."""

import json
import threading
import time
from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka import Producer
from support.clients.rest import JSON, RestClient, rest_client, text
from support.worlds.doors import http_door
from support.worlds.embedded import Embedded

EVENTS = {"Accept": "text/event-stream"}
LINES = {"Accept": "application/x-ndjson"}


@pytest.fixture(scope="module")
def rest(door: str) -> Iterator[RestClient]:
    with rest_client(door) as client:
        yield client


def test_offsets_cursors_and_bounds(rest: RestClient) -> None:
    rest.create("read", 2)
    rest.produce("read", *({"partition_id": number % 2, "value": text(f"v{number}")} for number in range(10)))
    path = "/topics/read/partitions/1/records"
    page = rest.call("GET", f"{path}?offset=1&max_records=2")
    assert [each["offset"] for each in page["data"]] == [1, 2]
    assert (page["next_offset"], page["cursor"]) == (3, "1:3")
    found = rest.http.get(page["metadata"]["next"]).json()
    assert [each["value"]["data"] for each in found["data"]] == ["v7", "v9"]
    assert rest.call("GET", f"{path}?offset=latest")["data"] == []
    assert rest.refused("GET", f"{path}?offset=6") == (416, 416)
    for wrong in (
        "offset=x",
        "offset=-1",
        "max_records=0",
        "wait_ms=999999",
        "key_format=x",
        "offset=0:x",
        "partition=z",
    ):
        assert rest.refused("GET", f"/topics/read/records?{wrong}")[0] == 400, wrong
    assert rest.refused("GET", "/topics/read/records?partition=2") == (404, 40403)
    assert rest.refused("GET", "/topics/none/records") == (404, 40403)
    both = rest.call("GET", "/topics/read/records?offset=0:4,1:3")
    assert [(each["partition_id"], each["offset"]) for each in both["data"]] == [(0, 4), (1, 3), (1, 4)]
    ends = rest.call("GET", "/topics/read/partitions/1/offset")
    assert (ends["earliest_offset"], ends["latest_offset"]) == (0, 5)


def test_bytes_are_shown_as_what_they_are_or_as_asked(rest: RestClient) -> None:
    rest.create("shown", 1)
    rest.produce(
        "shown",
        {"value": {"type": "JSON", "data": {"a": 1.50}}},
        {"value": text("plain")},
        {"value": {"type": "BINARY", "data": "/w=="}},
        {"value": {"type": "JSON", "data": None}, "key": text("k")},
        {"value": text('{"a":\n 1}')},
    )
    told = [each["value"] for each in rest.records("shown")]
    assert told[:4] == [{"type": "JSON", "data": {"a": 1.5}}, text("plain"), {"type": "BINARY", "data": "/w=="}, None]
    assert rest.records("shown", "value_format=binary")[1]["value"] == {"type": "BINARY", "data": "cGxhaW4="}
    assert rest.refused("GET", "/topics/shown/records?value_format=json") == (422, 42203)
    lines = rest.http.get(f"{rest.base}/topics/shown/records", headers=LINES)
    assert [json.loads(line)["offset"] for line in lines.text.splitlines()] == [0, 1, 2, 3, 4]
    assert lines.headers["Lakestream-Cursor"] == "0:5"


def test_a_long_poll_ends_with_the_first_record_from_anywhere(rest: RestClient, broker: Embedded) -> None:
    rest.create("polled", 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    later = threading.Timer(0.5, lambda: (producer.produce("polled", b"there"), producer.flush(10)))
    later.start()
    began = time.monotonic()
    found = rest.records("polled", "offset=latest&wait_ms=20000")
    later.join()
    assert [each["value"]["data"] for each in found] == ["there"]
    assert time.monotonic() - began < 10
    began = time.monotonic()
    assert rest.records("polled", "offset=latest&wait_ms=300") == []
    assert 0.25 < time.monotonic() - began < 5


def events(lines: Iterator[str], count: int) -> list[tuple[str, str]]:
    """Id and value of each."""
    found, place = [], ""
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "id":
            place = value
        elif name == "data":
            found.append((place, json.loads(value)["value"]["data"]))
            if len(found) == count:
                break
    return found


def test_a_browser_that_comes_back_misses_nothing(rest: RestClient) -> None:
    rest.create("events", 2)
    rest.produce("events", *({"partition_id": number % 2, "value": text(f"v{number}")} for number in range(6)))
    path = f"{rest.base}/topics/events/records"
    with rest.http.stream("GET", path, headers=EVENTS) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        first = events(answer.iter_lines(), 4)
    with rest.http.stream("GET", path, headers=EVENTS | {"Last-Event-ID": first[-1][0]}) as answer:
        lines = answer.iter_lines()
        rest_of_them = events(lines, 2)
        rest.produce("events", {"partition_id": 0, "value": text("live")})
        live = events(lines, 1)
    assert sorted(value for _, value in first + rest_of_them) == [f"v{number}" for number in range(6)]
    assert [value for _, value in live] == ["live"]


def test_lines_follow_too(rest: RestClient) -> None:
    rest.create("lines", 1)
    with rest.http.stream("GET", f"{rest.base}/topics/lines/records?follow=true", headers=LINES) as answer:
        lines = answer.iter_lines()
        for number in range(3):
            rest.produce("lines", {"value": text(str(number))})
            assert json.loads(next(lines))["value"]["data"] == str(number)


def test_what_was_aborted_is_not_seen(rest: RestClient, broker: Embedded) -> None:
    rest.create("committed", 1)
    sender = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "of-rest"})
    sender.init_transactions(20)
    for name, ends in (("lost", sender.abort_transaction), ("kept", sender.commit_transaction)):
        sender.begin_transaction()
        for number in range(3):
            sender.produce("committed", f"{name}{number}".encode())
        assert sender.flush(10) == 0
        if name == "kept":
            assert [each["value"]["data"] for each in rest.records("committed")] == []
        ends(20)
    assert [each["value"]["data"] for each in rest.records("committed", "wait_ms=5000")] == ["kept0", "kept1", "kept2"]


def test_streams_end_when_the_door_is_stopped(broker: Embedded) -> None:
    """What was taken in is answered, followers hear the end, and nothing hangs."""
    ended: list[str] = []
    with http_door(broker.data) as address, rest_client(address) as other:
        other.create("drained", 1)
        following, stopped = threading.Event(), threading.Event()

        def follow() -> None:
            client = httpx.Client(base_url=address, timeout=30)
            with client, client.stream("GET", f"{other.base}/topics/drained/records", headers=EVENTS) as answer:
                for line in answer.iter_lines():
                    if line.startswith("data"):
                        following.set()
            ended.append("follower")

        def poll() -> None:
            answer = httpx.get(f"{address}{other.base}/topics/drained/records?offset=latest&wait_ms=60000", timeout=30)
            ended.append(str(answer.status_code))

        def produce() -> None:
            def body() -> Iterator[bytes]:
                yield json.dumps({"value": text("x")}).encode()
                stopped.wait(30)

            path = f"{address}{other.base}/topics/drained/records"
            answer = httpx.post(path, content=body(), headers=JSON, timeout=30)
            ended.append(" ".join(str(json.loads(line)["error_code"]) for line in answer.text.splitlines()))

        threads = [threading.Thread(target=work) for work in (follow, poll, produce)]
        for thread in threads:
            thread.start()
        assert following.wait(10)
        time.sleep(0.3)
        began = time.monotonic()
    stopped.set()
    for thread in threads:
        thread.join(10)
    assert "200 50303" in ended, "what was taken in is reported, and that nothing more is"
    assert ended.count("follower") == 1
    assert {"503", "200"} & set(ended)
    assert time.monotonic() - began < 10
