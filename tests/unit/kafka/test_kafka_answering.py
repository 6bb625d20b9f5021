"""Answers that nobody reads, and brokers that say good-bye."""

import asyncio
from typing import Any

from kio.schema.errors import ErrorCode
from support.clients.batches import batch
from support.clients.wire import SETTINGS, Client, door, span, until
from support.fakes.loops import run
from support.fakes.streams import FakeStreams

from lakestream.kafka.answering import LITTLE_BYTES, STUCK_S, Answers
from lakestream.stream import MemoryBudget

MIB = 1 << 20


def _read(answers: Answers, size_bytes: int, wanted_bytes: int = 50 * MIB) -> int:
    """What a fetch was allowed that found as much as it was allowed, `size_bytes` at the most."""

    async def fetch() -> int:
        reading = await answers.allow(wanted_bytes, 1, waits=False)
        reading.read(min(size_bytes, reading.max_bytes))
        return reading.max_bytes

    return run(fetch())


def test_large_answers_come_after_full_ones_and_never_take_it_all() -> None:
    budget = MemoryBudget(64 * MIB)
    one, other = Answers(budget), Answers(budget)
    allowed = [_read(one, 50 * MIB) for _ in range(5)]
    assert allowed == [LITTLE_BYTES, MIB, 4 * MIB, 16 * MIB, 16 * MIB], "up to a quarter of what is left"
    assert one.is_behind
    assert _read(one, 1000) == 16 * MIB
    assert not one.is_behind
    assert _read(one, 0) == LITTLE_BYTES
    assert _read(other, 100, 1000) == 1000, "never more than asked for"
    assert budget.used_bytes == 0


def test_what_is_unread_counts_until_the_socket_has_taken_it() -> None:
    budget = MemoryBudget(MIB)
    answers = Answers(budget)
    answers.add([bytes(2 * MIB)])
    assert budget.used_bytes == 2 * MIB
    answers.settle(0, 1.0)
    assert budget.used_bytes == 2 * MIB, "it is not written yet"
    answers.written([bytes(2 * MIB)])
    answers.settle(MIB + MIB // 2, 2.0)
    assert budget.used_bytes == MIB + MIB // 2
    assert answers.stuck_bytes(2.0 + STUCK_S) == 0
    assert answers.stuck_bytes(2.1 + STUCK_S) == MIB + MIB // 2
    answers.settle(MIB // 2, 9.0)
    assert answers.stuck_bytes(99.0) == 0, "nobody waits"
    answers.end()
    assert budget.used_bytes == 0


def test_fetches_wait_while_the_budget_is_spent() -> None:
    async def main() -> None:
        budget = MemoryBudget(MIB)
        deaf, other = Answers(budget), Answers(budget)
        deaf.add([bytes(MIB)])
        waiting = asyncio.create_task(other.allow(MIB, 1, waits=False))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        deaf.end()
        (await waiting).read(0)
        assert budget.used_bytes == 0

    run(main())


def _produce(value: bytes, partition: int = 0, acks: int = -1) -> dict[str, Any]:
    data = [{"name": "t", "partition_data": [{"index": partition, "records": batch(value)}]}]
    return {"transactional_id": None, "acks": acks, "timeout": span(30_000), "topic_data": data}


def _fetch(wait_ms: int) -> dict[str, Any]:
    asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    return {
        "max_wait": span(wait_ms),
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": "t", "partitions": [asked]}],
        "forgotten_topics_data": (),
        "rack_id": "",
    }


def test_a_broker_that_stops_sends_its_clients_away_and_answers_what_it_took() -> None:
    async def main() -> None:
        async with door(FakeStreams(flush_ms=300)) as (streams, server):
            await streams.topics.create("t", 1, {})
            client, other = await Client.connect(server.port), await Client.connect(server.port)
            client.send(0, 9, _produce(b"taken"))
            await until(lambda: bool(streams._waiting))
            stopping = asyncio.create_task(server.stop(5_000, handover_ms=500))
            await until(lambda: server._door.is_withdrawn)
            client.send(0, 9, _produce(b"too late"))
            [taken] = (await client.receive()).responses
            assert taken.partition_responses[0].error_code is ErrorCode.none
            [refused] = (await client.receive()).responses
            assert refused.partition_responses[0].error_code is ErrorCode.not_leader_or_follower
            [partition] = (await other.ask(1, 12, _fetch(0))).responses[0].partitions
            assert partition.error_code is ErrorCode.not_leader_or_follower
            other.send(0, 9, _produce(b"nobody would send it again", acks=0), answered=False)
            assert await client.is_closed()
            assert await other.is_closed()
            await client.close()
            await other.close()
            await stopping
            await until(lambda: streams.appended == 2)

    run(main())


def test_an_answer_is_not_taken_back_because_more_was_sent() -> None:
    """What the client sent behind the last request that was taken is dropped, without a reset of the connection."""

    async def main() -> None:
        async with door(FakeStreams(flush_ms=300), SETTINGS) as (streams, server):
            await streams.topics.create("t", 1, {})
            client = await Client.connect(server.port)
            client.send(0, 9, _produce(b"taken"))
            await until(lambda: bool(streams._waiting))
            stopping = asyncio.create_task(server.stop(5_000))
            await asyncio.sleep(0.05)
            for _ in range(20):
                client.send(0, 9, _produce(bytes(100_000)))
            await asyncio.sleep(1)
            [taken] = (await client.receive()).responses
            assert taken.partition_responses[0].error_code is ErrorCode.none
            assert await client.is_closed()
            await client.close()
            await stopping
            assert streams.appended == 1

    run(main())


def test_what_comes_behind_a_fetch_that_was_given_up_is_dropped_in_silence() -> None:
    async def main() -> None:
        async with door(FakeStreams(flush_ms=300)) as (streams, server):
            await streams.topics.create("t", 2, {})
            client = await Client.connect(server.port)
            client.send(1, 12, _fetch(30_000))
            client.send(0, 9, _produce(b"x", 1))
            await until(lambda: bool(streams._waiting) and streams.fetches_waiting == 1)
            problems: list[object] = []
            asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
            stopping = asyncio.create_task(server.stop(5_000))
            assert await client.is_closed()
            await until(lambda: streams.appended == 1)
            await client.close()
            await stopping
            assert problems == []

    run(main())
