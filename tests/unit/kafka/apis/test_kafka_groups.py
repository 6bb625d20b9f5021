"""The group APIs over the wire: joining in every version, offsets by name and by id, errors."""

from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from support.clients.wire import Client, span, with_door
from support.fakes.streams import FakeStreams

from lakestream.metadata.store import Address


def _join(member_id: str = "", group: str = "g") -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout": span(10_000),
        "rebalance_timeout": span(10_000),
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
    }


async def _joined(client: Client, version: int = 9) -> Any:
    joined = await client.ask(11, version, _join())
    if version >= 4:
        assert joined.error_code is ErrorCode.member_id_required
        joined = await client.ask(11, version, _join(joined.member_id))
    assert joined.error_code is ErrorCode.none
    sync = {
        "group_id": "g",
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "assignments": [{"member_id": joined.member_id, "assignment": b"all"}],
    }
    assert (await client.ask(14, 5, sync)).assignment == b"all"
    return joined


def _commit(joined: Any, topic: dict[str, Any], offset: int = 5, **changes: Any) -> dict[str, Any]:
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "note"} | changes
    return {
        "group_id": "g",
        "generation_id_or_member_epoch": joined.generation_id if joined else -1,
        "member_id": joined.member_id if joined else "",
        "group_instance_id": None,
        "topics": [{**topic, "partitions": [partition]}],
    }


@pytest.mark.parametrize("version", range(10))
def test_a_member_joins_beats_and_leaves(version: int) -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        joined = await _joined(client, version)
        assert (joined.generation_id, joined.leader, joined.protocol_name) == (1, joined.member_id, "range")
        assert [member.metadata for member in joined.members] == [b"m"]
        beat = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id, "group_instance_id": None}
        assert (await client.ask(12, 4, beat)).error_code is ErrorCode.none
        members = [{"member_id": joined.member_id, "group_instance_id": None}, {"member_id": "ghost"}]
        left = await client.ask(13, 5, {"group_id": "g", "members": members})
        assert [each.error_code for each in left.members] == [ErrorCode.none, ErrorCode.unknown_member_id]
        assert (await client.ask(12, 4, beat)).error_code is ErrorCode.unknown_member_id

    with_door(test)


def test_offsets_by_name_and_by_id_are_the_same() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        topic = await streams.topics.create("t", 2, {})
        joined = await _joined(client)
        by_name = await client.ask(8, 9, _commit(joined, {"name": "t"}))
        assert by_name.topics[0].partitions[0].error_code is ErrorCode.none
        asked = {"topic_id": topic.topic_id, "partition_indexes": (0, 1)}
        by_id = await client.ask(9, 10, {"groups": [{"group_id": "g", "topics": [asked]}], "require_stable": True})
        first, second = by_id.groups[0].topics[0].partitions
        assert (first.committed_offset, first.metadata) == (5, "note")
        assert (second.committed_offset, second.error_code) == (-1, ErrorCode.none)
        old = await client.ask(9, 1, {"group_id": "g", "topics": [{"name": "t", "partition_indexes": (0,)}]})
        assert old.topics[0].partitions[0].committed_offset == 5
        everything = await client.ask(9, 5, {"group_id": "g", "topics": None})
        assert [(each.name, len(each.partitions)) for each in everything.topics] == [("t", 1)]
        nothing = await client.ask(9, 8, {"groups": [{"group_id": "new", "topics": None}]})
        assert (nothing.groups[0].error_code, nothing.groups[0].topics) == (ErrorCode.none, ())

    with_door(test)


def test_commits_that_are_refused() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        topic = await streams.topics.create("t", 1, {})
        joined = await _joined(client)

        async def code(version: int, request: dict[str, Any]) -> ErrorCode:
            error: ErrorCode = (await client.ask(8, version, request)).topics[0].partitions[0].error_code
            return error

        assert await code(9, _commit(joined, {"name": "nowhere"})) is ErrorCode.unknown_topic_or_partition
        assert await code(10, _commit(joined, {"topic_id": UUID(int=3)})) is ErrorCode.unknown_topic_id
        elsewhere = _commit(joined, {"topic_id": topic.topic_id}, partition_index=9)
        assert await code(10, elsewhere) is ErrorCode.unknown_topic_or_partition
        long = _commit(joined, {"name": "t"}, committed_metadata="x" * 5_000)
        assert await code(9, long) is ErrorCode.offset_metadata_too_large
        stale = _commit(joined, {"name": "t"}) | {"generation_id_or_member_epoch": 99}
        assert await code(9, stale) is ErrorCode.illegal_generation
        assert await code(9, _commit(None, {"name": "t"})) is ErrorCode.unknown_member_id
        assert await code(9, _commit(None, {"name": "t"}) | {"group_id": "empty"}) is ErrorCode.none

    with_door(test)


def test_offsets_belong_to_the_topic_and_not_to_its_name() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        topic = await streams.topics.create("t", 1, {})
        await client.ask(8, 9, _commit(None, {"name": "t"}))
        await streams.delete_topic(topic.topic_id)
        await streams.topics.create("t", 1, {})
        asked = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": (0,)}]}
        answer = await client.ask(9, 9, {"groups": [asked]})
        assert answer.groups[0].topics[0].partitions[0].committed_offset == -1
        everything = await client.ask(9, 9, {"groups": [{"group_id": "g", "topics": None}]})
        assert everything.groups[0].topics == ()

    with_door(test)


def test_another_brokers_group() -> None:
    """Its lease is held by somebody who is not known to live: the coordinator is elsewhere, or soon here."""

    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {})
        await streams.store.acquire_lease(Address("group/g", "lease"), "9/someone", ttl_ms=60_000)
        assert (await client.ask(11, 9, _join())).error_code is ErrorCode.not_coordinator
        assert (await client.ask(11, 2, _join())).protocol_name == ""
        committed = await client.ask(8, 9, _commit(None, {"name": "t"}))
        assert committed.topics[0].partitions[0].error_code is ErrorCode.not_coordinator
        topics = [{"name": "t", "partition_indexes": (0,)}]
        fetched = await client.ask(9, 8, {"groups": [{"group_id": "g", "topics": topics}]})
        assert fetched.groups[0].error_code is ErrorCode.not_coordinator
        oldest = await client.ask(9, 1, {"group_id": "g", "topics": topics})
        assert oldest.topics[0].partitions[0].error_code is ErrorCode.not_coordinator
        left = await client.ask(13, 5, {"group_id": "g", "members": ({"member_id": "m"},)})
        assert left.error_code is ErrorCode.not_coordinator
        assert (await client.ask(10, 3, {"key": "g", "key_type": 0})).node_id == 1

    with_door(test)


def test_find_coordinator() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        answer = await client.ask(10, 6, {"key_type": 0, "coordinator_keys": ("a", "b")})
        assert [(each.key, each.node_id, each.error_code) for each in answer.coordinators] == [
            ("a", 1, ErrorCode.none),
            ("b", 1, ErrorCode.none),
        ]
        assert (await client.ask(10, 2, {"key": "a", "key_type": 1})).node_id == 1
        refused = await client.ask(10, 2, {"key": "a", "key_type": 7})
        assert (refused.error_code, refused.node_id) == (ErrorCode.invalid_request, -1)

    with_door(test)


def test_groups_are_listed_and_described() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        joined = await _joined(client)
        listed = await client.ask(16, 5, {"states_filter": ("stable",), "types_filter": ()})
        assert [(group.group_id, group.group_state, group.group_type) for group in listed.groups] == [
            ("g", "Stable", "classic")
        ]
        assert (await client.ask(16, 4, {"states_filter": ("Empty",)})).groups == ()
        assert (await client.ask(16, 5, {"states_filter": (), "types_filter": ("share",)})).groups == ()
        request = {"groups": ("g", "nobody"), "include_authorized_operations": False}
        known, unknown = (await client.ask(15, 6, request)).groups
        assert (known.group_state, known.protocol_data) == ("Stable", "range")
        assert [(each.member_id, each.member_assignment) for each in known.members] == [(joined.member_id, b"all")]
        assert (unknown.group_state, unknown.error_code) == ("Dead", ErrorCode.group_id_not_found)

    with_door(test)
