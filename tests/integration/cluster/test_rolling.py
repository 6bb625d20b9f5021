"""A rolling restart of three brokers under load is invisible: nothing is lost, doubled or refused, no group rebalances.

Each broker in turn is stopped with SIGTERM and started again, while an idempotent producer and one without sequence
numbers write, one consumer reads everything as it comes and a group of two commits what it was handed.
"""

import random
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, NewTopic
from conftest import need
from support.clients.crowd import Crew, Follower, Member, Writer, wait_until
from support.servers.outages import Outages
from support.servers.postgres import postgres_programs, postgres_server
from support.servers.s3 import environment as s3_environment
from support.worlds.processes import ProcessWorld

TOPIC = "rolled"
PARTITIONS = 6
SETTLE_S = 60.0
MENDED = {KafkaError._TRANSPORT, KafkaError._RESOLVE}
"""librdkafka tells of a connection that was closed, and calls another broker."""


def _make_topic(cluster: ProcessWorld, name: str = TOPIC) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(20)


def _generations(cluster: ProcessWorld, outputs: list[str]) -> list[str]:
    told = "".join((*outputs, *(broker.output for broker in cluster.brokers)))
    return re.findall(r"group crew: generation \d+ with \d+ members, \w+", told)


def _roll(cluster: ProcessWorld, rounds: int, rest_s: float) -> list[str]:
    """Every broker once a round. What those that ended have said."""
    outputs = []
    for _ in range(rounds):
        for index in range(len(cluster.brokers)):
            assert cluster.brokers[index].stop(timeout_s=30) == 0, cluster.brokers[index].output
            outputs.append(cluster.brokers[index].output)
            cluster.start_broker(index)
            time.sleep(rest_s)
    return outputs


def _restart_under_load(cluster: ProcessWorld, rounds: int, rest_s: float) -> None:
    _make_topic(cluster)
    patient: dict[str, Any] = {"request.timeout.ms": 30_000, "socket.timeout.ms": 60_000}
    plain = {"enable.idempotence": False, "max.in.flight.requests.per.connection": 1}
    writers = [
        Writer("numbered", cluster.bootstrap, TOPIC, PARTITIONS, 300, **patient),
        Writer("plain", cluster.bootstrap, TOPIC, PARTITIONS, 300, **patient, **plain),
    ]
    follower, crew = Follower(cluster.bootstrap, TOPIC, PARTITIONS), Crew(cluster.bootstrap, TOPIC, PARTITIONS)
    members = [Member(f"member {number}", crew) for number in range(2)]
    for client in (*members, *writers, follower):
        client.start()
    wait_until(lambda: any("with 2 members" in each for each in _generations(cluster, [])), "two members", SETTLE_S)
    enough = crew.commits + 10
    wait_until(lambda: crew.commits > enough, "the group commits", SETTLE_S)
    before = _generations(cluster, [])
    outputs = _roll(cluster, rounds, rest_s)
    for writer in writers:
        writer.finish()
    ends = {index: sum(_count(writer, index) for writer in writers) for index in range(PARTITIONS)}
    wait_until(lambda: {n: len(follower.seen[n]) for n in ends} == ends, "all is followed", SETTLE_S)
    wait_until(lambda: {n: crew.committed[n] for n in ends} == ends, "all is committed", SETTLE_S)
    after = _generations(cluster, outputs)
    for client in (follower, *members):
        client.finish()
    for writer in writers:
        assert writer.unknown == set(), "no delivery fails"
    assert follower.wrong == crew.wrong == crew.refused == []
    values = Counter(value for seen in follower.seen.values() for value in seen)
    assert [value for value, count in values.items() if count > 1] == [], "nothing is there twice"
    sent = {each.value for writer in writers for part in writer.acked.values() for each in part.values()}
    sent |= {each.value for writer in writers for part in writer.placeless.values() for each in part}
    assert set(values) == sent
    assert crew.handed == sum(ends.values()), "a group that does not rebalance reads nothing twice"
    assert after == before, "nobody joined again"
    told = {error.code() for each in (*writers, follower, crew) for error in each.errors}
    assert told <= MENDED, told


def _count(writer: Writer, partition: int) -> int:
    return len(writer.acked[partition]) + len(writer.placeless[partition])


@pytest.mark.timeout(240)
def test_on_one_machine(cluster: Callable[..., ProcessWorld]) -> None:
    _restart_under_load(cluster(3), 1, 0.5)


@pytest.fixture
def postgres_url() -> Iterator[str]:
    programs = need(postgres_programs(), "PostgreSQL (initdb and postgres)")
    with postgres_server(programs, "s3cret") as server, Outages(server, random.Random(1)) as outages:
        yield outages.url


@pytest.fixture
def on_servers(cluster: Callable[..., ProcessWorld], postgres_url: str, aws_address: str) -> ProcessWorld:
    """Three brokers on PostgreSQL and S3."""
    bucket = {"LAKESTREAM_BUCKET_URL": f"s3://lake/rolling-{uuid4().hex}", **s3_environment(aws_address)}
    return cluster(3, environment={"LAKESTREAM_METADATA_URL": postgres_url, **bucket})


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_on_postgres_and_s3(on_servers: ProcessWorld) -> None:
    _restart_under_load(on_servers, 2, 2.0)


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.timeout(400)
def test_a_java_producer(on_servers: ProcessWorld, java: str, kafka_libs: str, tmp_path: Path) -> None:
    """Kafka's own tool, as it comes: idempotent, five requests in flight."""
    _make_topic(on_servers)
    quiet = tmp_path / "log4j2.properties"
    quiet.write_text("status = error\nrootLogger.level = error\n")
    command = [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={quiet}"]
    command += ["-cp", f"{kafka_libs}/*", "org.apache.kafka.tools.ProducerPerformance", "--topic", TOPIC]
    command += ["--num-records", "12000", "--record-size", "100", "--throughput", "600"]
    command += ["--producer-props", f"bootstrap.servers={on_servers.bootstrap}", "acks=all"]
    said = tmp_path / "said"
    with said.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as producer:
        try:
            wait_until(lambda: b"records sent" in said.read_bytes(), "it produces", SETTLE_S)
            _roll(on_servers, 1, 1.0)
            assert producer.wait(120) == 0, said.read_text()
        finally:
            producer.kill()
    text = said.read_text()
    assert "12000 records sent" in text, text
    assert "Exception" not in text, text
    follower = Follower(on_servers.bootstrap, TOPIC, PARTITIONS)
    follower.start()
    wait_until(lambda: sum(map(len, follower.seen.values())) >= 12_000, "all is there", SETTLE_S)
    follower.finish()
    assert follower.wrong == []
    assert sum(map(len, follower.seen.values())) == 12_000
