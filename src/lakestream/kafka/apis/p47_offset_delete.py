"""OffsetDelete, v0.

Forgets committed offsets of a group that is coordinated here. While the group has members, those of topics that a
member subscribes to stay (GROUP_SUBSCRIBED_TO_TOPIC), and all of them if it is no group of consumers (NON_EMPTY_GROUP).
An offset that nobody has committed is no error.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.access import Operation
from lakestream.coordination.groups import GroupError
from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of, coordinator_code, group_code
from lakestream.metadata.topics.list import Topic
from lakestream.model import StreamPartition


async def handle(context: Context, request: Any) -> Reply:
    found = await context.streams.find(context.principal, Operation.READ, [topic.name for topic in request.topics])
    wanted: dict[StreamPartition, str] = {}
    refused: dict[tuple[str, int], ErrorCode] = {}
    for asked in request.topics:
        topic = found[asked.name]
        for each in asked.partitions:
            index = each.partition_index
            if isinstance(topic, LakestreamError):
                refused[asked.name, index] = code_of(topic)
            elif not 0 <= index < topic.partitions:
                refused[asked.name, index] = ErrorCode.unknown_topic_or_partition
            else:
                wanted[StreamPartition(topic.topic_id, index)] = asked.name
    try:
        told, kept = await context.groups.delete_offsets(context.principal, request.group_id, wanted)
    except LakestreamError as error:
        return {"error_code": coordinator_code(error), "topics": ()}
    if told is not GroupError.NONE:
        return {"error_code": group_code(told), "topics": ()}
    for asked in request.topics:
        topic = found[asked.name]
        if isinstance(topic, Topic):
            for each in asked.partitions:
                if StreamPartition(topic.topic_id, each.partition_index) in kept:
                    refused[asked.name, each.partition_index] = ErrorCode.group_subscribed_to_topic
    return {
        "error_code": ErrorCode.none,
        "topics": [
            {
                "name": asked.name,
                "partitions": [
                    {
                        "partition_index": each.partition_index,
                        "error_code": refused.get((asked.name, each.partition_index), ErrorCode.none),
                    }
                    for each in asked.partitions
                ],
            }
            for asked in request.topics
        ],
    }


API = api(47, handle, versions=(0, 0))
