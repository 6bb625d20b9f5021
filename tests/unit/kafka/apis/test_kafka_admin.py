"""Metadata, CreateTopics, DeleteTopics, DescribeConfigs, DescribeCluster: what clients hear."""

import asyncio
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from support.clients.wire import Client, span, with_door
from support.fakes.streams import FakeStreams

from lakestream.kafka.settings import KafkaSettings
from lakestream.metadata.brokers import Broker


def _metadata(*names: str, create: bool = False, topic_ids: tuple[UUID, ...] = ()) -> dict[str, Any]:
    return {
        "topics": [{"name": name, "topic_id": None} for name in names]
        + [{"name": None, "topic_id": topic_id} for topic_id in topic_ids],
        "allow_auto_topic_creation": create,
        "include_topic_authorized_operations": False,
    }


def test_metadata_names_live_brokers_and_spreads_the_leaders() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 40, {})
        await streams.brokers.register(Broker(2, "other", 9999, "z", "session-2"))
        answer = await client.ask(3, 13, _metadata("t"))
        assert {(broker.node_id, broker.rack) for broker in answer.brokers} == {(1, None), (2, "z")}
        assert (answer.controller_id, answer.cluster_id) == (1, "test-cluster")
        [topic] = answer.topics
        leaders = [partition.leader_id for partition in topic.partitions]
        assert set(leaders) == {1, 2}
        for partition in topic.partitions:
            # One in each zone, the client's own first.
            assert partition.replica_nodes == partition.isr_nodes == (partition.leader_id, 3 - partition.leader_id)
            assert partition.leader_epoch == 0
        again = await client.ask(3, 13, _metadata("t"))
        assert [partition.leader_id for partition in again.topics[0].partitions] == leaders

    with_door(test)


def test_all_topics_by_null_and_in_v0_by_an_empty_list() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("a", 1, {})
        await streams.topics.create("b", 1, {})
        for version, topics, expected in (
            (0, (), ["a", "b"]),
            (1, None, ["a", "b"]),
            (1, (), []),
            (13, None, ["a", "b"]),
        ):
            answer = await client.ask(3, version, _metadata() | {"topics": topics})
            assert [topic.name for topic in answer.topics] == expected

    with_door(test)


def test_a_topic_is_created_when_the_client_and_the_settings_allow() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        refused = await client.ask(3, 13, _metadata("new"))
        assert refused.topics[0].error_code is ErrorCode.unknown_topic_or_partition
        created = await client.ask(3, 13, _metadata("new", create=True))
        assert (created.topics[0].error_code, len(created.topics[0].partitions)) == (ErrorCode.none, 3)
        invalid = await client.ask(3, 13, _metadata("no/slash", create=True))
        assert invalid.topics[0].error_code is ErrorCode.invalid_topic_exception

    with_door(test, settings=KafkaSettings(num_partitions=3))


def test_two_who_create_the_same_topic_both_get_it() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        port = client.writer.get_extra_info("peername")[1]
        others = [await Client.connect(port) for _ in range(5)]
        answers = await asyncio.gather(*(other.ask(3, 13, _metadata("race", create=True)) for other in others))
        assert {answer.topics[0].error_code for answer in answers} == {ErrorCode.none}
        assert len({answer.topics[0].topic_id for answer in answers}) == 1
        for other in others:
            await other.close()

    with_door(test)


def test_creation_can_be_switched_off() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        answer = await client.ask(3, 13, _metadata("new", create=True))
        assert answer.topics[0].error_code is ErrorCode.unknown_topic_or_partition

    with_door(test, settings=KafkaSettings(auto_create_topics=False))


@pytest.mark.parametrize("names", [("a", "missing", "t"), ("t", "z")])
def test_topics_that_are_there_beside_ones_that_are_not(names: tuple[str, ...]) -> None:
    """Whatever the order in which they are told."""

    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 2, {})
        answer = await client.ask(3, 13, _metadata(*names))
        assert {topic.name: topic.error_code.name for topic in answer.topics} == {
            name: "none" if name == "t" else "unknown_topic_or_partition" for name in names
        }

    with_door(test)


def test_metadata_by_id() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        topic = await streams.topics.create("t", 1, {})
        answer = await client.ask(3, 12, _metadata(topic_ids=(topic.topic_id, UUID(int=5))))
        known, unknown = answer.topics
        assert (known.name, known.error_code) == ("t", ErrorCode.none)
        assert (unknown.topic_id, unknown.error_code) == (UUID(int=5), ErrorCode.unknown_topic_id)

    with_door(test)


def _create(name: str, **changes: Any) -> dict[str, Any]:
    topic = {"name": name, "num_partitions": 2, "replication_factor": 1, "assignments": (), "configs": ()} | changes
    return {"topics": [topic], "timeout": span(1_000), "validate_only": False}


@pytest.mark.parametrize(
    ("name", "changes", "code"),
    [
        ("t", {}, ErrorCode.none),
        ("t", {"replication_factor": 3}, ErrorCode.none),
        ("t", {"num_partitions": -1, "replication_factor": -1}, ErrorCode.none),
        ("t", {"num_partitions": 0}, ErrorCode.invalid_partitions),
        ("t", {"num_partitions": -2}, ErrorCode.invalid_partitions),
        ("t", {"num_partitions": 10**6}, ErrorCode.invalid_partitions),
        ("t", {"replication_factor": 0}, ErrorCode.invalid_replication_factor),
        ("", {}, ErrorCode.invalid_topic_exception),
        ("..", {}, ErrorCode.invalid_topic_exception),
        ("a b", {}, ErrorCode.invalid_topic_exception),
        ("x" * 250, {}, ErrorCode.invalid_topic_exception),
        ("there", {}, ErrorCode.topic_already_exists),
        ("t", {"configs": [{"name": "k", "value": None}]}, ErrorCode.invalid_config),
        (
            "t",
            {"assignments": [{"partition_index": 0, "broker_ids": (1,)}]},
            ErrorCode.invalid_request,
        ),
        (
            "t",
            {
                "assignments": [{"partition_index": index, "broker_ids": (1,)} for index in (0, 1, 2)],
                "num_partitions": -1,
                "replication_factor": -1,
            },
            ErrorCode.none,
        ),
        (
            "t",
            {
                "assignments": [{"partition_index": index, "broker_ids": (1,)} for index in (0, 2)],
                "num_partitions": -1,
                "replication_factor": -1,
            },
            ErrorCode.invalid_replica_assignment,
        ),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_create(name: str, changes: dict[str, Any], code: ErrorCode, validate_only: bool) -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("there", 1, {})
        answer = await client.ask(19, 7, _create(name, **changes) | {"validate_only": validate_only})
        [result] = answer.topics
        assert result.error_code is code
        assert (result.error_message is None) == (code is ErrorCode.none)
        exists = "t" in {topic.name for topic in await streams.topics.list()}
        assert exists == (code is ErrorCode.none and not validate_only)
        if exists:
            assert result.topic_id is not None
            assert result.replication_factor == 1
            assert result.num_partitions == {-1: 3 if changes.get("assignments") else 1}.get(
                changes.get("num_partitions", 2), 2
            )

    with_door(test)


@pytest.mark.parametrize(
    ("values", "partitions", "code"),
    [
        (("6000", "5000"), 1, ErrorCode.none),
        (("bad", "5000"), 1, ErrorCode.none),
        (("5000", "bad"), 1, ErrorCode.invalid_config),
        (("6000", "5000"), -2, ErrorCode.invalid_partitions),
        (("5000", None), -2, ErrorCode.invalid_config),
    ],
)
def test_of_a_setting_that_is_named_twice_the_last_value_counts(
    values: tuple[str | None, ...], partitions: int, code: ErrorCode
) -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        configs = [{"name": "retention.ms", "value": value} for value in values]
        answer = await client.ask(19, 7, _create("t", configs=configs, num_partitions=partitions))
        assert answer.topics[0].error_code is code
        if code is ErrorCode.none:
            [topic] = await streams.topics.list()
            assert topic.configs["retention.ms"] == "5000"

    with_door(test)


def test_a_topic_named_twice_is_not_created() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        request = _create("t")
        answer = await client.ask(19, 7, request | {"topics": request["topics"] * 2})
        assert [result.error_code for result in answer.topics] == [ErrorCode.invalid_request]
        assert await streams.topics.list() == []

    with_door(test)


def test_delete_by_name_and_by_id() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        first, second = [await streams.topics.create(name, 1, {}) for name in ("a", "b")]
        old = await client.ask(20, 4, {"topic_names": ("a", "gone"), "timeout": span(0)})
        assert [result.error_code for result in old.responses] == [
            ErrorCode.none,
            ErrorCode.unknown_topic_or_partition,
        ]
        topics = [
            {"name": None, "topic_id": second.topic_id},
            {"name": None, "topic_id": first.topic_id},
            {"name": None, "topic_id": None},
            {"name": "a", "topic_id": first.topic_id},
        ]
        new = await client.ask(20, 6, {"topics": topics, "timeout": span(0)})
        assert [result.error_code for result in new.responses] == [
            ErrorCode.none,
            ErrorCode.unknown_topic_id,
            ErrorCode.invalid_request,
            ErrorCode.invalid_request,
        ]
        assert new.responses[0].name == "b"
        assert await streams.topics.list() == []

    with_door(test)


def _describe(kind: int, name: str, keys: tuple[str, ...] | None = None) -> dict[str, Any]:
    return {
        "resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": keys}],
        "include_synonyms": True,
        "include_documentation": True,
    }


def test_settings_of_a_topic() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {"retention.ms": "5", "segment.ms": "7"})
        [result] = (await client.ask(32, 4, _describe(2, "t"))).results
        configs = {config.name: config for config in result.configs}
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5", 1)
        assert (configs["segment.ms"].value, configs["segment.ms"].config_source) == ("7", 1)
        assert (configs["max.message.bytes"].value, configs["max.message.bytes"].config_source) == ("1048588", 5)
        assert (configs["cleanup.policy"].value, configs["cleanup.policy"].config_source) == ("delete", 5)
        assert configs["lakestream.profile"].documentation
        [one] = (await client.ask(32, 4, _describe(2, "t", ("retention.ms",)))).results
        assert [config.name for config in one.configs] == ["retention.ms"]
        [missing] = (await client.ask(32, 4, _describe(2, "nowhere"))).results
        assert missing.error_code is ErrorCode.unknown_topic_or_partition

    with_door(test)


def test_settings_of_brokers_and_of_what_has_none() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        [own] = (await client.ask(32, 4, _describe(4, "1"))).results
        assert {config.name for config in own.configs} >= {"num.partitions", "message.max.bytes"}
        assert all(config.read_only for config in own.configs)
        [other] = (await client.ask(32, 4, _describe(4, "2"))).results
        assert other.error_code is ErrorCode.invalid_request
        [unknown] = (await client.ask(32, 4, _describe(3, "1"))).results
        assert unknown.error_code is ErrorCode.invalid_request

    with_door(test)


def test_describe_cluster() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        request = {"include_cluster_authorized_operations": False, "include_fenced_brokers": False}
        answer = await client.ask(60, 2, request)
        assert [broker.broker_id for broker in answer.brokers] == [1]
        assert answer.cluster_id == "test-cluster"
        controllers = await client.ask(60, 2, request | {"endpoint_type": 2})
        assert controllers.error_code is ErrorCode.mismatched_endpoint_type
        unknown = await client.ask(60, 2, request | {"endpoint_type": 9})
        assert unknown.error_code is ErrorCode.unsupported_endpoint_type
        asked = await client.ask(60, 2, request | {"include_cluster_authorized_operations": True})
        assert asked.cluster_authorized_operations == 8096

    with_door(test)
