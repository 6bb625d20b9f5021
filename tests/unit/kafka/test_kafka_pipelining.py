"""Requests of one connection run side by side and are answered in their order, within bounds."""

import asyncio
import struct
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from support.clients.batches import batch
from support.clients.wire import Client, door, frame, span, until, with_door
from support.fakes.loops import run
from support.fakes.streams import FakeStreams

from lakestream.kafka.server import KafkaServer
from lakestream.kafka.settings import KafkaSettings
from lakestream.model import StreamPartition


def produce(records: bytes | None, *, acks: int = -1, index: int = 0, topic: str = "t") -> dict[str, Any]:
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout": span(5_000),
        "topic_data": [{"name": topic, "partition_data": [{"index": index, "records": records}]}],
    }


def fetch(offset: int, *, max_wait_ms: int = 10_000) -> dict[str, Any]:
    return {
        "max_wait": span(max_wait_ms),
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_epoch": -1,
        "forgotten_topics_data": (),
        "topics": [
            {"topic": "t", "partitions": [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]}
        ],
    }


def test_five_requests_share_a_flush_and_keep_their_order() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {})
        for number in range(5):
            client.send(0, 9, produce(batch(b"%d" % number)))
        answers = [await client.receive() for _ in range(5)]
        offsets = [answer.responses[0].partition_responses[0].base_offset for answer in answers]
        assert offsets == [0, 1, 2, 3, 4]
        assert streams.flushes == [5]

    with_door(test, flush_ms=50)


def test_a_quick_answer_waits_for_the_slow_one_before_it() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {})
        client.send(1, 11, fetch(0))
        client.send(18, 0, {})
        client.send(3, 1, {"topics": None})
        other = await Client.connect(client.writer.get_extra_info("peername")[1])
        await until(lambda: streams.fetches_waiting)
        await other.ask(0, 9, produce(batch(b"v")))
        fetched, versions, metadata = [await client.receive() for _ in range(3)]
        assert fetched.responses[0].partitions[0].records
        assert versions.api_keys
        assert metadata.topics[0].name == "t"
        await other.close()

    with_door(test)


def test_acks_0_gets_no_answer_and_holds_nobody_up() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        topic = await streams.topics.create("t", 1, {})
        client.send(0, 9, produce(batch(b"v"), acks=0), answered=False)
        started = asyncio.get_running_loop().time()
        await client.ask(18, 0, {})
        assert asyncio.get_running_loop().time() - started < 0.2
        assert streams.budget.used_bytes > 0
        await until(lambda: streams.flushes)
        assert streams.logs[StreamPartition(topic.topic_id, 0)].end_offset == 1

    with_door(test, flush_ms=300)


def test_acks_0_that_fails_closes_the_connection() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        client.send(0, 9, produce(batch(b"v"), acks=0, topic="nowhere"), answered=False)
        assert await client.is_closed()

    with_door(test)


def test_a_lost_connection_ends_its_fetch_but_not_its_append() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        topic = await streams.topics.create("t", 1, {})
        port = client.writer.get_extra_info("peername")[1]
        gone = await Client.connect(port)
        gone.send(0, 9, produce(batch(b"v")))
        gone.send(1, 11, fetch(0))
        await until(lambda: streams.fetches_waiting)
        gone.writer.transport.abort()
        async with asyncio.timeout(5):
            await until(lambda: not streams.fetches_waiting)
            assert not streams.flushes
            await until(lambda: streams.flushes)
        assert streams.logs[StreamPartition(topic.topic_id, 0)].end_offset == 1

    with_door(test, flush_ms=1_000)


def test_the_socket_is_not_read_while_the_budget_is_spent() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        topic = await streams.topics.create("t", 1, {})
        one = frame(0, 9, produce(batch(bytes(10_000))))
        for _ in range(20):
            client.send(0, 9, produce(batch(bytes(10_000))))
        await asyncio.sleep(0.05)
        assert streams.budget.used_bytes <= 30_000 + len(one)
        for _ in range(20):
            await client.receive()
        assert streams.logs[StreamPartition(topic.topic_id, 0)].end_offset == 20
        assert max(streams.flushes) <= 4

    with_door(test, budget_bytes=30_000, flush_ms=20)


def test_a_connection_may_only_have_so_many_requests_in_flight() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {})
        for _ in range(20):
            client.send(0, 9, produce(batch(b"v")))
        for _ in range(20):
            await client.receive()
        assert max(streams.flushes) == 4

    with_door(test, flush_ms=20, settings=KafkaSettings(max_in_flight=4))


def test_a_client_that_does_not_read_is_not_served_on() -> None:
    """Answers pile up only to the high-water mark and the socket's own buffers."""

    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {})
        await client.ask(0, 9, produce(batch(bytes(1_000_000))))
        lazy = await Client.connect(client.writer.get_extra_info("peername")[1])
        lazy.reader._limit = 1024  # type: ignore[attr-defined]
        served = 0
        plain = streams.fetch

        async def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal served
            served += 1
            return await plain(*args, **kwargs)

        streams.fetch = counted  # type: ignore[method-assign]
        for _ in range(100):
            lazy.send(1, 11, fetch(0))
        await asyncio.sleep(0.3)
        assert served < 30
        for _ in range(100):
            await lazy.receive()
        assert served == 100
        await lazy.close()

    with_door(test)


def test_stop_answers_what_was_taken_and_ends_what_only_waits() -> None:
    async def work() -> None:
        async with door(FakeStreams(flush_ms=100)) as (streams, server):
            await streams.topics.create("t", 1, {})
            producer, consumer = await Client.connect(server.port), await Client.connect(server.port)
            producer.send(0, 9, produce(batch(b"v")))
            consumer.send(1, 11, fetch(0))
            await until(lambda: streams.fetches_waiting and streams._waiting)
            stopping = asyncio.ensure_future(server.stop(2_000))
            answer = await producer.receive()
            assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none
            assert await producer.is_closed()
            assert await consumer.is_closed()
            await stopping
            await producer.close()
            await consumer.close()
        assert streams.budget.used_bytes == 0

    run(work())


def test_stop_waits_no_longer_than_its_grace() -> None:
    async def work() -> None:
        async with door(FakeStreams(flush_ms=60_000)) as (streams, server):
            await streams.topics.create("t", 1, {})
            client = await Client.connect(server.port)
            client.send(0, 9, produce(batch(b"v")))
            await until(lambda: streams._waiting)
            async with asyncio.timeout(5):
                await server.stop(50)
            assert await client.is_closed()
            await client.close()

    run(work())


def test_a_failing_handler_closes_only_its_own_connection() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        async def broken(*args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("a defect")

        streams.new_producer = broken  # type: ignore[method-assign]
        other = await Client.connect(client.writer.get_extra_info("peername")[1])
        other.send(22, 0, {"transactional_id": None, "transaction_timeout": span(0)})
        assert await other.is_closed()
        assert (await client.ask(18, 0, {})).error_code is ErrorCode.none
        await other.close()

    with_door(test)


def test_a_large_fetch_is_written_without_joining_its_parts() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {})
        records = [batch(bytes([number]) * 200_000) for number in range(5)]
        for each in records:
            await client.ask(0, 9, produce(each))
        response = await client.ask(1, 12, fetch(0) | {"max_bytes": 1 << 24})
        data = response.responses[0].partitions[0].records
        stamped = [struct.pack(">q", offset) + each[8:] for offset, each in enumerate(records)]
        assert data == b"".join(stamped)

    with_door(test)


def test_two_servers_know_nothing_of_each_other() -> None:
    async def work() -> None:
        async with door() as (_, first), door() as (_, second):
            assert isinstance(first, KafkaServer)
            assert first.port != second.port

    run(work())


def test_an_answer_that_cannot_be_written_closes_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its client would wait for it, and for all that come after."""

    def broken(*_: Any) -> None:
        raise ValueError("this is no answer")

    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {})
        monkeypatch.setattr("lakestream.kafka.connection.codec.write_response", broken)
        client.send(3, 1, {"topics": None})
        assert await client.is_closed()

    with_door(test)
