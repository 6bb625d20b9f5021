"""Three broker processes on one data directory: any of them takes any request, and all see the same log at once."""

import asyncio
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from kio.schema.errors import ErrorCode
from support.clients.batches import batch
from support.clients.records import Record, parse
from support.clients.wire import Client, span
from support.fakes.loops import run
from support.worlds.processes import ProcessWorld

TOPIC = "shared"
ROUNDS = 15


async def _create(client: Client) -> None:
    topic = {"name": TOPIC, "num_partitions": 2, "replication_factor": -1, "assignments": (), "configs": ()}
    fields = {"topics": [topic], "timeout": span(10_000), "validate_only": False}
    answer = await client.ask(19, 5, fields)
    assert answer.topics[0].error_code is ErrorCode.none


async def _produce(client: Client, partition: int, value: bytes) -> int:
    data = {"index": partition, "records": batch(value)}
    fields = {
        "transactional_id": None,
        "acks": -1,
        "timeout": span(30_000),
        "topic_data": [{"name": TOPIC, "partition_data": [data]}],
    }
    [topic] = (await client.ask(0, 9, fields)).responses
    [answer] = topic.partition_responses
    assert answer.error_code is ErrorCode.none
    return int(answer.base_offset)


async def _fetch(client: Client, partition: int, offset: int, wait_ms: int) -> list[Record]:
    asked = {
        "partition": partition,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }
    fields: dict[str, Any] = {
        "max_wait": span(wait_ms),
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": TOPIC, "partitions": [asked]}],
        "forgotten_topics_data": (),
        "rack_id": "",
    }
    [topic] = (await client.ask(1, 12, fields)).responses
    [answer] = topic.partitions
    assert answer.error_code is ErrorCode.none
    return parse([bytes(answer.records or b"")])


def test_every_broker_serves_what_any_broker_acknowledged(cluster: Callable[..., ProcessWorld]) -> None:
    made = cluster(3)

    async def main() -> None:
        clients = [await Client.connect(port) for port in made.ports]
        await _create(clients[0])
        expected: dict[int, list[bytes]] = {0: [], 1: []}
        for number in range(24):
            writer, partition = clients[number % 3], number % 2
            value = b"value %d" % number
            assert await _produce(writer, partition, value) == len(expected[partition])
            expected[partition].append(value)
            for reader in clients:
                found = await _fetch(reader, partition, len(expected[partition]) - 1, 0)
                assert [record.value for record in found] == [value]
        for reader in clients:
            for partition, values in expected.items():
                found = await _fetch(reader, partition, 0, 0)
                assert [(record.offset, record.value) for record in found] == list(enumerate(values))
        for client in clients:
            await client.close()

    run(main())


def test_a_long_poll_wakes_when_another_broker_appends(cluster: Callable[..., ProcessWorld]) -> None:
    made = cluster(2)

    async def main() -> None:
        writer, reader = [await Client.connect(port) for port in made.ports]
        await _create(writer)
        delays_s = []
        for number in range(ROUNDS):
            poll = asyncio.create_task(_fetch(reader, 0, number, 20_000))
            await asyncio.sleep(0.05)
            assert not poll.done()
            await _produce(writer, 0, b"x")
            acked = time.perf_counter()
            assert len(await poll) == 1
            delays_s.append(time.perf_counter() - acked)
        # Waking takes a few ten milliseconds; single outliers belong to a busy machine.
        assert median(delays_s) < 0.1, delays_s
        await writer.close()
        await reader.close()

    run(main())
