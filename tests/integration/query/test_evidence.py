"""Citations outlive what engines do to files, and never the rows: rewrites, expiry, retention; and other clusters."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from mcp import Client
from pyiceberg.catalog.rest import RestCatalog
from support.clients.asking import Asker, Refused
from support.worlds.doors import http_door
from support.worlds.source import Node, source_node

from lakestream.frontier.upkeep.maintenance import Maintenance


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("evidence")


@pytest.fixture(scope="module")
def node(data: Path) -> Iterator[Node]:
    with source_node(data) as opened:
        yield opened


@pytest.fixture(scope="module")
def door(node: Node, data: Path) -> Iterator[Asker]:
    with http_door(data) as address:
        yield Asker(address)


def refusal(door: Asker, citation: Any) -> Refused:
    with pytest.raises(Refused) as refused:
        door.replay(citation)
    return refused.value


def fill(node: Node, topic: str) -> None:
    node.create(topic, 1)
    for first in range(0, 60, 20):
        node.produce(topic, 20, first=first)
        node.move()


async def looked_up(door: Asker, topic: str, key: str) -> dict[str, Any]:
    async with Client(f"{door.door}/mcp") as agent:
        answer = await agent.call_tool("latest", {"stream": topic, "key": key})
        assert answer.structured_content is not None
        [citation] = answer.structured_content["citations"]
        return dict(citation)


def expire(table: Any) -> None:
    old = [each.snapshot_id for each in table.snapshots() if each != table.current_snapshot()]
    table.maintenance.expire_snapshots().by_ids(old).commit()


@pytest.mark.slow
@pytest.mark.spark
async def test_after_sparks_rewrite_expiry_and_removal_of_orphans(node: Node, door: Asker, spark: Any) -> None:
    fill(node, "rewritten")
    spark.conf.set("spark.sql.catalog.evidence", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set("spark.sql.catalog.evidence.type", "rest")
    spark.conf.set("spark.sql.catalog.evidence.uri", f"{door.door}/iceberg")
    query = "SELECT _offset AS o, decode(_value) AS v FROM rewritten WHERE _offset >= 30 ORDER BY o"
    asked = door.ask(query)
    found = await looked_up(door, "rewritten", "k7")
    everything = "map('rewrite-all', 'true')"
    rewrite = "CALL evidence.system.rewrite_data_files(table => 'default.rewritten', strategy => 'sort', "
    spark.sql(f"{rewrite} sort_order => '_key DESC', options => {everything})").collect()
    before = "older_than => TIMESTAMP '2100-01-01 00:00:00'"
    spark.sql(f"CALL evidence.system.expire_snapshots(table => 'default.rewritten', {before})").collect()
    assert door.replay(asked["citation"]) == asked
    assert door.replay(found)["row_count"] == 1
    assert await looked_up(door, "rewritten", "k7") | {"time": "", "signature": "", "tables": []} == found | {
        "time": "",
        "signature": "",
        "tables": [],
    }
    spark.sql("DELETE FROM evidence.default.rewritten WHERE _offset = 40").collect()
    assert (refusal(door, asked["citation"]).status, refusal(door, asked["citation"]).code) == (410, "expired")
    assert door.replay(found)["row_count"] == 1
    spark.sql("DELETE FROM evidence.default.rewritten WHERE _offset = 7").collect()
    assert refusal(door, found).code == "expired"


def test_rows_that_retention_took_are_told(node: Node, door: Asker) -> None:
    """The records are of 2023."""
    fill(node, "lapsed")
    asked = door.ask("SELECT count(*) AS n FROM lapsed")
    assert door.replay(asked["citation"]) == asked
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    names = ("retention.ms", "lakestream.table.retention.ms")
    entries = [ConfigEntry(name, "1000", incremental_operation=AlterConfigOpType.SET) for name in names]
    wanted = ConfigResource(ResourceType.TOPIC, "lapsed", incremental_configs=entries)
    [changed] = admin.incremental_alter_configs([wanted]).values()
    changed.result(30)
    settings = msgspec.structs.replace(node.lake.settings, grace_ms=0)
    keeper = Maintenance(replace(node.lake, settings=settings), node.topics, name="t", respect_leases=False)

    async def retire() -> None:
        for _ in range(2):
            await keeper.maintain((await node.topics.by_names(["lapsed"]))["lapsed"])

    node.run(retire())
    assert door.value("SELECT count(*) FROM lapsed") == 0
    refused = refusal(door, asked["citation"])
    assert (refused.status, refused.code) == (410, "expired")
    assert "it had 1, and" in refused.message
    assert "retention" in refused.message


def test_a_snapshot_that_was_expired_is_told(node: Node, door: Asker) -> None:
    catalog = RestCatalog("lake", uri=f"{door.door}/iceberg")
    catalog.create_namespace_if_not_exists("shop")
    rows = pa.table({"number": [1, 2]})
    table = catalog.create_table("shop.prices", rows.schema)
    table.append(rows)
    asked = door.ask("SELECT sum(number) AS n FROM shop.prices")
    table.append(rows)
    assert door.replay(asked["citation"]) == asked
    expire(table.refresh())
    refused = refusal(door, asked["citation"])
    assert (refused.status, refused.code) == (410, "expired")


def test_citations_of_another_cluster_are_refused(node: Node, door: Asker, tmp_path: Path) -> None:
    fill(node, "mine")
    mine = door.ask("SELECT count(*) AS n FROM mine")["citation"]
    with source_node(tmp_path) as other, http_door(tmp_path) as address:
        fill(other, "mine")
        theirs = Asker(address).ask("SELECT count(*) AS n FROM mine")["citation"]
        for there, citation in ((door, theirs), (Asker(address), mine)):
            refused = refusal(there, citation)
            assert (refused.status, refused.code) == (400, "citation_refused")
            assert "cluster" in refused.message
            forged = refusal(there, citation | {"cluster": mine["cluster"] if there is door else theirs["cluster"]})
            assert "signature" in forged.message
