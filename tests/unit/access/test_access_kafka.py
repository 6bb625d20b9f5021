"""No Kafka API gets past the authorizer. The cases come from the registry: an API without one fails."""

import dataclasses
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from support.clients.batches import batch
from support.clients.plain_requests import TOPIC, plain_request
from support.clients.wire import SETTINGS, Client, door, span, with_door
from support.fakes.authorizers import DenyAll, OnlyTopics
from support.fakes.loops import run
from support.fakes.streams import FakeStreams

from lakestream.coordination.groups import GroupCoordinator
from lakestream.kafka.apis.registry import APIS
from lakestream.metadata.groups import CommittedOffset
from lakestream.metadata.store import Entry
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.model import StreamPartition

OF_TOPIC = ErrorCode.topic_authorization_failed
OF_GROUP = ErrorCode.group_authorization_failed
OF_CLUSTER = ErrorCode.cluster_authorization_failed
OF_ID = ErrorCode.transactional_id_authorization_failed

NO_SASL = "no SASL on this listener, whoever asks"
NO_TOKENS = "no delegation tokens, whoever asks"
EXEMPT = {
    17: NO_SASL,
    18: "ApiVersions: whoever connects has to know what is spoken",
    36: NO_SASL,
    38: NO_TOKENS,
    39: NO_TOKENS,
    40: NO_TOKENS,
    41: NO_TOKENS,
}
LISTED = {16: "groups", 66: "transaction_states"}
"""Answered with a list, which is empty."""
DENIED = {
    0: OF_TOPIC,
    1: OF_TOPIC,
    2: OF_TOPIC,
    3: OF_TOPIC,
    8: OF_GROUP,
    9: OF_GROUP,
    10: OF_GROUP,
    11: OF_GROUP,
    12: OF_GROUP,
    13: OF_GROUP,
    14: OF_GROUP,
    15: OF_GROUP,
    19: OF_TOPIC,
    20: OF_TOPIC,
    21: OF_TOPIC,
    22: OF_CLUSTER,
    23: OF_TOPIC,
    24: OF_ID,
    25: OF_ID,
    26: OF_ID,
    27: OF_CLUSTER,
    28: OF_ID,
    29: OF_CLUSTER,
    30: OF_CLUSTER,
    31: OF_CLUSTER,
    32: OF_TOPIC,
    33: OF_TOPIC,
    34: OF_CLUSTER,
    35: OF_CLUSTER,
    37: OF_TOPIC,
    42: OF_GROUP,
    43: OF_CLUSTER,
    44: OF_TOPIC,
    45: OF_CLUSTER,
    46: OF_CLUSTER,
    47: OF_GROUP,
    48: OF_CLUSTER,
    49: OF_CLUSTER,
    50: OF_CLUSTER,
    51: OF_CLUSTER,
    55: OF_CLUSTER,
    57: OF_CLUSTER,
    60: OF_CLUSTER,
    61: OF_TOPIC,
    64: OF_CLUSTER,
    65: OF_ID,
    68: OF_GROUP,
    69: OF_GROUP,
    74: OF_CLUSTER,
    75: OF_TOPIC,
    76: OF_GROUP,
    77: OF_GROUP,
    78: OF_GROUP,
    79: OF_GROUP,
    80: OF_CLUSTER,
    81: OF_CLUSTER,
    83: OF_CLUSTER,
    84: OF_CLUSTER,
    85: OF_CLUSTER,
    86: OF_CLUSTER,
    87: OF_CLUSTER,
    90: OF_GROUP,
    91: OF_GROUP,
    92: OF_GROUP,
}
ASKED = [
    (key, version)
    for key, api in APIS.items()
    if key not in EXEMPT
    for version in range(api.min_version, api.max_version + 1)
]


def leaves(answer: Any) -> list[ErrorCode]:
    """The error codes that say how it went: those with no others below them."""
    if isinstance(answer, tuple):
        return [code for each in answer for code in leaves(each)]
    if not dataclasses.is_dataclass(answer):
        return []
    below = [code for field in dataclasses.fields(answer) for code in leaves(getattr(answer, field.name))]
    own = [getattr(answer, name) for name in ("error_code", "partition_error_code") if hasattr(answer, name)]
    return below or own


async def rows(store: MemoryStore) -> dict[str, list[Entry]]:
    return {shard: await store.range(shard, "", "\U0010ffff") for shard in await store.shards("", "\U0010ffff")}


class Guarded(FakeStreams):
    """Notes who gets as far as the log or looks a topic up."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: list[str] = []

    def watch(self) -> None:
        for name in (
            "append",
            "fetch",
            "list_offset",
            "delete_records",
            "new_producer",
            "create_topic",
            "grow_topic",
            "delete_topic",
        ):
            setattr(self, name, self._noted(name, getattr(self, name)))
        for name in ("find_names", "find_ids", "by_names", "by_ids", "create", "check_new", "alter", "delete"):
            setattr(self.topics, name, self._noted(name, getattr(self.topics, name)))

    def _noted(self, name: str, real: Any) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            self.touched.append(name)
            return real(*args, **named)

        return call


def test_every_api_has_a_case() -> None:
    assert DENIED.keys() | LISTED.keys() | EXEMPT.keys() == APIS.keys()


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize(("key", "version"), ASKED)
def test_nothing_gets_past_who_denies_everything(
    key: int, version: int, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is the same whether the topic and the group are there or not."""

    async def work() -> None:
        streams = Guarded()
        store = streams.store
        assert isinstance(store, MemoryStore)
        topic_id = streams.runtime.new_id()
        if is_known:
            topic = await streams.topics.create(TOPIC, 2, {})
            topic_id = topic.topic_id
            await streams.append(StreamPartition(topic_id, 0), batch(b"secret"))
            coordinator = GroupCoordinator(streams.as_engine(), SETTINGS.groups)
            offsets = {StreamPartition(topic_id, 0): CommittedOffset(7, 0, "secret", 0)}
            await coordinator.commit("x", "", None, -1, offsets)
            await coordinator.stop()
        async with door(streams, authorizer=DenyAll()) as (_, server):
            before = await rows(store)
            streams.watch()
            for name in (
                "find",
                "describe",
                "join",
                "sync",
                "heartbeat",
                "leave",
                "commit_found",
                "offsets",
                "delete",
                "delete_offsets",
            ):
                monkeypatch.setattr(GroupCoordinator, name, streams._noted(name, getattr(GroupCoordinator, name)))
            client = await Client.connect(server.port)
            request = plain_request(key, version, topic_id)
            if (key, version) == (20, 6):
                request["topics"][0]["topic_id"] = None
            answer = await client.ask(key, version, request)
            await client.close()
            if key in DENIED:
                # What brokers send one another needs the right of brokers.
                denied = OF_CLUSTER if key == 24 and version >= 4 else DENIED[key]
                assert set(leaves(answer)) == {denied}
            else:
                assert getattr(answer, LISTED[key]) == ()
            assert "secret" not in repr(answer)
            assert streams.touched == []
            assert await rows(store) == before

    run(work())


@pytest.mark.parametrize("version", [0, 1, 13])
def test_a_list_of_all_topics_leaves_out_what_may_not_be_described(version: int) -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        for name in ("a", "b"):
            await streams.topics.create(name, 1, {})
        request = plain_request(3, version, streams.runtime.new_id()) | {"topics": () if version == 0 else None}
        answer = await client.ask(3, version, request)
        assert [topic.name for topic in answer.topics] == ["a"]

    with_door(test, authorizer=OnlyTopics("a"))


def by_topic(answer: Any, field: str) -> dict[str, ErrorCode]:
    found = {}
    for topic in getattr(answer, field):
        name = next(getattr(topic, each) for each in ("name", "topic", "resource_name") if hasattr(topic, each))
        [code] = set(leaves(topic))
        found[name] = code
    return found


def _each(**fields: Any) -> list[dict[str, Any]]:
    return [{"name": name, "topic": name, "resource_type": 2, "resource_name": name, **fields} for name in "abc"]


BOTH: dict[int, tuple[int, dict[str, Any], str]] = {
    0: (
        9,
        {
            "acks": -1,
            "timeout": span(1000),
            "transactional_id": None,
            "topic_data": _each(partition_data=[{"index": 0, "records": batch(b"v")}]),
        },
        "responses",
    ),
    1: (
        12,
        {
            "max_wait": span(0),
            "min_bytes": 0,
            "max_bytes": 1000,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "forgotten_topics_data": (),
            "rack_id": "",
            "topics": _each(
                partitions=[
                    {
                        "partition": 0,
                        "current_leader_epoch": -1,
                        "fetch_offset": 0,
                        "last_fetched_epoch": -1,
                        "log_start_offset": -1,
                        "partition_max_bytes": 1000,
                    }
                ]
            ),
        },
        "responses",
    ),
    2: (
        8,
        {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": _each(partitions=[{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]),
        },
        "topics",
    ),
    3: (
        9,
        {
            "topics": _each(),
            "allow_auto_topic_creation": True,
            "include_topic_authorized_operations": False,
            "include_cluster_authorized_operations": False,
        },
        "topics",
    ),
    8: (
        8,
        {
            "group_id": "g",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": _each(
                partitions=[
                    {
                        "partition_index": 0,
                        "committed_offset": 1,
                        "committed_leader_epoch": -1,
                        "committed_metadata": "",
                    }
                ]
            ),
        },
        "topics",
    ),
    9: (7, {"group_id": "g", "topics": _each(partition_indexes=[0]), "require_stable": False}, "topics"),
    20: (5, {"topic_names": ["a", "b", "c"], "timeout": span(1000)}, "responses"),
    21: (2, {"topics": _each(partitions=[{"partition_index": 0, "offset": 0}]), "timeout": span(1000)}, "topics"),
    23: (
        4,
        {
            "replica_id": -1,
            "topics": _each(partitions=[{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]),
        },
        "topics",
    ),
    32: (
        4,
        {"resources": _each(configuration_keys=None), "include_synonyms": False, "include_documentation": False},
        "results",
    ),
    33: (2, {"resources": _each(configs=()), "validate_only": False}, "responses"),
    37: (3, {"topics": _each(count=2, assignments=None), "timeout": span(1000), "validate_only": False}, "results"),
    44: (1, {"resources": _each(configs=()), "validate_only": False}, "responses"),
}


@pytest.mark.parametrize("key", BOTH)
def test_topics_of_one_request_are_answered_one_by_one(key: int) -> None:
    """`a` may be used, `b` may not; of `c`, which is not there, the caller hears the same as of `b`."""
    version, fields, answered = BOTH[key]

    async def test(streams: FakeStreams, client: Client) -> None:
        for name in ("a", "b"):
            await streams.topics.create(name, 1, {})
        answer = await client.ask(key, version, fields)
        assert by_topic(answer, answered) == {"a": ErrorCode.none, "b": OF_TOPIC, "c": OF_TOPIC}
        if key == 0:
            [topic] = (await streams.topics.by_names(["a"])).values()
            assert list(streams.logs) == topic.each_partition()

    with_door(test, authorizer=OnlyTopics("a"))


def test_who_may_create_one_topic_creates_no_other() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        topics = [
            {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
            for name in "ab"
        ]
        answer = await client.ask(19, 7, {"topics": topics, "timeout": span(1000), "validate_only": False})
        assert by_topic(answer, "topics") == {"a": ErrorCode.none, "b": OF_TOPIC}
        assert [topic.name for topic in await streams.topics.list()] == ["a"]

    with_door(test, authorizer=OnlyTopics("a"))


def test_a_table_is_not_taken_over_by_who_may_not_write_it() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        configs = [{"name": "lakestream.table.name", "value": "theirs"}]
        topic = {"name": "a", "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": configs}
        answer = await client.ask(19, 7, {"topics": [topic], "timeout": span(1000), "validate_only": False})
        assert by_topic(answer, "topics") == {"a": OF_TOPIC}
        assert await streams.topics.list() == []

    with_door(test, authorizer=OnlyTopics("a"))


def test_offsets_of_all_topics_leave_out_what_may_not_be_described() -> None:
    async def work() -> None:
        streams = FakeStreams()
        topics = [await streams.topics.create(name, 1, {}) for name in ("a", "b")]
        coordinator = GroupCoordinator(streams.as_engine(), SETTINGS.groups)
        offsets = {StreamPartition(topic.topic_id, 0): CommittedOffset(7, 0, "", 0) for topic in topics}
        await coordinator.commit("g", "", None, -1, offsets)
        await coordinator.stop()
        async with door(streams, authorizer=OnlyTopics("a")) as (_, server):
            client = await Client.connect(server.port)
            answer = await client.ask(9, 7, {"group_id": "g", "topics": None, "require_stable": False})
            await client.close()
            assert [topic.name for topic in answer.topics] == ["a"]

    run(work())
