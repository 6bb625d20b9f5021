"""Version 2: records of one request, and consumers that live at the door as members of groups."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from support.clients.rest import RestClient, rest_client, text
from support.worlds.embedded import Embedded

V2 = "application/vnd.kafka.v2+json"
AVRO = json.dumps({"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}]})


@pytest.fixture(scope="module")
def rest(door: str) -> Iterator[RestClient]:
    with rest_client(door) as client:
        yield client


class V2Consumer:
    def __init__(self, rest: RestClient, group: str, form: str, **settings: str) -> None:
        self._rest = rest
        body = {"format": form, "auto.offset.reset": "earliest"} | settings
        made = rest.http.post(f"/consumers/{group}", json=body).json()
        self.uri = made["base_uri"]
        assert self.uri.endswith(f"/consumers/{group}/instances/{made['instance_id']}")

    def call(self, method: str, path: str, body: Any = None, status: int = 204, accept: str = V2) -> Any:
        content = None if body is None else json.dumps(body)
        headers = {"Accept": accept} | ({} if body is None else {"Content-Type": V2})
        answer = self._rest.http.request(method, self.uri + path, content=content, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    def read(self, count: int, query: str = "timeout=1000") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        deadline = time.monotonic() + 20
        while len(found) < count and time.monotonic() < deadline:
            found += self.call("GET", f"/records?{query}", status=200)
        return found


def send(rest: RestClient, path: str, form: str, body: Any, status: int = 200) -> Any:
    headers = {"Content-Type": f"application/vnd.kafka.{form}.v2+json"}
    answer = rest.http.post(f"/topics/{path}", content=json.dumps(body), headers=headers)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_records_of_every_format_come_back_as_they_went(rest: RestClient) -> None:
    formats: dict[str, tuple[dict[str, Any], Any, Any]] = {
        "binary": ({}, "AQI=", "a2V5"),
        "json": ({}, {"a": [1, None, "é"]}, "key"),
        "avro": ({"value_schema": AVRO, "key_schema": '"string"'}, {"id": 5}, "key"),
        "jsonschema": ({"value_schema": '{"type":"object"}', "key_schema": '{"type":"string"}'}, {"id": 5}, "key"),
        "protobuf": (
            {"value_schema": 'syntax="proto3"; message V { int32 id = 1; }'},
            {"id": 5},
            None,
        ),
    }
    for form, (schemas, value, key) in formats.items():
        topic = f"v2-{form}"
        rest.create(topic, 1)
        told = send(rest, topic, form, schemas | {"records": [{"key": key, "value": value}, {"value": None}]})
        assert [(each["partition"], each["offset"], each["error"]) for each in told["offsets"]] == [
            (0, 0, None),
            (0, 1, None),
        ]
        assert (told["value_schema_id"] is not None) == ("value_schema" in schemas)
        consumer = V2Consumer(rest, f"of-{topic}", form)
        consumer.call("POST", "/subscription", {"topics": [topic]})
        assert consumer.read(2) == [
            {"topic": topic, "key": key, "value": value, "partition": 0, "offset": 0},
            {"topic": topic, "key": None, "value": None, "partition": 0, "offset": 1},
        ]
        consumer.call("DELETE", "")


def test_what_is_wrong_is_told_in_version_2s_words(rest: RestClient) -> None:
    rest.create("v2-wrong", 1)
    assert send(rest, "nowhere", "binary", {"records": []}, 404) == {"error_code": 40401, "message": "Topic not found."}
    assert send(rest, "v2-wrong/partitions/3", "json", {"records": []}, 404)["error_code"] == 40402
    assert send(rest, "v2-wrong", "avro", {"records": [{"value": 1}]}, 422)["error_code"] == 42202
    body = {"records": [{"key": 1, "value": 1}], "value_schema": AVRO}
    assert send(rest, "v2-wrong", "avro", body, 422)["error_code"] == 42201
    told = send(rest, "v2-wrong", "binary", {"records": [{"value": "%"}, {"value": "AA=="}]})["offsets"]
    assert [each["error_code"] for each in told] == [1, None]
    assert told[1]["offset"] == 0
    assert rest.http.post("/topics/v2-wrong", content=b"x", headers={"Content-Type": "text/plain"}).status_code == 415
    assert rest.http.get("/topics/v2-wrong").json()["partitions"][0]["leader"] == 0
    assert "v2-wrong" in rest.http.get("/topics").json()
    assert rest.http.get("/topics/v2-wrong/partitions/0/offsets").json() == {"beginning_offset": 0, "end_offset": 1}


def test_an_instance_is_a_member_like_any_other(rest: RestClient, broker: Embedded) -> None:
    """It shares partitions with a Kafka consumer of the group, and what it commits is where that one goes on."""
    rest.create("shared", 2)
    rest.produce("shared", *({"partition_id": number % 2, "value": text(f"{number}")} for number in range(10)))
    consumer = V2Consumer(rest, "mixed", "binary", **{"auto.commit.enable": "false"})
    consumer.call("POST", "/subscription", {"topics": ["shared"]})
    assert len(consumer.read(10)) == 10
    consumer.call("POST", "/offsets", status=200)
    places = {"partitions": [{"topic": "shared", "partition": index} for index in (0, 1)]}
    committed = consumer.call("GET", "/offsets", places, status=200)["offsets"]
    assert [(each["partition"], each["offset"]) for each in committed] == [(0, 5), (1, 5)]
    other = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "mixed", "auto.offset.reset": "earliest"})
    other.subscribe(["shared"])
    try:
        deadline = time.monotonic() + 30
        while len(other.assignment()) != 1 or len(consumer.call("GET", "/assignments", status=200)["partitions"]) != 1:
            assert time.monotonic() < deadline
            other.poll(0.1)
            consumer.call("GET", "/records?timeout=100", status=200)
        members = rest.call("GET", "/consumer-groups/mixed/consumers")["data"]
        assert len(members) == 2
        rest.produce("shared", *({"partition_id": index, "value": text("new")} for index in (0, 1)))
        [theirs] = other.consume(1, 20)
        [ours] = consumer.read(1)
        assert {theirs.partition(), ours["partition"]} == {0, 1}
        assert (theirs.offset(), ours["offset"]) == (5, 5)
        consumer.call("DELETE", "")
        rest.produce("shared", {"partition_id": ours["partition"], "value": text("after")})
        found: list[Any] = []
        while len(found) < 2:
            assert time.monotonic() < deadline + 30
            found += other.consume(2, 1)
        assert [(each.partition(), each.offset()) for each in found] == [(ours["partition"], 5), (ours["partition"], 6)]
    finally:
        other.close()


def test_assigned_partitions_positions_and_states(rest: RestClient, broker: Embedded) -> None:
    rest.create("sought", 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for number in range(5):
        producer.produce("sought", b"%d" % number)
    assert producer.flush(10) == 0
    place = {"topic": "sought", "partition": 0}
    consumer = V2Consumer(rest, "seekers", "binary", name="me")
    assert consumer.call("GET", "/records", status=409)["error_code"] == 40903
    consumer.call("POST", "/assignments", {"partitions": [place]})
    assert consumer.call("POST", "/subscription", {"topics": ["sought"]}, 409)["error_code"] == 40903
    assert consumer.call("GET", "/assignments", status=200) == {"partitions": [place]}
    assert [each["offset"] for each in consumer.read(5)] == [0, 1, 2, 3, 4]
    consumer.call("POST", "/positions", {"offsets": [place | {"offset": 3}]})
    assert [each["offset"] for each in consumer.read(2, "timeout=2000&max_bytes=1")] == [3, 4]
    consumer.call("POST", "/positions/beginning", {"partitions": [place]})
    assert consumer.read(1)[0]["offset"] == 0
    consumer.call("POST", "/positions/end", {"partitions": [place]})
    assert consumer.call("GET", "/records?timeout=300", status=200) == []
    consumer.call("POST", "/offsets", {"offsets": [place | {"offset": 1}]}, 200)
    told = consumer.call("GET", "/offsets", {"partitions": [place]}, 200)["offsets"]
    assert [each["offset"] for each in told] == [2]
    assert (
        consumer.call("GET", "/records", status=406, accept="application/vnd.kafka.json.v2+json")["error_code"] == 40601
    )
    again = rest.http.post("/consumers/seekers", json={"name": "me"})
    assert (again.status_code, again.json()["error_code"]) == (409, 40902)
    consumer.call("DELETE", "")
    assert consumer.call("DELETE", "", status=404)["error_code"] == 40403
    for wrong in ({"format": "xml"}, {"auto.offset.reset": "x"}, {"auto.commit.enable": "x"}, {"name": "a/b"}):
        assert rest.http.post("/consumers/seekers", json=wrong).json()["error_code"] == 42204, wrong
