"""Records of a key through the door: the same as a scan finds, whoever wrote the files, and cited."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from mcp import Client
from pyiceberg.catalog.rest import RestCatalog
from support.clients.asking import Asker
from support.schemas.typed import ORDER, order, typed_topic
from support.worlds.doors import http_door
from support.worlds.source import Node, source_node

from lakestream.frontier.upkeep.maintenance import Maintenance


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lookups")


@pytest.fixture(scope="module")
def node(data: Path) -> Iterator[Node]:
    with source_node(data) as opened:
        yield opened


@pytest.fixture(scope="module")
def door(node: Node, data: Path) -> Iterator[str]:
    with http_door(data) as address:
        yield address


def write(node: Node, topic: str, first: int, count: int, keys: int) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 5})
    for number in range(first, first + count):
        producer.produce(
            topic, json.dumps({"n": number}), key=f"c{number % keys}", timestamp=1_700_000_000_000 + number
        )
    assert producer.flush(30) == 0


async def numbers(agent: Client, tool: str, **arguments: Any) -> tuple[list[int], list[dict[str, Any]]]:
    answer = await agent.call_tool(tool, {"stream": "orders"} | arguments)
    assert not answer.is_error, answer.content
    assert answer.structured_content is not None
    found = answer.structured_content
    return [each["value"]["n"] for each in found["records"]], found["citations"]


@pytest.mark.filterwarnings("ignore:Parquet writer option:UserWarning")
async def test_lookups_are_right_whatever_happens_to_the_files(node: Node, door: str) -> None:
    node.create("orders", 3)
    for first in range(0, 3000, 500):
        write(node, "orders", first, 500, 70)
        node.move()
    write(node, "orders", 3000, 100, 70)
    write(node, "orders", 50_000, 1, 100_000)
    node.move()
    write(node, "orders", 3100, 50, 70)
    asker = Asker(door)
    citations = []

    async def check() -> None:
        async with Client(f"{door}/mcp") as agent:
            for key in (0, 7, 69):
                every = [number for number in range(3149, -1, -1) if number % 70 == key]
                assert (await numbers(agent, "latest", key=f"c{key}"))[0] == every[:1]
                found, cited = await numbers(agent, "history", key=f"c{key}", limit=10)
                assert found == every[:10]
                citations.extend(cited)
                assert (await numbers(agent, "history", key=f"c{key}", limit=1000))[0] == every
            assert (await numbers(agent, "latest", key="c50000"))[0] == [50_000]
            nobody, cited = await numbers(agent, "latest", key="nobody")
            assert (nobody, cited[0]["row_count"]) == ([], 0)
            citations.extend(cited)
        for condition, count in (
            ("_key = 'c7'::BLOB", 45),
            ("_key IN ('c7'::BLOB, 'c50000'::BLOB, 'x'::BLOB)", 46),
            ("_key = 'c7'::BLOB OR _key = 'nobody'::BLOB", 45),
            ("_key <> 'c7'::BLOB", 3151 - 45),
            ("_key = 'nobody'::BLOB OR _offset = 1", 3),
            ("NOT (_key = 'c7'::BLOB AND _offset >= 0)", 3151 - 45),
        ):
            assert asker.value(f"SELECT count(*) FROM orders WHERE {condition}") == count, condition
        for citation in citations:
            assert asker.replay(citation)["row_count"] == citation["row_count"]

    await check()
    settings = msgspec.structs.replace(node.lake.settings, min_merge_files=2)
    keeper = Maintenance(replace(node.lake, settings=settings), node.topics, name="t", respect_leases=False)

    async def merge() -> None:
        await keeper.maintain((await node.topics.by_names(["orders"]))["orders"])

    node.run(merge())
    await check()
    table = RestCatalog("lake", uri=f"{door}/iceberg").load_table("default.orders")
    table.overwrite(table.scan(row_filter="_stream_partition = 1").to_arrow(), "_stream_partition = 1")
    await check()
    table.refresh()
    table.maintenance.expire_snapshots().by_ids(
        [each.snapshot_id for each in table.snapshots() if each != table.current_snapshot()]
    ).commit()
    node.move()
    await check()


async def test_keys_of_typed_streams(node: Node, door: str) -> None:
    with typed_topic(node, "typed") as topic:
        serialize = topic.avro(ORDER)
        for first in range(0, 60, 20):
            topic.produce([serialize(order(number)) for number in range(first, first + 20)])
            if first < 40:
                topic.move()
        async with Client(f"{door}/mcp") as agent:
            found = (await agent.call_tool("latest", {"stream": "typed", "key": "k5"})).structured_content
            assert found is not None
            [record] = found["records"]
            shown = Asker(door).replay(found["citations"][0])["rows"]
            assert [pa.scalar(each["columns"]["id"]).as_py() for each in shown] == [record["value"]["id"]]
