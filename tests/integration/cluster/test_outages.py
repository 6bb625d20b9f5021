"""What a cluster depends on is out of reach for a while, under load: PostgreSQL, the bucket, a broker, a clock. Nothing
acknowledged is lost, doubled or out of order; producers, consumers and groups go on by themselves, and so does whatever
was written meanwhile. Some seconds in every run; with OUTAGE_SECONDS, or where long runs are asked for, a minute.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest
from conftest import need
from support.clients.audit import check_acked, check_group, read_all
from support.clients.crowd import Crew, Follower, Member, Watch, Writer, wait_until
from support.servers.gate import SLOW_DOWN, Gate, gate
from support.servers.postgres import PostgresServer, postgres_programs, postgres_server
from support.servers.s3 import environment as s3_environment
from support.worlds.processes import ProcessWorld, Running, free_ports
from support.worlds.storm import COMMITTED

TOPIC = "events"
PARTITIONS = 3
BROKERS = 2
SETTLE_S = 120.0
SHORT_S = float(os.environ.get("OUTAGE_SECONDS", "6"))
LONG_S = 60.0
SPARK_S = 300.0
SKEWED = Path(__file__).parents[2] / "support" / "skewed"
LENGTHS = [SHORT_S, pytest.param(LONG_S, marks=pytest.mark.slow)]


class Load:
    """Two producers, a reader of everything, a group of two. `audit` ends them and looks at all that they were told."""

    def __init__(self, cluster: ProcessWorld) -> None:
        bootstrap = cluster.bootstrap
        self.cluster = cluster
        self.writers = [Writer(f"w{n}", bootstrap, TOPIC, PARTITIONS, 150) for n in range(2)]
        self.follower, self.crew = Follower(bootstrap, TOPIC, PARTITIONS), Crew(bootstrap, TOPIC, PARTITIONS)
        self._others = [*(Member(f"member {number}", self.crew) for number in range(2)), Watch(self.crew)]
        for client in (*self.writers, self.follower, *self._others):
            client.start()
        self.wait_for_acks("the load has begun")

    @property
    def acked(self) -> int:
        return sum(writer.acked_count for writer in self.writers)

    def wait_for_acks(self, what: str) -> None:
        goal = self.acked + 100
        wait_until(lambda: self.acked >= goal, what, SETTLE_S)

    def audit(self) -> None:
        for writer in self.writers:
            writer.finish()
        stream = read_all(self.cluster.ports, TOPIC, PARTITIONS)
        check_acked(stream, self.writers)
        ends = [len(stream[partition]) for partition in range(PARTITIONS)]
        wait_until(lambda: [len(self.follower.seen[n]) for n in range(PARTITIONS)] == ends, "all is read", SETTLE_S)
        wait_until(lambda: [self.crew.committed[n] for n in range(PARTITIONS)] == ends, "all is committed", SETTLE_S)
        for client in (self.follower, *self._others):
            client.finish()
        assert self.follower.wrong == []
        assert self.follower.seen == {index: [record.value for record in stream[index]] for index in stream}
        check_group(self.crew, stream)
        assert [value for writer in self.writers for value in writer.unknown] == [], "records that nobody has answered"


@pytest.fixture
def load(cluster: Callable[..., ProcessWorld], cli: Any) -> Callable[..., Load]:
    def make(**environment: str) -> Load:
        made = cluster(BROKERS, environment=environment)
        created = cli("topic", "create", TOPIC, "-p", str(PARTITIONS), "-b", made.bootstrap)
        assert created.returncode == 0, created.stderr
        return Load(made)

    return make


def outage(load: Load, trouble: AbstractContextManager[object], seconds: float) -> None:
    with trouble:
        time.sleep(seconds)
    load.wait_for_acks("records are acknowledged again")
    load.audit()


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with postgres_server(need(postgres_programs(), "PostgreSQL (initdb and postgres)"), "s3cret") as server:
        yield server


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seconds", LENGTHS)
def test_postgres_is_stopped(load: Callable[..., Load], server: PostgresServer, seconds: float) -> None:
    with ExitStack() as up:
        process = up.enter_context(server.up())
        made = load(LAKESTREAM_METADATA_URL=server.url)

        @contextmanager
        def stopped() -> Iterator[None]:
            server.end(process, signal.SIGINT)
            up.close()
            yield
            up.enter_context(server.up())

        outage(made, stopped(), seconds)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seconds", LENGTHS)
def test_postgres_hangs(load: Callable[..., Load], server: PostgresServer, seconds: float) -> None:
    """Connections stay open, and nothing answers."""
    with server.up() as process:
        made = load(LAKESTREAM_METADATA_URL=server.url)
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]

        @contextmanager
        def paused() -> Iterator[None]:
            for each in family:
                each.suspend()
            try:
                yield
            finally:
                for each in family:
                    each.resume()

        outage(made, paused(), seconds)


@pytest.fixture
def bucket(aws_address: str) -> Iterator[Gate]:
    with gate(aws_address) as made:
        yield made


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seconds", LENGTHS)
def test_the_bucket_answers_503(load: Callable[..., Load], bucket: Gate, seconds: float) -> None:
    made = load(LAKESTREAM_BUCKET_URL=f"s3://lake/outage-{uuid4().hex}", **s3_environment(bucket.address))

    @contextmanager
    def throttled() -> Iterator[None]:
        bucket.shut(SLOW_DOWN)
        yield
        bucket.open()

    outage(made, throttled(), seconds)
    assert bucket.answered["PUT"] > 0


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seconds", [SHORT_S + 6, pytest.param(LONG_S, marks=pytest.mark.slow)])
def test_a_broker_is_paused(
    cluster: Callable[..., ProcessWorld], load: Callable[..., Load], server: PostgresServer, seconds: float
) -> None:
    """Longer than its lease: others take its groups over, and it finds out when it wakes up."""
    with server.up():
        made = load(LAKESTREAM_METADATA_URL=server.url)
        victim = made.cluster.brokers[random.Random(seconds).randrange(BROKERS)]

        @contextmanager
        def paused() -> Iterator[None]:
            victim.process.send_signal(signal.SIGSTOP)
            yield
            victim.process.send_signal(signal.SIGCONT)

        outage(made, paused(), seconds)


HOUR_S = 3600


@pytest.fixture
def skewed(cluster: Callable[..., ProcessWorld], server: PostgresServer, cli: Any) -> Iterator[Load]:
    """One broker an hour ahead, one an hour behind. Leases go by the database's clock."""
    with server.up():
        made = cluster(0, environment={"LAKESTREAM_METADATA_URL": server.url, "PYTHONPATH": str(SKEWED)})
        made.ports = [free_ports() for _ in range(BROKERS)]
        shared = made.environment
        for index, offset_s in enumerate((HOUR_S, -HOUR_S)):
            made.environment = {**shared, "CLOCK_OFFSET_S": str(offset_s)}
            made.start_broker(index)
        created = cli("topic", "create", TOPIC, "-p", str(PARTITIONS), "-b", made.bootstrap)
        assert created.returncode == 0, created.stderr
        yield Load(made)


@pytest.mark.timeout(400)
def test_clocks_are_an_hour_off(skewed: Load) -> None:
    for _ in range(3):
        skewed.wait_for_acks("the brokers serve")
    skewed.audit()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(800)
@pytest.mark.parametrize("offset_s", [HOUR_S, -HOUR_S])
def test_a_pipeline_collects_by_a_clock_that_is_an_hour_off(
    skewed: Load, start: Callable[..., Running], java: str, offset_s: int
) -> None:
    """By its clock everything is an hour old, or was written in an hour: nothing goes that a broker may still commit,
    because its generation is fenced first."""
    environment = {
        **skewed.cluster.environment,
        "CLOCK_OFFSET_S": str(offset_s),
        "LAKESTREAM_PIPELINE_GRACE_MS": "500",
        "LAKESTREAM_PIPELINE_COLLECT_INTERVAL_MS": "500",
        "LAKESTREAM_PIPELINE_GENERATION_INTERVAL_MS": "1000",
    }
    data = ("--data", str(skewed.cluster.data))
    pipeline = start("pipeline", *data, "--master", "local[1]", environment=environment)
    pipeline.wait_for(COMMITTED, SPARK_S)
    for _ in range(20):
        skewed.wait_for_acks("the brokers serve beside the pipeline")
    skewed.audit()
    assert pipeline.process.poll() is None, pipeline.output
