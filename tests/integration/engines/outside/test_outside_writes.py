"""What an outside commit did to a table, as consumers of the stream see it: real brokers, real clients, no Spark."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from pyiceberg.manifest import DataFileContent
from support.clients.outsider import Outsider, iceberg_file, on
from support.worlds.topic import TOPIC, WAIT_S, TopicWorld, one_topic

from lakestream.frontier.lake import Lake
from lakestream.metadata.topics.list import Topics
from lakestream.model import WrittenFile
from lakestream.table.parquet.metrics import file_metrics
from lakestream.table.shape import RAW

BEFORE = 12
"""Records that are in the table when the outsider comes, in two commits of half of them."""


class OutsideWorld(TopicWorld):
    """A topic whose table an outsider changes."""

    def configure(self, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": self.brokers.bootstrap})
        admin.incremental_alter_configs([resource])[resource].result(WAIT_S)

    def hears_nothing(self, first: int, seconds: float) -> None:
        assert next(self.messages(first, seconds), None) is None

    async def outside(self, work: Callable[[Outsider], Awaitable[None]], *, ruled: bool = True) -> None:
        async def run(lake: Lake, topics: Topics) -> None:
            topic_id = (await topics.by_names([TOPIC]))[TOPIC].topic_id
            tables: Any = lake.catalog
            await work(Outsider(tables, topic_id, await tables.load(topic_id), ruled))

        await self.with_lake(run)


@pytest.fixture(params=[0, 64 << 20], ids=["from-stores", "from-memory"])
async def town(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[OutsideWorld]:
    """What the broker still has in memory of the rows must not show when an outsider has changed them."""
    with one_topic(tmp_path / "data", **{"stream.tail_cache_bytes": request.param}) as brokers:
        made = OutsideWorld(brokers, tmp_path / "data")
        for half in (range(BEFORE // 2), range(BEFORE // 2, BEFORE)):
            made.produce(*(b"v%d" % number for number in half))
            assert (await made.tick()).record_count == BEFORE // 2
        yield made


def values(*offsets: int) -> dict[int, bytes]:
    return {offset: b"v%d" % offset for offset in offsets}


async def test_a_rollback_leaves_a_gap_and_offsets_go_on(town: OutsideWorld) -> None:
    async def roll_back(engine: Outsider) -> None:
        current = await engine.tables.commits.load(engine.topic_id)
        assert current is not None
        oldest = min(current.metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)
        await engine.update(on("main", oldest.snapshot_id))
        assert (await engine.load()).frontier == (BEFORE,)

    town.produce(b"v12")
    await town.outside(roll_back)
    kept = range(BEFORE // 2)
    assert town.read(0, BEFORE) == values(*kept, 12)
    assert town.read(BEFORE // 2, BEFORE) == values(12)
    done = await town.tick()
    assert (done.record_count, done.failures) == (1, ())
    town.produce(b"v13")
    assert town.read(0, 13) == values(*kept, 12, 13)


async def test_equality_deletes_stop_history_and_commits_but_not_the_tail(
    town: OutsideWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """Only a catalog without rules takes them. Once they are taken back, nothing was lost."""
    before: list[int | None] = []

    async def delete_by_value(engine: Outsider) -> None:
        before.append(engine.view.snapshot_id)
        deletes = iceberg_file("file:///x", content=DataFileContent.EQUALITY_DELETES, equality_ids=[12])
        await engine.commit_entries(deletes)

    await town.outside(delete_by_value, ruled=False)
    town.produce(b"v12", b"v13")
    [failure] = (await town.tick()).failures
    assert failure.topic == TOPIC
    assert "default.orders" in str(failure.error)
    assert "equality deletes" in str(failure.error)
    with caplog.at_level(logging.ERROR):
        town.hears_nothing(0, 2)
    assert "equality deletes" in caplog.text
    assert town.read(12, 13) == values(12, 13)

    async def take_back(engine: Outsider) -> None:
        await engine.update(on("main", before[0]))

    await town.outside(take_back)
    assert town.read(0, 13) == values(*range(14))
    assert (await town.tick()).record_count == 2


async def test_rows_that_a_catalog_without_rules_let_in_stop_the_topics_commits(town: OutsideWorld) -> None:
    async def append(engine: Outsider) -> None:
        await engine.commit(add=[engine.file(BEFORE, BEFORE + 2)])

    await town.outside(append, ruled=False)
    town.produce(b"v12", b"v13")
    for _ in range(2):
        [failure] = (await town.tick()).failures
        assert f"has offset {BEFORE + 1}, which the log has not given" in str(failure.error)
    assert town.read(0, 13) == values(*range(14))


async def test_a_changed_value_is_an_error_never_another_record(
    town: OutsideWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """Where nobody looks into the files of a commit, as in an external catalog."""

    async def update(engine: Outsider) -> None:
        [old] = [file for file in engine.view.files if file.offset_min == 0]
        rows = pq.read_table(old.path.removeprefix("file://"))
        changed = [b"other" if offset == 3 else b"v%d" % offset for offset in rows["_offset"].to_pylist()]
        at = rows.schema.get_field_index("_value")
        rows = rows.set_column(at, rows.schema.field(at), pa.array(changed, pa.binary()))
        path = Path(old.path.removeprefix("file://")).with_name(f"{uuid4()}.parquet")
        pq.write_table(rows, path)
        size_bytes = path.stat().st_size
        metrics = file_metrics(pq.read_metadata(path), RAW)
        written = WrittenFile(
            f"file://{path}", 1, size_bytes, rows.num_rows, 0, 0, 0, BEFORE // 2 - 1, old.timestamp_max_ms, metrics
        )
        await engine.commit(add=[written], remove=[old])

    await town.outside(update)
    with caplog.at_level(logging.ERROR):
        assert town.read_error(3) == KafkaError.INVALID_MSG
    assert "offset 3" in caplog.text
    assert "lakestream.table.updates=record" in caplog.text
    assert town.read(4, BEFORE - 1) == values(*range(4, BEFORE))
    town.configure("lakestream.table.updates", "record")
    assert town.read(0, BEFORE - 1) == values(*range(BEFORE)) | {3: b"other"}
