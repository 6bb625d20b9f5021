"""CreatePartitions: what clients hear, as Apache Kafka 4.3.1 says it."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from support.clients.batches import batch
from support.clients.wire import Client, span, with_door
from support.fakes.streams import FakeStreams

from lakestream.kafka.settings import KafkaSettings


def _more(name: str, count: int, assignments: Any = None, *, validate_only: bool = False) -> dict[str, Any]:
    given = None if assignments is None else [{"broker_ids": brokers} for brokers in assignments]
    topic = {"name": name, "count": count, "assignments": given}
    return {"topics": [topic], "timeout": span(1_000), "validate_only": validate_only}


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code"),
    [
        ("t", 3, None, ErrorCode.none),
        ("t", 2, None, ErrorCode.invalid_partitions),
        ("t", 1, None, ErrorCode.invalid_partitions),
        ("t", 0, None, ErrorCode.invalid_partitions),
        ("t", -1, None, ErrorCode.invalid_partitions),
        ("t", 51, None, ErrorCode.invalid_partitions),
        ("unknown", 3, None, ErrorCode.unknown_topic_or_partition),
        ("", 3, None, ErrorCode.unknown_topic_or_partition),
        ("t", 3, [(1,)], ErrorCode.none),
        ("t", 2, [(9,)], ErrorCode.invalid_partitions),
        ("t", 3, [], ErrorCode.invalid_replica_assignment),
        ("t", 3, [()], ErrorCode.invalid_replica_assignment),
        ("t", 3, [(9,)], ErrorCode.invalid_replica_assignment),
        ("t", 3, [(-1,)], ErrorCode.invalid_replica_assignment),
        ("t", 3, [(1, 1)], ErrorCode.invalid_replica_assignment),
        ("t", 3, [(1,), (1,)], ErrorCode.invalid_replica_assignment),
        ("t", 4, [(1,)], ErrorCode.invalid_replica_assignment),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_what_can_be_and_what_cannot(
    name: str, count: int, assignments: Any, code: ErrorCode, validate_only: bool
) -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 2, {})
        answer = await client.ask(37, 3, _more(name, count, assignments, validate_only=validate_only))
        [result] = answer.results
        assert (result.name, result.error_code) == (name, code)
        assert (result.error_message is None) == (code is ErrorCode.none)
        [topic] = await streams.topics.list()
        assert topic.partitions == (count if code is ErrorCode.none and not validate_only else 2)

    with_door(test, settings=KafkaSettings(max_partitions=50))


def test_a_topic_that_is_named_twice_does_not_grow() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 2, {})
        await streams.topics.create("u", 2, {})
        topics = [{"name": name, "count": count, "assignments": None} for name, count in (("t", 3), ("u", 3), ("t", 4))]
        answer = await client.ask(37, 3, {"topics": topics, "timeout": span(1_000), "validate_only": False})
        codes = {result.name: result.error_code for result in answer.results}
        assert codes == {"t": ErrorCode.invalid_request, "u": ErrorCode.none}
        assert {topic.name: topic.partitions for topic in await streams.topics.list()} == {"t": 2, "u": 3}

    with_door(test)


def test_a_new_partition_is_there_for_everybody() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {})
        asked = {"topics": [{"name": "t", "topic_id": None}], "allow_auto_topic_creation": False}
        metadata = asked | {"include_topic_authorized_operations": False}
        assert len((await client.ask(3, 12, metadata)).topics[0].partitions) == 1
        await client.ask(37, 1, _more("t", 3))
        described = (await client.ask(3, 12, metadata)).topics[0].partitions
        assert [(each.partition_index, each.leader_id) for each in described] == [(0, 1), (1, 1), (2, 1)]
        sent = {
            "acks": -1,
            "timeout": span(1_000),
            "transactional_id": None,
            "topic_data": [{"name": "t", "partition_data": [{"index": 2, "records": batch(b"v")}]}],
        }
        answer = await client.ask(0, 9, sent)
        assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none

    with_door(test)
