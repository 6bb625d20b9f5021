"""AlterConfigs, IncrementalAlterConfigs, DeleteRecords: what clients hear, and what the topic then has."""

import asyncio
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from support.clients.batches import batch
from support.clients.wire import Client, span, with_door
from support.fakes.streams import FakeStreams
from support.worlds.brokers import seeded

from lakestream.errors import InvalidSetting, UnknownStream
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.metadata.topics.list import Topics

SET, DELETE, APPEND, SUBTRACT = range(4)


async def _change(client: Client, *wanted: tuple[str, int, str | None], topic: str = "t", **more: Any) -> Any:
    configs = [{"name": name, "config_operation": operation, "value": value} for name, operation, value in wanted]
    resource = {"resource_type": 2, "resource_name": topic, "configs": configs} | more.pop("resource", {})
    answer = await client.ask(44, 1, {"resources": [resource], "validate_only": False} | more)
    return answer.responses[0]


async def _configs(streams: FakeStreams) -> dict[str, str]:
    return (await streams.topics.by_names(["t"]))["t"].configs


def test_single_settings_are_set_deleted_appended_and_subtracted() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {"retention.bytes": "7"})
        assert (await _change(client, ("retention.ms", SET, "60000"))).error_code is ErrorCode.none
        assert await _configs(streams) == {"retention.bytes": "7", "retention.ms": "60000"}
        await _change(client, ("retention.bytes", DELETE, None), ("lakestream.table.formats", APPEND, "delta"))
        assert await _configs(streams) == {"retention.ms": "60000", "lakestream.table.formats": "iceberg,delta"}
        await _change(client, ("lakestream.table.formats", SUBTRACT, "delta"))
        assert (await _configs(streams))["lakestream.table.formats"] == "iceberg"
        described = await client.ask(
            32,
            4,
            {
                "resources": [{"resource_type": 2, "resource_name": "t", "configuration_keys": ["retention.ms"]}],
                "include_synonyms": False,
                "include_documentation": False,
            },
        )
        assert described.results[0].configs[0].value == "60000"

    with_door(test)


@pytest.mark.parametrize(
    ("wanted", "code", "says"),
    [
        ([("retention.ms", SET, "soon")], ErrorCode.invalid_config, "retention.ms=soon"),
        ([("retention.ms", SET, None)], ErrorCode.invalid_request, "needs a value"),
        ([("retention.ms", APPEND, "1")], ErrorCode.invalid_config, "no list"),
        ([("retention.ms", 9, "1")], ErrorCode.invalid_request, "operation 9"),
        ([("segment.ms", SET, "0")], ErrorCode.invalid_config, "segment.ms=0"),
        ([("compression.type", SET, "lz5")], ErrorCode.invalid_config, "producer"),
        ([("no.such", SET, "1")], ErrorCode.invalid_config, "no setting of a topic"),
        ([("remote.storage.enable", SET, "true")], ErrorCode.invalid_config, "for every topic"),
        ([("lakestream.table.name", SET, "x")], ErrorCode.invalid_config, "cannot change"),
        ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], ErrorCode.invalid_request, "twice"),
    ],
)
def test_what_is_refused_changes_nothing(wanted: Any, code: ErrorCode, says: str) -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {})
        answer = await _change(client, ("retention.bytes", SET, "9"), *wanted)
        assert (answer.error_code, says in (answer.error_message or "")) == (code, True), answer
        assert await _configs(streams) == {}

    with_door(test)


def test_other_resources_and_dry_runs() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {})
        broker = await _change(client, resource={"resource_type": 4, "resource_name": "1"})
        assert broker.error_code is ErrorCode.none, "nothing is asked of it"
        unknown = await _change(client, ("retention.ms", SET, "1"), topic="none")
        assert unknown.error_code is ErrorCode.unknown_topic_or_partition
        dry = await _change(client, ("retention.ms", SET, "1"), validate_only=True)
        assert dry.error_code is ErrorCode.none
        assert await _configs(streams) == {}

    with_door(test)


def test_all_settings_are_replaced_at_once() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {"retention.bytes": "7", "retention.ms": "1"})
        configs = [{"name": "retention.ms", "value": "5"}, {"name": "min.insync.replicas", "value": "1"}]
        resource = {"resource_type": 2, "resource_name": "t", "configs": configs}
        answer = await client.ask(33, 2, {"resources": [resource], "validate_only": False})
        assert answer.responses[0].error_code is ErrorCode.none
        assert await _configs(streams) == {"retention.ms": "5", "min.insync.replicas": "1"}

    with_door(test)


async def test_changes_made_at_once_are_all_kept_and_never_bring_a_deleted_topic_back() -> None:
    store = MemoryStore(seeded())
    brokers = [Topics(store, seeded(number)) for number in range(6)]
    topic = await brokers[0].create("t", 1, {})
    names = ["retention.ms", "retention.bytes", "lakestream.table.retention.ms", "lakestream.table.freshness.ms"]

    def setting(name: str) -> Any:
        return lambda present: {**present, name: "5"}

    await asyncio.gather(*(each.alter("t", setting(name)) for each, name in zip(brokers, names, strict=False)))
    found = (await brokers[5].by_names(["t"]))["t"]
    assert found.configs == dict.fromkeys(names, "5")
    assert found.options.table_retention_ms == 5
    assert found.topic_id == topic.topic_id
    with pytest.raises(InvalidSetting):
        await brokers[1].alter("t", lambda present: {**present, "retention.ms": "-2"})
    await brokers[2].delete(topic.topic_id)
    with pytest.raises(UnknownStream):
        await brokers[1].alter("t", setting("retention.ms"))
    assert await brokers[3].list() == []


def test_records_are_deleted_up_to_an_offset_if_the_policy_allows() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        partition = (await streams.topics.create("t", 1, {})).each_partition()[0]
        await streams.topics.create("kept", 1, {"cleanup.policy": "compact"})
        await streams.append(partition, batch(b"0", b"1", b"2"))

        async def delete(offset: int, topic: str = "t", index: int = 0) -> tuple[ErrorCode, int]:
            asked = [{"name": topic, "partitions": [{"partition_index": index, "offset": offset}]}]
            answer = await client.ask(21, 2, {"topics": asked, "timeout": span(1000)})
            [result] = answer.topics[0].partitions
            return result.error_code, result.low_watermark

        assert await delete(2) == (ErrorCode.none, 2)
        assert await delete(1) == (ErrorCode.none, 2)
        assert await delete(4) == (ErrorCode.offset_out_of_range, -1)
        assert await delete(-2) == (ErrorCode.offset_out_of_range, -1)
        assert await delete(-1) == (ErrorCode.none, 3)
        assert await delete(0, index=5) == (ErrorCode.unknown_topic_or_partition, -1)
        assert await delete(0, "none") == (ErrorCode.unknown_topic_or_partition, -1)
        assert await delete(0, "kept") == (ErrorCode.policy_violation, -1)

    with_door(test)
