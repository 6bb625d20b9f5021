"""Real processes are killed and paused at random moments under load; then the same audit that the simulator makes,
through the doors that everybody uses.

Three brokers, a fourth that comes and goes under other ids and addresses, and the pipeline, with leases, generations
and grace so short that whoever was paused wakes up after others took over. Brokers are also asked to end, as in a
rolling restart. Idempotent librdkafka producers write, one consumer reads everything as it comes, a consumer group
commits what it was handed. In the end every broker must serve every acknowledged record at its offset, once, in order
and to the byte, and the table the same; no consumer may have missed a record, no committed offset may have fallen, and
nothing may be left in the bucket that neither log nor table names.

CRASH_SEED chooses the faults, CRASH_SECONDS the length of the long run, CRASH_RUNS how many of them.
"""

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from conftest import need
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table
from support.clients.audit import Stream, check_acked, check_group, read_all
from support.clients.crowd import Crew, Follower, Member, Watch, Writer, wait_until
from support.clients.records import Record
from support.fakes.loops import run
from support.servers.outages import Outages
from support.servers.postgres import postgres_programs, postgres_server
from support.servers.s3 import environment as s3_environment
from support.worlds.processes import ProcessWorld, Running, free_ports
from support.worlds.storm import COMMITTED, Storm, Victim

from lakestream import objects

TOPIC = "events"
PARTITIONS = 3
BROKERS = 3
SEED = int(os.environ.get("CRASH_SEED", "20"))
LONG_S = float(os.environ.get("CRASH_SECONDS", "120"))
RUNS = int(os.environ.get("CRASH_RUNS", "1"))
SETTLE_S = 90.0
FAST = {
    "LAKESTREAM_STREAM_GENERATION_CHECK_MS": "500",
    "LAKESTREAM_STREAM_RECEIPT_IDLE_MS": "1000",
    "LAKESTREAM_STREAM_BROKER_TTL_MS": "1500",
    "LAKESTREAM_KAFKA_GROUPS_LEASE_TTL_MS": "1500",
    "LAKESTREAM_KAFKA_GROUPS_INITIAL_REBALANCE_DELAY_MS": "100",
    "LAKESTREAM_PIPELINE_GENERATION_INTERVAL_MS": "1000",
    "LAKESTREAM_PIPELINE_COLLECT_INTERVAL_MS": "500",
    "LAKESTREAM_PIPELINE_GRACE_MS": "500",
    "LAKESTREAM_PIPELINE_INTERVAL_MS": "300",
    "LAKESTREAM_PIPELINE_LEASE_MS": "1500",
}


def _table(cluster: ProcessWorld) -> Table:
    endpoint = cluster.environment.get("AWS_ENDPOINT", "")
    access = {"s3.endpoint": endpoint, "s3.access-key-id": "test", "s3.secret-access-key": "test"} if endpoint else {}
    return RestCatalog("test", uri=cluster.catalog, **access).load_table(f"default.{TOPIC}")


def _check_table(table: Table, stream: Stream) -> None:
    rows = table.scan().to_arrow()
    found: Stream = {index: [] for index in range(PARTITIONS)}
    times = rows["_timestamp"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_pylist()
    names = ("_stream_partition", "_offset", "_key", "_value", "_headers")
    for (partition, offset, key, value, headers), time_ms in zip(
        zip(*(rows[name].to_pylist() for name in names), strict=True), times, strict=True
    ):
        pairs = tuple((header["key"], header["value"]) for header in headers)
        found[partition].append(Record(offset, time_ms, key, value, pairs))
    for partition, records in stream.items():
        assert sorted(found[partition]) == records, f"the table's partition {partition} is not the stream's"


def _in_table(cluster: ProcessWorld, ends: list[int]) -> bool:
    return _table(cluster).properties.get("lakestream.frontier") == ",".join(map(str, ends))


def _check_bucket(cluster: ProcessWorld) -> None:
    """What is in the bucket when all is in the table: no WAL object of that time stays, no unnamed table file."""
    bucket = objects.open(cluster.environment.get("LAKESTREAM_BUCKET_URL") or f"file://{cluster.data / 'bucket'}")

    async def keys(prefix: str, suffix: str) -> set[str]:
        return {info.key async for info in bucket.list(prefix) if info.key.endswith(suffix)}

    dead = run(keys("wal/", ".wal"))
    wait_until(lambda: not dead & run(keys("wal/", ".wal")), "dead WAL objects are gone", SETTLE_S)

    def orphans() -> set[str]:
        written = {key.rpartition("/")[2] for key in run(keys("tables/", ".parquet"))}
        try:
            named = _table(cluster).inspect.all_files()["file_path"].to_pylist()
        except FileNotFoundError:
            # A snapshot expired while its manifests were read: look again.
            return written
        return written - {Path(path).name for path in named}

    wait_until(lambda: not orphans(), "table files that nothing names are gone", SETTLE_S)


class CrashWorld:
    """The cluster, its pipelines and its clients."""

    def __init__(self, cluster: ProcessWorld, start: Callable[..., Running], seed: int, pipelines: int) -> None:
        self.cluster = cluster
        environment = cluster.environment
        first = free_ports(BROKERS)
        cluster.ports = list(range(first, first + BROKERS))
        data = ("--data", str(cluster.data))

        def broker(index: int) -> Running:
            place = ("--id", str(index), "--port", str(cluster.ports[index]))
            return start("broker", *place, *data, environment=environment)

        def visitor() -> Running:
            return start("broker", "--port", str(free_ports()), *data, environment=environment)

        def pipeline() -> Running:
            return start("pipeline", *data, "--master", "local[1]", environment=environment)

        # A pipeline that is alone harms nobody by a pause, and one that has not committed anything by its death.
        share = 0.5 if pipelines > 1 else 0.0
        spark = [
            Victim(f"pipeline {index}", pipeline, 0.5, 5.0, share, lambda running: COMMITTED in running.output)
            for index in range(pipelines)
        ]
        brokers = [
            Victim(f"broker {index}", lambda index=index: broker(index), 1.0, 6.0, withdraw_share=0.3)
            for index in range(BROKERS)
        ]
        brokers.append(Victim("visitor", visitor, 2.0, 1.0, 0.1, withdraw_share=0.5))
        for victim in brokers:
            victim.running.wait_for("listens on")
        self.storm = Storm(brokers, spark, random.Random(seed))

    def rage(self, seconds: float, *, pipeline_faults: int, records_per_s: int, outages: Outages | None = None) -> str:
        """The storm, the calm after it, and the audit. What happened, in one line."""
        bootstrap, storm = self.cluster.bootstrap, self.storm
        writers = [Writer(f"w{n}", bootstrap, TOPIC, PARTITIONS, records_per_s // 2) for n in range(2)]
        follower, crew = Follower(bootstrap, TOPIC, PARTITIONS), Crew(bootstrap, TOPIC, PARTITIONS)
        members = [Member(f"member {number}", crew) for number in range(2)]
        watch = Watch(crew)
        for client in (*writers, follower, *members, watch):
            client.start()
        started = time.monotonic()

        def over() -> bool:
            hits = storm.kills["pipeline"] + storm.pauses["pipeline"]
            lasted_s = time.monotonic() - started
            return lasted_s > seconds and (hits >= pipeline_faults or lasted_s > seconds + SETTLE_S)

        try:
            if outages:
                outages.begin()
            storm.rage(over)
        finally:
            if outages:
                outages.finish()
            storm.settle()
        for writer in writers:
            writer.finish()
        for victim in storm.brokers:
            victim.running.wait_for("listens on")
        stream = read_all(self.cluster.ports, TOPIC, PARTITIONS)
        check_acked(stream, writers)
        ends = [len(stream[partition]) for partition in range(PARTITIONS)]
        wait_until(lambda: _in_table(self.cluster, ends), f"{ends} are in the table", SETTLE_S)
        wait_until(lambda: [len(follower.seen[n]) for n in range(PARTITIONS)] == ends, "all is followed", SETTLE_S)
        wait_until(lambda: [crew.committed[n] for n in range(PARTITIONS)] == ends, "all is committed", SETTLE_S)
        for client in (follower, *members, watch):
            client.finish()
        assert follower.wrong == []
        assert follower.seen == {index: [record.value for record in stream[index]] for index in stream}
        check_group(crew, stream)
        assert read_all(self.cluster.ports, TOPIC, PARTITIONS) == stream, "the table serves what the WAL served"
        _check_table(_table(self.cluster), stream)
        _check_bucket(self.cluster)
        acked, unknown = sum(writer.acked_count for writer in writers), sum(len(writer.unknown) for writer in writers)
        return (
            f"{time.monotonic() - started:.0f} s, kills {dict(storm.kills)}, pauses {dict(storm.pauses)}, "
            f"withdrawals {dict(storm.withdrawals)}, "
            f"{acked} records acknowledged, {unknown} without an answer, {crew.commits} group commits, "
            f"{watch.looks} looks at them"
        )


@pytest.fixture
def world(cluster: Callable[..., ProcessWorld], start: Callable[..., Running], cli: Any) -> Callable[..., CrashWorld]:
    def make(seed: int, pipelines: int, **environment: str) -> CrashWorld:
        made = CrashWorld(cluster(0, environment=FAST | environment), start, seed, pipelines)
        made.cluster.start_http()
        created = cli("topic", "create", TOPIC, "-p", str(PARTITIONS), "-b", made.cluster.bootstrap)
        assert created.returncode == 0, created.stderr
        return made

    return make


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(400)
def test_killed_and_paused_under_load(world: Callable[..., CrashWorld], java: str) -> None:
    print(f"CRASH_SEED={SEED}")
    print(world(SEED, pipelines=1).rage(15, pipeline_faults=1, records_per_s=800))


@pytest.fixture
def outages() -> Iterator[Outages]:
    """A PostgreSQL that can be made to fail."""
    programs = need(postgres_programs(), "PostgreSQL (initdb and postgres)")
    with postgres_server(programs, "s3cret") as server, Outages(server, random.Random(SEED)) as outages:
        yield outages


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_killed_and_paused_on_a_server_that_fails(
    world: Callable[..., CrashWorld], java: str, outages: Outages
) -> None:
    """All state is on PostgreSQL, which is killed and restarted as well, every few seconds."""
    print(f"CRASH_SEED={SEED}")
    made = world(SEED, 1, LAKESTREAM_METADATA_URL=outages.url)
    print(made.rage(15, pipeline_faults=1, records_per_s=800, outages=outages), f"{outages.count} outages")
    assert outages.count > 1


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(LONG_S + 400)
def test_killed_and_paused_for_long_on_postgres_and_s3(
    world: Callable[..., CrashWorld], java: str, outages: Outages, aws_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a company would run it: nothing that matters is on a broker's machine."""
    print(f"CRASH_SEED={SEED}")
    bucket = {"LAKESTREAM_BUCKET_URL": f"s3://lake/storm-{uuid4().hex}", **s3_environment(aws_address)}
    for name, value in bucket.items():
        monkeypatch.setenv(name, value)
    made = world(SEED, 2, LAKESTREAM_METADATA_URL=outages.url, **bucket)
    print(made.rage(LONG_S / 2, pipeline_faults=2, records_per_s=800, outages=outages), f"{outages.count} outages")
    assert outages.count > 3


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(LONG_S + 400)
@pytest.mark.parametrize("seed", range(SEED + 1, SEED + 1 + RUNS))
def test_killed_and_paused_for_long_with_two_pipelines(world: Callable[..., CrashWorld], java: str, seed: int) -> None:
    print(f"CRASH_SEED={seed - 1}")
    print(world(seed, pipelines=2).rage(LONG_S, pipeline_faults=4, records_per_s=1000))
