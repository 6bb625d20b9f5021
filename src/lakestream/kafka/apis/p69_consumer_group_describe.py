"""ConsumerGroupDescribe, v0–v1.

State and members of groups of the newer protocol that are coordinated here: what each member has and what it is to
have. Of any other group, GROUP_ID_NOT_FOUND, upon which clients ask DescribeGroups. Topics that the caller may not
describe keep it from hearing of the members at all.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.access import Operation
from lakestream.coordination.groups import ConsumerGroup
from lakestream.coordination.groups.consumer.members import ConsumerMember
from lakestream.coordination.groups.consumer.topics import NO_TOPICS, KnownTopics
from lakestream.errors import LakestreamError, NotAuthorized
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.apis.assigned import described_partitions
from lakestream.kafka.apis.authorized import group_operations
from lakestream.kafka.errors import coordinator_code
from lakestream.kafka.wire.describing import UNASKED
from lakestream.kafka.wire.writing import Fields


async def handle(context: Context, request: Any) -> Reply:
    says_operations = request.include_authorized_operations
    groups = dict.fromkeys(request.group_ids)
    return {"groups": [await _described(context, group, says_operations) for group in groups]}


async def _described(context: Context, group: str, says_operations: bool) -> Fields:
    if not group:
        return _nothing(group, ErrorCode.invalid_group_id, "a group has a name")
    try:
        found = await context.groups.described(context.principal, group)
        machine, topics = found or (None, NO_TOPICS)
        if not isinstance(machine, ConsumerGroup):
            return _nothing(group, ErrorCode.group_id_not_found, f"group {group} is none of the newer protocol")
        names = _names(machine, topics)
        for known in (await context.streams.find(context.principal, Operation.DESCRIBE, sorted(names))).values():
            if isinstance(known, NotAuthorized):
                message = "the group reads topics that the caller may not describe"
                return _nothing(group, ErrorCode.topic_authorization_failed, message)
    except LakestreamError as error:
        return _nothing(group, coordinator_code(error), str(error))
    return {
        "group_id": group,
        "error_message": None,
        "group_state": machine.state.value,
        "group_epoch": machine.epoch,
        "assignment_epoch": machine.assignment_epoch,
        "assignor_name": machine.assignor,
        "members": [_member(member, topics) for member in machine.members.values()],
        "authorized_operations": group_operations(context, group) if says_operations else UNASKED,
    }


def _names(machine: ConsumerGroup, topics: KnownTopics) -> set[str]:
    members = machine.members.values()
    asked = {name for member in members for name in member.topics}
    has = {topic_id for member in members for part in (member.assigned, member.target) for topic_id in part}
    return asked | {topics.names[topic_id] for topic_id in has if topic_id in topics.names}


def _member(member: ConsumerMember, topics: KnownTopics) -> Fields:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": f"/{member.client_host}",
        "subscribed_topic_names": list(member.topics),
        "subscribed_topic_regex": member.pattern or None,
        "assignment": described_partitions(member.assigned, topics),
        "target_assignment": described_partitions(member.target, topics),
        "member_type": 1 if member.classic is None else 0,
    }


def _nothing(group: str, code: ErrorCode, message: str) -> Fields:
    return {
        "error_code": code,
        "error_message": message,
        "group_id": group,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": (),
    }


API = api(69, handle, versions=(0, 1))
