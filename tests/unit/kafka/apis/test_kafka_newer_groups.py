"""The APIs of the newer group protocol over the wire: joining in each version, codes, describing, offsets by epoch."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from support.clients.wire import Client, span, with_door
from support.fakes.streams import FakeStreams


def _beat(member_id: str = "m", epoch: int = 0, **changes: Any) -> dict[str, Any]:
    joining = {"rebalance_timeout": span(5_000), "subscribed_topic_names": ["t"], "topic_partitions": []}
    rest = {"rebalance_timeout": span(-1), "subscribed_topic_names": None, "topic_partitions": None}
    told = {"group_id": "g", "member_id": member_id, "member_epoch": epoch, "instance_id": None, "rack_id": None}
    told |= {"server_assignor": None, "subscribed_topic_regex": None}
    return {**told, **(rest if epoch else joining), **changes}


def _without_pattern(version: int, fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if version or key != "subscribed_topic_regex"}


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_joins_is_described_and_leaves(version: int) -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        topic = await streams.topics.create("t", 2, {})
        joined = await client.ask(68, version, _without_pattern(version, _beat("" if version == 0 else "m")))
        assert (joined.error_code, joined.error_message, joined.member_epoch) == (ErrorCode.none, None, 1)
        assert joined.heartbeat_interval == span(5_000)
        [given] = joined.assignment.topic_partitions
        assert (given.topic_id, given.partitions) == (topic.topic_id, (0, 1))
        member_id = joined.member_id
        assert member_id
        quiet = await client.ask(68, version, _without_pattern(version, _beat(member_id, 1)))
        assert quiet.assignment is None
        [group] = (await client.ask(69, version, {"group_ids": ["g"], "include_authorized_operations": True})).groups
        assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 1, 1)
        assert group.assignor_name == "uniform"
        [member] = group.members
        assert (member.member_id, member.subscribed_topic_names) == (member_id, ("t",))
        assert member.assignment == member.target_assignment
        assert member.assignment.topic_partitions[0].topic_name == "t"
        if version:
            assert member.member_type == 1
        [listed] = (await client.ask(16, 5, {"states_filter": ["stable"], "types_filter": ["Consumer"]})).groups
        assert (listed.group_id, listed.group_type, listed.group_state) == ("g", "consumer", "Stable")
        assert not (await client.ask(16, 5, {"states_filter": [], "types_filter": ["classic"]})).groups
        left = await client.ask(68, version, _without_pattern(version, _beat(member_id, -1)))
        assert (left.error_code, left.member_epoch) == (ErrorCode.none, -1)

    with_door(test)


def test_codes() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 2, {})

        async def told(**changes: Any) -> ErrorCode:
            answer = await client.ask(68, 1, _beat(**changes))
            code: ErrorCode = answer.error_code
            assert bool(answer.error_message) == (code is not ErrorCode.none)
            return code

        assert await told(epoch=4) is ErrorCode.group_id_not_found
        assert await told(group_id="") is ErrorCode.invalid_group_id
        assert await told(instance_id="i") is ErrorCode.none
        assert await told(member_id="") is ErrorCode.invalid_request
        assert await told(epoch=9, instance_id="i") is ErrorCode.fenced_member_epoch
        assert await told(member_id="n", epoch=1) is ErrorCode.unknown_member_id
        assert await told(member_id="n", instance_id="i") is ErrorCode.unreleased_instance_id
        assert await told(member_id="n", epoch=1, instance_id="i") is ErrorCode.fenced_instance_id
        assert await told(member_id="n", server_assignor="mine") is ErrorCode.unsupported_assignor
        wrong = {"subscribed_topic_names": None, "subscribed_topic_regex": "(?=t)"}
        assert await told(member_id="n", **wrong) is ErrorCode.invalid_regular_expression

    with_door(test)


def test_classic_calls_say_that_it_is_another_kind_of_group() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 2, {})
        await client.ask(68, 1, _beat())
        for version, code in ((5, ErrorCode.none), (6, ErrorCode.group_id_not_found)):
            [group] = (await client.ask(15, version, {"groups": ["g"], "include_authorized_operations": False})).groups
            assert (group.error_code, group.group_state) == (code, "Dead")
        beat = {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None}
        assert (await client.ask(12, 4, beat)).error_code is ErrorCode.unknown_member_id
        [deleted] = (await client.ask(42, 2, {"groups_names": ["g"]})).results
        assert deleted.error_code is ErrorCode.non_empty_group
        topics = [{"name": "t", "partitions": [{"partition_index": 0}]}]
        kept = await client.ask(47, 0, {"group_id": "g", "topics": topics})
        assert kept.topics[0].partitions[0].error_code is ErrorCode.group_subscribed_to_topic

    with_door(test)


def test_offsets_belong_to_an_epoch() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 2, {})
        await client.ask(68, 1, _beat())

        async def commit(epoch: int) -> ErrorCode:
            partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
            asked = {"group_id": "g", "generation_id_or_member_epoch": epoch, "member_id": "m"}
            asked |= {"group_instance_id": None, "topics": [{"name": "t", "partitions": [partition]}]}
            answer = await client.ask(8, 9, asked)
            code: ErrorCode = answer.topics[0].partitions[0].error_code
            return code

        async def fetch(epoch: int, member_id: str | None = "m") -> Any:
            group = {"group_id": "g", "member_id": member_id, "member_epoch": epoch}
            group |= {"topics": [{"name": "t", "partition_indexes": [0]}]}
            [found] = (await client.ask(9, 9, {"groups": [group], "require_stable": True})).groups
            return found

        assert await commit(0) is ErrorCode.stale_member_epoch
        assert await commit(1) is ErrorCode.none
        assert (await fetch(0)).error_code is ErrorCode.stale_member_epoch
        assert (await fetch(1, "x")).error_code is ErrorCode.unknown_member_id
        for found in (await fetch(1), await fetch(-1, None)):
            assert found.error_code is ErrorCode.none
            assert found.topics[0].partitions[0].committed_offset == 5

    with_door(test)


def test_members_give_their_reasons_and_other_kinds_of_groups_too() -> None:
    """KIP-800 on both requests; the type of a group of Connect's workers is as good as that of consumers."""

    async def test(streams: FakeStreams, client: Client) -> None:
        join = {"group_id": "workers", "session_timeout": span(10_000), "rebalance_timeout": span(10_000)}
        join |= {"group_instance_id": "w", "member_id": "", "protocol_type": "connect", "reason": "x" * 300}
        join |= {"protocols": [{"name": "sessioned", "metadata": b"url"}]}
        joined = await client.ask(11, 9, join)
        assert (joined.error_code, joined.protocol_type, joined.protocol_name) == (
            ErrorCode.none,
            "connect",
            "sessioned",
        )
        [listed] = (await client.ask(16, 5, {"states_filter": [], "types_filter": ["classic"]})).groups
        assert (listed.group_id, listed.protocol_type) == ("workers", "connect")
        away = {"member_id": joined.member_id, "group_instance_id": "w", "reason": "the worker stops"}
        left = await client.ask(13, 5, {"group_id": "workers", "members": [away]})
        assert left.members[0].error_code is ErrorCode.none

    with_door(test)
