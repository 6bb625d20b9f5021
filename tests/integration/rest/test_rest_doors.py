"""Every door writes what it can and every door reads it: the same offsets, to the byte or the value, below and above
the frontier."""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from mcp import Client
from support.clients.asking import Asker
from support.clients.rest import RestClient, rest_client
from support.worlds.doors import http_door
from support.worlds.source import Node, source_node

TOPIC = "matrix"
PARTITIONS = 3
Row = tuple[int, int, bytes | None, bytes | None]
"""Partition, offset, key, value."""
Sent = tuple[bytes | None, bytes | None]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, Path]]:
    data = tmp_path_factory.mktemp("matrix")
    with source_node(data) as opened:
        yield opened, data


@pytest.fixture(scope="module")
def rest(node: tuple[Node, Path]) -> Iterator[RestClient]:
    with http_door(node[1]) as address, rest_client(address) as client:
        yield client


def by_kafka(node: Node, _rest: RestClient, sent: list[Sent]) -> list[Row]:
    rows: list[Row] = []
    producer = Producer({"bootstrap.servers": node.bootstrap, "partitioner": "murmur2_random", "linger.ms": 5})

    def told(error: Any, message: Any) -> None:
        assert error is None
        rows.append((message.partition(), message.offset(), message.key(), message.value()))

    for key, value in sent:
        producer.produce(TOPIC, value, key, on_delivery=told)
    assert producer.flush(30) == 0
    return rows


def by_v3(_node: Node, rest: RestClient, sent: list[Sent]) -> list[Row]:
    def data(value: bytes | None) -> Any:
        return {"type": "BINARY", "data": None if value is None else b64encode(value).decode()}

    reports = rest.produce(TOPIC, *({"key": data(key), "value": data(value)} for key, value in sent))
    return [(each["partition_id"], each["offset"], *one) for each, one in zip(reports, sent, strict=True)]


def by_v2(_node: Node, rest: RestClient, sent: list[Sent]) -> list[Row]:
    def data(value: bytes | None) -> str | None:
        return None if value is None else b64encode(value).decode()

    body = {"records": [{"key": data(key), "value": data(value)} for key, value in sent]}
    headers = {"Content-Type": "application/vnd.kafka.binary.v2+json"}
    told = rest.http.post(f"/topics/{TOPIC}", content=json.dumps(body), headers=headers).json()["offsets"]
    return [(each["partition"], each["offset"], *one) for each, one in zip(told, sent, strict=True)]


def read_by_kafka(node: Node, _rest: RestClient, count: int) -> list[Row]:
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "nobody", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    try:
        found = consumer.consume(count, 30)
        return [(each.partition(), each.offset(), each.key(), each.value()) for each in found]
    finally:
        consumer.close()


def read_by_v3(_node: Node, rest: RestClient, count: int) -> list[Row]:
    found, cursor = [], "earliest"
    while len(found) < count:
        page = rest.call("GET", f"/topics/{TOPIC}/records?offset={cursor}&key_format=binary&value_format=binary")
        assert page["data"], f"{len(found)} of {count}"
        found += page["data"]
        cursor = page["cursor"]

    def data(shown: Any) -> bytes | None:
        return None if shown is None else b64decode(shown["data"])

    return [(each["partition_id"], each["offset"], data(each["key"]), data(each["value"])) for each in found]


def read_by_v2(_node: Node, rest: RestClient, count: int) -> list[Row]:
    settings = {"format": "binary", "auto.offset.reset": "earliest", "auto.commit.enable": "false"}
    uri = rest.http.post("/consumers/of-matrix", json=settings).json()["base_uri"]
    headers = {"Content-Type": "application/vnd.kafka.v2+json"}
    places = [{"topic": TOPIC, "partition": index} for index in range(PARTITIONS)]
    rest.http.post(f"{uri}/assignments", content=json.dumps({"partitions": places}), headers=headers)
    found: list[Any] = []
    while len(found) < count:
        found += rest.http.get(f"{uri}/records?timeout=5000").json()
    rest.http.delete(uri)

    def data(text: str | None) -> bytes | None:
        return None if text is None else b64decode(text)

    return [(each["partition"], each["offset"], data(each["key"]), data(each["value"])) for each in found]


def read_by_sql(_node: Node, rest: RestClient, count: int) -> list[Row]:
    query = f"SELECT _stream_partition AS p, _offset AS o, to_base64(_key) AS k, to_base64(_value) AS v FROM {TOPIC}"
    rows = Asker(rest.door).rows(query, max_rows=10_000)

    def data(text: str | None) -> bytes | None:
        return None if text is None else b64decode(text)

    return [(each["p"], each["o"], data(each["k"]), data(each["v"])) for each in rows]


async def seen_by_agents(rest: RestClient, count: int) -> list[tuple[int, int, str | None]]:
    """Partition, offset and key: values are shown to agents in words."""
    found: list[Any] = []
    async with Client(f"{rest.door}/mcp") as agent:
        cursor: dict[str, Any] = {"from_start": True}
        while len(found) < count:
            answer = await agent.call_tool("changes", {"stream": TOPIC, "limit": 1000} | cursor)
            told = answer.structured_content
            assert told is not None
            assert told["records"]
            found += told["records"]
            cursor = {"cursor": told["cursor"]}
    return [(each["partition"], each["offset"], each["key"]) for each in found]


WRITERS = (by_kafka, by_v3, by_v2)
READERS = (read_by_kafka, read_by_v3, read_by_v2, read_by_sql)


async def test_what_one_door_took_in_every_door_shows(node: tuple[Node, Path], rest: RestClient) -> None:
    opened = node[0]
    rest.create(TOPIC, PARTITIONS)
    written: list[Row] = []
    for stage in ("in the tail", "in the table", "in both"):
        if stage == "in the table":
            opened.move()
        else:
            for number, write in enumerate(WRITERS):
                keyed = [(b"key-%d" % index, b"%d of %s" % (number, stage.encode())) for index in range(7)]
                odd = [(None, b"\x00\xff" * 3), (b"gone", None), (b"", b"")]
                written += write(opened, rest, keyed + odd)
        expected = sorted(written, key=lambda row: row[:2])
        for read in READERS:
            found = sorted(read(opened, rest, len(written)), key=lambda row: row[:2])
            assert found == expected, (stage, read.__name__)
        keys = [(partition, offset, None if key is None else key.decode()) for partition, offset, key, _ in expected]
        assert sorted(await seen_by_agents(rest, len(written))) == sorted(keys), stage
    partitions = {row[2]: row[0] for row in written if row[2] is not None}
    assert {(row[2], row[0]) for row in written if row[2] is not None} == set(partitions.items()), "one key, one place"
