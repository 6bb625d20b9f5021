"""DescribeShareGroupOffsets, v0–v1.

From where on share groups that are coordinated here are not done with their partitions, and from v1 on how many records
that are. Without topics, of all that the group has begun with and the caller may describe. Where nobody in the group
has asked for the partition yet: -1.
"""

from collections.abc import Iterable
from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.access import Operation
from lakestream.coordination.shares import GroupPartition
from lakestream.errors import LakestreamError, NotAuthorized
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of, coordinator_code
from lakestream.kafka.wire.writing import Fields
from lakestream.metadata.topics.list import Topic
from lakestream.model import StreamPartition


async def handle(context: Context, request: Any) -> Reply:
    return {"groups": [await _group(context, group) for group in request.groups]}


async def _group(context: Context, group: Any) -> Fields:
    name = group.group_id
    try:
        begun = await context.shares.offsets.topics(context.principal, name)
        names = begun if group.topics is None else [topic.topic_name for topic in group.topics]
        found = await context.streams.find(context.principal, Operation.DESCRIBE, names)
        if group.topics is None:
            known = [topic for topic in found.values() if isinstance(topic, Topic)]
            topics = [await _topic(context, name, topic, range(topic.partitions)) for topic in known]
        else:
            topics = [await _asked(context, name, asked, found[asked.topic_name]) for asked in group.topics]
    except LakestreamError as error:
        return _refused(name, coordinator_code(error), str(error))
    return {"group_id": name, "topics": topics, "error_message": None}


async def _asked(context: Context, group: str, asked: Any, topic: Topic | LakestreamError) -> Fields:
    if isinstance(topic, Topic):
        return await _topic(context, group, topic, asked.partitions)
    return _nowhere(asked, topic)


async def _topic(context: Context, group: str, topic: Topic, indexes: Iterable[int]) -> Fields:
    partitions = [StreamPartition(topic.topic_id, index) for index in indexes]
    described = await context.shares.offsets.describe(context.principal, group, partitions)
    return {
        "topic_name": topic.name,
        "topic_id": topic.topic_id,
        "partitions": [_partition(each) for each in described],
    }


def _partition(each: GroupPartition) -> Fields:
    return {
        "partition_index": each.partition.index,
        "start_offset": -1 if each.start is None else each.start,
        "leader_epoch": 0,
        "lag": each.lag,
        "error_message": None,
    }


def _nowhere(asked: Any, error: LakestreamError) -> Fields:
    """Of a topic that there is not a group has nothing, which is no error."""
    code = code_of(error) if isinstance(error, NotAuthorized) else ErrorCode.none
    message = str(error) if code else None
    told = {"start_offset": -1, "leader_epoch": 0, "lag": -1, "error_code": code, "error_message": message}
    return {
        "topic_name": asked.topic_name,
        "topic_id": None,
        "partitions": [{"partition_index": index, **told} for index in asked.partitions],
    }


def _refused(group: str, code: ErrorCode, message: str) -> Fields:
    return {"group_id": group, "topics": (), "error_code": code, "error_message": message}


API = api(90, handle, versions=(0, 1))
