"""Processes are killed at random moments under load; what was acknowledged is in the stream and in the table, once.

Idempotent librdkafka producers write numbered values to three brokers while brokers and the pipeline are killed with
SIGKILL and started again. Then every broker must serve exactly the acknowledged values (a value whose outcome the
producer never learnt may be there too, once), and the table must hold exactly what the stream holds.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from kio.schema.errors import ErrorCode
from pyiceberg.catalog.rest import RestCatalog
from support.door import Client, run, span
from support.processes import Cluster, Running
from support.records import parse

TOPIC = "events"
PARTITIONS = 3
LOAD_S = 8.0
PIPELINE_KILLS = 2
SEED = 20
COMMITTED = "are in their tables"
FETCH = {
    "max_wait": span(100),
    "min_bytes": 1,
    "max_bytes": 1 << 23,
    "isolation_level": 0,
    "session_id": 0,
    "session_epoch": -1,
    "forgotten_topics_data": (),
}
FAST = {
    "LAKESTREAM_PIPELINE_GENERATION_INTERVAL_MS": "1000",
    "LAKESTREAM_PIPELINE_COLLECT_INTERVAL_MS": "500",
    "LAKESTREAM_PIPELINE_GRACE_MS": "500",
    "LAKESTREAM_PIPELINE_INTERVAL_MS": "300",
    "LAKESTREAM_PIPELINE_LEASE_MS": "1500",
}


class Load(threading.Thread):
    """One producer. `acked[partition]` are (offset, value) pairs; `unknown` are values without a verdict."""

    def __init__(self, name: str, bootstrap: str, stop: threading.Event) -> None:
        super().__init__(name=name)
        self._stop_asked = stop
        self.acked: dict[int, list[tuple[int, bytes]]] = {index: [] for index in range(PARTITIONS)}
        self.unknown: set[bytes] = set()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 60_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        number = 0
        while not self._stop_asked.is_set():
            for _ in range(20):
                value = f"{self.name}-{number}".encode()
                self._producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=self._delivered)
                number += 1
            self._producer.poll(0.01)
        assert self._producer.flush(70) == 0

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acked[message.partition()].append((message.offset(), message.value()))
        else:
            self.unknown.add(message.value())


async def _read(port: int, partition: int) -> list[tuple[int, bytes]]:
    """The whole partition, from this very broker: a Kafka client would go to the one it is told to prefer."""
    client = await Client.connect(port)
    found: list[tuple[int, bytes]] = []
    offset, end = 0, -1
    try:
        while offset != end:
            asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 22}
            answer = await client.ask(1, 12, FETCH | {"topics": [{"topic": TOPIC, "partitions": [asked]}]})
            (part,) = answer.responses[0].partitions
            assert part.error_code is ErrorCode.none, (port, partition, offset, part.error_code)
            end = part.high_watermark
            records = parse([part.records]) if part.records else []
            assert records or offset == end, f"nothing at {offset} of {end} in partition {partition} from {port}"
            found += [(record.offset, record.value or b"") for record in records if record.offset >= offset]
            offset = records[-1].offset + 1 if records else offset
        return found
    finally:
        await client.close()


def _kill_brokers(cluster: Cluster, chance: random.Random, until: Callable[[], bool]) -> None:
    while not until():
        time.sleep(chance.uniform(0.2, 1.2))
        victim = chance.randrange(len(cluster.brokers))
        cluster.brokers[victim].kill()
        time.sleep(chance.uniform(0, 0.5))
        cluster.start_broker(victim)


class Pipelines:
    """A pipeline that is killed soon after it has committed something, and started again, a few times."""

    def __init__(self, start: Callable[[], Running], chance: random.Random, kills: int) -> None:
        self._start = start
        self._chance = chance
        self._left = kills
        self._running = start()
        self._due: float | None = None

    def tend(self) -> bool:
        """To be called often. True when it was killed as often as it should."""
        if self._due is None and COMMITTED in self._running.output:
            self._due = time.monotonic() + self._chance.uniform(0, 1.0)
        if self._due is not None and time.monotonic() >= self._due:
            self._running.kill()
            self._left -= 1
            self._due = None
            if self._left:
                self._running = self._start()
        assert self._running.process.poll() in (None, -9), self._running.output
        return not self._left


def _check_stream(cluster: Cluster, loads: list[Load]) -> dict[int, list[tuple[int, bytes]]]:
    """Every broker serves every acknowledged value at its offset, once, and nothing that was never sent."""
    streams: dict[int, list[tuple[int, bytes]]] = {}
    for partition in range(PARTITIONS):
        acked = {offset: value for load in loads for offset, value in load.acked[partition]}
        assert len(acked) == sum(len(load.acked[partition]) for load in loads), "two records share an offset"
        unknown = set().union(*(load.unknown for load in loads))
        copies = [run(_read(port, partition)) for port in cluster.ports]
        assert all(copy == copies[0] for copy in copies), "brokers disagree"
        stream = dict(copies[0])
        assert len(stream) == len(copies[0])
        assert {offset: stream.get(offset) for offset in acked} == acked
        twice = [value for value, count in Counter(stream.values()).items() if count > 1]
        assert twice == []
        assert set(stream.values()) - set(acked.values()) <= unknown
        assert sorted(stream) == list(range(len(stream))), "offsets are dense"
        for load in loads:
            mine = [value for value in stream.values() if value.startswith(f"{load.name}-".encode())]
            assert mine == sorted(mine, key=lambda value: int(value.rsplit(b"-", 1)[1])), "order within a producer"
        streams[partition] = copies[0]
    return streams


def _run_load(cluster: Cluster, until: Callable[[], bool]) -> list[Load]:
    stop = threading.Event()
    loads = [Load(f"p{number}", cluster.bootstrap, stop) for number in range(2)]
    for load in loads:
        load.start()
    try:
        _kill_brokers(cluster, random.Random(SEED), until)
    finally:
        stop.set()
        for load in loads:
            load.join()
    assert sum(len(records) for load in loads for records in load.acked.values()) > 100
    return loads


def test_brokers_killed_under_load(cluster: Callable[..., Cluster], cli: Any) -> None:
    made = cluster(3, environment=FAST)
    assert cli("topic", "create", TOPIC, "-p", str(PARTITIONS), "-b", made.bootstrap).returncode == 0
    deadline = time.monotonic() + LOAD_S
    loads = _run_load(made, lambda: time.monotonic() > deadline)
    _check_stream(made, loads)


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_brokers_and_pipeline_killed_under_load(
    cluster: Callable[..., Cluster], start: Callable[..., Running], cli: Any, java: str
) -> None:
    made = cluster(3, http=True, environment=FAST)
    assert cli("topic", "create", TOPIC, "-p", str(PARTITIONS), "-b", made.bootstrap).returncode == 0

    def pipeline() -> Running:
        return start("pipeline", "--data", str(made.data), "--master", "local[1]", environment=FAST)

    pipelines = Pipelines(pipeline, random.Random(SEED), PIPELINE_KILLS)
    loads = _run_load(made, pipelines.tend)
    _check_stream(made, loads)
    made.run_pipeline_once()
    streams = _check_stream(made, loads)
    rows = RestCatalog("test", uri=made.catalog).load_table(f"default.{TOPIC}").scan().to_arrow()
    table: dict[int, list[tuple[int, bytes]]] = {index: [] for index in range(PARTITIONS)}
    columns = (rows[name].to_pylist() for name in ("_stream_partition", "_offset", "_value"))
    for partition, offset, value in zip(*columns, strict=True):
        table[partition].append((offset, value))
    assert {partition: sorted(records) for partition, records in table.items()} == streams
