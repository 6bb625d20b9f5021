"""Brokers come and go: ids without configuration, workers, zones, and what becomes of an id that is taken."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from support.clients.crowd import wait_until
from support.worlds.processes import HOST, START_S, Running, free_ports, is_free

Start = Callable[..., Running]
REFUSED = 3
PATIENCE_S = 40.0


def _brokers(*ports: int) -> dict[int, int]:
    """Id → port, as any of them tells."""
    admin = AdminClient({"bootstrap.servers": ",".join(f"{HOST}:{port}" for port in ports), "log_level": 0})
    return {node.id: node.port for node in admin.list_topics(timeout=20).brokers.values()}


def _start(start: Start, data: Path, port: int, *options: str) -> Running:
    running = start("broker", "--data", str(data), "--port", str(port), *options)
    running.wait_for("listens on")
    return running


def test_brokers_without_an_id_take_what_is_free(start: Start, tmp_path: Path) -> None:
    data, first = tmp_path / "data", free_ports(4)
    running = [_start(start, data, first + index) for index in range(3)]
    assert _brokers(first) == {1001 + index: first + index for index in range(3)}
    running[1].kill()
    wait_until(lambda: _brokers(first) == {1001: first, 1003: first + 2}, "clients forget the dead one", PATIENCE_S)
    _start(start, data, first + 3)
    assert _brokers(first) == {1001: first, 1002: first + 3, 1003: first + 2}
    assert running[2].stop() == 0
    assert _brokers(first) == {1001: first, 1002: first + 3}, "who says good-bye is gone at once"


def test_an_id_that_another_live_broker_has_is_refused(start: Start, tmp_path: Path) -> None:
    data, first = tmp_path / "data", free_ports(2)
    _start(start, data, first, "--id", "7")
    second = start("broker", "--data", str(data), "--port", str(first + 1), "--id", "7")
    assert second.process.wait(START_S) == REFUSED
    said = f"broker id 7 is that of {HOST}:{first}, which is alive: choose another with --id or broker.id"
    assert said in second.output
    assert _brokers(first) == {7: first}


def _workers(running: Running) -> list[psutil.Process]:
    return psutil.Process(running.process.pid).children()


def test_workers_are_brokers_of_one_configuration(start: Start, tmp_path: Path) -> None:
    data, first = tmp_path / "data", free_ports(3)
    options = ("--workers", "3", "--zone", "a", "--advertised", f"localhost:{first}")
    running = start("broker", "--data", str(data), "--port", str(first), *options)
    for index in range(3):
        running.wait_for(f"worker {index} serves")
    ports = [first + index for index in range(3)]
    assert sorted(_brokers(*ports).values()) == ports
    assert sorted(_brokers(*ports)) == [1001, 1002, 1003]
    lines = [json.loads(line) for line in running.output.splitlines()]
    assert {line.get("worker") for line in lines if "kafka door listens" in line["message"]} == {0, 1, 2}

    ids = _brokers(*ports)
    victim = next(each for each in _workers(running) if str(ports[1]) in each.cmdline())
    victim.kill()
    running.wait_for("worker 1 stopped (SIGKILL) and is started again")
    wait_until(lambda: running.output.count("worker 1 serves") == 2, "it is back", PATIENCE_S)
    assert _brokers(ports[0]) == ids, "with the id that it had"

    workers = _workers(running)
    assert running.stop(timeout_s=40) == 0
    assert not any(each.is_running() for each in workers)
    assert all(map(is_free, ports))
    assert "stopping: clients are sent to other brokers" in running.output


def test_workers_none_of_which_can_serve(start: Start, tmp_path: Path) -> None:
    first = free_ports(2)
    options = ("--workers", "2", "--port", str(first))
    running = start("broker", *options, environment={"LAKESTREAM_METADATA_URL": "nosuch://store"})
    assert running.process.wait(START_S) == REFUSED
    assert "error worker 0: " in running.output
    assert running.output.splitlines()[-1] == "error no worker can serve: what each of them said stands above"


def test_clients_stay_in_their_zone(start: Start, tmp_path: Path) -> None:
    """A producer by its client id; a consumer by client.rack alone, from wherever its metadata sends it first."""
    data, first = tmp_path / "data", free_ports(2)
    for index, zone in enumerate("ab"):
        _start(start, data, first + index, "--zone", zone)
    both = {"bootstrap.servers": f"{HOST}:{first},{HOST}:{first + 1}", "log_level": 0}
    admin = AdminClient(both)
    admin.create_topics([NewTopic("t", 8, 1)])["t"].result(20)
    nodes = {node.id: node.rack for node in admin.describe_cluster().result(20).nodes}
    assert nodes == {1001: "a", 1002: "b"}
    for number, zone in enumerate("ab", 1001):
        producer = Producer(both | {"client.id": f"app,zone_id={zone}"})
        for partition in range(8):
            producer.produce("t", zone, partition=partition)
        assert producer.flush(30) == 0
        leaders = {each.leader for each in producer.list_topics("t", timeout=20).topics["t"].partitions.values()}
        assert leaders == {number}
    for number, zone in enumerate("ab", 1001):
        told: list[str] = []
        settings = {"client.rack": zone, "group.id": zone, "statistics.interval.ms": 100, "stats_cb": told.append}
        consumer = Consumer(both | settings)
        consumer.assign([TopicPartition("t", index, 0) for index in range(8)])
        found = 0

        def settled(told: list[str] = told, number: int = number) -> bool:
            parts = json.loads(told[-1])["topics"].get("t", {"partitions": {}})["partitions"] if told else {}
            return {part["broker"] for name, part in parts.items() if name != "-1"} == {number}

        deadline = time.monotonic() + PATIENCE_S
        while found < 16 or not settled():
            assert time.monotonic() < deadline, f"{found} of 16 records, {told[-1:]}"
            found += sum(message.error() is None for message in consumer.consume(16, 0.2))
        consumer.close()
