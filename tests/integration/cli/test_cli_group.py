"""`lakestream group`, and what `lakestream table` says of the past, against real brokers and a real catalog."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer
from support.worlds.files import FileWorld, file_world, lines

NOBODY = "127.0.0.1:9"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FileWorld]:
    with file_world(tmp_path_factory.mktemp("house")) as opened:
        yield opened


async def test_a_group_from_its_first_commit_to_its_end(house: FileWorld, cli: Any) -> None:
    house.create("orders", 2)
    house.produce("orders", ["a0", "a1"])
    house.produce("orders", ["b0"], partition=1)
    await house.move()
    house.consume_as("readers", "orders", 2)
    house.produce("orders", ["a2"])

    assert {"group": "readers", "state": "empty"} in lines(cli("group", "list", "--json", *house.kafka))[0]
    described = lines(cli("group", "describe", "readers", "--json", *house.both))[0]
    keys = ("topic", "partition", "committed", "end", "lag", "member")
    assert [tuple(row[key] for key in keys) for row in described["partitions"]] == [
        ("orders", 0, 2, 3, 1, None),
        ("orders", 1, 1, 1, 0, None),
    ]
    [consumed] = described["snapshots"]
    [snapshot] = lines(cli("table", "snapshots", "orders", "--json", *house.rest))[0]
    assert (consumed["topic"], consumed["snapshot_id"]) == ("orders", snapshot["snapshot_id"])

    lonely = cli("group", "describe", "readers", *house.kafka, "--catalog", f"http://{NOBODY}/iceberg")
    assert lonely.returncode == 0, "the catalog is not needed"
    assert "Snapshots are not shown: no catalog answers" in lonely.stderr

    earliest = lines(cli("group", "rewind", "readers", "--to-earliest", "--json", *house.kafka))[0]
    assert [(each["from"], each["to"]) for each in earliest["partitions"]] == [(2, 0), (1, 0)]
    latest = cli("group", "rewind", "readers", "--to-latest", *house.kafka)
    assert "goes on from there" in latest.stdout
    before_all = ("--to-timestamp", "2020-01-01T00:00:00Z", "--topic", "orders")
    by_time = lines(cli("group", "rewind", "readers", *before_all, "--json", *house.kafka))[0]
    assert [(each["from"], each["to"]) for each in by_time["partitions"]] == [(3, 0), (1, 0)]
    after_all = ("--to-timestamp", "2999-01-01", "--topic", "orders")
    late = lines(cli("group", "rewind", "newcomers", *after_all, "--json", *house.kafka))[0]
    assert [(each["from"], each["to"]) for each in late["partitions"]] == [(None, 3), (None, 1)], (
        "a group may be begun so"
    )

    assert cli("group", "delete", "readers", "--yes", *house.kafka).returncode == 0
    gone = cli("group", "describe", "readers", *house.both)
    assert gone.returncode == 1
    assert "there is no group 'readers'" in gone.stderr


def test_a_group_with_live_members_is_not_moved(house: FileWorld, cli: Any) -> None:
    house.create("live")
    house.produce("live", ["x"])
    house.consume_as("busy", "live")
    consumer = Consumer({"bootstrap.servers": house.bootstrap, "group.id": "busy", "client.id": "worker"})
    try:
        assigned: list[Any] = []
        consumer.subscribe(["live"], on_assign=lambda _, parts: assigned.extend(parts))
        for _ in range(100):
            consumer.poll(0.2)
            if assigned:
                break
        refused = cli("group", "rewind", "busy", "--to-earliest", *house.kafka)
        assert refused.returncode == 1
        assert "group 'busy' has 1 live member (worker)" in refused.stderr
        assert "stop them first" in refused.stderr
        kept = cli("group", "delete", "busy", "--yes", *house.kafka)
        assert kept.returncode == 1
        [row] = lines(cli("group", "describe", "busy", "--json", *house.both))[0]["partitions"]
        assert (row["committed"], row["member"].startswith("worker")) == (1, True)
    finally:
        consumer.close()
    assert cli("group", "rewind", "busy", "--to-earliest", *house.kafka).returncode == 0


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (("group", "rewind", "g", "--to-earliest", "--to-latest"), "say where to, once"),
        (("group", "rewind", "g", "--to-timestamp", "yesterday", "--topic", "plain"), "'yesterday' is no time"),
        (("group", "rewind", "g", "--to-earliest", "--topic", "none"), "there is no topic 'none'"),
        (("group", "rewind", "unheard-of", "--to-earliest"), "name the topics with --topic"),
        (("group", "rewind", "g", "--to-snapshot", "7", "--topic", "plain"), "no snapshot or tag '7'"),
        (("table", "tag", "plain", "main"), "choose another name"),
        pytest.param(
            ("table", "rollback", "plain", "--to-snapshot", "7", "--yes"),
            "has no snapshot or tag '7'",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ("table", "query", "SELECT 1", "--as-of-snapshot", "7"), "the query names no table", marks=pytest.mark.slow
        ),
        pytest.param(
            ("table", "query", "FROM plain", "--as-of-group", "unheard-of"),
            "has committed nothing in topic 'plain'",
            marks=pytest.mark.slow,
        ),
    ],
)
async def test_what_cannot_be_is_one_sentence(
    house: FileWorld, cli: Any, command: tuple[str, ...], sentence: str
) -> None:
    if "plain" not in house.topics():
        house.create("plain")
        house.produce("plain", ["x"])
        await house.move()
    where = house.both if command[0] == "group" or "query" in command else house.rest
    done = cli(*command, *where)
    assert done.returncode == 1, done.stdout
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
async def test_a_query_of_the_past_reaches_nothing_else(house: FileWorld, cli: Any) -> None:
    house.create("past")
    house.produce("past", ["x"])
    await house.move()
    [first] = lines(cli("table", "snapshots", "past", "--json", *house.rest))[0]
    house.produce("past", ["y"])
    await house.move()
    sql = 'SELECT count(*) AS n FROM Past p JOIN "default".past q USING (_offset)'
    assert lines(cli("table", "query", sql.lower(), "--json", *house.rest)) == [{"n": 2}]
    then = ("--as-of-snapshot", str(first["snapshot_id"]))
    assert lines(cli("table", "query", sql, *then, "--json", *house.rest)) == [{"n": 1}]
    assert lines(cli("table", "query", sql, "--as-of-timestamp", first["time"], "--json", *house.rest)) == [{"n": 1}]
    assert lines(cli("table", "query", sql, "--as-of-timestamp", "2020-01-01", "--json", *house.rest)) == [{"n": 0}]
    outside = cli("table", "query", 'FROM lake."default".past', *then, *house.rest)
    assert outside.returncode == 1
    assert "without its catalog" in outside.stderr


@pytest.mark.slow
def test_no_broker_is_one_sentence(cli: Any) -> None:
    done = cli("group", "list", "--bootstrap", NOBODY)
    assert done.returncode == 1
    assert f"no broker answers at {NOBODY}" in done.stderr
