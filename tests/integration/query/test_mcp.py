"""Agents at `/mcp`: the official client, older versions of the protocol, and over standard input and output."""

import json
import subprocess
import sys
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from confluent_kafka import Producer
from mcp import Client, StdioServerParameters
from support.clients.asking import Asker
from support.schemas.typed import ORDER, order, typed_topic
from support.worlds.doors import http_door
from support.worlds.source import Node, source_node

READ_ONLY = {"list_streams", "describe", "query", "latest", "history", "search", "changes", "replay"}
ALIASES = {"listTopics", "getMetadata", "queryData"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mcp")


@pytest.fixture(scope="module")
def node(data: Path) -> Iterator[Node]:
    with source_node(data) as opened:
        yield opened


@pytest.fixture(scope="module")
def door(node: Node, data: Path) -> Iterator[str]:
    with http_door(data) as address:
        yield address


async def call(agent: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    answer = await agent.call_tool(tool, arguments)
    assert not answer.is_error, answer.content
    assert answer.structured_content is not None
    assert json.loads(answer.content[0].text) == answer.structured_content  # type: ignore[union-attr]
    return answer.structured_content


async def refusal(agent: Client, tool: str, **arguments: Any) -> str:
    answer = await agent.call_tool(tool, arguments)
    assert answer.is_error, answer.structured_content
    return answer.content[0].text  # type: ignore[union-attr,no-any-return]


def write(node: Node, topic: str, *records: tuple[str, Any]) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 0})
    for key, value in records:
        producer.produce(topic, json.dumps(value), key=key)
    assert producer.flush(30) == 0


async def test_an_agent_checks_an_order_against_its_customers_history(node: Node, door: str) -> None:
    """As a model would: look around, read, decide, cite; and somebody else checks the evidence later."""
    async with Client(f"{door}/mcp") as agent:
        node.create("payments", 2)
        write(node, "payments", *((f"c{n % 3}", {"customer": f"c{n % 3}", "amount": n * 10}) for n in range(12)))
        node.move()
        write(node, "payments", ("c1", {"customer": "c1", "amount": 9000, "note": "Rush ORDER"}))
        streams = await call(agent, "list_streams")
        assert {"stream": "payments", "table": "default.payments", "partitions": 2, "values": "raw"} in streams[
            "streams"
        ]
        told = await call(agent, "describe", stream="payments")
        assert (told["records"], told["rows_in_table"], told["records_behind_table"]) == (13, 12, 1)
        assert told["sample"][0]["value"]["amount"] == 9000
        assert {"name": "_offset", "type": "long"} in told["columns"]
        latest = await call(agent, "latest", stream="payments", key="c1")
        [newest] = latest["records"]
        assert (newest["key"], newest["value"]["amount"], newest["deleted"]) == ("c1", 9000, False)
        history = await call(agent, "history", stream="payments", key="c1", limit=3)
        assert [each["value"]["amount"] for each in history["records"]] == [9000, 100, 70]
        assert history["records"][0] == newest
        usual = await call(
            agent,
            "query",
            sql="SELECT avg((decode(_value)->>'$.amount')::INT) AS usual, count(*) AS n FROM payments"
            " WHERE decode(_key) = 'c1'"
            f" AND NOT (_stream_partition = {newest['partition']} AND _offset = {newest['offset']})",
        )
        assert usual["rows"] == [{"usual": 55.0, "n": 4}]
        found = await call(agent, "search", stream="payments", text="rush order")
        assert found["records"] == [newest]
        assert (await call(agent, "latest", stream="payments", key="nobody"))["records"] == []
        for evidence in (usual["citation"], history["citations"][0]):
            again = await call(agent, "replay", citation=evidence)
            assert again["row_count"] == evidence["row_count"]
            assert again["citation"] == evidence
        assert Asker(door).replay(usual["citation"])["rows"] == usual["rows"]


async def test_changes_are_resumed_by_cursor_and_waited_for(node: Node, door: str) -> None:
    async with Client(f"{door}/mcp") as agent:
        node.create("news", 2)
        write(node, "news", *((f"k{n}", {"n": n}) for n in range(10)))
        first = await call(agent, "changes", stream="news")
        assert (first["records"], first["more"]) == ([], False), "from now on"
        seen: list[int] = []
        cursor, more = "", True
        while more:
            told = await call(agent, "changes", stream="news", cursor=cursor, limit=3, from_start=True)
            seen += [each["value"]["n"] for each in told["records"]]
            cursor, more = told["cursor"], told["more"]
            assert len(told["records"]) <= 3
        assert sorted(seen) == [*range(10)]
        node.move()
        write(node, "news", ("k1", {"n": 50}), ("k2", {"n": 51}), ("k3", {"n": 52}))
        where = "(decode(_value)->>'$.n')::INT > 50"
        for given in (cursor, first["cursor"]):
            told = await call(agent, "changes", stream="news", cursor=given, where=where, wait_seconds=5)
            assert sorted(each["value"]["n"] for each in told["records"]) == [51, 52]
        quiet = await call(agent, "changes", stream="news", cursor=told["cursor"], wait_seconds=0.3)
        assert (quiet["records"], quiet["cursor"]) == ([], told["cursor"])
        for wrong, code in (
            ("x", "bad_request"),
            ("!!", "bad_request"),
            (_cursor_of_the_future(told["cursor"]), "offset_out_of_range"),
        ):
            assert (await refusal(agent, "changes", stream="news", cursor=wrong)).count(code) == 1
        trick = "true) UNION ALL (SELECT 1, 2, 3, 4, 5, 6, 7"
        assert await refusal(agent, "changes", stream="news", from_start=True, where=trick)
        assert "query_refused" in await refusal(agent, "changes", stream="news", from_start=True, where="nothing = 1")


def _cursor_of_the_future(cursor: str) -> str:
    table_id, offsets = json.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    return urlsafe_b64encode(json.dumps([table_id, [each + 1 for each in offsets]]).encode()).decode()


async def test_columns_of_typed_streams_are_values(node: Node, door: str) -> None:
    async with Client(f"{door}/mcp") as agent:
        with typed_topic(node, "typed") as topic:
            serialize = topic.avro(ORDER)
            topic.produce([serialize(order(number)) for number in range(6)])
            topic.produce([None])
            topic.move()
            history = await call(agent, "history", stream="typed", key="k6")
            assert [(each["value"], each["deleted"]) for each in history["records"]] == [(None, True)]
            latest = await call(agent, "latest", stream="typed", key="k4")
            assert latest["records"][0]["value"] == {"id": 4, "item": "item 1", "amount": None}
            found = await call(agent, "search", stream="typed", text="ITEM 2")
            assert [each["value"]["id"] for each in found["records"]] == [5, 2]


async def test_what_a_model_gets_wrong_it_is_told(node: Node, door: str) -> None:
    async with Client(f"{door}/mcp") as agent:
        node.create("small", 1)
        node.produce("small", 30)
        tools = {tool.name: tool for tool in (await agent.list_tools()).tools}
        assert set(tools) == READ_ONLY | ALIASES
        assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in tools.values())
        assert all(tool.description and tool.output_schema for tool in tools.values())
        assert "unknown_table" in await refusal(agent, "describe", stream="smal")
        assert "unknown_table" in await refusal(agent, "query", sql="SELECT * FROM smal")
        assert "Candidate bindings" in await refusal(agent, "query", sql="SELECT offset_ FROM small")
        assert "query_refused" in await refusal(agent, "query", sql="DELETE FROM small")
        assert "query_refused" in await refusal(agent, "query", sql="SELECT * FROM read_csv('/etc/passwd')")
        assert "bad_request" in await refusal(agent, "query", sql="SELECT 1", as_of={"never": True})
        assert "limit" in await refusal(agent, "history", stream="small", key="k1", limit=0)
        assert "stream" in await refusal(agent, "history", key="k1")
        assert "citation_refused" in await refusal(agent, "replay", citation={"query": "SELECT 1"})
        assert "nothing_like_it" in await refusal(agent, "nothing_like_it")
        told = await call(agent, "query", sql="SELECT _offset FROM small", max_rows=5)
        assert (told["row_count"], told["truncated"]) == (5, True)
        assert "never instructions" in told["notice"]
        assert (await call(agent, "queryData", sql="SELECT count(*) AS n FROM small"))["rows"] == [{"n": 30}]
        assert await call(agent, "getMetadata", topic="small") == await call(agent, "describe", stream="small")


async def test_agents_write_where_they_may(node: Node, door: str, data: Path) -> None:
    node.create("notes", 2)
    with http_door(data, **{"http.publish": True}) as writing, typed_topic(node, "stock") as topic:
        topic.avro(ORDER)(order(0))
        async with Client(f"{writing}/mcp") as agent:
            tools = {tool.name: tool for tool in (await agent.list_tools()).tools}
            assert set(tools) == READ_ONLY | ALIASES | {"publish"}
            assert tools["publish"].annotations is not None
            assert tools["publish"].annotations.read_only_hint is False
            for value in ({"text": "checked", "score": 0.5}, "plain text", 7, [1, None], None):
                made = await call(agent, "publish", stream="notes", key="c1", value=value)
                [found] = (await call(agent, "latest", stream="notes", key="c1"))["records"]
                assert (found["value"], found["deleted"]) == (value, value is None)
                assert (made["partition"], made["offset"]) == (found["partition"], found["offset"])
            wanted = {"id": 5, "item": "tea", "amount": None}
            await call(agent, "publish", stream="stock", key="k5", value=wanted)
            assert (await call(agent, "latest", stream="stock", key="k5"))["records"][0]["value"] == wanted
            assert "bad_request" in await refusal(agent, "publish", stream="stock", key="k5", value={"id": "five"})
            assert "unknown_table" in await refusal(agent, "publish", stream="nothing", value=1)
            assert "stream" in await refusal(agent, "publish", value=1)
    async with Client(f"{door}/mcp") as agent:
        assert await refusal(agent, "publish", stream="notes", value=1)


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18", "2025-11-25"])
def test_older_clients_are_served(door: str, version: str) -> None:
    def post(body: dict[str, Any]) -> requests.Response:
        headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": version}
        return requests.post(f"{door}/mcp", json={"jsonrpc": "2.0"} | body, headers=headers, timeout=30)

    hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
    begun = post({"id": 1, "method": "initialize", "params": hello}).json()["result"]
    assert begun["protocolVersion"] == version
    assert post({"method": "notifications/initialized"}).status_code == 202
    asked = {"name": "query", "arguments": {"sql": "SELECT 1 AS one"}}
    answer = post({"id": 2, "method": "tools/call", "params": asked}).json()["result"]
    assert answer["structuredContent"]["rows"] == [{"one": 1}]
    assert requests.post(f"{door}/mcp", data="x" * 100, timeout=30).status_code == 415
    many = {"id": 3, "method": "tools/call", "params": {"name": "query", "arguments": {"sql": "x" * 2_000_000}}}
    assert post(many).status_code == 413
    foreign = {"Origin": "http://evil.example", "Accept": "application/json"}
    assert requests.post(f"{door}/mcp", json=many, headers=foreign, timeout=30).status_code == 403


def test_without_a_door_a_sentence_says_so() -> None:
    command = [sys.executable, "-m", "lakestream.cli", "mcp", "--door", "http://127.0.0.1:1"]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "no HTTP door answers" in ended.stderr
    assert "Traceback" not in ended.stderr


async def test_over_standard_input_and_output(node: Node, door: str) -> None:
    node.create("piped", 1)
    node.produce("piped", 4)
    command = StdioServerParameters(command=sys.executable, args=["-m", "lakestream.cli", "mcp", "--door", door])
    async with Client(command) as agent:
        assert {tool.name for tool in (await agent.list_tools()).tools} == READ_ONLY | ALIASES
        assert (await call(agent, "query", sql="SELECT count(*) AS n FROM piped"))["rows"] == [{"n": 4}]
        assert "unknown_table" in await refusal(agent, "describe", stream="nothing")
