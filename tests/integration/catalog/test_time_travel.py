"""Vectors, tags, rollbacks, groups that go to a snapshot: real brokers, a real catalog and engines."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField
from support.worlds.files import FileWorld, file_world, lines


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FileWorld]:
    """Each test has topics and groups of its own."""
    with file_world(tmp_path_factory.mktemp("house")) as opened:
        yield opened


@pytest.fixture
def rest(house: FileWorld) -> Iterator[RestCatalog]:
    catalog = RestCatalog("lake", uri=house.catalog)
    yield catalog
    catalog.close()


def offsets(table: Table, snapshot_id: int | None = None) -> list[tuple[int, int]]:
    """What an engine sees: partition and offset of every row."""
    rows = table.scan(snapshot_id=snapshot_id, selected_fields=("_stream_partition", "_offset")).to_arrow()
    return sorted(zip(rows["_stream_partition"].to_pylist(), rows["_offset"].to_pylist(), strict=True))


def vector(table: Table, snapshot_id: int | None = None) -> str | None:
    snapshot = table.current_snapshot() if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    assert snapshot is not None
    assert snapshot.summary is not None
    found: str | None = snapshot.summary.additional_properties.get("lakestream.frontier")
    return found


async def test_a_rollback_makes_gaps_and_never_loses_the_tail(house: FileWorld, rest: RestCatalog, cli: Any) -> None:
    house.create("sales", 2)
    house.produce("sales", ["a0", "a1", "a2"])
    house.produce("sales", ["b0"], partition=1)
    assert await house.move() == 4
    assert cli("table", "tag", "sales", "monday", *house.rest).returncode == 0
    house.produce("sales", ["a3", "a4"])
    assert await house.move() == 2
    before = rest.load_table("default.sales").current_snapshot()
    assert before is not None
    house.produce("sales", ["a5"])
    house.produce("sales", ["b1"], partition=1)

    said = cli("table", "rollback", "sales", "--to-snapshot", "monday", "--yes", *house.rest)
    assert said.returncode == 0, said.stderr
    assert "Offsets 3 to 4 of partition 0 become gaps" in said.stderr
    assert "Records from 5,1 on are not touched: they are committed on top, in their turn." in said.stderr
    table = rest.load_table("default.sales")
    assert offsets(table) == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert (vector(table), table.properties["lakestream.frontier"]) == ("3,1", "5,1")
    kept = [(0, 0, "a0"), (0, 1, "a1"), (0, 2, "a2"), (0, 5, "a5"), (1, 0, "b0"), (1, 1, "b1")]
    assert house.consume("sales", 2) == kept, "the tail is not touched"
    assert house.consume("sales", 2, offset=0) == kept

    assert await house.move() == 2
    house.produce("sales", ["a6"])
    assert house.consume("sales", 2) == [*kept[:4], (0, 6, "a6"), *kept[4:]], "offsets are not given twice"
    assert await house.move() == 1
    table = rest.load_table("default.sales")
    assert vector(table) == "7,2"
    assert offsets(table) == [(0, 0), (0, 1), (0, 2), (0, 5), (0, 6), (1, 0), (1, 1)]
    assert offsets(table, before.snapshot_id) == [*((0, n) for n in range(5)), (1, 0)], "what it was can still be read"
    listed = lines(cli("table", "snapshots", "sales", "--json", *house.rest))[0]
    assert [(each["offsets"], each["on_main"], each["names"]) for each in listed] == [
        ([3, 1], True, ["monday"]),
        ([5, 1], False, []),
        ([6, 2], True, []),
        ([7, 2], True, ["main"]),
    ]


async def test_a_group_at_a_snapshot_reads_exactly_what_the_snapshot_lacks(house: FileWorld, cli: Any) -> None:
    house.create("visits", 2)
    house.produce("visits", ["a0", "a1"])
    house.produce("visits", ["b0", "b1", "b2"], partition=1)
    await house.move()
    assert cli("table", "tag", "visits", "half", *house.rest).returncode == 0
    house.produce("visits", ["a2"])
    await house.move()
    house.produce("visits", ["b3"], partition=1)
    assert len(house.consume_as("readers", "visits", 2)) == 7

    tried = lines(cli("group", "rewind", "readers", "--to-snapshot", "half", "--dry-run", "--json", *house.both))[0]
    assert [(each["from"], each["to"]) for each in tried["partitions"]] == [(3, 2), (4, 3)]
    assert house.consume_as("readers", "visits", 2) == [], "a dry run moves nothing"
    moved = lines(cli("group", "rewind", "readers", "--to-snapshot", "half", "--json", *house.both))[0]
    assert moved["moved"]
    count = ("table", "query", "SELECT count(*) AS n FROM visits", "--json", *house.both)
    assert lines(cli(*count, "--as-of-group", "readers")) == [{"n": 5}], "what the group has read is the snapshot"
    assert lines(cli(*count, "--as-of-snapshot", "half")) == [{"n": 5}]
    assert house.consume_as("readers", "visits", 2) == [(0, 2, "a2"), (1, 3, "b3")]

    behind = cli(*count, "--as-of-group", "readers", "--wait", "0")
    assert behind.returncode == 1
    assert "offsets 3 to 3 of partition 1 are not in the table yet" in behind.stderr
    await house.move()
    assert lines(cli(*count, "--as-of-group", "readers")) == [{"n": 7}]


@pytest.mark.filterwarnings("ignore:Parquet writer option")
async def test_snapshots_of_other_engines_carry_a_vector_too(house: FileWorld, rest: RestCatalog) -> None:
    house.create("things")
    house.produce("things", ["0", "1", "2"])
    await house.move()
    table = rest.load_table("default.things")
    first = table.current_snapshot()
    assert first is not None
    table.manage_snapshots().create_branch(first.snapshot_id, "audit").commit()
    house.produce("things", ["3", "4"])
    await house.move()
    table = rest.load_table("default.things")
    table.delete("_offset = 1")
    assert (vector(table), offsets(table)) == ("5", [(0, 0), (0, 2), (0, 3), (0, 4)])
    assert house.consume("things") == [(0, 0, "0"), (0, 2, "2"), (0, 3, "3"), (0, 4, "4")]
    table.delete("_offset = 2", branch="audit")
    audit = table.snapshot_by_name("audit")
    assert audit is not None
    assert vector(table, audit.snapshot_id) == "3", "the branch began before the last two"
    assert offsets(table, audit.snapshot_id) == [(0, 0), (0, 1)]
    assert len(house.consume("things")) == 4, "consumers read main"


async def test_every_topic_is_a_table_under_a_name_that_engines_take(
    house: FileWorld, rest: RestCatalog, cli: Any
) -> None:
    named = {"Shop.Orders": "default.shop_orders", "2024-plan": "default.t_2024_plan", "Old.Name": "crm.people"}
    for topic, table in named.items():
        alias = {"lakestream_table_name": table} if table.startswith("crm") else {}
        house.create(topic, **alias)
        house.produce(topic, [topic])
    await house.move()
    house.create("shop_orders")
    house.produce("shop_orders", ["the other"])
    await house.move()
    for topic, table in named.items():
        found = rest.load_table(table)
        assert found.properties["lakestream.topic"] == topic
        assert found.scan().to_arrow()["_value"].to_pylist() == [topic.encode()]
    listed = {each["topic"]: each["table"] for each in lines(cli("table", "list", "--json", *house.rest))[0]}
    assert listed | named == listed
    assert listed["shop_orders"].startswith("default.shop_orders_")
    described = lines(cli("table", "describe", "shop_orders", "--json", *house.rest))[0]
    assert (described["table"], described["topic"]) == (listed["shop_orders"], "shop_orders")
    assert lines(cli("table", "describe", "Old.Name", "--json", *house.rest))[0]["table"] == "crm.people"


async def test_a_topic_is_not_put_on_top_of_rows_that_have_no_offsets(house: FileWorld, rest: RestCatalog) -> None:
    """Offsets are required columns, because a row without one can be read by no consumer; and Iceberg lets nobody add a
    required column to rows that lack it."""
    rest.create_namespace_if_not_exists("default")
    there = rest.create_table("default.stock", Schema(NestedField(1, "n", LongType(), required=False)))
    with pytest.raises(ValueError, match="Incompatible change: cannot add required column: _offset"):
        there.update_schema().add_column("_offset", LongType(), required=True)
    with pytest.raises(KafkaException, match="its column n is none that a stream fills"):
        house.create("stock-feed", lakestream_table_name="stock")
    house.create("stock")
    house.produce("stock", ["1"])
    await house.move()
    assert rest.load_table("default.stock").schema().column_names == ["n"]


def test_groups_are_listed_once(tmp_path: Path) -> None:
    """Two brokers: groups are listed once, whoever coordinates them."""
    with file_world(tmp_path, brokers=2) as house:
        house.create("t")
        house.produce("t", ["x"])
        for group in ("one", "two", "three"):
            assert house.consume_as(group, "t") == [(0, 0, "x")]
        assert sorted(house.groups()) == ["one", "three", "two"]
