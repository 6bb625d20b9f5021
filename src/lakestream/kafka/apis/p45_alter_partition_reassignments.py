"""AlterPartitionReassignments, v0–v1.

Any broker serves any partition, so an assignment to brokers that live is done as soon as it is checked, and nothing is
ever under way that could be cancelled (NO_REASSIGNMENT_IN_PROGRESS).
"""

from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.access import Operation
from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.errors import code_of
from lakestream.kafka.wire.writing import Fields
from lakestream.metadata.topics.list import Topic


async def handle(context: Context, request: Any) -> Reply:
    try:
        context.streams.cluster.check(context.principal, Operation.ALTER)
    except LakestreamError as error:
        return {"error_code": code_of(error), "error_message": str(error), "responses": ()}
    found = await context.streams.find(context.principal, Operation.DESCRIBE, [topic.name for topic in request.topics])
    return {
        "allow_replication_factor_change": getattr(request, "allow_replication_factor_change", True),
        "error_code": ErrorCode.none,
        "error_message": None,
        "responses": [
            {
                "name": topic.name,
                "partitions": [
                    await _reassign(context, found[topic.name], topic.name, each) for each in topic.partitions
                ],
            }
            for topic in request.topics
        ],
    }


async def _reassign(context: Context, topic: object, name: str, asked: Any) -> Fields:
    index = asked.partition_index
    code, message = ErrorCode.none, None
    if not isinstance(topic, Topic) or not 0 <= index < topic.partitions:
        code, message = ErrorCode.unknown_topic_or_partition, f"there is no partition {index} of a topic {name}"
    elif asked.replicas is None:
        code, message = ErrorCode.no_reassignment_in_progress, "nothing is under way: reassignments are done at once"
    else:
        try:
            await context.streams.topics.check_assignments(context.principal, [asked.replicas], 1)
        except LakestreamError as error:
            code, message = code_of(error), str(error)
    return {"partition_index": index, "error_code": code, "error_message": message}


API = api(45, handle, versions=(0, 1))
