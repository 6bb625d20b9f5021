"""Version 3 of the REST API through a running door, with Kafka's clients on the other side."""

import base64
import json
import time
from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from support.clients.rest import JSON, RestClient, rest_client, text
from support.worlds.embedded import Embedded


@pytest.fixture(scope="module")
def rest(door: str) -> Iterator[RestClient]:
    with rest_client(door) as client:
        yield client


def consumed(broker: Embedded, topic: str, count: int, group: str = "") -> list[tuple[int, int, bytes, bytes, object]]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group or f"of-{topic}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        found = consumer.consume(count, 20)
        if group:
            consumer.commit(asynchronous=False)
        return [(each.partition(), each.offset(), each.key(), each.value(), each.headers()) for each in found]
    finally:
        consumer.close()


def test_the_cluster_is_the_one_that_kafka_clients_know(rest: RestClient, broker: Embedded) -> None:
    known = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=10)
    assert known.cluster_id == rest.cluster_id
    told = rest.call("GET", "/brokers")["data"]
    assert [(each["broker_id"], each["host"], each["port"]) for each in told] == [
        (each.id, each.host, each.port) for each in known.brokers.values()
    ], "the door itself is no broker that clients hear of"
    assert rest.call("GET", "/brokers/0")["broker_id"] == 0
    assert rest.refused("GET", "/brokers/9") == (404, 404)
    assert rest.http.get("/v3/clusters/other/topics").json() == {
        "error_code": 404,
        "message": "Cluster other cannot be found.",
    }


def test_topics_are_made_altered_grown_and_deleted(rest: RestClient, broker: Embedded) -> None:
    made = rest.call("POST", "/topics", {"topic_name": "made", "partitions_count": 2, "configs": []}, 201)
    assert (made["topic_name"], made["partitions_count"], made["replication_factor"]) == ("made", 2, 1)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert len(admin.list_topics(timeout=10).topics["made"].partitions) == 2
    assert rest.refused("POST", "/topics", {"topic_name": "made"}) == (400, 40002)
    assert rest.refused("POST", "/topics", {"topic_name": "a/b"}) == (400, 40002)
    assert rest.refused("POST", "/topics", {"topic_name": "x", "partitions_count": 0}) == (400, 40002)
    assert rest.refused("POST", "/topics", {"topic_name": 5}) == (400, 400)
    told = rest.call("POST", "/topics", {"topic_name": "dry", "validate_only": True})
    assert told["topic_name"] == "dry"
    assert rest.refused("GET", "/topics/dry") == (404, 40403)
    rest.call("PUT", "/topics/made/configs/retention.ms", {"value": "86400000"}, 204)
    changes = [{"name": "retention.ms", "operation": "DELETE"}, {"name": "cleanup.policy", "value": "compact"}]
    assert rest.refused("POST", "/topics/made/configs:alter", {"data": [{"name": "no.such", "value": "1"}]})[0] == 400
    assert rest.call("GET", "/topics/made/configs/retention.ms")["value"] == "86400000"
    rest.call("POST", "/topics/made/configs:alter", {"data": changes}, 204)
    found = {each["name"]: each for each in rest.call("GET", "/topics/made/configs")["data"]}
    assert found["retention.ms"]["is_default"]
    assert (found["cleanup.policy"]["value"], found["cleanup.policy"]["source"]) == ("compact", "DYNAMIC_TOPIC_CONFIG")
    assert rest.call("PATCH", "/topics/made", {"partitions_count": 3})["partitions_count"] == 3
    assert [each["partition_id"] for each in rest.call("GET", "/topics/made/partitions")["data"]] == [0, 1, 2]
    [replica] = rest.call("GET", "/topics/made/partitions/1/replicas")["data"]
    assert (replica["broker_id"], replica["is_leader"], replica["is_in_sync"]) == (0, True, True)
    rest.call("DELETE", "/topics/made", status=204)
    assert rest.refused("DELETE", "/topics/made") == (404, 40403)
    assert rest.refused("GET", "/acls") == (400, 40002)


def test_a_record_is_what_kafkas_consumers_get(rest: RestClient, broker: Embedded) -> None:
    rest.create("sent", 1)
    headers = [{"name": "trace", "value": base64.b64encode(b"\x00\xff").decode()}, {"name": "none"}]
    reports = rest.produce(
        "sent",
        {"key": text("k"), "value": {"type": "JSON", "data": {"é": [1, 1.50, None]}}, "headers": headers},
        {"value": {"type": "BINARY", "data": base64.b64encode(bytes(range(256))).decode()}},
        {"key": text("gone"), "value": {"type": "JSON", "data": None}, "timestamp": "2026-01-02T03:04:05.678Z"},
        {"value": {"type": "BINARY", "data": "no base64"}},
        {"partition_id": 7, "value": text("x")},
        {"value": {"type": "NONSENSE", "data": 1}},
        {"partition_id": 0, "value": text("last")},
    )
    assert [each.get("offset", each["error_code"]) for each in reports] == [0, 1, 2, 400, 40403, 400, 3]
    assert reports[0]["key"] == {"size": 1, "type": "STRING"}
    assert reports[2]["timestamp"] == "2026-01-02T03:04:05.678Z"
    found = consumed(broker, "sent", 4)
    assert [each[3] for each in found] == [b'{"\\u00e9": [1, 1.5, null]}', bytes(range(256)), None, b"last"]
    assert found[0][2:] == (b"k", found[0][3], [("trace", b"\x00\xff"), ("none", None)])


def test_keys_choose_the_partition_that_javas_producer_does(rest: RestClient, broker: Embedded) -> None:
    rest.create("keyed", 7)
    keys = [f"key-{number}" for number in range(50)]
    told = {each["key"]: each["partition_id"] for each in _zipped(keys, rest.produce("keyed", *map(_keyed, keys)))}
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2"})
    chosen: dict[str, int] = {}
    for key in keys:
        producer.produce(
            "keyed", b"", key, on_delivery=lambda _, sent: chosen.update({sent.key().decode(): sent.partition()})
        )
    assert producer.flush(20) == 0
    assert told == chosen


def _keyed(key: str) -> dict[str, object]:
    return {"key": text(key), "value": text("v")}


def _zipped(keys: list[str], reports: list[dict[str, object]]) -> Iterator[dict[str, object]]:
    for key, report in zip(keys, reports, strict=True):
        yield {"key": key, "partition_id": report["partition_id"]}


def test_reports_come_while_records_are_still_sent(rest: RestClient) -> None:
    """A stream in both directions: the next record goes out when the report of the one before is here."""
    rest.create("streamed", 1)
    heard: list[int] = []

    class Body(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            for number in range(3):
                yield json.dumps({"value": text(str(number))}).encode()
                deadline = time.monotonic() + 10
                while not rest.records("streamed", "offset=earliest")[number:]:
                    assert time.monotonic() < deadline, "it is not durable before the request ends"
                heard.append(number)

    request = rest.http.build_request("POST", f"{rest.base}/topics/streamed/records", headers=JSON)
    request.stream = Body()
    request.headers["Transfer-Encoding"] = "chunked"
    request.headers.pop("Content-Length", None)
    answer = rest.http.send(request)
    assert [json.loads(line)["offset"] for line in answer.text.splitlines()] == [0, 1, 2]
    assert heard == [0, 1, 2]


def test_a_large_stream_is_in_order_whatever_its_size(rest: RestClient) -> None:
    rest.create("large", 1)
    lines = b"".join(b'{"value":{"type":"STRING","data":"%d %s"}}' % (number, b"x" * 2_000) for number in range(3_000))
    answer = rest.http.post(f"{rest.base}/topics/large/records", content=lines, headers=JSON)
    assert [json.loads(line)["offset"] for line in answer.text.splitlines()] == list(range(3_000))
    found = rest.records("large", "offset=2990&max_records=5&value_format=string")
    assert [each["value"]["data"].split()[0] for each in found] == ["2990", "2991", "2992", "2993", "2994"]


def test_records_of_schemas_are_what_serializers_write(rest: RestClient) -> None:
    rest.create("typed", 1)
    avro = json.dumps({"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}]})
    [first] = rest.produce("typed", {"value": {"type": "AVRO", "schema": avro, "data": {"id": 1}}})
    schema_id = first["value"]["schema_id"]
    assert first["value"] == {
        "size": 6,
        "type": "AVRO",
        "subject": "typed-value",
        "schema_id": schema_id,
        "schema_version": 1,
    }
    reports = rest.produce(
        "typed",
        {"value": {"schema_id": schema_id, "data": {"id": 2}}},
        {"value": {"schema_version": 1, "data": {"id": 3}}},
        {"value": {"data": {"id": 4}}},
        {"value": {"subject": "typed-value", "schema_version": 1, "data": {"id": 5}}},
        {"value": {"schema_id": schema_id, "data": {"id": "text"}}},
        {"value": {"schema_id": 999_999, "data": {"id": 1}}},
        {"value": {"schema_id": schema_id, "schema_version": 1, "data": {"id": 1}}},
        {"value": {"type": "PROTOBUF", "schema_id": schema_id, "data": {"id": 1}}},
        {"value": {"type": "AVRO", "schema": "{", "data": {"id": 1}}},
    )
    codes = [each["error_code"] for each in reports]
    assert codes == [200, 200, 200, 200, 42206, 42207, 400, 400, 42205]
    found = rest.records("typed")
    assert [each["value"] for each in found] == [
        {"type": "AVRO", "data": {"id": number}, "schema_id": schema_id} for number in range(1, 6)
    ]
    proto = 'syntax = "proto3"; message P { int64 id = 1; }'
    of_json = '{"type": "object", "required": ["id"]}'
    rest.create("typed-more", 1)
    reports = rest.produce(
        "typed-more",
        {"key": {"type": "PROTOBUF", "schema": proto, "data": {"id": 7}}},
        {"value": {"type": "JSONSCHEMA", "schema": of_json, "data": {"id": 8}}},
        {"value": {"type": "JSONSCHEMA", "schema": of_json, "data": {}}},
        {"value": {"type": "AVRO", "subject_name_strategy": "RECORD_NAME", "schema": avro, "data": {"id": 9}}},
    )
    assert [each["error_code"] for each in reports] == [200, 200, 42206, 200]
    assert reports[3]["value"]["subject"] == "O"
    found = rest.records("typed-more")
    assert [found[0]["key"]["data"], found[1]["value"]["data"], found[2]["value"]["data"]] == [
        {"id": "7"},
        {"id": 8},
        {"id": 9},
    ]


def test_a_topic_that_takes_typed_values_only_refuses_others_one_by_one(rest: RestClient) -> None:
    rest.create("strict", 1, lakestream_schema_validation="id")
    avro = json.dumps({"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}]})
    good = {"value": {"type": "AVRO", "schema": avro, "data": {"id": 1}}}
    reports = rest.produce("strict", good, {"value": text("free")}, good)
    assert [each["error_code"] for each in reports] == [200, 42206, 200], "others of the batch are innocent"
    assert [each["value"]["data"] for each in rest.records("strict")] == [{"id": 1}, {"id": 1}]


def test_groups_and_their_lags_are_told(rest: RestClient, broker: Embedded) -> None:
    rest.create("followed", 2)
    rest.produce("followed", *({"partition_id": number % 2, "value": text("x")} for number in range(6)))
    consumed(broker, "followed", 6, "readers")
    rest.produce("followed", *({"partition_id": 1, "value": text("x")} for _ in range(3)))
    group = rest.call("GET", "/consumer-groups/readers")
    assert (group["state"], group["type"], group["is_simple"]) == ("EMPTY", "CLASSIC", False)
    lags = rest.call("GET", "/consumer-groups/readers/lags")["data"]
    assert [(each["partition_id"], each["current_offset"], each["log_end_offset"], each["lag"]) for each in lags] == [
        (0, 3, 3, 0),
        (1, 3, 6, 3),
    ]
    summary = rest.call("GET", "/consumer-groups/readers/lag-summary")
    assert (summary["max_lag"], summary["total_lag"], summary["max_lag_partition_id"]) == (3, 3, 1)
    assert rest.call("GET", "/consumer-groups/readers/lags/followed/partitions/1")["lag"] == 3
    assert rest.call("GET", "/consumer-groups/readers/consumers")["data"] == []
    assert rest.refused("GET", "/consumer-groups/nobody") == (404, 404)
    assert rest.refused("GET", "/consumer-groups/nobody/lag-summary") == (404, 404)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_are_told_with_what_they_read(rest: RestClient, broker: Embedded, protocol: str) -> None:
    topic, group = f"members-{protocol}", f"members-of-{protocol}"
    rest.create(topic, 2)
    rest.produce(topic, {"partition_id": 0, "value": text("x")})
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "client.id": "me", "group.protocol": protocol}
    assert rest.refused("GET", "/consumer-groups/a%2Fb/lags") == (404, 404), "names may have slashes"
    consumer = Consumer(settings | {"auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        assert consumer.consume(1, 20)
        [member] = rest.call("GET", f"/consumer-groups/{group}/consumers")["data"]
        assert member["client_id"] == "me"
        assert rest.call("GET", f"/consumer-groups/{group}")["type"] == protocol.upper()
        found = rest.http.get(member["assignments"]["related"]).json()["data"]
        assert [(each["topic_name"], each["partition_id"]) for each in found] == [(topic, 0), (topic, 1)]
    finally:
        consumer.close()
