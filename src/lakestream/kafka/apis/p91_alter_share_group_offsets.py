"""AlterShareGroupOffsets, v0.

Sets from where on a share group goes on, whatever it has had, and makes the group if there is none. NON_EMPTY_GROUP
while it has members, GROUP_ID_NOT_FOUND of any other kind of group. Partitions that are not there are told so, the
others are set.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.access import Operation
from lakestream.coordination.groups import GroupError
from lakestream.errors import LakestreamError, UnknownStream
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of, coordinator_code, group_code
from lakestream.kafka.wire.writing import Fields
from lakestream.metadata.topics.list import Topic
from lakestream.model import StreamPartition


async def handle(context: Context, request: Any) -> Reply:
    group, offsets, responses = request.group_id, dict[StreamPartition, int](), []
    try:
        names = [topic.topic_name for topic in request.topics]
        found = await context.streams.find(context.principal, Operation.READ, names)
        for topic in request.topics:
            known = found[topic.topic_name]
            responses.append(
                {
                    "topic_name": topic.topic_name,
                    "topic_id": known.topic_id if isinstance(known, Topic) else None,
                    "partitions": [_taken(known, each, offsets) for each in topic.partitions],
                }
            )
        error = await context.shares.offsets.alter(context.principal, group, offsets)
    except LakestreamError as failure:
        return _refused(coordinator_code(failure), str(failure))
    if error is not GroupError.NONE:
        return _refused(group_code(error), f"group {group} is no share group without members")
    return {"error_message": None, "responses": responses}


def _taken(topic: Topic | LakestreamError, asked: Any, offsets: dict[StreamPartition, int]) -> Fields:
    index = asked.partition_index
    if isinstance(topic, Topic) and 0 <= index < topic.partitions:
        offsets[StreamPartition(topic.topic_id, index)] = max(asked.start_offset, 0)
        return {"partition_index": index, "error_message": None}
    missing = UnknownStream(f"topic {topic.name} has no partition {index}") if isinstance(topic, Topic) else topic
    return {"partition_index": index, "error_code": code_of(missing), "error_message": str(missing)}


def _refused(code: ErrorCode, message: str) -> Fields:
    return {"error_code": code, "error_message": message, "responses": ()}


API = api(91, handle, versions=(0, 0))
