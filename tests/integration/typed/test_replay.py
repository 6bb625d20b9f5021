"""Dead letters whose schema is known by now get their columns, where they are, and nothing else changes."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.expressions import EqualTo
from support.schemas.avro import framed, written
from support.schemas.typed import ORDER, TypedTopic, closing, order, typed_topic
from support.worlds.source import Node, source_node

from lakestream.errors import Conflict
from lakestream.frontier.upkeep.replaying import Replayed, replay
from lakestream.table.shape import KIND_RAW, KIND_TOMBSTONE, KIND_TYPED, KIND_TYPED_AND_RAW

LATER: dict[str, Any] = ORDER | {"fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": ""}]}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("replay")


@pytest.fixture(scope="module")
def node(data: Path) -> Iterator[Node]:
    with source_node(data, **{"stream.view_check_ms": 50}) as opened:
        yield opened


def later(schema_id: int, number: int) -> bytes:
    return framed(schema_id, written(LATER, order(number) | {"note": f"note {number}"}))


def register(topic: TypedTopic, schema_id: int) -> None:
    topic.register_as(f"{topic.name}-value", LATER | {"doc": f"of {topic.name}"}, schema_id)


def test_columns_are_filled_at_the_same_offset(node: Node) -> None:
    with typed_topic(node, "letters") as topic:
        write = topic.avro(ORDER)
        topic.produce([later(5001, 0), write(order(1)), None, b"no frame", later(5001, 4), later(5001, 5)[:-3]])
        topic.move()
        before = topic.rows()
        assert [before[n]["_kind"] for n in range(6)] == [
            KIND_RAW, KIND_TYPED, KIND_TOMBSTONE, KIND_RAW, KIND_RAW, KIND_RAW,
        ]  # fmt: skip
        nothing = topic.replay()
        assert (nothing.filled, nothing.left) == (0, 4)
        assert topic.rows() == before
        register(topic, 5001)
        told: list[Replayed] = []
        done = topic.replay(told)
        assert (done.filled, done.left) == (2, 2)
        assert len(told) == done.files == done.of_files
        assert all(len(reason) > 20 for reason in done.reasons)
        rows = topic.rows()
        assert [rows[n]["_kind"] for n in (0, 4)] == [KIND_TYPED_AND_RAW] * 2
        assert [(rows[n]["id"], rows[n]["note"], rows[n]["_schema_id"]) for n in (0, 4)] == [
            (0, "note 0", 5001), (4, "note 4", 5001),
        ]  # fmt: skip
        kept = ("_offset", "_timestamp", "_key", "_headers", "_value", "_crc")
        assert [{name: rows[n][name] for name in kept} for n in range(6)] == [
            {name: before[n][name] for name in kept} for n in range(6)
        ]
        assert [rows[n]["_kind"] for n in (1, 2, 3, 5)] == [KIND_TYPED, KIND_TOMBSTONE, KIND_RAW, KIND_RAW]
        topic.check_fetched()
        snapshot = topic.view().snapshot_id
        again = topic.replay()
        assert (again.filled, again.left) == (0, 2)
        assert topic.view().snapshot_id == snapshot, "nothing is left to do"


def test_it_goes_on_beside_live_traffic_and_others_commits(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first commit of the replay somebody else commits, and the second file is replaced under its hands."""
    with typed_topic(node, "live") as topic:
        write = topic.avro(ORDER)
        for start in (0, 20):
            topic.produce([later(5002, start + n) if n % 2 else write(order(start + n)) for n in range(20)])
            topic.move()
        register(topic, 5002)
        commit, begun = type(node.lake.catalog).commit, []

        async def late(self: Any, view: Any, **change: Any) -> Any:
            begun.append(view)
            if len(begun) == 1:
                await asyncio.to_thread(topic.produce, [write(order(n)) for n in range(40, 45)])
                raise Conflict("somebody else was first")
            return await commit(self, view, **change)

        monkeypatch.setattr(type(node.lake.catalog), "commit", late)
        done = topic.replay()
        monkeypatch.undo()
        assert (done.filled, done.left) == (20, 0)
        assert topic.move() == 5
        rows = topic.rows()
        assert len(rows) == 45
        assert {n for n, row in rows.items() if row["_kind"] == KIND_TYPED_AND_RAW} == {n for n in range(40) if n % 2}
        assert all(rows[n]["id"] == n for n in range(45))
        topic.check_fetched()


def test_a_file_that_is_replaced_meanwhile_is_looked_at_where_its_rows_are(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    with typed_topic(node, "moved") as topic:
        topic.avro(ORDER)(order(0))
        topic.produce([later(5003, n) for n in range(10)])
        topic.move()
        register(topic, 5003)
        found = node.run(node.topics.by_names([topic.name]))[topic.name]
        commit, begun = type(node.lake.catalog).commit, []

        async def late(self: Any, view: Any, **change: Any) -> Any:
            begun.append(view)
            if len(begun) == 1:
                other = await replay(node.lake, found)
                assert other.filled == 10
                raise Conflict("somebody else was first")
            return await commit(self, view, **change)

        monkeypatch.setattr(type(node.lake.catalog), "commit", late)
        done = topic.replay()
        monkeypatch.undo()
        assert (done.filled, done.left) == (0, 0), "the other one has done it"
        assert topic.column("_kind") == [KIND_TYPED_AND_RAW] * 10
        topic.check_fetched()


@pytest.mark.filterwarnings("ignore:Parquet writer option")
def test_rows_that_an_owner_deleted_stay_deleted(node: Node) -> None:
    with typed_topic(node, "deleted") as topic:
        topic.avro(ORDER)(order(0))
        topic.produce([later(5004, n) for n in range(10)])
        topic.move()
        with closing(RestCatalog("lake", uri=node.uri)) as catalog:
            catalog.load_table("default.deleted").delete(EqualTo("_offset", 3))
        register(topic, 5004)
        assert topic.replay().filled == 9
        assert sorted(topic.rows()) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_a_raw_topic_says_so(node: Node) -> None:
    with typed_topic(node, "raw", value_format="raw") as topic:
        topic.produce([later(5005, n) for n in range(10)])
        topic.move()
        done = topic.replay()
        assert (done.filled, done.left) == (0, 10)
        assert "lakestream.value.format" in next(iter(done.reasons))


def test_the_command_tells_what_it_did(node: Node, data: Path) -> None:
    with typed_topic(node, "told") as topic:
        topic.avro(ORDER)(order(0))
        topic.produce([later(5006, 0), b"bad", b"bad"])
        topic.move()
        register(topic, 5006)

        def run(*more: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "lakestream.cli", "dlq", "replay", *more, "--data", str(data)]
            return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

        done = run("told", "--json")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert (found["topic"], found["filled"], found["left"]) == ("told", 1, 2)
        assert [each["records"] for each in found["reasons"]] == [2]
        text = run("told")
        assert "0 records filled, 2 left as they are" in text.stdout
        missing = run("nowhere")
        assert missing.returncode == 1
        assert "there is no topic 'nowhere'" in missing.stderr
