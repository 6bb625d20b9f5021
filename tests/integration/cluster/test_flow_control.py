"""A broker's memory is bounded whatever its clients do: a slow bucket is felt at the producers' sockets, consumers that
do not read their answers share one budget, and small requests go through meanwhile.

What a broker may hold is the sum of its budgets and caches (docs/OPERATIONS.md, "Memory"). `ALLOWANCE_BYTES` is for
what no budget counts: buffers on their way from one to the next, the allocator's gaps, one batch per fetch.
"""

import asyncio
import os
import resource
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psutil
import pytest
from kio.schema.errors import ErrorCode
from support.clients.batches import batch
from support.clients.wire import Client, frame, span
from support.fakes.loops import run
from support.worlds.processes import HOST, ProcessWorld

from benchmarks.slow_store import slow_store

MIB = 1 << 20
BUDGET_BYTES, CACHE_BYTES, RECEIVE_BYTES, ANSWER_BYTES = 64 * MIB, 16 * MIB, 16 * MIB, 32 * MIB
ALLOWANCE_BYTES = 64 * MIB
SMALL = {
    "LAKESTREAM_STREAM_MEMORY_BUDGET_BYTES": str(BUDGET_BYTES),
    "LAKESTREAM_STREAM_TAIL_CACHE_BYTES": str(CACHE_BYTES),
    "LAKESTREAM_STREAM_HISTORY_CACHE_BYTES": str(CACHE_BYTES),
    "LAKESTREAM_KAFKA_RECEIVE_BYTES": str(RECEIVE_BYTES),
    "LAKESTREAM_KAFKA_ANSWER_BYTES": str(ANSWER_BYTES),
    "LAKESTREAM_KAFKA_GROUPS_INITIAL_REBALANCE_DELAY_MS": "0",
}
BOUND_BYTES = BUDGET_BYTES + 2 * CACHE_BYTES + 2 * RECEIVE_BYTES + ANSWER_BYTES + ALLOWANCE_BYTES
TOPIC, PARTITIONS = "flood", 4
VALUE = os.urandom(900_000)


class Peak(threading.Thread):
    """The most memory that a process had."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._process = psutil.Process(pid)
        self._over = threading.Event()
        self.rest_bytes = self.bytes = int(self._process.memory_info().rss)

    def run(self) -> None:
        while not self._over.wait(0.02):
            self.bytes = max(self.bytes, int(self._process.memory_info().rss))

    @property
    def grown_bytes(self) -> int:
        return self.bytes - self.rest_bytes

    def finish(self) -> None:
        self._over.set()
        self.join()


@contextmanager
def _peak(pid: int) -> Iterator[Peak]:
    peak = Peak(pid)
    peak.start()
    try:
        yield peak
    finally:
        peak.finish()


def _produce_fields(partition: int, value: bytes) -> dict[str, Any]:
    data = {"index": partition, "records": batch(value)}
    topics = [{"name": TOPIC, "partition_data": [data]}]
    return {"transactional_id": None, "acks": -1, "timeout": span(60_000), "topic_data": topics}


def _fetch_fields(partition: int, offset: int, max_bytes: int) -> dict[str, Any]:
    asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": max_bytes}
    return {
        "max_wait": span(1_000),
        "min_bytes": 1,
        "max_bytes": max_bytes,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": TOPIC, "partitions": [asked]}],
        "forgotten_topics_data": (),
        "rack_id": "",
    }


async def _create(client: Client) -> None:
    topic = {"name": TOPIC, "num_partitions": PARTITIONS, "replication_factor": -1, "assignments": (), "configs": ()}
    answer = await client.ask(19, 5, {"topics": [topic], "timeout": span(10_000), "validate_only": False})
    assert answer.topics[0].error_code is ErrorCode.none


async def _small_requests(client: Client) -> None:
    """What a consumer sends beside its fetches."""
    metadata = {"topics": None, "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
    assert [topic.name for topic in (await client.ask(3, 12, metadata)).topics] == [TOPIC]
    place = {"partition_index": 0, "committed_offset": 7, "committed_leader_epoch": -1, "committed_metadata": None}
    group = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    committed = await client.ask(8, 8, group | {"topics": [{"name": TOPIC, "partitions": [place]}]})
    assert committed.topics[0].partitions[0].error_code is ErrorCode.none
    beat = {"group_id": "g", "generation_id": 1, "member_id": "nobody", "group_instance_id": None}
    assert (await client.ask(12, 4, beat)).error_code is ErrorCode.unknown_member_id


@asynccontextmanager
async def _floods(port: int, connections: int) -> AsyncIterator[None]:
    """Connections that send batches of 900 KB as fast as the broker takes them, and read their answers."""
    payloads = [frame(0, 9, _produce_fields(partition, VALUE)) for partition in range(PARTITIONS)]

    async def flood(number: int) -> None:
        reader, writer = await asyncio.open_connection(HOST, port)
        answers = asyncio.create_task(reader.read(-1))
        try:
            while True:
                writer.write(payloads[number % PARTITIONS])
                await writer.drain()
        finally:
            answers.cancel()
            writer.transport.abort()

    tasks = [asyncio.create_task(flood(number)) for number in range(connections)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.timeout(200)
def test_a_slow_bucket_is_felt_at_the_sockets(cluster: Callable[..., ProcessWorld]) -> None:
    with slow_store() as (store, environment):
        made = cluster(1, environment=SMALL | environment)

        async def main() -> Peak:
            client = await Client.connect(made.ports[0])
            await _create(client)
            assert (await client.ask(0, 9, _produce_fields(0, b"warm"))).responses
            await _small_requests(client)
            store.delay_s = 2.0
            with _peak(made.brokers[0].process.pid) as peak:
                async with _floods(made.ports[0], 40):
                    before, deadline = store.put_bytes, time.monotonic() + 60
                    while store.put_bytes - before < BUDGET_BYTES:
                        assert time.monotonic() < deadline, f"{store.put_bytes - before} bytes reached the bucket"
                        await _small_requests(client)
                        await asyncio.sleep(0.2)
            store.delay_s = 0.0
            await client.close()
            return peak

        peak = run(main(), timeout_s=150)
    assert peak.grown_bytes < BOUND_BYTES, f"{peak.grown_bytes / MIB:.0f} MiB of {BOUND_BYTES / MIB:.0f}"


@pytest.mark.timeout(200)
def test_consumers_that_do_not_read_share_one_budget(cluster: Callable[..., ProcessWorld]) -> None:
    made = cluster(1, environment=SMALL)
    batches = 120

    async def main() -> Peak:
        client = await Client.connect(made.ports[0])
        await _create(client)
        for _ in range(batches):
            [topic] = (await client.ask(0, 9, _produce_fields(0, VALUE))).responses
            assert topic.partition_responses[0].error_code is ErrorCode.none
        deaf = []
        with _peak(made.brokers[0].process.pid) as peak:
            for number in range(40):
                reader, writer = await asyncio.open_connection(HOST, made.ports[0], limit=1)
                deaf.append((reader, writer))
                for step in range(8):
                    offset = (number * 3 + step * 17) % batches
                    writer.write(frame(1, 12, _fetch_fields(0, offset, 50 * MIB), correlation_id=step))
            offset = 0
            while offset < batches:
                [topic] = (await client.ask(1, 12, _fetch_fields(0, offset, 50 * MIB))).responses
                assert topic.partitions[0].error_code is ErrorCode.none
                offset += len(topic.partitions[0].records or b"") // len(VALUE)
            await _small_requests(client)
        for _, writer in deaf:
            writer.transport.abort()
        await client.close()
        return peak

    peak = run(main(), timeout_s=150)
    assert peak.grown_bytes < BOUND_BYTES - BUDGET_BYTES, f"{peak.grown_bytes / MIB:.0f} MiB"


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 4096), hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_thousand_idle_connections_cost_little(cluster: Callable[..., ProcessWorld], many_files: None) -> None:
    made = cluster(1, environment=SMALL)

    async def main() -> Peak:
        with _peak(made.brokers[0].process.pid) as peak:
            idle = [await asyncio.open_connection(HOST, made.ports[0], limit=1) for _ in range(1000)]
            client = await Client.connect(made.ports[0])
            await _create(client)
            await _small_requests(client)
            await client.close()
            for _, writer in idle:
                writer.transport.abort()
        return peak

    peak = run(main(), timeout_s=90)
    assert peak.grown_bytes < 1000 * 64 * 1024, f"{peak.grown_bytes / MIB:.0f} MiB"
