"""DescribeShareGroupOffsets, v0–v1.

From where on share groups that are coordinated here are not done with their partitions, and from v1 on how many records
that are. Without topics, of all that the group has begun with and the caller may describe. Where nobody in the group
has asked for the partition yet: -1.
"""

from collections.abc import Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.access import Operation
from lakestream.coordination.groups import GroupError
from lakestream.coordination.shares import GroupPartition
from lakestream.errors import LakestreamError, UnknownStream
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of, coordinator_code, group_code
from lakestream.kafka.wire.writing import Fields
from lakestream.metadata.topics.list import Topic
from lakestream.model import StreamPartition
from lakestream.stream import TopicKey


async def handle(context: Context, request: Any) -> Reply:
    return {"groups": [await _group(context, group) for group in request.groups]}


async def _group(context: Context, group: Any) -> Fields:
    name = group.group_id
    try:
        begun = await context.shares.offsets.partitions(context.principal, name)
        if isinstance(begun, GroupError):
            return _refused(name, group_code(begun), f"group {name} is no share group")
        if group.topics is None:
            asked: Mapping[TopicKey, list[int]] = {
                topic_id: [index for each, index in begun if each == topic_id] for topic_id, _ in begun
            }
        else:
            asked = {topic.topic_name: list(topic.partitions) for topic in group.topics}
        found = await context.streams.find(context.principal, Operation.DESCRIBE, asked)
        topics = []
        for key, indexes in asked.items():
            topic = found[key]
            if isinstance(topic, Topic):
                topics.append(await _topic(context, name, topic, indexes))
            elif group.topics is not None:
                topics.append(_unknown(str(key), indexes, topic))
    except LakestreamError as error:
        return _refused(name, coordinator_code(error), str(error))
    return {"group_id": name, "topics": topics, "error_message": None}


async def _topic(context: Context, group: str, topic: Topic, indexes: list[int]) -> Fields:
    there = [StreamPartition(topic.topic_id, index) for index in indexes if 0 <= index < topic.partitions]
    described = {
        each.partition.index: each for each in await context.shares.offsets.describe(context.principal, group, there)
    }
    missing = UnknownStream(f"topic {topic.name} has no such partition")
    return {
        "topic_name": topic.name,
        "topic_id": topic.topic_id,
        "partitions": [
            _partition(described[index]) if index in described else _missing(index, missing) for index in indexes
        ],
    }


def _partition(each: GroupPartition) -> Fields:
    return {
        "partition_index": each.partition.index,
        "start_offset": -1 if each.start is None else each.start,
        "leader_epoch": 0,
        "lag": each.lag,
        "error_message": None,
    }


def _unknown(name: str, indexes: list[int], error: LakestreamError) -> Fields:
    return {"topic_name": name, "topic_id": None, "partitions": [_missing(index, error) for index in indexes]}


def _missing(index: int, error: LakestreamError) -> Fields:
    return {
        "partition_index": index,
        "start_offset": -1,
        "leader_epoch": 0,
        "lag": -1,
        "error_code": code_of(error),
        "error_message": str(error),
    }


def _refused(group: str, code: ErrorCode, message: str) -> Fields:
    return {"group_id": group, "topics": (), "error_code": code, "error_message": message}


API = api(90, handle, versions=(0, 1))
