"""Kafka Connect in distributed mode: its own topics, an exactly-once source, a sink, and a worker that is killed."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from support.clients.committed import committed, until
from support.clients.java_programs import JavaPrograms
from support.clients.topic_settings import setting_of
from support.servers.connect import ConnectWorker
from support.worlds.processes import HOST, ProcessWorld

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(420)]

QUICK = {"LAKESTREAM_STREAM_BROKER_TTL_MS": "3000", "LAKESTREAM_KAFKA_GROUPS_LEASE_TTL_MS": "1500"}
WAIT_S = 90.0
A_PART = 20
FILE = "org.apache.kafka.connect.file.FileStream{}Connector"


def _append(file: Path, first: int, count: int) -> list[str]:
    """Little by little, so that it takes the source many transactions."""
    lines = [f"line {number}" for number in range(first, first + count)]
    for start in range(0, count, A_PART):
        with file.open("a") as open_file:
            open_file.write("".join(f"{line}\n" for line in lines[start : start + A_PART]))
        time.sleep(0.05)
    return lines


def _values(bootstrap: str) -> list[str]:
    return [message.value().decode() for message in committed(bootstrap, "lines")]


def test_two_workers_one_killed(
    cluster: Callable[..., ProcessWorld], programs: Callable[..., JavaPrograms], kafka_libs: str, tmp_path: Path
) -> None:
    brokers = cluster(brokers=2, environment=QUICK)
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    admin.create_topics([NewTopic("lines", 1)])["lines"].result(20)
    connect = programs(kafka_libs, "connect-file-*")
    exactly = {"exactly.once.source.support": "enabled"}
    workers = [ConnectWorker(connect, tmp_path, brokers.bootstrap, exactly) for _ in range(2)]
    for worker in workers:
        worker.until_it_answers()
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    lines = _append(source, 0, 500)
    workers[0].ask(
        "PUT",
        "/connectors/reader/config",
        {
            "connector.class": FILE.format("Source"),
            "file": str(source),
            "topic": "lines",
            "exactly.once.support": "required",
            "transaction.boundary": "poll",
        },
    )
    workers[1].ask(
        "PUT",
        "/connectors/writer/config",
        {
            "connector.class": FILE.format("Sink"),
            "file": str(sink),
            "topics": "lines",
            "consumer.override.isolation.level": "read_committed",
        },
    )

    def told() -> object:
        states = [(worker.states("reader"), worker.running.output[-3000:]) for worker in workers]
        return len(_values(brokers.bootstrap)), len(lines), states

    def running_on(connector: str) -> set[str]:
        states = next((found for found in (worker.states(connector) for worker in workers) if found), [])
        return {place for state, place in states} if {state for state, _ in states} == {"RUNNING"} else set()

    def arrived(count: int) -> Callable[[], bool]:
        return lambda: len(_values(brokers.bootstrap)) > count

    def done() -> bool:
        return _values(brokers.bootstrap) == lines and _has(sink, lines)

    until(lambda: all(len(worker.states("reader")) == 2 for worker in workers), WAIT_S, told)
    until(done, WAIT_S, told)
    for _ in range(2):
        [place] = {place for _, place in workers[0].states("reader")[1:]}
        busy = next(worker for worker in workers if place == f"{HOST}:{worker.port}")
        first = len(lines)
        lines.extend(_append(source, first, 500))
        until(arrived(first + 100), WAIT_S, told)
        lines.extend(_append(source, len(lines), 200))
        busy.running.kill()
        lines.extend(_append(source, len(lines), 500))
        until(done, WAIT_S, told)
        busy.start()
        busy.until_it_answers()
        until(lambda: bool(running_on("reader")), WAIT_S, told)
        assert done()

    for name, partitions in {"connect-configs": 1, "connect-offsets": 3, "connect-status": 5}.items():
        assert len(admin.list_topics(name, 20).topics[name].partitions) == partitions
        assert setting_of(admin, name, "cleanup.policy") == "compact"
    offsets = workers[0].ask("GET", "/connectors/reader/offsets")["offsets"]
    assert [place["offset"]["position"] for place in offsets] == [source.stat().st_size]
    for connector in ("reader", "writer"):
        workers[1].ask("DELETE", f"/connectors/{connector}")
    until(lambda: workers[0].ask("GET", "/connectors") == [], WAIT_S, told)


def _has(file: Path, lines: list[str]) -> bool:
    """A sink may write a line twice when its worker is killed, and none never."""
    return file.exists() and set(lines) <= set(file.read_text().splitlines())
