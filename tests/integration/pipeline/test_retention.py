"""Retention, DeleteRecords, changed settings and merges through real brokers, clients and catalogs; no Spark."""

import json
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from support.clients.commands import invoke
from support.worlds.embedded import Embedded, embedded
from support.worlds.processes import Running

from lakestream.cli.tables.table import app
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.tiles.local import LocalTiles
from lakestream.frontier.moving.worker import Worker
from lakestream.frontier.upkeep.maintenance import Maintenance, Step
from lakestream.metadata.topics.list import Topics
from lakestream.node.storage.backends import open_backends
from lakestream.node.storage.tables import open_catalog
from lakestream.settings import load

T = TypeVar("T")


async def _in_lake(data: Path, work: Callable[[Lake, Topics], Awaitable[T]], **overrides: Any) -> T:
    """A pipeline's parts on the broker's data, beside it."""

    async def run() -> T:
        settings = load(None, {}, {"data_dir": str(data)} | overrides)
        async with open_backends(settings) as backends, open_catalog(backends) as catalog:
            runner = LocalTiles(backends.objects, backends.runtime)
            lake = Lake(backends.store, catalog, backends.objects, runner, backends.runtime, settings.pipeline)
            return await work(lake, Topics(backends.store, backends.runtime))

    return await run()


async def _move(data: Path) -> None:
    async def work(lake: Lake, topics: Topics) -> None:
        worker = Worker(lake, topics, name="w", respect_leases=False, keeps_intervals=False)
        tick = await worker.tick()
        assert not tick.failures, tick.failures

    await _in_lake(data, work)


async def _maintain(data: Path) -> list[Step]:
    async def work(lake: Lake, topics: Topics) -> list[Step]:
        done = await Maintenance(lake, topics, name="m").run()
        assert not done.failures, done.failures
        return list(done.steps)

    return await _in_lake(data, work)


def _produce(brokers: Embedded, values: list[str], *, timestamp_ms: int = 0) -> None:
    producer = Producer({"bootstrap.servers": brokers.bootstrap})
    for value in values:
        producer.produce("t", value, key="k", partition=0, timestamp=timestamp_ms)
    assert producer.flush(20) == 0


def _consume(brokers: Embedded, offset: int, **more: Any) -> list[tuple[int, bytes]]:
    consumer = Consumer(
        {
            "bootstrap.servers": brokers.bootstrap,
            "group.id": "g",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
        | more
    )
    consumer.assign([TopicPartition("t", 0, offset)])
    found = []
    try:
        while (message := consumer.poll(20)) is not None:
            error = message.error()
            if error is not None and error.name() == "_PARTITION_EOF":
                break
            if error is not None:
                raise KafkaException(error)
            found.append((message.offset(), message.value()))
    finally:
        consumer.close()
    return found


def _alter(admin: AdminClient, **values: str | None) -> None:
    entries = [
        ConfigEntry(
            name.replace("_", "."),
            value or "",
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for name, value in values.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, "t", incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(20)


def _admin(brokers: Embedded) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    for future in admin.create_topics([NewTopic("t", 1, 1)]).values():
        future.result(20)
    return admin


def _bounds(admin: AdminClient) -> tuple[int, int]:
    found = []
    for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):
        [future] = admin.list_offsets({TopicPartition("t", 0): spec}).values()
        found.append(future.result(20).offset)
    return found[0], found[1]


async def test_records_are_deleted_in_tail_and_table_and_consumers_go_on_behind_them(tmp_path: Path) -> None:
    with embedded(tmp_path, 2) as brokers:
        admin = _admin(brokers)
        _produce(brokers, [f"v{n}" for n in range(10)])
        await _move(tmp_path)
        _produce(brokers, [f"v{n}" for n in range(10, 20)])

        def delete(offset: int) -> int:
            [future] = admin.delete_records([TopicPartition("t", 0, offset)]).values()
            deleted: int = future.result(20).low_watermark
            return deleted

        assert delete(4) == 4
        assert _bounds(admin) == (4, 20)
        assert _consume(brokers, 0) == [(n, b"v%d" % n) for n in range(4, 20)]
        with pytest.raises(KafkaException, match="out of range"):
            _consume(brokers, 0, **{"auto.offset.reset": "error"})
        assert delete(15) == 15, "beyond the frontier"
        assert _consume(brokers, 0) == [(n, b"v%d" % n) for n in range(15, 20)]
        with pytest.raises(KafkaException):
            delete(21)
        await _move(tmp_path)
        assert _consume(brokers, 15) == [(n, b"v%d" % n) for n in range(15, 20)]

        async def rows(lake: Lake, topics: Topics) -> int:
            topic = (await topics.by_names(["t"]))["t"]
            return sum(file.record_count for file in (await lake.catalog.load(topic.topic_id)).files)

        assert await _in_lake(tmp_path, rows) == 20, "the table keeps what left the stream"
        assert delete(-1) == 20
        _produce(brokers, ["next"])
        assert _consume(brokers, 20) == [(20, b"next")]


async def test_settings_changed_by_a_client_are_obeyed_and_tables_lose_old_rows(tmp_path: Path) -> None:
    old_ms, young_ms = 1_600_000_000_000, 4_000_000_000_000
    with embedded(tmp_path) as brokers:
        admin = _admin(brokers)
        _alter(admin, message_timestamp_after_max_ms=str((1 << 63) - 1))
        _produce(brokers, ["a", "b"], timestamp_ms=old_ms)
        await _move(tmp_path)
        _produce(brokers, ["c", "d"], timestamp_ms=young_ms)
        await _move(tmp_path)
        assert await _maintain(tmp_path) == []
        _alter(admin, retention_ms="60000")
        [described] = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "t")]).values()
        assert described.result(20)["retention.ms"].value == "60000"
        assert await _maintain(tmp_path) == [Step("t", "move log start", "partition 0 to 2")]
        assert _bounds(admin) == (2, 4)
        with pytest.raises(KafkaException, match=r"retention\.ms=soon"):
            _alter(admin, retention_ms="soon")
        _alter(admin, lakestream_table_retention_ms="60000", retention_ms=None)
        dropped = await _maintain(tmp_path)
        assert [(step.action, step.files, step.rows) for step in dropped] == [("drop rows", 1, 2)]
        assert _consume(brokers, 2) == [(2, b"c"), (3, b"d")]
        _produce(brokers, ["e"])
        await _move(tmp_path)
        assert _consume(brokers, 0) == [(2, b"c"), (3, b"d"), (4, b"e")]


async def test_small_files_are_merged_by_the_command_and_a_dry_run_only_tells(tmp_path: Path) -> None:
    with embedded(tmp_path) as brokers:
        _admin(brokers)
        for number in range(9):
            _produce(brokers, [f"{number}-{n}" for n in range(3)])
            await _move(tmp_path)
        before = _consume(brokers, 0)

        async def maintain(*more: str) -> list[dict[str, Any]]:
            result = await invoke(app, ["maintain", "t", "--json", "--data", str(tmp_path), *more])
            assert result.exit_code == 0, result.output
            return [json.loads(line) for line in result.output.splitlines()]

        [planned] = await maintain("--dry-run")
        assert (planned["action"], planned["files"], planned["rows"], planned["done"]) == ("merge files", 9, 27, False)
        [done] = await maintain()
        assert (done["files"], done["about"], done["done"]) == (9, "into 1", True)
        assert await maintain() == []
        assert _consume(brokers, 0) == before

        async def snapshot(lake: Lake, topics: Topics) -> Any:
            topic = (await topics.by_names(["t"]))["t"]
            current = await lake.catalog.commits.load(topic.topic_id)  # type: ignore[attr-defined]
            return current.metadata.current_snapshot().summary

        summary = await _in_lake(tmp_path, snapshot)
        assert (summary.operation.value, summary["total-data-files"], summary["total-records"]) == (
            "replace",
            "1",
            "27",
        )
        _produce(brokers, ["more"])
        await _move(tmp_path)
        assert _consume(brokers, 0) == [*before, (27, b"more")]
        nothing = await invoke(app, ["maintain", "nope", "--data", str(tmp_path)])
        assert nothing.exit_code == 1


@pytest.mark.java
def test_kafkas_own_tools_change_settings_and_delete_records(tmp_path: Path, java: str, kafka_libs: str) -> None:
    with embedded(tmp_path) as brokers:
        admin = _admin(brokers)
        _produce(brokers, ["a", "b", "c"])

        def tool(name: str, *arguments: str) -> str:
            command = [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_libs}/*", name]
            command += ["--bootstrap-server", brokers.bootstrap, *arguments]
            done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
            return done.stdout + done.stderr

        topic = ("--entity-type", "topics", "--entity-name", "t")
        changed = tool("kafka.admin.ConfigCommand", *topic, "--alter", "--add-config", "retention.ms=4242")
        assert "Completed updating config for topic t" in changed
        assert "retention.ms=4242" in tool("kafka.admin.ConfigCommand", *topic, "--describe")
        wrong = tool("kafka.admin.ConfigCommand", *topic, "--alter", "--add-config", "no.such=1")
        assert "no.such is no setting of a topic" in wrong
        tool("kafka.admin.ConfigCommand", *topic, "--alter", "--delete-config", "retention.ms")
        assert "retention.ms=4242" not in tool("kafka.admin.ConfigCommand", *topic, "--describe")
        wanted = tmp_path / "records.json"
        wanted.write_text('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "offset": 2}]}')
        deleted = tool("org.apache.kafka.tools.DeleteRecordsCommand", "--offset-json-file", str(wanted))
        assert "low_watermark: 2" in deleted
        assert _bounds(admin) == (2, 3)


@pytest.mark.slow
@pytest.mark.spark
def test_a_pipeline_maintains_tables_while_it_moves_records(
    tmp_path: Path, start: Callable[..., Running], java: str
) -> None:
    pace = {"LAKESTREAM_PIPELINE_MAINTAIN_INTERVAL_MS": "700", "LAKESTREAM_PIPELINE_MIN_MERGE_FILES": "3"}
    with embedded(tmp_path) as brokers:
        admin = _admin(brokers)
        _alter(admin, cleanup_policy="compact,delete", retention_ms="60000")
        where = ("--data", str(tmp_path), "--interval", "0.2", "--master", "local[1]")
        pipeline = start("pipeline", *where, environment=pace)
        _produce(brokers, ["old"] * 5, timestamp_ms=1_600_000_000_000)
        pipeline.wait_for("move log start, partition 0 to 5", 120)
        for number in range(6):
            _produce(brokers, [f"{number}-{n}" for n in range(50)])
            pipeline.wait_for("50 records of 1 topics are in their tables", 60)
        pipeline.wait_for("fold keys", 60)
        last = _consume(brokers, 0)[-1]
        assert last == (304, b"5-49")
        assert pipeline.stop() == 0
