"""Groups as an operator sees them: listed while they have something stored, deleted when nobody is in them."""

import struct
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from support.clients.wire import SETTINGS, Client, span, with_door
from support.fakes.loops import run
from support.fakes.streams import FakeStreams

from lakestream.coordination.groups import GroupCoordinator, GroupError
from lakestream.metadata.groups import CommittedOffset, committed_offsets, stored_groups
from lakestream.model import StreamPartition


async def commit(client: Client, group: str, offset: int = 5) -> ErrorCode:
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    request = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": "t", "partitions": [partition]}],
    }
    answer = await client.ask(8, 7, request)
    code: ErrorCode = answer.topics[0].partitions[0].error_code
    return code


async def listed(client: Client) -> list[tuple[str, str]]:
    answer = await client.ask(16, 5, {"states_filter": (), "types_filter": ()})
    assert answer.error_code is ErrorCode.none
    return [(group.group_id, group.group_state) for group in answer.groups]


async def described(client: Client, group: str) -> tuple[str, ErrorCode]:
    [found] = (await client.ask(15, 6, {"groups": (group,), "include_authorized_operations": False})).groups
    return found.group_state, found.error_code


async def deleted(client: Client, *groups: str, version: int = 2) -> dict[str, ErrorCode]:
    answer = await client.ask(42, version, {"groups_names": groups})
    return {result.group_id: result.error_code for result in answer.results}


async def joined(client: Client) -> Any:
    request = {
        "group_id": "g",
        "session_timeout": span(10_000),
        "rebalance_timeout": span(10_000),
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
    }
    return await client.ask(11, 3, request)


@pytest.mark.parametrize("version", range(3))
def test_a_deleted_group_is_gone_with_its_offsets(version: int) -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {})
        assert await commit(client, "g") is ErrorCode.none
        assert await commit(client, "kept") is ErrorCode.none
        assert await listed(client) == [("g", "Empty"), ("kept", "Empty")]
        assert await deleted(client, "g", version=version) == {"g": ErrorCode.none}
        assert await listed(client) == [("kept", "Empty")]
        assert await committed_offsets(streams.store, "g") == {}
        assert await described(client, "g") == ("Dead", ErrorCode.group_id_not_found)
        assert await deleted(client, "g", "nobody", version=version) == {
            "g": ErrorCode.group_id_not_found,
            "nobody": ErrorCode.group_id_not_found,
        }
        assert len(await committed_offsets(streams.store, "kept")) == 1
        assert await commit(client, "g", 9) is ErrorCode.none, "the name can be used again"
        assert [each.offset for each in (await committed_offsets(streams.store, "g")).values()] == [9]

    with_door(test)


def test_a_group_with_members_stays() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {})
        member = await joined(client)
        assert member.error_code is ErrorCode.none
        assert await deleted(client, "g") == {"g": ErrorCode.non_empty_group}
        assert await commit(client, "g") is ErrorCode.unknown_member_id, "who is in no group must not move one that is"
        left = {
            "group_id": "g",
            "members": [{"member_id": member.member_id, "group_instance_id": None, "reason": None}],
        }
        assert (await client.ask(13, 5, left)).error_code is ErrorCode.none
        assert await deleted(client, "g") == {"g": ErrorCode.none}
        again = await joined(client)
        assert (again.error_code, again.generation_id) == (ErrorCode.none, 1)
        assert again.member_id != member.member_id

    with_door(test)


def test_asking_for_a_group_does_not_make_it() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        assert await described(client, "nobody") == ("Dead", ErrorCode.group_id_not_found)
        assert await listed(client) == []
        assert await stored_groups(streams.store) == {}
        assert await streams.store.shards("group/", "group0") == [], "not even a claim"

    with_door(test)


def test_every_group_is_listed_by_one_broker_whoever_held_it() -> None:
    async def test() -> None:
        one = FakeStreams()
        two = FakeStreams(store=one.store, runtime=one.runtime, broker_id=2)
        first, second = (GroupCoordinator(each.as_engine(), SETTINGS.groups) for each in (one, two))
        for each in (one, two):
            await each.brokers.register(each.broker)
        names = [f"g{number}" for number in range(12)]
        offset = {StreamPartition(one.runtime.new_id(), 0): CommittedOffset(5, -1, "", 0)}
        for name in names:
            assert await first.commit(name, "", None, -1, offset) is GroupError.NONE
        assert [each.name for each in await first.listed()] == sorted(names), "the holder lists them"
        assert await second.listed() == []
        await first.stop()
        ours, theirs = await first.listed(), await second.listed()
        assert sorted(each.name for each in (*ours, *theirs)) == sorted(names)
        assert ours
        assert theirs

    run(test())


def _subscription(*topics: str) -> bytes:
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 1, len(topics)) + names + struct.pack(">i", -1)


async def _forget(client: Client, *topics: str, group: str = "g") -> Any:
    asked = [{"name": name, "partitions": [{"partition_index": 0}, {"partition_index": 9}]} for name in topics]
    return await client.ask(47, 0, {"group_id": group, "topics": asked})


def test_offsets_are_forgotten_where_nobody_reads() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        for name in ("t", "u"):
            await streams.topics.create(name, 1, {})
        assert (await _forget(client, "t")).error_code is ErrorCode.group_id_not_found
        assert (await _forget(client, "t", group="")).error_code is ErrorCode.invalid_group_id
        await commit(client, "g")
        answer = await _forget(client, "t", "nowhere")
        assert answer.error_code is ErrorCode.none
        codes = [each.error_code for topic in answer.topics for each in topic.partitions]
        assert codes == [ErrorCode.none, *[ErrorCode.unknown_topic_or_partition] * 3]
        assert await committed_offsets(streams.store, "g") == {}
        # What nobody has committed is no error, nor is the second time; the group may be gone with its last offset.
        assert (await _forget(client, "t")).error_code in (ErrorCode.none, ErrorCode.group_id_not_found)

    with_door(test, settings=SETTINGS)


@pytest.mark.parametrize(
    ("protocol_type", "metadata", "code", "left"),
    [
        ("consumer", _subscription("u"), ErrorCode.none, 0),
        ("consumer", _subscription("u", "t"), ErrorCode.group_subscribed_to_topic, 1),
        ("consumer", b"unreadable", ErrorCode.group_subscribed_to_topic, 1),
        ("connect", _subscription("u"), ErrorCode.non_empty_group, 1),
    ],
)
def test_offsets_that_somebody_reads_on_from_stay(
    protocol_type: str, metadata: bytes, code: ErrorCode, left: int
) -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        for name in ("t", "u"):
            await streams.topics.create(name, 1, {})
        await commit(client, "g")
        request = {
            "group_id": "g",
            "session_timeout": span(10_000),
            "rebalance_timeout": span(10_000),
            "member_id": "",
            "group_instance_id": None,
            "protocol_type": protocol_type,
            "protocols": [{"name": "range", "metadata": metadata}],
        }
        assert (await client.ask(11, 3, request)).error_code is ErrorCode.none
        answer = await _forget(client, "t")
        told = answer.topics[0].partitions[0].error_code if answer.topics else answer.error_code
        assert told is code
        assert len(await committed_offsets(streams.store, "g")) == left

    with_door(test, settings=SETTINGS)
