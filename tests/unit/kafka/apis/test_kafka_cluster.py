"""What tools ask of the cluster: partitions page by page, sizes, producers, elections, reassignments, quorum, features.

The codes are those of Apache Kafka 4.3.1, from one node in KRaft mode."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from support.clients.batches import batch
from support.clients.wire import Client, span, with_door
from support.fakes.authorizers import OnlyTopics
from support.fakes.streams import FakeStreams
from support.worlds.brokers import BrokerWorld
from support.worlds.memory import MemoryWorld, Producer

from lakestream.access import ALLOW_ALL, ANONYMOUS
from lakestream.metadata.brokers import Broker
from lakestream.model import StreamPartition
from lakestream.stream import ProducedBatch, Streams
from lakestream.stream.looking import known_producers, partition_sizes

TIMEOUT = {"timeout": span(1_000)}


def _page(*names: str, limit: int = 2_000, cursor: tuple[str, int] | None = None) -> dict[str, Any]:
    at = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
    return {"topics": [{"name": name} for name in names], "response_partition_limit": limit, "cursor": at}


def test_partitions_come_page_by_page() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        for name, count in (("a", 3), ("b", 1), ("c", 2)):
            await streams.topics.create(name, count, {})
        pages, cursor = [], None
        while True:
            answer = await client.ask(75, 0, _page(limit=2, cursor=cursor))
            pages.append([(topic.name, [each.partition_index for each in topic.partitions]) for topic in answer.topics])
            if answer.next_cursor is None:
                break
            cursor = (answer.next_cursor.topic_name, answer.next_cursor.partition_index)
        assert pages == [[("a", [0, 1])], [("a", [2]), ("b", [0])], [("c", [0, 1])]]
        named = await client.ask(75, 0, _page("c", "zz", "a"))
        codes = {topic.name: topic.error_code for topic in named.topics}
        assert codes == {"a": ErrorCode.none, "c": ErrorCode.none, "zz": ErrorCode.unknown_topic_or_partition}
        assert [topic.name for topic in named.topics] == ["a", "c", "zz"]
        assert {topic.topic_authorized_operations for topic in named.topics} == {3576}
        [least] = (await client.ask(75, 0, _page("a", limit=0))).topics
        assert len(least.partitions) == 1
        for cursor in (("a", -2), ("q", 0)):
            refused = await client.ask(75, 0, _page("a", "b", cursor=cursor))
            assert {topic.error_code for topic in refused.topics} == {ErrorCode.invalid_request}

    with_door(test)


def test_partitions_of_topics_that_may_not_be_described_are_not_listed() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        for name in ("a", "b"):
            await streams.topics.create(name, 1, {})
        assert [topic.name for topic in (await client.ask(75, 0, _page())).topics] == ["a"]
        answer = await client.ask(75, 0, _page("a", "b", "c"))
        denied = ErrorCode.topic_authorization_failed
        assert [topic.error_code for topic in answer.topics] == [ErrorCode.none, denied, denied]

    with_door(test, authorizer=OnlyTopics("a"))


def test_what_a_caller_may_do_is_told_on_request() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("a", 1, {})
        asked = {"topics": [{"name": "a", "topic_id": None}], "allow_auto_topic_creation": False}
        for says, topic, cluster in ((False, -(1 << 31), -(1 << 31)), (True, 3576, 8096)):
            operations = {"include_topic_authorized_operations": says, "include_cluster_authorized_operations": says}
            answer = await client.ask(3, 9, asked | operations)
            assert answer.topics[0].topic_authorized_operations == topic
            assert answer.cluster_authorized_operations == cluster

    with_door(test)


def test_each_partition_is_told_by_one_broker() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        topic = await streams.topics.create("t", 40, {})
        await streams.append(StreamPartition(topic.topic_id, 0), batch(b"v"))
        alone = await client.ask(35, 4, {"topics": None})
        [folder] = alone.results
        sizes = {each.partition_index: each.partition_size for each in folder.topics[0].partitions}
        assert sizes[0] == len(batch(b"v"))
        assert sum(sizes.values()) == sizes[0]
        assert list(sizes) == list(range(40))
        assert (folder.log_dir, folder.total_bytes) == ("memory://", -1)
        await streams.brokers.register(Broker(2, "other", 9999, None, "session-2"))
        shared = await client.ask(35, 4, {"topics": None})
        assert 0 < len(shared.results[0].topics[0].partitions) < 40
        some = await client.ask(
            35, 1, {"topics": [{"topic": "t", "partitions": range(50)}, {"topic": "u", "partitions": (0,)}]}
        )
        assert some.results[0].topics == (await client.ask(35, 1, {"topics": None})).results[0].topics

    with_door(test)


async def test_a_partition_takes_what_its_tail_and_its_files_take() -> None:
    world = MemoryWorld()
    topic = await world.create("t", 2)
    producer = Producer(world, "s")
    first, second = topic.each_partition()
    await producer.append({first: [b"x" * 1000]})
    tail = await partition_sizes(world.store, None, topic, [0, 1])
    assert tail[0] > 1000
    assert tail[1] == 0
    await world.drain()
    view = await world.catalog_on(world.store).load(topic.topic_id)
    await producer.append({second: [b"y"]})
    sizes = await partition_sizes(world.store, view, topic, [0, 1])
    assert sizes[0] == sum(file.size_bytes for file in view.files)
    assert 0 < sizes[1] < 200


async def test_idempotent_producers_are_known() -> None:
    async with BrokerWorld().brokers(1) as [broker]:
        topic = await broker.create_topic("t", 1, {})
        [partition] = topic.each_partition()
        await broker.append(partition, batch(b"a", b"b", producer=(7, 2, 0)))
        await broker.append(partition, batch(b"c", producer=(9, 0, 0)))
        found = await known_producers(broker.store, partition)
        assert [(each.producer_id, each.epoch, each.last_sequence) for each in found] == [(7, 2, 1), (9, 0, 0)]
        assert await broker.producers(partition) == found


def test_producers_of_partitions() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {})
        topics = [{"name": "t", "partition_indexes": (0, 9)}, {"name": "u", "partition_indexes": (0,)}]
        answer = await client.ask(61, 0, {"topics": topics})
        codes = [each.error_code for topic in answer.topics for each in topic.partitions]
        unknown = ErrorCode.unknown_topic_or_partition
        assert codes == [ErrorCode.none, unknown, unknown]

    with_door(test)


def test_no_election_is_ever_needed() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {})
        asked = [{"topic": "t", "partitions": (0, 9)}, {"topic": "u", "partitions": (0,)}]
        for kind in (0, 1):
            answer = await client.ask(43, 2, {"election_type": kind, "topic_partitions": asked, **TIMEOUT})
            codes = [each.error_code for topic in answer.replica_election_results for each in topic.partition_result]
            unknown = ErrorCode.unknown_topic_or_partition
            assert (answer.error_code, codes) == (ErrorCode.none, [ErrorCode.election_not_needed, unknown, unknown])
        every = await client.ask(43, 2, {"election_type": 0, "topic_partitions": None, **TIMEOUT})
        assert (every.error_code, every.replica_election_results) == (ErrorCode.none, ())
        bad = await client.ask(43, 2, {"election_type": 7, "topic_partitions": None, **TIMEOUT})
        assert bad.error_code is ErrorCode.invalid_request

    with_door(test)


@pytest.mark.parametrize(
    ("index", "replicas", "code"),
    [
        (0, (1,), ErrorCode.none),
        (0, (9,), ErrorCode.invalid_replica_assignment),
        (0, (), ErrorCode.invalid_replica_assignment),
        (0, (1, 1), ErrorCode.invalid_replica_assignment),
        (8, (1,), ErrorCode.unknown_topic_or_partition),
        (8, None, ErrorCode.unknown_topic_or_partition),
        (0, None, ErrorCode.no_reassignment_in_progress),
    ],
)
def test_reassignments_are_done_at_once(index: int, replicas: Any, code: ErrorCode) -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {})
        topics = [{"name": "t", "partitions": [{"partition_index": index, "replicas": replicas}]}]
        asked = {"topics": topics, "allow_replication_factor_change": True, **TIMEOUT}
        answer = await client.ask(45, 1, asked)
        assert answer.error_code is ErrorCode.none
        assert answer.responses[0].partitions[0].error_code is code
        assert (await client.ask(46, 0, {"topics": None, **TIMEOUT})).topics == ()

    with_door(test)


def test_tools_are_told_of_a_quorum() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.brokers.register(Broker(2, "other", 9999, None, "session-2"))
        asked = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
        answer = await client.ask(55, 2, {"topics": asked})
        [partition] = answer.topics[0].partitions
        assert (partition.error_code, partition.leader_id) == (ErrorCode.none, 1)
        assert [each.replica_id for each in partition.current_voters] == [1, 2]
        assert [(node.node_id, node.listeners[0].host) for node in answer.nodes] == [(1, "127.0.0.1"), (2, "other")]
        other = await client.ask(55, 2, {"topics": [{"topic_name": "t", "partitions": [{"partition_index": 0}]}]})
        assert other.topics[0].partitions[0].error_code is ErrorCode.unknown_topic_or_partition

    with_door(test)


@pytest.mark.parametrize(
    ("key", "version", "request_", "codes"),
    [
        (17, 1, {"mechanism": "PLAIN"}, {ErrorCode.illegal_sasl_state}),
        (36, 2, {"auth_bytes": b""}, {ErrorCode.illegal_sasl_state}),
        (41, 3, {"owners": None}, {ErrorCode.delegation_token_request_not_allowed}),
        (64, 0, {"broker_id": 99}, {ErrorCode.broker_id_not_registered}),
        (64, 0, {"broker_id": 1}, {ErrorCode.invalid_request}),
        (57, 1, {"feature_updates": (), "validate_only": False, **TIMEOUT}, {ErrorCode.none}),
        (81, 0, {"cluster_id": None, "voter_id": 1, "voter_directory_id": None}, {ErrorCode.unsupported_version}),
    ],
)
def test_what_is_switched_off(key: int, version: int, request_: dict[str, Any], codes: set[ErrorCode]) -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        assert {(await client.ask(key, version, request_)).error_code} == codes

    with_door(test)


def test_credentials_and_features_that_there_are_not() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        assert (await client.ask(50, 0, {"users": None})).results == ()
        asked = await client.ask(50, 0, {"users": [{"name": "u"}, {"name": "v"}, {"name": "v"}]})
        codes = {each.user: each.error_code for each in asked.results}
        assert codes == {"u": ErrorCode.resource_not_found, "v": ErrorCode.duplicate_resource}
        put = {"name": "v", "mechanism": 1, "iterations": 4096, "salt": b"s", "salted_password": b"p"}
        altered = await client.ask(51, 0, {"deletions": [{"name": "u", "mechanism": 1}], "upsertions": [put]})
        codes = {each.user: each.error_code for each in altered.results}
        assert codes == {"u": ErrorCode.resource_not_found, "v": ErrorCode.security_disabled}
        update = {"feature": "nope", "max_version_level": 1, "upgrade_type": 1}
        updated = await client.ask(57, 2, {"feature_updates": [update], "validate_only": False, **TIMEOUT})
        assert updated.error_code is ErrorCode.invalid_update_version

    with_door(test)


async def test_a_broker_tells_of_its_own_partitions_in_a_cluster() -> None:
    async with BrokerWorld().brokers(2) as (one, two):
        await one.create_topic("t", 2, {})
        door = Streams(two, ALLOW_ALL)
        taken = door.append(ANONYMOUS, [ProducedBatch("t", 1, batch(b"v" * 500))])
        [outcome] = taken if isinstance(taken, list) else await taken
        assert not isinstance(outcome, Exception)
        await outcome
        sizes = await door.cluster.partition_sizes(ANONYMOUS, {"t": [1, 5], "u": [0]}, lambda topic, index: True)
        assert list(sizes) == ["t"]
        assert list(sizes["t"]) == [1]
        assert sizes["t"][1] > 500
