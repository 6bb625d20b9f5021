"""The SQL door with real brokers: what was just acked and what is in the table, in one answer."""

import io
import json
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import requests
from confluent_kafka import Consumer, TopicPartition
from pyiceberg.catalog.rest import RestCatalog
from support.clients.asking import Asker, Refused
from support.schemas.typed import ORDER, order, typed_topic
from support.worlds.doors import http_door
from support.worlds.source import BASE_MS, Node, source_node

from lakestream.frontier.upkeep.maintenance import Maintenance

PLACES = "SELECT _stream_partition AS p, _offset AS o, decode(_value) AS v FROM {} ORDER BY p, o"
LIMITS = {
    "query.timeout_ms": 20_000,
    "query.memory_bytes": 256 << 20,
    "query.process_bytes": 700 << 20,
    "query.query_bytes": 64 << 10,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sql")


@pytest.fixture(scope="module")
def node(data: Path) -> Iterator[Node]:
    with source_node(data) as opened:
        yield opened


@pytest.fixture(scope="module")
def door(node: Node, data: Path) -> Iterator[Asker]:
    with http_door(data, **LIMITS) as address:
        yield Asker(address)


def rows_of(partition: int, *numbers: int) -> list[dict[str, Any]]:
    return [{"p": partition, "o": number, "v": f"{partition}-{number}"} for number in numbers]


def test_what_was_just_acked_is_there_beside_the_table(node: Node, door: Asker) -> None:
    node.create("orders")
    assert door.rows(PLACES.format("orders")) == []
    for number in range(12):
        node.produce("orders", 1, first=number)
        if number % 5 == 4:
            node.move()
        assert door.rows(PLACES.format("orders")) == rows_of(0, *range(number + 1))
    node.produce("orders", 3, partition=1)
    assert door.rows(PLACES.format("lakestream.default.orders")) == rows_of(0, *range(12)) + rows_of(1, 0, 1, 2)
    same = "SELECT count(*) FROM orders a JOIN orders b USING (_stream_partition, _offset)"
    assert door.value(same) == 15


def test_a_filter_and_columns_find_the_same_in_table_and_tail(node: Node, door: Asker) -> None:
    node.create("filtered", 1)
    for first in range(0, 40, 10):
        node.produce("filtered", 10, first=first)
        if first < 20:
            node.move()
    for condition, wanted in (
        ("_offset BETWEEN 5 AND 24", range(5, 25)),
        ("_offset IN (3, 33, 99)", (3, 33)),
        ("_key = 'k7'::BLOB OR decode(_value) = '0-31'", (7, 31)),
        (f"_timestamp >= make_timestamp({BASE_MS + 29_000}::BIGINT * 1000) AT TIME ZONE 'UTC'", range(29, 40)),
        ("_headers[1].key = 'h' AND _offset < 7", (0, 3, 6)),
        ("_stream_partition = 1", ()),
    ):
        found = door.rows(f"SELECT _offset AS o FROM filtered WHERE {condition} ORDER BY o")
        assert [row["o"] for row in found] == [*wanted], condition
    assert door.value("SELECT sum(_offset) FROM filtered") == sum(range(40))


def test_as_of_shows_a_vector_a_group_a_time_a_snapshot(node: Node, door: Asker) -> None:
    node.create("past", 2)
    node.produce("past", 10)
    node.move()
    first = door.ask("SELECT count(*) AS n FROM past")["citation"]["tables"][0]["snapshot_id"]
    node.produce("past", 10, first=10)
    node.move()
    node.produce("past", 10, first=20)
    node.produce("past", 5, partition=1)
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "auditors", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("past", 0, 23), TopicPartition("past", 1, 2)], asynchronous=False)
    consumer.close()
    count = "SELECT count(*) FROM past"
    assert door.value(count) == 35
    assert door.value(count, as_of={"offsets": [25, 4]}) == 29
    assert door.value(count, as_of={"offsets": [7]}) == 7
    assert door.value(count, as_of={"group": "auditors"}) == 25
    assert door.value(count, as_of={"snapshot_id": first}) == 10
    assert door.value(count, as_of={"time": f"{_iso(BASE_MS + 15_000)}"}) == 15 + 5
    assert door.value(count, as_of={"tables": {"past": {"offsets": [1, 1]}}}) == 2
    for as_of, code in (
        ({"offsets": [99]}, "offset_out_of_range"),
        ({"snapshot_id": "12345"}, "expired"),
        ({"snapshot_id": "no"}, "bad_request"),
        ({"time": "yesterday"}, "bad_request"),
        ({"group": "nobody"}, "bad_request"),
        ({"group": "auditors", "offsets": [1]}, "bad_request"),
        ({"offsets": [-1]}, "bad_request"),
        ({"tables": {"other": {"offsets": [1]}}}, "bad_request"),
    ):
        assert door.refusal(count, as_of=as_of).code == code, as_of


def _iso(ms: int) -> str:
    return pa.scalar(ms, pa.timestamp("ms", "UTC")).as_py().isoformat()  # type: ignore[no-any-return]


@pytest.mark.filterwarnings("ignore:Parquet writer option:UserWarning")
def test_a_citation_gives_the_same_rows_after_merges_and_deletes_are_told(node: Node, door: Asker, data: Path) -> None:
    node.create("cited", 1)
    for first in range(0, 30, 5):
        node.produce("cited", 5, first=first)
        node.move()
    node.produce("cited", 5, first=30)
    asked = door.ask("SELECT _offset AS o, decode(_value) AS v FROM cited WHERE _offset > ? ORDER BY o", parameters=[3])
    citation = asked["citation"]
    assert (citation["row_count"], citation["tables"][0]["offsets"]) == (31, [35])
    node.produce("cited", 5, first=35)
    node.move()
    assert door.replay(citation)["rows"] == asked["rows"]
    before = len(node.run(_view(node, "cited")).files)
    node.run(_merge(node, "cited"))
    assert len(node.run(_view(node, "cited")).files) < before
    assert door.replay(citation) == asked
    with http_door(data, **LIMITS) as restarted:
        assert Asker(restarted).replay(citation) == asked
    table = RestCatalog("lake", uri=node.uri).load_table("default.cited")
    table.delete("_offset = 2")
    assert door.replay(citation)["rows"] == asked["rows"], "a row that is not in the answer is none of its business"
    table.refresh().delete("_offset = 20")
    with pytest.raises(Refused) as refused:
        door.replay(citation)
    assert (refused.value.status, refused.value.code) == (410, "expired")
    assert "DELETE" in refused.value.message


def test_forged_citations_are_refused(node: Node, door: Asker) -> None:
    node.create("signed", 1)
    node.produce("signed", 3)
    answer = door.post("/sql", {"query": "SELECT _offset FROM signed"})
    citation, token = answer.json()["citation"], answer.headers["Lakestream-Citation"]
    assert door.replay(token)["rows"] == answer.json()["rows"]
    for change in ({"query": "SELECT 1"}, {"row_count": 4}, {"cluster": "other"}, {"version": 2}, {"signature": ""}):
        with pytest.raises(Refused) as refused:
            door.replay(citation | change)
        assert refused.value.code == "citation_refused", change
    for nothing in ("", "%%%", token[:-9], token[1:]):
        with pytest.raises(Refused) as refused:
            door.replay(nothing)
        assert refused.value.code == "citation_refused"
    node.delete("signed")
    with pytest.raises(Refused) as refused:
        door.replay(citation)
    assert refused.value.status in (404, 410)
    node.create("signed", 1)
    node.produce("signed", 3)
    with pytest.raises(Refused) as refused:
        door.replay(citation)
    assert refused.value.code == "expired"


def test_answers_in_other_formats(node: Node, door: Asker) -> None:
    node.create("shaped", 1)
    node.produce("shaped", 3)
    columns = "_offset AS o, _key AS k, _timestamp AS t, 1.50 AS d, [1, NULL] AS l"
    query = {"query": f"SELECT {columns} FROM shaped ORDER BY o"}
    as_json = door.post("/sql", query).json()
    assert as_json["rows"][1] == {"o": 1, "k": "azE=", "t": "2023-11-14T22:13:21Z", "d": "1.50", "l": [1, None]}
    lines = door.post("/sql", query, Accept="application/x-ndjson")
    assert [json.loads(line) for line in lines.text.splitlines()] == as_json["rows"]
    arrow = door.post("/sql", query | {"format": "arrow"})
    assert arrow.headers["Content-Type"] == "application/vnd.apache.arrow.stream"
    table = pa.ipc.open_stream(io.BytesIO(arrow.content)).read_all()
    assert table["k"].to_pylist() == [b"k0", b"k1", b"k2"]
    digests = {json.loads(_padded(each.headers["Lakestream-Citation"]))["digest"] for each in (lines, arrow)}
    assert digests == {as_json["citation"]["digest"]}
    empty = door.post("/sql", {"query": "SELECT _offset FROM shaped WHERE false", "format": "arrow"})
    assert pa.ipc.open_stream(io.BytesIO(empty.content)).read_all().num_rows == 0
    cut_off = door.ask("SELECT _offset FROM shaped", max_rows=2)
    assert (cut_off["row_count"], cut_off["truncated"]) == (2, True)


def _padded(token: str) -> bytes:
    return urlsafe_b64decode(token + "=" * (-len(token) % 4))


def test_typed_values_are_columns_at_once(node: Node, door: Asker) -> None:
    with typed_topic(node, "typed") as topic:
        write = topic.avro(ORDER)
        topic.produce([write(order(number)) for number in range(10)])
        wanted = [{"id": n, "item": f"item {n % 3}", "amount": order(n)["amount"]} for n in range(10)]
        assert door.rows("SELECT id, item, amount FROM typed ORDER BY id") == wanted
        topic.produce([write(order(number)) for number in range(10, 20)])
        assert door.value("SELECT max(id) FROM typed WHERE item = 'item 1'") == 19
        topic.produce([b"\0\0\x7f\0\0x", None])
        assert door.value("SELECT count(*) FROM typed WHERE id IS NULL") == 2


def test_tables_that_are_no_streams_are_read_at_their_snapshot(node: Node, door: Asker) -> None:
    node.create("joined", 1)
    node.produce("joined", 4)
    catalog = RestCatalog("lake", uri=f"{door.door}/iceberg")
    catalog.create_namespace("shop")
    rows = pa.table({"number": [1, 2, 7], "name": ["one", "two", "seven"]})
    table = catalog.create_table("shop.names", rows.schema)
    assert door.rows("SELECT * FROM shop.names") == []
    table.append(rows)
    query = "SELECT _offset AS o, name FROM joined JOIN shop.names ON _offset = number WHERE name <> 'x' ORDER BY o"
    asked = door.ask(query)
    assert asked["rows"] == [{"o": 1, "name": "one"}, {"o": 2, "name": "two"}]
    table.append(pa.table({"number": [3], "name": ["three"]}))
    assert len(door.rows(query)) == 3
    assert door.replay(asked["citation"])["rows"] == asked["rows"]
    assert door.refusal("SELECT * FROM shop.names", as_of={"offsets": [1]}).code == "bad_request"


def test_runaways_end_and_others_go_on(node: Node, door: Asker) -> None:
    node.create("busy", 1)
    node.produce("busy", 5)
    count = "SELECT count(*) FROM busy"
    door.value(count)
    runaway = "SELECT max(sha256(range::VARCHAR)) FROM range(1000000000000)"
    with ThreadPoolExecutor(4) as threads:
        running = threads.submit(door.refusal, runaway, timeout_ms=3_000)
        assert [door.value(count) for _ in range(3)] == [5, 5, 5]
        assert (running.result().status, running.result().code) == (422, "query_limit")
    recursive = "WITH RECURSIVE t AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM t) SELECT count(*) FROM t"
    assert door.refusal(recursive, timeout_ms=1_000).code == "query_limit"
    assert door.refusal("SELECT list(repeat('x', 1000000) || range) FROM range(100000)").code == "query_limit"
    assert door.refusal("SELECT repeat('x', 1000000) || range AS x FROM range(100)").code == "query_limit"
    with pytest.raises(requests.Timeout):
        requests.post(f"{door.door}/sql", json={"query": runaway}, timeout=1)
    assert door.value(count) == 5
    metrics = requests.get(f"{door.door}/metrics", timeout=20).text
    assert 'lakestream_queries_total{outcome="QueryLimit"}' in metrics


def test_bad_requests_are_named(node: Node, door: Asker) -> None:
    for body, status in (
        ({"query": "SELECT 1 /*" + "x" * 100_000 + "*/"}, 400),
        ({"query": "SELECT 1 /*" + "x" * 2_000_000 + "*/"}, 413),
        ({"query": 1}, 400),
        ({"sql": "SELECT 1"}, 400),
        ({}, 400),
        ({"query": "SELECT 1", "max_rows": 0}, 400),
        ({"query": "SELECT 1", "as_of": {"never": 1}}, 400),
        ({"query": "SELECT 1", "parameters": [[1]]}, 400),
        ({"query": "SELECT $1"}, 400),
        ({"query": "SELEC 1"}, 400),
        ({"query": "SELECT 1; SELECT 2"}, 400),
        ({"query": "SELECT * FROM nowhere"}, 404),
        ({"query": "SELECT * FROM a.b.c"}, 404),
        ({"query": "SELECT * FROM information_schema.tables"}, 404),
        ({"query": "DROP TABLE orders"}, 400),
    ):
        with pytest.raises(Refused) as refused:
            door.post("/sql", body)
        assert refused.value.status == status, (str(body)[:100], refused.value)
        assert refused.value.message
    bomb = "[" * 100_000
    answer = requests.post(f"{door.door}/sql", bomb, headers={"Content-Type": "application/json"}, timeout=30)
    assert answer.status_code == 400
    assert requests.post(f"{door.door}/sql", "SELECT 1", timeout=30).status_code == 415
    assert door.value("SELECT 1") == 1


async def _view(node: Node, topic: str) -> Any:
    [found] = (await node.topics.by_names([topic])).values()
    return await node.lake.catalog.load(found.topic_id)


async def _merge(node: Node, topic: str) -> None:
    settings = msgspec.structs.replace(node.lake.settings, min_merge_files=2)
    keeper = Maintenance(replace(node.lake, settings=settings), node.topics, name="t", respect_leases=False)
    await keeper.maintain((await node.topics.by_names([topic]))[topic])
