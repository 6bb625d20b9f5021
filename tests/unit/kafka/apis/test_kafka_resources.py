"""What has settings beside topics: brokers, their loggers, groups and subscriptions to clients' metrics."""

import logging
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from support.clients.wire import Client, span, with_door
from support.fakes.streams import FakeStreams

SET, DELETE, APPEND = 0, 1, 2
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


async def described(client: Client, kind: int, name: str, *keys: str) -> Any:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys or None}
    asked = {"resources": [resource], "include_synonyms": True, "include_documentation": True}
    [result] = (await client.ask(32, 4, asked)).results
    return result


async def altered(
    client: Client, kind: int, name: str, *configs: tuple[str, int, str | None], **more: Any
) -> ErrorCode:
    given = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in configs]
    resource = {"resource_type": kind, "resource_name": name, "configs": given}
    answer = await client.ask(44, 1, {"resources": [resource], "validate_only": False} | more)
    code: ErrorCode = answer.responses[0].error_code
    return code


def test_where_a_value_comes_from() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {"retention.ms": "5"})
        result = await described(client, TOPIC, "t", "retention.ms", "max.message.bytes", "compression.type")
        synonyms = {each.name: [(one.name, one.value, one.source) for one in each.synonyms] for each in result.configs}
        assert synonyms == {
            "compression.type": [("compression.type", "producer", 5)],
            "max.message.bytes": [("message.max.bytes", "1048588", 5)],
            "retention.ms": [("retention.ms", "5", 1), ("log.retention.ms", "-1", 5)],
        }
        assert all(each.documentation for each in result.configs)

    with_door(test)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "unknown", ErrorCode.unknown_topic_or_partition),
        (TOPIC, "no name", ErrorCode.invalid_topic_exception),
        (BROKER, "1", ErrorCode.none),
        (BROKER, "", ErrorCode.none),
        (BROKER, "2", ErrorCode.invalid_request),
        (BROKER, "x", ErrorCode.invalid_request),
        (LOGGER, "1", ErrorCode.none),
        (LOGGER, "", ErrorCode.invalid_request),
        (LOGGER, "2", ErrorCode.invalid_request),
        (METRICS, "m", ErrorCode.none),
        (METRICS, "", ErrorCode.invalid_request),
        (GROUP, "g", ErrorCode.none),
        (GROUP, "", ErrorCode.invalid_request),
        (77, "x", ErrorCode.invalid_request),
    ],
)
def test_what_can_be_described(kind: int, name: str, code: ErrorCode) -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        result = await described(client, kind, name)
        assert result.error_code is code
        assert code is ErrorCode.none or result.configs == ()

    with_door(test)


@pytest.mark.parametrize(
    ("kind", "name", "configs", "code"),
    [
        (TOPIC, "", [("retention.ms", SET, "1")], ErrorCode.invalid_request),
        (TOPIC, "unknown", [("retention.ms", SET, "1")], ErrorCode.unknown_topic_or_partition),
        (TOPIC, "t", [("retention.ms", SET, None)], ErrorCode.invalid_request),
        (TOPIC, "t", [("retention.ms", SET, "1"), ("retention.ms", SET, "2")], ErrorCode.invalid_request),
        (TOPIC, "t", [("retention.ms", APPEND, "1")], ErrorCode.invalid_config),
        (TOPIC, "t", [("nope", SET, "1")], ErrorCode.invalid_config),
        (TOPIC, "t", [("nope", DELETE, None)], ErrorCode.none),
        (BROKER, "1", [("num.partitions", SET, "1")], ErrorCode.invalid_request),
        (BROKER, "1", [("leader.replication.throttled.rate", DELETE, None)], ErrorCode.none),
        (BROKER, "9", [], ErrorCode.invalid_request),
        (BROKER, "1", [], ErrorCode.none),
        (METRICS, "m", [("interval.ms", SET, "1000")], ErrorCode.invalid_request),
        (GROUP, "g", [("consumer.session.timeout.ms", SET, "50000")], ErrorCode.none),
        (GROUP, "g", [("consumer.session.timeout.ms", SET, "44999")], ErrorCode.invalid_config),
        (GROUP, "g", [("consumer.heartbeat.interval.ms", SET, "soon")], ErrorCode.invalid_config),
        (GROUP, "g", [("streams.session.timeout.ms", SET, "50000")], ErrorCode.invalid_config),
        (GROUP, "g", [("nope", SET, "1")], ErrorCode.invalid_config),
        (GROUP, "", [("consumer.session.timeout.ms", SET, "50000")], ErrorCode.invalid_request),
        (LOGGER, "9", [("root", SET, "INFO")], ErrorCode.invalid_request),
        (LOGGER, "1", [("root", SET, "LOUD")], ErrorCode.invalid_config),
        (LOGGER, "1", [("root", DELETE, None)], ErrorCode.invalid_config),
        (LOGGER, "1", [("nope", SET, "INFO")], ErrorCode.invalid_config),
        (LOGGER, "1", [("root", APPEND, "INFO")], ErrorCode.invalid_request),
        (77, "x", [], ErrorCode.invalid_request),
        # What cannot be done to a setting is told before whose it is.
        (TOPIC, "", [("message.timestamp.type", 3, "LogAppendTime")], ErrorCode.invalid_config),
        (TOPIC, "", [("cleanup.policy", 3, "delete")], ErrorCode.invalid_request),
        (GROUP, "", [("consumer.session.timeout.ms", APPEND, "1")], ErrorCode.invalid_config),
    ],
)
def test_what_can_be_altered(kind: int, name: str, configs: Any, code: ErrorCode) -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {})
        assert await altered(client, kind, name, *configs) is code

    with_door(test)


def test_a_logger_is_made_louder_and_let_go_again() -> None:
    name = "lakestream.kafka.server"
    logger = logging.getLogger(name)
    before = logger.level

    async def test(streams: FakeStreams, client: Client) -> None:
        async def level() -> str:
            [found] = (await described(client, LOGGER, "1", name)).configs
            told: str = found.value
            return told

        inherited = await level()
        assert await altered(client, LOGGER, "1", (name, SET, "DEBUG"), validate_only=True) is ErrorCode.none
        assert await level() == inherited
        assert await altered(client, LOGGER, "1", (name, SET, "FATAL")) is ErrorCode.none
        assert (await level(), logger.level) == ("FATAL", logging.CRITICAL)
        assert await altered(client, LOGGER, "1", (name, DELETE, None)) is ErrorCode.none
        assert await level() == inherited

    try:
        with_door(test)
    finally:
        logger.setLevel(before)


def test_what_has_settings() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {})
        for types, expected in (
            ((), {(TOPIC, "t"), (BROKER, "1"), (LOGGER, "1")}),
            ((TOPIC,), {(TOPIC, "t")}),
            ((BROKER, METRICS), {(BROKER, "1")}),
            ((GROUP,), set()),
        ):
            answer = await client.ask(74, 1, {"resource_types": types})
            assert {(each.resource_type, each.resource_name) for each in answer.config_resources} == expected
        assert (await client.ask(74, 0, {})).config_resources == ()
        assert (await client.ask(74, 1, {"resource_types": (77,)})).error_code is ErrorCode.unsupported_version

    with_door(test)


def test_a_group_has_an_interval_and_a_session_of_its_own() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        name = "consumer.heartbeat.interval.ms"
        await streams.topics.create("t", 1, {})

        async def told(group: str) -> tuple[str, int]:
            [found] = (await described(client, GROUP, group, name)).configs
            return found.value, found.config_source

        async def interval(group: str) -> float:
            beat = {"group_id": group, "member_id": "m", "member_epoch": 0, "instance_id": None, "rack_id": None}
            beat |= {"rebalance_timeout": span(5_000), "subscribed_topic_names": ["t"], "server_assignor": None}
            answer = await client.ask(68, 0, {**beat, "topic_partitions": []})
            seconds: float = answer.heartbeat_interval.total_seconds()
            return seconds

        assert await told("g") == ("5000", 5)
        assert await altered(client, GROUP, "g", (name, SET, "7000"), validate_only=True) is ErrorCode.none
        assert await told("g") == ("5000", 5)
        assert await altered(client, GROUP, "g", (name, SET, "7000")) is ErrorCode.none
        assert (await told("g"), await told("h")) == (("7000", 8), ("5000", 5))
        assert (await interval("g"), await interval("h")) == (7, 5)
        [listed] = (await client.ask(74, 1, {"resource_types": (GROUP,)})).config_resources
        assert listed.resource_name == "g"
        assert await altered(client, GROUP, "g", (name, DELETE, None)) is ErrorCode.none
        assert (await client.ask(74, 1, {"resource_types": (GROUP,)})).config_resources == ()
        assert await interval("g") == 5

    with_door(test)
