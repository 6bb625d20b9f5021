"""A topic that another broker deleted and made anew under its name: no answer is about the dead one.

Two doors on one cluster; the first has looked the name up while it stood for the old topic."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from support.clients.batches import batch
from support.clients.wire import SETTINGS, Client, server_of, span
from support.fakes.loops import run
from support.worlds.brokers import BrokerWorld

from lakestream.errors import CorruptObject
from lakestream.kafka.server import listen
from lakestream.metadata.topics.list import Topic
from lakestream.stream.engine import StreamEngine

Door = tuple[StreamEngine, Client]
PRODUCE, FETCH, LIST_OFFSETS, COMMIT, COMMITTED, DELETE_RECORDS, EPOCH_END = 0, 1, 2, 8, 9, 21, 23


@asynccontextmanager
async def _door(streams: StreamEngine) -> AsyncIterator[Door]:
    server = server_of(streams, SETTINGS)
    await server.start(await listen("127.0.0.1", 0))
    client = await Client.connect(server.port)
    try:
        yield streams, client
    finally:
        await client.close()
        await server.stop(1_000)


def _with_two_doors(test: Callable[[Door, Door], Awaitable[None]]) -> None:
    async def work() -> None:
        async with BrokerWorld().brokers(2) as brokers, AsyncExitStack() as stack:
            doors = [await stack.enter_async_context(_door(streams)) for streams in brokers]
            await test(*doors)

    run(work())


async def _recreate(streams: StreamEngine) -> None:
    [topic] = await streams.topics.list()
    await streams.delete_topic(topic.topic_id)
    await streams.create_topic("t", 1, {})


def _commit_request(offset: int, **topic: Any) -> dict[str, Any]:
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    return {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{**topic, "partitions": [partition]}],
    }


async def _commit(client: Client, offset: int, version: int = 7, **topic: Any) -> ErrorCode:
    request = _commit_request(offset, **(topic or {"name": "t"}))
    code: ErrorCode = (await client.ask(COMMIT, version, request)).topics[0].partitions[0].error_code
    return code


async def _committed(client: Client, *, everything: bool = False) -> list[tuple[str, int]]:
    topics = None if everything else [{"name": "t", "partition_indexes": (0,)}]
    answer = await client.ask(COMMITTED, 7, {"group_id": "g", "topics": topics, "require_stable": False})
    assert answer.error_code is ErrorCode.none
    return [(topic.name, partition.committed_offset) for topic in answer.topics for partition in topic.partitions]


async def _produced(client: Client) -> Any:
    data = {"index": 0, "records": batch(b"v")}
    topic = {"name": "t", "partition_data": [data]}
    request = {"transactional_id": None, "acks": -1, "timeout": span(5_000), "topic_data": [topic]}
    return (await client.ask(PRODUCE, 9, request)).responses[0].partition_responses[0]


@pytest.mark.parametrize("everything", [False, True])
def test_offsets_of_the_dead_topic_are_not_the_new_ones(everything: bool) -> None:
    async def test(one: Door, two: Door) -> None:
        await one[0].create_topic("t", 1, {})
        assert await _commit(one[1], 42) is ErrorCode.none
        assert await _committed(one[1], everything=everything) == [("t", 42)]
        await _recreate(two[0])
        assert await _committed(one[1], everything=everything) == ([] if everything else [("t", -1)])

    _with_two_doors(test)


def test_a_commit_is_the_new_topics() -> None:
    async def test(one: Door, two: Door) -> None:
        await one[0].create_topic("t", 1, {})
        assert await _commit(one[1], 42) is ErrorCode.none
        await _recreate(two[0])
        assert await _commit(one[1], 7) is ErrorCode.none
        [topic] = await two[0].topics.list()
        found = await one[0].store.range("group/g", "o/", "o0")
        assert any(topic.topic_id.hex in row.key for row in found)
        assert await _committed(one[1]) == [("t", 7)]
        assert await _committed(one[1], everything=True) == [("t", 7)]

    _with_two_doors(test)


def test_a_commit_to_a_topic_that_is_gone_is_refused_by_name_and_by_id() -> None:
    async def test(one: Door, two: Door) -> None:
        topic = await one[0].create_topic("t", 1, {})
        assert await _commit(one[1], 42) is ErrorCode.none
        assert await _commit(one[1], 42, 10, topic_id=topic.topic_id) is ErrorCode.none
        await two[0].delete_topic(topic.topic_id)
        assert await _commit(one[1], 43, 10, topic_id=topic.topic_id) is ErrorCode.unknown_topic_id
        assert await _commit(one[1], 43) is ErrorCode.unknown_topic_or_partition

    _with_two_doors(test)


def test_what_the_log_answers_is_never_the_dead_ones() -> None:
    """Refused, so that the client asks again, or already the new topic's."""
    partition = {"partition": 0, "partition_index": 0, "current_leader_epoch": -1}
    asked = {
        LIST_OFFSETS: (5, "topics", {"timestamp": -1}, lambda answer: answer.topics[0].partitions[0].offset),
        EPOCH_END: (4, "topics", {"leader_epoch": 0}, lambda answer: answer.topics[0].partitions[0].end_offset),
        DELETE_RECORDS: (2, "topics", {"offset": -1}, lambda answer: answer.topics[0].partitions[0].low_watermark),
    }

    async def test(one: Door, two: Door) -> None:
        await one[0].create_topic("t", 1, {})
        for key, (version, field, more, of) in asked.items():
            assert (await _produced(one[1])).error_code is ErrorCode.none
            await _recreate(two[0])
            request = {
                field: [{"name": "t", "topic": "t", "partitions": [partition | more]}],
                "replica_id": -1,
                "isolation_level": 0,
                "timeout": span(1_000),
            }
            assert of(await one[1].ask(key, version, request)) in (0, -1), key
            await one[0].topics.find_names(["t"])

    _with_two_doors(test)


def test_nobody_appends_to_a_dead_log_because_its_deleter_died_halfway() -> None:
    """The name was free already, the logs were still there: the new topic's creator closes them first."""

    async def test(one: Door, two: Door) -> None:
        topic = await one[0].create_topic("t", 1, {})
        assert (await _produced(one[1])).error_code is ErrorCode.none
        await two[0].topics.delete(topic.topic_id)
        await two[0].create_topic("t", 1, {})
        answer = await _produced(one[1])
        assert answer.error_code is ErrorCode.unknown_topic_or_partition
        answer = await _produced(one[1])
        assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 0)
        [new] = await two[0].topics.list()
        head = await two[0].list_offset(new.each_partition()[0], -1)
        assert head.offset == 1

    _with_two_doors(test)


def test_commits_of_one_connection_land_in_their_order_however_long_the_names_take() -> None:
    async def test(one: Door, two: Door) -> None:
        streams, client = one
        await streams.create_topic("t", 1, {})
        assert await _commit(client, 1) is ErrorCode.none
        find = streams.topics.find_names
        delays = iter((0.05, 0.0))

        async def slow(names: Iterable[str]) -> dict[str, Topic | CorruptObject]:
            await asyncio.sleep(next(delays))
            return await find(names)

        streams.topics.find_names = slow  # type: ignore[method-assign]
        for offset in (2, 3):
            client.send(COMMIT, 7, _commit_request(offset, name="t"))
        for _ in range(2):
            assert (await client.receive()).topics[0].partitions[0].error_code is ErrorCode.none
        streams.topics.find_names = find  # type: ignore[method-assign]
        assert await _committed(client) == [("t", 3)]

    _with_two_doors(test)
